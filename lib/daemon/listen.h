/* listen: opens listening sockets, for daemons and for `millrace up`.
 *
 * An address is "127.0.0.1", "::1", "[::1]", a host name, or "unix:PATH". Sockets are non-blocking and close-on-exec.
 * If a killed process left a socket file at the path, a new socket replaces the file. */
#ifndef MILLRACE_LISTEN_H
#define MILLRACE_LISTEN_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define LISTEN_BACKLOG 4096
#define LISTEN_FILE_MODE 0660 /* mode of a socket file, whatever the umask: the daemon's group may connect */

/* Returns a listening socket, or -1 with errno and the error. Port 0 selects a free port. For EADDRINUSE the error names the process that
 * listens there, if this user may see it, and the caller appends the setting to change. */
int listen_open(const char *address, int port, struct error *error);

/* The address of a listening socket: a numeric IP address and a port for TCP, or the path of a Unix socket and port
 * 0. */
struct listen_name {
    bool is_unix;
    char address[256];
    int port;
};
int listen_name(int fd, struct listen_name *out);
/* "http://127.0.0.1:8080", "http://[::1]:8080" or "unix:PATH". A wildcard address becomes the loopback address. */
void listen_url(int fd, char *out, size_t size);

#endif
