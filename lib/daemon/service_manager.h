/* service_manager: the protocol between a daemon and its service manager (systemd or `millrace up`). The protocol uses
 * environment variables and one socket, as described in sd_notify(3) and sd_listen_fds(3). The module does not use
 * libsystemd, because libsystemd would load six more libraries into each program.
 *
 * Without a service manager, service_notify and service_sockets do nothing. */
#ifndef MILLRACE_SERVICE_MANAGER_H
#define MILLRACE_SERVICE_MANAGER_H

#define SERVICE_FIRST_SOCKET 3 /* descriptor of the first socket that the service manager passes */

/* Sends lines NAME=VALUE, such as "READY=1\nSTATUS=ready", to NOTIFY_SOCKET. Does not block: a message that cannot be
 * sent is lost. */
void service_notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Returns the number of sockets that the service manager passed to this process, and makes each socket close-on-exec.
 * The descriptors begin at SERVICE_FIRST_SOCKET. A second call returns 0, because the first call removes the
 * variables. */
int service_sockets(void);

#endif
