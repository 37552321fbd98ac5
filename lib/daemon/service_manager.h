/* service_manager: the protocol between a daemon and its service manager (systemd or `millrace up`). The protocol uses
 * environment variables and one socket, as described in sd_notify(3) and sd_listen_fds(3). The module does not use
 * libsystemd, because libsystemd would load six more libraries into each program.
 *
 * Without a service manager, service_notify and service_sockets do nothing. */
#ifndef MILLRACE_SERVICE_MANAGER_H
#define MILLRACE_SERVICE_MANAGER_H

#define SERVICE_FIRST_SOCKET 3 /* descriptor of the first socket that the service manager passes */

/* Flags of a message to the service manager. */
#define SERVICE_READY 1u    /* READY=1 */
#define SERVICE_STOPPING 2u /* STOPPING=1 */

/* Sends `what` (0 or the sum of constants above) and the line STATUS=text to NOTIFY_SOCKET. `fmt` NULL: no text. Never blocks.
 * While the manager's socket is full, a thread waits with one message: it has every `what` and the latest text. A message is
 * lost only if the manager ends, or if the thread cannot be created. May be called from any thread. */
void service_notify(unsigned what, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Returns the number of sockets that the service manager passed to this process, and makes each socket close-on-exec.
 * The descriptors begin at SERVICE_FIRST_SOCKET. A second call returns 0, because the first call removes the
 * variables. */
int service_sockets(void);

#endif
