/* listen: listening sockets, made the same way by a daemon for itself and by `millrace up` for its daemons.
 *
 * An address is "127.0.0.1", "::1", "[::1]", a host's name, or "unix:PATH". Sockets are non-blocking and
 * close-on-exec. A socket file that nobody listens on any more is replaced; one that somebody does is not. */
#ifndef MILLRACE_LISTEN_H
#define MILLRACE_LISTEN_H

#include <stdbool.h>
#include <stddef.h>

#define LISTEN_BACKLOG 4096
#define LISTEN_FILE_MODE 0660 /* of a socket's file, whatever the umask: the daemon's group may connect */

/* A listening socket, or -1 with the reason in error: what was tried, the system's words and what to change.
 * Port 0 takes a free one. */
int listen_open(const char *address, int port, char *error, size_t error_size);

/* What a listening socket is bound to. For TCP `address` is numeric; for a Unix socket `address` is its path
 * and port 0. */
struct listen_name {
    bool is_unix;
    char address[256];
    int port;
};
int listen_name(int fd, struct listen_name *out);
/* "http://127.0.0.1:8080", "http://[::1]:8080" or "unix:PATH"; a wildcard address becomes the loopback one. */
void listen_url(const struct listen_name *name, char *out, size_t size);

#endif
