#include "bench/servers.h"
#include "base/clock.h"
#include "bench/talk.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RAW_ROOM 65536
#define RAW_FILE (64 << 20)
#define MAX_ARGS 24
#define START_TIME (10 * USEC_PER_SEC)

/* A reply larger than the socket takes at once is waited for: the client reads all the while. */
void server_send(int fd, struct bytes text)
{
    while (text.len > 0) {
        ssize_t n = send(fd, text.ptr, text.len, MSG_NOSIGNAL);
        if (n < 0 && (errno != EAGAIN || poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1) < 0))
            return;
        n = n > 0 ? n : 0;
        text = bytes_of(text.ptr + n, text.len - (size_t)n);
    }
}

struct raw {
    const struct server_wish *wish;
    size_t have[SERVER_FDS]; /* bytes of each connection's request so far */
    int file;                /* what is to be synced before its reply goes there; -1: nothing is */
    size_t at;               /* in the file */
    char *block;             /* of as many bytes as a turn of the loop can bring */
    int whole[SERVER_FDS];   /* connections whose replies wait for it */
    size_t n_whole;
};

static void raw_take(int fd, void *arg)
{
    static char room[RAW_ROOM];
    struct raw *r = arg;
    ssize_t n = recv(fd, room, sizeof room, 0);
    r->have[fd] += n > 0 ? (size_t)n : 0;
    if (n > 0 && r->have[fd] < r->wish->raw_request.len)
        return;
    r->have[fd] = 0;
    if (n <= 0)
        close(fd);
    else if (r->file < 0)
        server_send(fd, r->wish->raw_reply);
    else
        r->whole[r->n_whole++] = fd;
}

/* Writes all requests of the turn at once, syncs the file, and answers them. */
static void raw_end_turn(void *arg)
{
    struct raw *r = arg;
    size_t n = r->n_whole * r->wish->raw_request.len;
    if (n == 0)
        return;
    r->at = r->at + n > RAW_FILE ? 0 : r->at;
    if (pwrite(r->file, r->block, n, (off_t)r->at) != (ssize_t)n || fdatasync(r->file) != 0)
        _exit(1);
    r->at += n;
    for (size_t i = 0; i < r->n_whole; i++)
        server_send(r->whole[i], r->wish->raw_reply);
    r->n_whole = 0;
}

/* As a journal has it: a file of its whole size, written before. */
static void raw_open(struct raw *r)
{
    char path[320];
    r->file = -1;
    if (!r->wish->dir)
        return;
    snprintf(path, sizeof path, "%s/raw", r->wish->dir);
    r->block = mem_zalloc(RAW_FILE);
    r->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (r->file < 0 || pwrite(r->file, r->block, RAW_FILE, 0) != RAW_FILE || fdatasync(r->file) != 0)
        _exit(1);
}

static void loop_accept(int epoll, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    struct epoll_event e = {.events = EPOLLIN, .data = {.fd = fd}};
    if (fd < 0 || fd >= SERVER_FDS)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

void server_loop(int listener, void (*take)(int fd, void *arg), void (*end_turn)(void *arg), void *arg)
{
    struct epoll_event events[256], e = {.events = EPOLLIN, .data = {.fd = listener}};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                loop_accept(epoll, listener);
            else
                take(events[i].data.fd, arg);
        }
        if (end_turn)
            end_turn(arg);
    }
}

int server_listen(int *port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof name;
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof name) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&name, &len) != 0) {
        perror("bench: a free port");
        exit(1);
    }
    *port = ntohs(name.sin_port);
    return fd;
}

/* In the child: a server that ends with this program, on its processor, silent. */
static void become_server(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    load_pin(0);
    dup2(null, 1);
}

static void exec_queue(const struct server_wish *wish, int listener)
{
    char pid[16], data[320], policy[40];
    const char *argv[MAX_ARGS] = {wish->simplequeue, "--log-level=error", "--max-memory=4G"};
    snprintf(data, sizeof data, "--data-dir=%s", wish->dir ? wish->dir : "");
    snprintf(policy, sizeof policy, "--sync=%s", wish->sync ? wish->sync : "never");
    if (wish->dir) {
        argv[3] = data;
        argv[4] = policy;
    }
    dup2(listener, 3);
    fcntl(3, F_SETFD, 0);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", pid, 1);
    execv(argv[0], (char *const *)(uintptr_t)argv);
}

static void exec_peer(const struct server_wish *wish, int port)
{
    char text[16];
    const char *dir = wish->dir;
    snprintf(text, sizeof text, "%d", port);
    if (wish->kind == SERVER_REDIS)
        execlp("redis-server", "redis-server", "--port", text, "--bind", "127.0.0.1", "--save", "",
            "--appendonly", dir ? "yes" : "no", "--appendfsync", wish->sync ? "always" : "no", "--dir",
            dir ? dir : "/tmp", (char *)NULL);
    else if (wish->kind == SERVER_NATS)
        execlp("nats-server", "nats-server", "-a", "127.0.0.1", "-p", text, "-js", "-sd", dir, "-l",
            "/dev/null", (char *)NULL);
    else if (dir)
        execlp("beanstalkd", "beanstalkd", "-l", "127.0.0.1", "-p", text, "-b", dir, "-f", "0", (char *)NULL);
    else
        execlp("beanstalkd", "beanstalkd", "-l", "127.0.0.1", "-p", text, (char *)NULL);
}

static void run_child(const struct server_wish *wish, int listener, int port)
{
    become_server();
    static struct raw raw;
    if (wish->kind == SERVER_RAW) {
        raw.wish = wish;
        raw_open(&raw);
        server_loop(listener, raw_take, raw_end_turn, &raw);
    }
    if (wish->kind == SERVER_QUEUE)
        exec_queue(wish, listener);
    else
        exec_peer(wish, port);
    fprintf(
        stderr, "bench: cannot start it: %s (scripts/setup --bench installs the peers)\n", strerror(errno));
    _exit(1);
}

bool server_ask(const struct server *s, struct bytes request, struct buf *reply)
{
    int fd = load_connect(s->port);
    struct timeval patience = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    bool ok = fd >= 0 && send(fd, request.ptr, request.len, MSG_NOSIGNAL) == (ssize_t)request.len;
    size_t whole = 0;
    buf_clear(reply);
    while (ok && (whole == 0 || reply->len < whole)) {
        buf_reserve(reply, 4096);
        ssize_t n = recv(fd, reply->ptr + reply->len, reply->cap - reply->len, 0);
        reply->len += n > 0 ? (size_t)n : 0;
        whole = n > 0 ? talk_http_reply(buf_bytes(reply)) : LOAD_BAD;
        ok = whole != LOAD_BAD;
    }
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool is_ready(const struct server *s)
{
    struct buf reply = {0};
    bool ready = server_ask(s, BYTES_LITERAL("GET /health HTTP/1.1\r\nHost: bench\r\n\r\n"), &reply);
    buf_free(&reply);
    return ready;
}

static bool is_listening(const struct server *s)
{
    int fd = load_connect(s->port);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool wait_until_up(const struct server *s, const struct server_wish *wish)
{
    usec_t start = clock_monotonic();
    while (clock_monotonic() - start < START_TIME && waitpid(s->pid, NULL, WNOHANG) == 0) {
        if (wish->kind == SERVER_QUEUE ? is_ready(s) : is_listening(s))
            return true;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    return false;
}

/* JetStream stores what a stream asks for. */
static bool make_nats_stream(const struct server *s)
{
    static const char config[] =
        "{\"name\":\"B\",\"subjects\":[\"b.*\"],\"storage\":\"file\",\"num_replicas\":1}";
    struct buf text = {0};
    char reply[8192];
    size_t have = 0;
    int fd = load_connect(s->port);
    struct timeval patience = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    talk_nats_hello(0, &text);
    buf_printf(&text, "PUB $JS.API.STREAM.CREATE.B I.0 %zu\r\n%s\r\n", sizeof config - 1, config);
    bool ok = send(fd, text.ptr, text.len, MSG_NOSIGNAL) == (ssize_t)text.len, made = false;
    while (ok && !made && have < sizeof reply) {
        ssize_t n = recv(fd, reply + have, sizeof reply - have, 0);
        ok = n > 0;
        have += ok ? (size_t)n : 0;
        made = memmem(reply, have, "\"created\"", 9) != NULL;
    }
    close(fd);
    buf_free(&text);
    return made;
}

static const char *const names[] = {
    "the raw loop", "simplequeue", "redis-server", "beanstalkd", "nats-server"};

bool server_start(struct server *s, const struct server_wish *wish)
{
    struct server_wish own = *wish;
    *s = (struct server){0};
    if (wish->dir) {
        snprintf(s->dir, sizeof s->dir, "%s/data-XXXXXX", wish->dir);
        own.dir = mkdtemp(s->dir);
    }
    int listener = server_listen(&s->port);
    bool takes_listener = wish->kind <= SERVER_QUEUE;
    if (!takes_listener)
        close(listener);
    s->pid = fork();
    if (s->pid == 0)
        run_child(&own, listener, s->port);
    if (takes_listener)
        close(listener);
    if (wait_until_up(s, wish) && (wish->kind != SERVER_NATS || make_nats_stream(s)))
        return true;
    fprintf(stderr, "bench: %s does not come up\n", names[wish->kind]);
    server_stop(s);
    return false;
}

void server_stop(struct server *s)
{
    char command[340];
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    if (!s->dir[0])
        return;
    snprintf(command, sizeof command, "rm -rf '%s'", s->dir);
    (void)!system(command); /* NOLINT(cert-env33-c): our own directory's name */
}

double server_cpu_seconds(const struct server *s)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(s->pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

double server_resident_bytes(const struct server *s)
{
    char path[40];
    unsigned long size, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)s->pid);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%lu %lu", &size, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}
