/* handover: the listening sockets of `millrace up` stay open when the process replaces itself by a new version (SIGUSR2). The process keeps
 * its id. Clients that connect meanwhile wait in the backlog. */
#ifndef MILLRACE_HANDOVER_H
#define MILLRACE_HANDOVER_H

#include "tools/supervisor.h"

/* Executes `argv` with the sockets of the programs. Returns only if that fails, with errno; the sockets are then as before. */
void handover_exec(const struct supervisor_program *programs, size_t n, char **argv);
/* Returns the socket that the previous version had for the daemon; -1: none, or one of another port than `port` (0: any) or another path
 * than `address`. The caller owns it. */
int handover_take(const char *daemon, const char *address, int port);
/* Closes the sockets that were not taken. */
void handover_end(void);

#endif
