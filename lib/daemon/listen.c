#include "daemon/listen.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

static int fail(int fd, struct error *error, const char *where, int port, const char *why)
{
    if (fd >= 0)
        close(fd);
    bool in_use = errno == EADDRINUSE;
    return port >= 0 ? error_set(error, -1, "cannot listen on %s port %d: %s%s", where, port, why,
                           in_use ? "; another process listens there: choose another --port" : "")
                     : error_set(error, -1, "cannot listen on %s: %s%s", where, why,
                           in_use ? "; another process listens there: choose another path" : "");
}

static int open_unix(const char *path, struct error *error)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct stat st;
    const char *why = NULL;
    bool exists = lstat(path, &st) == 0;
    if (strlen(path) >= sizeof name.sun_path || *path == '\0')
        why = "the path of a socket must have 1 to 107 bytes";
    else if (exists && !S_ISSOCK(st.st_mode))
        why = "the path names a file that is not a socket: choose another path";
    if (why) {
        errno = 0;
        return fail(-1, error, path, -1, why);
    }
    strcpy(name.sun_path, path);
    if (exists) { /* a process that was killed leaves a socket file that refuses connections */
        int probe = socket(AF_UNIX, SOCKET_FLAGS, 0);
        if (probe >= 0 && connect(probe, (const struct sockaddr *)&name, sizeof name) != 0 &&
            errno == ECONNREFUSED)
            unlink(path);
        if (probe >= 0)
            close(probe);
    }
    int fd = socket(AF_UNIX, SOCKET_FLAGS, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof name) != 0 ||
        chmod(path, LISTEN_FILE_MODE) != 0 || listen(fd, LISTEN_BACKLOG) != 0)
        return fail(fd, error, path, -1, strerror(errno));
    return fd;
}

static int open_tcp(const char *host, int port, struct error *error)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE},
                    *list;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) {
        errno = 0;
        return fail(-1, error, host, port, gai_strerror(rc));
    }
    int on = 1, fd = socket(list->ai_family, SOCKET_FLAGS, 0);
    bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
              bind(fd, list->ai_addr, list->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0;
    int saved = errno;
    freeaddrinfo(list);
    errno = saved;
    return ok ? fd : fail(fd, error, host, port, strerror(errno));
}

int listen_open(const char *address, int port, struct error *error)
{
    char host[256];
    if (strncmp(address, "unix:", 5) == 0)
        return open_unix(address + 5, error);
    size_t n = strlen(address);
    if (n >= sizeof host) {
        errno = 0;
        return fail(-1, error, "the address given", port, "the host name is too long");
    }
    memcpy(host, address, n + 1);
    if (host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = '\0';
        return open_tcp(host + 1, port, error);
    }
    return open_tcp(host, port, error);
}

int listen_name(int fd, struct listen_name *out)
{
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } name = {.un = {.sun_family = AF_UNSPEC}};
    socklen_t len = sizeof name;
    memset(out, 0, sizeof *out);
    if (getsockname(fd, &name.any, &len) != 0)
        return -1;
    if (name.any.sa_family == AF_UNIX) {
        out->is_unix = true;
        snprintf(out->address, sizeof out->address, "%.107s", name.un.sun_path);
    } else if (name.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &name.in6.sin6_addr, out->address, sizeof out->address);
        out->port = ntohs(name.in6.sin6_port);
    } else {
        inet_ntop(AF_INET, &name.in.sin_addr, out->address, sizeof out->address);
        out->port = ntohs(name.in.sin_port);
    }
    return 0;
}

void listen_url(int fd, char *out, size_t size)
{
    struct listen_name name;
    const char *host = name.address;
    listen_name(fd, &name);
    if (name.is_unix) {
        snprintf(out, size, "unix:%s", host);
        return;
    }
    if (strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    else if (strcmp(host, "::") == 0)
        host = "::1";
    bool is_ipv6 = strchr(host, ':') != NULL;
    snprintf(out, size, "http://%s%s%s:%d", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", name.port);
}
