#include "tools/run/supervisor.h"
#include "base/child_fork.h"
#include "base/log.h"
#include "base/random_id.h"
#include "daemon/loop_timer.h"
#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define CHILD_MAGIC 0x5c41d001
#define FIRST_PASSED_FD 3     /* SD_LISTEN_FDS_START */
#define STATUS_TEXT_MAX 4096  /* enough for a reason with paths, offsets and a command */
#define OUTPUT_LINE_MAX 65536 /* maximum bytes of a line; a longer line is forwarded in pieces */

struct child {
    unsigned magic;
    struct supervisor *owner;
    const struct supervisor_program *program;
    enum supervisor_state state;
    pid_t pid;
    bool was_ready;  /* the current process or an earlier one was ready */
    bool is_renewed; /* the program starts again after its end */
    usec_t ready_since, delay;
    char status_text[STATUS_TEXT_MAX];
    char last_end[32];
    unsigned restarts;
    struct loop_timer *timer;   /* restarts the program while RESTARTING, kills it while STOPPING */
    struct bufferevent *output; /* standard output and error of the running process */
};

struct supervisor {
    struct supervisor_config config;
    struct child *children;
    bool stopping;
    int status;
    int notify_fd;
    char notify_name[64]; /* name of the socket as in NOTIFY_SOCKET; "@..." is an abstract name */
    struct event *notify_event, *child_event;
};

const char *supervisor_state_name(enum supervisor_state s)
{
    static const char *const names[] = {
        "waiting", "starting", "ready", "restarting", "failed", "stopping", "stopped"};
    return names[s];
}

static size_t index_of(const struct child *c)
{
    return (size_t)(c - c->owner->children);
}

static void set_state(struct child *c, enum supervisor_state state)
{
    c->state = state;
    c->owner->config.on_change(index_of(c), c->owner->config.arg);
}

static void forward_lines(struct child *c, bool all)
{
    struct evbuffer *in = bufferevent_get_input(c->output);
    const struct supervisor_config *config = &c->owner->config;
    size_t len;
    char *line;
    while ((line = evbuffer_readln(in, &len, EVBUFFER_EOL_LF))) {
        config->on_line(index_of(c), bytes_of(line, len), config->arg);
        free(line);
    }
    len = evbuffer_get_length(in);
    if (len > 0 && (all || len >= OUTPUT_LINE_MAX)) {
        config->on_line(index_of(c), bytes_of(evbuffer_pullup(in, -1), len), config->arg);
        evbuffer_drain(in, len);
    }
}

static void on_output(struct bufferevent *bev, void *arg)
{
    (void)bev;
    forward_lines(arg, false);
}

/* Forwards the lines that are still in the pipe after SIGCHLD, then closes the pipe. */
static void close_output(struct child *c)
{
    char piece[8192];
    ssize_t n;
    if (!c->output)
        return;
    evbuffer_unfreeze(
        bufferevent_get_input(c->output), 0); /* the bufferevent has frozen the end of its input buffer */
    while ((n = read(bufferevent_getfd(c->output), piece, sizeof piece)) > 0)
        evbuffer_add(bufferevent_get_input(c->output), piece, (size_t)n);
    forward_lines(c, true);
    bufferevent_free(c->output);
    c->output = NULL;
}

static void on_output_end(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    (void)what;
    close_output(arg);
}

static void handle_end(struct child *c, const char *how, int code);

static void start_child(struct child *c)
{
    int ends[2];
    char pid[16];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) {
        handle_end(c, "pipe", errno);
        return;
    }
    fflush(NULL);
    c->status_text[0] = '\0';
    c->pid = child_fork();
    if (c->pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(EX_TEMPFAIL);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO); /* the next dup2 may overwrite ends[1], which is no longer needed */
        if (c->program->listen_fd >= 0) {
            dup2(c->program->listen_fd, FIRST_PASSED_FD);
            snprintf(pid, sizeof pid, "%d", (int)getpid());
            setenv("LISTEN_FDS", "1", 1);
            setenv("LISTEN_PID", pid, 1);
        }
        if (c->owner->config.shared_fd >= 0)
            fcntl(c->owner->config.shared_fd, F_SETFD, 0);
        setenv("NOTIFY_SOCKET", c->owner->notify_name, 1);
        execv(c->program->argv[0], c->program->argv);
        dprintf(STDERR_FILENO, "cannot run %s: %s\n", c->program->argv[0], strerror(errno));
        _exit(EX_CONFIG);
    }
    close(ends[1]);
    if (c->pid < 0) {
        c->pid = 0;
        close(ends[0]);
        handle_end(c, "fork", errno);
        return;
    }
    evutil_make_socket_nonblocking(ends[0]);
    c->output = bufferevent_socket_new(c->owner->config.base, ends[0], BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(c->output, on_output, NULL, on_output_end, c);
    bufferevent_enable(c->output, EV_READ);
    set_state(c, SUPERVISOR_STARTING);
}

void supervisor_start(struct supervisor *s)
{
    for (size_t i = 0; i < s->config.n && !s->stopping; i++) {
        struct child *c = &s->children[i];
        if (c->state == SUPERVISOR_WAITING)
            start_child(c);
        if (!c->was_ready && c->state != SUPERVISOR_FAILED && !c->program->optional)
            return;
    }
}

/* Stops the last program that still runs. After the end of this program, stop_next is called again. */
static void stop_next(struct supervisor *s)
{
    for (size_t i = s->config.n; i-- > 0;) {
        struct child *c = &s->children[i];
        if (c->state == SUPERVISOR_STOPPING)
            return;
        if (c->pid != 0) {
            set_state(c, SUPERVISOR_STOPPING);
            kill(c->pid, SIGTERM);
            loop_timer_set(c->timer, s->config.stop_timeout);
            return;
        }
        if (c->state != SUPERVISOR_STOPPED) {
            loop_timer_stop(c->timer);
            set_state(c, SUPERVISOR_STOPPED);
        }
    }
    s->config.on_stopped(s->status, s->config.arg);
}

void supervisor_stop(struct supervisor *s, int status)
{
    if (!s->stopping) {
        s->stopping = true;
        s->status = status;
        stop_next(s);
        return;
    }
    for (size_t i = 0; i < s->config.n; i++)
        if (s->children[i].state == SUPERVISOR_STOPPING && s->children[i].pid != 0)
            kill(s->children[i].pid, SIGKILL);
}

void supervisor_renew(struct supervisor *s, size_t program)
{
    struct child *c = &s->children[program];
    if (s->stopping || c->state == SUPERVISOR_FAILED || c->state == SUPERVISOR_WAITING || c->is_renewed)
        return;
    loop_timer_stop(c->timer);
    if (c->pid == 0) {
        start_child(c);
        return;
    }
    c->is_renewed = true;
    set_state(c, SUPERVISOR_STOPPING);
    kill(c->pid, SIGTERM);
    loop_timer_set(c->timer, s->config.stop_timeout);
}

static void on_timer(void *arg)
{
    struct child *c = arg;
    assert(c->magic == CHILD_MAGIC);
    if (c->state == SUPERVISOR_RESTARTING)
        start_child(c);
    else if (c->state == SUPERVISOR_STOPPING && c->pid != 0) {
        log_warn("killed: did not stop within stop_timeout", LOG_S("daemon", c->program->name));
        kill(c->pid, SIGKILL);
    }
}

/* Handles the end of a process. The status text of a failed program is kept, because the text contains the reason. */
static void handle_end(struct child *c, const char *how, int code)
{
    bool exited = strcmp(how, "exit") == 0;
    bool refused = exited && (code == EX_USAGE || code == EX_CONFIG) && !c->was_ready;
    const char *name = c->program->name;
    snprintf(c->last_end, sizeof c->last_end, "%s%s %d", how, exited ? " status" : "", code);
    if (c->owner->stopping) {
        loop_timer_stop(c->timer);
        set_state(c, SUPERVISOR_STOPPED);
        stop_next(c->owner);
    } else if (c->is_renewed) {
        loop_timer_stop(c->timer);
        c->is_renewed = false;
        start_child(c);
    } else if (refused && !c->program->optional) {
        log_error("cannot start: stopping the pipeline", LOG_S("daemon", name), LOG_I("status", code));
        set_state(c, SUPERVISOR_STOPPED);
        supervisor_stop(c->owner, code);
    } else if (refused || (exited && code == EX_DATAERR)) {
        log_error("daemon failed and will not be restarted; the other daemons keep running",
            LOG_S("daemon", name), LOG_S("error", c->status_text));
        set_state(c, SUPERVISOR_FAILED);
        supervisor_start(c->owner);
    } else {
        const struct supervisor_config *config = &c->owner->config;
        bool steady = c->ready_since != 0 && clock_monotonic() - c->ready_since >= SUPERVISOR_STEADY;
        c->delay = c->delay == 0 || steady ? config->delay_min : c->delay * 2;
        if (c->delay > config->delay_max)
            c->delay = config->delay_max;
        c->ready_since = 0;
        c->restarts++;
        set_state(c, SUPERVISOR_RESTARTING);
        loop_timer_set(c->timer, c->delay);
        log_warn("daemon ended; restarting", LOG_S("daemon", name), LOG_S("by", how), LOG_I("code", code),
            LOG_I("delay_ms", c->delay / USEC_PER_MSEC));
    }
}

/* Handles a message of sd_notify, which consists of lines NAME=VALUE. */
static void apply_message(struct supervisor *s, pid_t from, const char *text)
{
    struct child *c = s->children, *end = c + s->config.n;
    while (c < end && c->pid != from)
        c++;
    while (c < end && *text != '\0') {
        size_t n = strcspn(text, "\n");
        struct bytes line = bytes_of(text, n);
        if (bytes_equal_str(line, "READY=1") && c->state == SUPERVISOR_STARTING) {
            c->was_ready = true;
            c->ready_since = clock_monotonic();
            set_state(c, SUPERVISOR_READY);
            supervisor_start(s);
        } else if (bytes_starts_with(line, BYTES_LITERAL("STATUS="))) {
            snprintf(c->status_text, sizeof c->status_text, "%.*s", (int)n - 7, text + 7);
            s->config.on_change(index_of(c), s->config.arg);
        }
        text += n + (text[n] == '\n');
    }
}

static void on_notify(evutil_socket_t fd, short what, void *arg)
{
    char text[2 * STATUS_TEXT_MAX];
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    (void)what;
    for (;;) {
        struct iovec iov = {text, sizeof text - 1};
        struct msghdr msg = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0)
            return;
        text[n] = '\0';
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
            apply_message(arg, ((struct ucred *)(void *)CMSG_DATA(c))->pid, text);
    }
}

static void on_child_signal(evutil_socket_t fd, short what, void *arg)
{
    struct supervisor *s = arg;
    int status;
    (void)fd;
    (void)what;
    on_notify(s->notify_fd, EV_READ, s); /* handle messages before their senders are reaped */
    for (size_t i = 0; i < s->config.n; i++) {
        struct child *c = &s->children[i];
        if (c->pid == 0 || waitpid(c->pid, &status, WNOHANG) != c->pid)
            continue;
        c->pid = 0;
        close_output(c);
        if (WIFSIGNALED(status))
            handle_end(c, "signal", WTERMSIG(status));
        else
            handle_end(c, "exit", WEXITSTATUS(status));
    }
}

/* Opens a socket with a name in the abstract namespace, so that no file remains after a crash. */
static int open_notify_socket(struct supervisor *s)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char id[RANDOM_ID_SIZE];
    int on = 1;
    random_id(id);
    snprintf(s->notify_name, sizeof s->notify_name, "@millrace/%d/%s", (int)getpid(), id);
    size_t len = strlen(s->notify_name);
    memcpy(name.sun_path + 1, s->notify_name + 1, len - 1);
    s->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->notify_fd < 0 || setsockopt(s->notify_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
        return -1;
    return bind(
        s->notify_fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

struct supervisor *supervisor_new(const struct supervisor_config *config, char *error, size_t error_size)
{
    struct supervisor *s = mem_zalloc(sizeof *s);
    s->config = *config;
    s->children = mem_zalloc(config->n * sizeof *s->children);
    if (open_notify_socket(s) != 0) {
        snprintf(error, error_size, "cannot open the readiness socket: %s", strerror(errno));
        if (s->notify_fd > 0)
            close(s->notify_fd);
        free(s->children);
        free(s);
        return NULL;
    }
    for (size_t i = 0; i < config->n; i++) {
        s->children[i] = (struct child){.magic = CHILD_MAGIC, .owner = s, .program = &config->programs[i]};
        s->children[i].timer = loop_timer_new(config->base, on_timer, &s->children[i]);
    }
    s->notify_event = event_new(config->base, s->notify_fd, EV_READ | EV_PERSIST, on_notify, s);
    s->child_event = evsignal_new(config->base, SIGCHLD, on_child_signal, s);
    event_add(s->notify_event, NULL);
    event_add(s->child_event, NULL);
    return s;
}

void supervisor_free(struct supervisor **sp)
{
    struct supervisor *s = *sp;
    if (!s)
        return;
    for (size_t i = 0; i < s->config.n; i++) {
        assert(s->children[i].pid == 0);
        close_output(&s->children[i]);
        loop_timer_free(&s->children[i].timer);
    }
    event_free(s->notify_event);
    event_free(s->child_event);
    close(s->notify_fd);
    free(s->children);
    free(s);
    *sp = NULL;
}

struct supervisor_report supervisor_report(const struct supervisor *s, size_t program)
{
    const struct child *c = &s->children[program];
    return (struct supervisor_report){c->state, c->pid, c->restarts, c->last_end, c->status_text};
}
