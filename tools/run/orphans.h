/* orphans: the daemons that outlive a `millrace up` which was killed. They get SIGTERM then, but hold ports and directories until they have
 * answered their last requests.
 *
 * Every daemon inherits an open file with a lock on DIR/daemons.lock. The kernel releases the lock when the last of them has ended. So the next
 * start that has the lock meets no daemon of an earlier one. The lock DIR/lock belongs to `millrace up` alone and says whether one runs. */
#ifndef MILLRACE_ORPHANS_H
#define MILLRACE_ORPHANS_H

#include "base/clock.h"
#include "config/config.h"

/* Waits until the daemons of an earlier start have ended. Returns the locked file, for supervisor_config.shared_fd, or -1 with an exit status in
 * *status and the error: EX_TEMPFAIL if they still run after `limit`. */
int orphans_wait(const char *data_dir, usec_t limit, int *status, struct error *error);

#endif
