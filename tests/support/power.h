/* power: an io table over real files that can fail or stop at the k-th changing operation, and then lose unsynced
 * changes, as a power cut does. A process has one such table at a time. Descriptors opened before power_on must not
 * be used. Files without a name are not supported: power_cut.py rebuilds them from iolog's records. */
#ifndef MILLRACE_TEST_POWER_H
#define MILLRACE_TEST_POWER_H

#include <stdbool.h>

enum power_fault {
    POWER_NONE,
    POWER_CUT, /* a random part of the unsynced changes is lost */
    POWER_EIO, /* the operation fails; bytes of a failed sync are only synced if they are written again */
    POWER_NO_SPACE,
    POWER_SHORT,
    POWER_CUT_ALL,  /* everything unsynced is lost */
    POWER_CUT_TORN, /* only the second half of the last write is lost */
    POWER_FAULTS,
    POWER_KILL, /* the program is killed, and nothing is lost: see power_revive */
};

/* The fault happens at the `at`-th changing operation from now. After POWER_CUT and POWER_KILL, every operation
 * fails. */
void power_on(enum power_fault fault, unsigned at);
/* After POWER_KILL: begins the program's next life, which finds all changes of the life before. If the `at`-th
 * operation from now is a cut, unsynced changes of both lives can be lost. */
void power_revive(enum power_fault fault, unsigned at);
bool power_is_cut(void); /* also true if the program was killed */
/* Cuts the power now. All later operations fail, and all unsynced changes are lost. */
void power_cut_now(void);
unsigned power_operations(void);
/* Ends the use of the table. After a cut, a random part of the unsynced writes is kept, some of them torn, and the
 * first few of the unsynced changes of names. Otherwise all changes are kept. A name is synced with its directory. If
 * a directory's name is lost, all files in it are lost. */
void power_off(unsigned *seed);

#endif
