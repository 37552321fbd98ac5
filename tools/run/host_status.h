/* host_status: the part of a look (pipeline_status.h) at the archive, the clock and the disks of this host.
 *
 * This part follows the requests to the daemons. The problem of a disk then replaces the problems of daemons that more
 * space on this disk ends, and the clock is compared with the time until which counts are complete. */
#ifndef MILLRACE_HOST_STATUS_H
#define MILLRACE_HOST_STATUS_H

#include "tools/run/pipeline_status.h"

/* Sets the archive's and the disk's members of *s, and adds the problems. */
void host_status_look(struct pipeline_status *s);

#endif
