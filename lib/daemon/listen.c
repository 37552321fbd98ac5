#include "daemon/listen.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

/* Returns the inode of the socket that listens at the port, or 0 if no socket does. */
static unsigned long listening_inode(int port)
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    unsigned long inode = 0, found = 0;
    unsigned at, state;
    char line[512];
    for (size_t i = 0; i < 2; i++) {
        FILE *f = fopen(tables[i], "re");
        while (f && !found && fgets(line, sizeof line, f))
            /* NOLINTNEXTLINE(cert-err34-c): the kernel writes valid numbers */
            if (sscanf(line, " %*u: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*u %*u %lu", &at, &state,
                    &inode) == 3 &&
                (int)at == port && state == TCP_LISTEN)
                found = inode;
        if (f)
            fclose(f);
    }
    return found;
}

static bool has_socket(const char *pid, const char *socket)
{
    char path[300], target[64];
    const struct dirent *e;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    DIR *d = opendir(path);
    while (d && !found && (e = readdir(d))) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        found = strcmp(target, socket) == 0;
    }
    if (d)
        closedir(d);
    return found;
}

/* Writes "process 123 (nginx)", or "another process" if this user may not see the process. */
static void name_listener(int port, char *out, size_t size)
{
    char socket[40], path[64], name[32] = "";
    const struct dirent *e;
    unsigned long inode = listening_inode(port);
    snprintf(socket, sizeof socket, "socket:[%lu]", inode);
    snprintf(out, size, "another process");
    DIR *d = inode > 0 ? opendir("/proc") : NULL;
    while (d && (e = readdir(d))) {
        if (!isdigit((unsigned char)e->d_name[0]) || !has_socket(e->d_name, socket))
            continue;
        snprintf(path, sizeof path, "/proc/%.16s/comm", e->d_name);
        FILE *f = fopen(path, "re");
        if (f && fgets(name, sizeof name, f))
            name[strcspn(name, "\n")] = '\0';
        if (f)
            fclose(f);
        snprintf(out, size, "process %.16s (%s)", e->d_name, name);
        break;
    }
    if (d)
        closedir(d);
}

static int fail(int fd, struct error *error, const char *where, int port, const char *why)
{
    int saved = errno;
    char listener[80] = "another process";
    if (fd >= 0)
        close(fd);
    if (saved == EADDRINUSE && port > 0)
        name_listener(port, listener, sizeof listener);
    bool in_use = saved == EADDRINUSE;
    if (port >= 0)
        error_set(error, -1, "cannot listen on %s port %d: %s%s%s%s", where, port, why, in_use ? "; " : "",
            in_use ? listener : "", in_use ? " listens there" : "");
    else
        error_set(error, -1, "cannot listen on %s: %s%s", where, why,
            in_use ? "; another process listens there: choose another path" : "");
    errno = saved;
    return -1;
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
    if (exists) { /* the socket file of a killed process refuses connections */
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
