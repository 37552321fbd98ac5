/* handover: keeps the listening sockets of `millrace up` open when SIGUSR2 replaces the program by a new version. The
 * process id does not change. Clients that connect during the replacement wait in the backlog. */
#ifndef MILLRACE_HANDOVER_H
#define MILLRACE_HANDOVER_H

#include "tools/run/supervisor.h"

/* Executes `argv`, which inherits the sockets of the programs. Returns only after a failure, with errno and
 * unchanged sockets. */
void handover_exec(const struct supervisor_program *programs, size_t n, char **argv);
/* Returns the daemon's socket from the previous version; the caller owns the socket. Returns -1 if no socket was
 * passed, or if the socket has another port than `port` (0: any port) or another path than `address`. */
int handover_take(const char *daemon, const char *address, int port);
/* Closes the passed sockets that handover_take has not returned. */
void handover_end(void);

#endif
