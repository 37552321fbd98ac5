/* orphans: waits for daemons that outlive a killed `millrace up`. Such daemons get SIGTERM, but use ports and
 * directories until the last requests are answered.
 *
 * Every daemon inherits the locked file DIR/daemons.lock. The kernel releases the lock when the last daemon has
 * ended. Therefore a `millrace up` that gets the lock meets no daemon of an earlier run. The daemons do not inherit
 * DIR/lock, which shows whether `millrace up` runs. */
#ifndef MILLRACE_ORPHANS_H
#define MILLRACE_ORPHANS_H

#include "base/clock.h"
#include "config/config.h"

/* Waits until the daemons of an earlier run have ended. Returns the locked file, for supervisor_config.shared_fd,
 * or -1 with *status and the error. *status is EX_TEMPFAIL if daemons still run after `limit`. */
int orphans_wait(const char *data_dir, usec_t limit, int *status, struct error *error);

#endif
