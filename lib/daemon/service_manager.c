#include "daemon/service_manager.h"

#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKETS_MAX 1024

struct address {
    struct sockaddr_un to;
    socklen_t len; /* 0: no service manager */
};

struct message {
    unsigned what;
    char *status; /* NULL: none */
};

/* The message that waits until the manager's socket has room. */
static struct {
    pthread_mutex_t lock;
    bool has_thread; /* a thread sends `message`, and then what was added to it meanwhile */
    struct address address;
    struct message message;
} waiting = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct address manager_address(void)
{
    struct address a = {.to.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof a.to.sun_path || (path[0] != '/' && path[0] != '@'))
        return a;
    memcpy(a.to.sun_path, path, len);
    if (path[0] == '@')
        a.to.sun_path[0] = '\0'; /* the name of an abstract socket begins with a NUL */
    a.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return a;
}

/* Returns false if the socket has no room for the message. */
static bool send_message(const struct address *a, const struct message *m, int flags)
{
    struct buf text = {0};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    if (m->what & SERVICE_READY)
        buf_append_str(&text, "READY=1\n");
    if (m->what & SERVICE_STOPPING)
        buf_append_str(&text, "STOPPING=1\n");
    if (m->status)
        buf_printf(&text, "STATUS=%s\n", m->status);
    ssize_t n = sendto(fd, text.ptr, text.len, MSG_NOSIGNAL | flags, (const struct sockaddr *)&a->to, a->len);
    bool is_full = n < 0 && errno == EAGAIN;
    close(fd);
    buf_free(&text);
    return !is_full;
}

static bool take_waiting(struct message *m)
{
    pthread_mutex_lock(&waiting.lock);
    *m = waiting.message;
    waiting.message = (struct message){0};
    waiting.has_thread = m->what || m->status;
    pthread_mutex_unlock(&waiting.lock);
    return m->what || m->status;
}

static void *send_waiting(void *arg)
{
    struct message m;
    while (take_waiting(&m)) {
        send_message(&waiting.address, &m, 0);
        free(m.status);
    }
    return arg;
}

static void start_thread(void)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    waiting.has_thread = pthread_create(&thread, NULL, send_waiting, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (waiting.has_thread)
        pthread_detach(thread);
}

void service_notify(unsigned what, const char *fmt, ...)
{
    struct address address = manager_address();
    struct message m = {.what = what};
    struct buf status = {0};
    va_list ap;
    if (address.len == 0)
        return;
    if (fmt) {
        va_start(ap, fmt);
        buf_vprintf(&status, fmt, ap);
        va_end(ap);
        m.status = bytes_dup(buf_bytes(&status));
        buf_free(&status);
    }
    pthread_mutex_lock(&waiting.lock);
    if (waiting.has_thread || !send_message(&address, &m, MSG_DONTWAIT)) {
        waiting.message.what |= m.what;
        if (m.status) {
            free(waiting.message.status);
            waiting.message.status = m.status;
            m.status = NULL;
        }
        if (!waiting.has_thread) {
            waiting.address = address;
            start_thread();
        }
    }
    pthread_mutex_unlock(&waiting.lock);
    free(m.status);
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
