/* handover: the listening sockets of `millrace up` stay open when the process replaces itself by a new version (SIGUSR2). The process keeps
 * its id. Clients that connect meanwhile wait in the backlog. */
#ifndef MILLRACE_HANDOVER_H
#define MILLRACE_HANDOVER_H

#include "tools/run/supervisor.h"

/* Executes `argv` with the sockets of the programs. Returns only if that fails, with errno; the sockets are then as before. */
void handover_exec(const struct supervisor_program *programs, size_t n, char **argv);
/* Returns the daemon's socket from the previous version, which the caller then owns. Returns -1 if there is none, or
 * if its port differs from `port` (0: any port) or its path from `address`. */
int handover_take(const char *daemon, const char *address, int port);
/* Closes the sockets that were not taken. */
void handover_end(void);

#endif
