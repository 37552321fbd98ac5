/* http_socket: TCP options of server and client. */
#ifndef MILLRACE_HTTP_SOCKET_H
#define MILLRACE_HTTP_SOCKET_H

/* Sets TCP_NODELAY and enables keepalive probes. The probes detect a dead peer within about two minutes, even on an
 * idle connection such as a subscription. Does nothing on a Unix socket. */
void http_socket_configure(int fd);

#endif
