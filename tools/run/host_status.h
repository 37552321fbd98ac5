/* host_status: examines the archive, the clock and the disks of this host, as a part of pipeline_status.h.
 *
 * This part follows the requests to the daemons. The problem of a disk then replaces the problems of daemons that more
 * space on this disk ends, and the clock is compared with the time until which counts are complete. */
#ifndef MILLRACE_HOST_STATUS_H
#define MILLRACE_HOST_STATUS_H

#include "tools/run/pipeline_status.h"

/* Sets the archive's and the disk's members of *s, and adds the problems. */
void host_status_look(struct pipeline_status *s);

#endif
