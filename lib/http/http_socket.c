#include "http/http_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define PROBE_AFTER 60 /* seconds of silence */
#define PROBE_EVERY 15
#define PROBES 4

static void set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

void http_socket_configure(int fd)
{
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}
