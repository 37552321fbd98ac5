/* power: an io table over real files that can fail or stop at the k-th changing operation, and then take away what
 * was not synced, as a power cut does. One at a time a process. Not for fds opened before power_on. */
#ifndef MILLRACE_TEST_POWER_H
#define MILLRACE_TEST_POWER_H

#include <stdbool.h>

enum power_fault { POWER_NONE, POWER_CUT, POWER_EIO, POWER_NO_SPACE, POWER_SHORT };

/* The `at`-th changing operation from now meets the fault; after POWER_CUT every operation fails. */
void power_on(enum power_fault fault, unsigned at);
bool power_is_cut(void);
unsigned power_operations(void);
/* Ends it. After a cut: of the unsynced writes a random part is kept, some torn; of the unsynced names a
 * random first part. Otherwise all is kept. */
void power_off(unsigned *seed);

#endif
