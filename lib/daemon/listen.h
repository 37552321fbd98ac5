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
#define LISTEN_FILE_MODE                                                                                     \
    0660 /* mode of a socket file under any umask, so that the daemon's group may connect */

/* Returns a listening socket, or -1 with errno and the error. Port 0 selects a free port. If errno is EADDRINUSE, the
 * error names the process that listens at the address, unless this user may not see the process. The caller appends
 * the setting to change. */
int listen_open(const char *address, int port, struct error *error);

/* The address of a listening socket. For TCP, `address` is a numeric IP address. For a Unix socket, `address` is the
 * path and `port` is 0. */
struct listen_name {
    bool is_unix;
    char address[256];
    int port;
};
int listen_name(int fd, struct listen_name *out);
/* Writes the socket's URL: "http://127.0.0.1:8080", "http://[::1]:8080" or "unix:PATH". For a wildcard address, the URL
 * contains the loopback address. */
void listen_url(int fd, char *out, size_t size);

#endif
