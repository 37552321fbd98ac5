/* listen: opens listening sockets, for daemons and for `millrace up`.
 *
 * An address is "127.0.0.1", "::1", "[::1]", a host name, or "unix:PATH". Sockets are non-blocking and close-on-exec. An abandoned
 * socket file is replaced. */
#ifndef MILLRACE_LISTEN_H
#define MILLRACE_LISTEN_H

#include <stdbool.h>
#include <stddef.h>

#define LISTEN_BACKLOG 4096
#define LISTEN_FILE_MODE 0660 /* of a socket file, regardless of the umask: the daemon's group may connect */

/* A listening socket, or -1 with the error and a remedy. Port 0 selects a free port. */
int listen_open(const char *address, int port, char *error, size_t error_size);

/* The address of a listening socket: numeric for TCP, the path for a Unix socket, whose port is 0. */
struct listen_name {
    bool is_unix;
    char address[256];
    int port;
};
int listen_name(int fd, struct listen_name *out);
/* "http://127.0.0.1:8080", "http://[::1]:8080" or "unix:PATH". A wildcard address becomes the loopback address. */
void listen_url(int fd, char *out, size_t size);

#endif
