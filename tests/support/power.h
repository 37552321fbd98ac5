/* power: an io table over real files that can fail or stop at the k-th changing operation, and then take away what
 * was not synced, as a power cut does. One at a time a process. Not for fds opened before power_on. It has no files
 * without a name: what those leave is rebuilt from iolog's records. */
#ifndef MILLRACE_TEST_POWER_H
#define MILLRACE_TEST_POWER_H

#include <stdbool.h>

enum power_fault {
    POWER_NONE,
    POWER_CUT, /* what is lost is random */
    POWER_EIO, /* and what a failed sync did not sync, no later sync does, unless it is written again */
    POWER_NO_SPACE,
    POWER_SHORT,
    POWER_CUT_ALL,  /* everything unsynced is lost */
    POWER_CUT_TORN, /* nothing but the second half of the last write */
    POWER_FAULTS,
    POWER_KILL, /* the program is killed, and nothing is lost: see power_revive */
};

/* The `at`-th changing operation from now meets the fault; after POWER_CUT and POWER_KILL every operation fails. */
void power_on(enum power_fault fault, unsigned at);
/* After POWER_KILL: the program's next life begins, and finds all that the one before did. What neither synced is still to
 * be lost when the `at`-th operation from now is a cut. */
void power_revive(enum power_fault fault, unsigned at);
bool power_is_cut(void); /* or the program killed */
/* The power goes now: whatever the program still does fails. What is not synced is lost, all of it. */
void power_cut_now(void);
unsigned power_operations(void);
/* Ends it. After a cut: of the unsynced writes a random part is kept, some torn; of the unsynced names a
 * random first part. Otherwise all is kept. A name is synced with its directory; with a directory whose name is lost goes all
 * that is in it. */
void power_off(unsigned *seed);

#endif
