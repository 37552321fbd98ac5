/* service_manager: what a daemon and systemd, or `millrace up`, say to each other. Both sides are environment variables and one socket,
 * as sd_notify(3) and sd_listen_fds(3) describe them. libsystemd itself would load six more libraries into each program.
 *
 * Without a service manager both functions do nothing. */
#ifndef MILLRACE_SERVICE_MANAGER_H
#define MILLRACE_SERVICE_MANAGER_H

#define SERVICE_FIRST_SOCKET 3 /* the descriptor of the first socket that was passed */

/* Sends lines NAME=VALUE, such as "READY=1\nSTATUS=ready", to NOTIFY_SOCKET. Does not block; a message that cannot be sent is lost. */
void service_notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The number of sockets that the service manager passed to this process, from SERVICE_FIRST_SOCKET on. They are closed on exec. The
 * variables are removed, so a second call returns 0. */
int service_sockets(void);

#endif
