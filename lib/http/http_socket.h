/* http_socket: sets the TCP options of connections, for server and client. */
#ifndef MILLRACE_HTTP_SOCKET_H
#define MILLRACE_HTTP_SOCKET_H

/* Sets TCP_NODELAY and enables keepalive probes. The probes detect a dead peer within about two minutes, even on an
 * idle connection such as a subscription. On a Unix socket, these options have no effect. */
void http_socket_configure(int fd);

#endif
