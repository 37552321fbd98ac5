/* http_socket: how server and client set up a TCP connection. */
#ifndef MILLRACE_HTTP_SOCKET_H
#define MILLRACE_HTTP_SOCKET_H

/* No delay for small replies (without it those over 16 KB stalled 40 ms), and probes, so that a peer whose machine is
 * gone is noticed within about two minutes by a connection that has nothing to send: a subscriber, a long poll. On a
 * Unix socket nothing happens. */
void http_socket_configure(int fd);

#endif
