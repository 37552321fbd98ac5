#include "daemon/service_manager.h"

#include "base/bytes.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKETS_MAX 1024

static void send_to_manager(struct bytes lines)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, len);
    if (path[0] == '@')
        to.sun_path[0] = '\0'; /* the name of an abstract socket begins with a NUL */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, lines.ptr, lines.len, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to,
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    close(fd);
}

void service_notify(const char *fmt, ...)
{
    struct buf lines = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&lines, fmt, ap);
    va_end(ap);
    send_to_manager(buf_bytes(&lines));
    buf_free(&lines);
}

/* Returns the variable's number, or 0 if the variable is not set or its value is not a number from 1 to `most`. */
static long take_number(const char *name, long most)
{
    const char *text = getenv(name);
    char *end = NULL;
    long n = text ? strtol(text, &end, 10) : 0;
    bool ok = text && end != text && *end == '\0' && n > 0 && n <= most;
    unsetenv(name);
    return ok ? n : 0;
}

int service_sockets(void)
{
    long pid = take_number("LISTEN_PID", INT32_MAX), n = take_number("LISTEN_FDS", SOCKETS_MAX);
    unsetenv("LISTEN_FDNAMES");
    if (pid != getpid())
        return 0;
    for (int fd = SERVICE_FIRST_SOCKET; fd < SERVICE_FIRST_SOCKET + n; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
            return 0;
    return (int)n;
}
