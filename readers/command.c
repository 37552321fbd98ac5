#include "readers/command.h"
#include "base/errno_class.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct command {
    struct command_config config;
    pid_t pid; /* 0: none */
    bool timed_out;
    int in, out; /* this process's ends of the pipes; -1: closed */
    struct buf input, line;
    size_t written;
    uint64_t shown, hidden;
    char last_line[COMMAND_LINE_MAX + 1];
    struct event *child_event, *in_event, *out_event, *timer;
};

/* `lf` is 1 if an LF ended the line, else 0; it counts as a byte of output. */
static void show_line(struct command *c, size_t lf)
{
    struct bytes line = buf_bytes(&c->line);
    bool fits = c->shown + line.len + lf <= c->config.output_max;
    if (fits)
        c->shown += line.len + lf;
    else
        c->hidden += line.len + lf;
    if (!line.len)
        return;
    memcpy(c->last_line, line.ptr, line.len);
    c->last_line[line.len] = '\0';
    if (fits)
        c->config.on_line(line, c->config.arg);
    buf_clear(&c->line);
}

static void close_end(int *fd, struct event **event)
{
    if (*event)
        event_free(*event);
    if (*fd >= 0)
        close(*fd);
    *event = NULL;
    *fd = -1;
}

/* Reads one pipe buffer at most, so that a flood of output does not block the loop. Returns false at the end of the output. */
static bool read_output(struct command *c)
{
    char piece[65536];
    ssize_t n = c->out >= 0 ? read(c->out, piece, sizeof(piece)) : 0;
    for (ssize_t i = 0; i < n; i++) {
        if (piece[i] == '\n')
            show_line(c, 1);
        else if (c->line.len < COMMAND_LINE_MAX)
            buf_append_char(&c->line, piece[i]);
        else
            c->hidden++;
    }
    return n > 0 || (n < 0 && errno_is_retry(errno));
}

static void on_output(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct command *c = arg;
    if (!read_output(c))
        close_end(&c->out, &c->out_event);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct command *c = arg;
    ssize_t n = write(fd, c->input.ptr + c->written, c->input.len - c->written);
    if (n > 0)
        c->written += (size_t)n;
    if ((n < 0 && !errno_is_retry(errno)) || c->written == c->input.len)
        close_end(&c->in, &c->in_event);
}

static void end(struct command *c, struct command_result result)
{
    c->pid = 0;
    event_del(c->timer);
    (void)read_output(c);
    show_line(c, 0);
    close_end(&c->in, &c->in_event);
    close_end(&c->out, &c->out_event);
    result.last_line = c->last_line;
    result.hidden = c->hidden;
    c->config.on_end(&result, c->config.arg);
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct command *c = arg;
    int status;
    if (!c->pid || waitpid(c->pid, &status, WNOHANG) != c->pid)
        return;
    if (c->timed_out)
        kill(-c->pid, SIGKILL); /* processes of its group that ignored SIGTERM */
    struct command_result result = {.end = WIFSIGNALED(status) ? COMMAND_SIGNALLED : COMMAND_EXITED,
        .signalled = WIFSIGNALED(status),
        .code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)};
    if (c->timed_out)
        result.end = COMMAND_TIMED_OUT;
    end(c, result);
}

static void set_timer(struct command *c, usec_t after)
{
    struct timeval tv = {(time_t)(after / USEC_PER_SEC), (suseconds_t)(after % USEC_PER_SEC)};
    event_add(c->timer, &tv);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct command *c = arg;
    if (!c->pid)
        return;
    kill(-c->pid, c->timed_out ? SIGKILL : SIGTERM);
    c->timed_out = true;
    set_timer(c, COMMAND_GRACE);
}

/* Runs in the child. The parent has only one thread, so the child may call any function. */
static void become(const struct command *c, int in, int out, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execvp(c->config.argv[0], c->config.argv);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", c->config.argv[0], strerror(errno));
    _exit(127);
}

/* Returns false with errno if the program cannot be started. */
static bool start(struct command *c)
{
    int in[2], out[2];
    pid_t parent = getpid();
    if (pipe2(in, O_CLOEXEC) != 0)
        return false;
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    c->pid = fork();
    if (c->pid == 0)
        become(c, in[0], out[1], parent);
    int error = errno;
    close(in[0]);
    close(out[1]);
    c->in = in[1];
    c->out = out[0];
    errno = error;
    if (c->pid < 0)
        return false;
    setpgid(c->pid, c->pid); /* parent and child race to do this */
    c->in_event = event_new(c->config.base, c->in, EV_WRITE | EV_PERSIST, on_writable, c);
    c->out_event = event_new(c->config.base, c->out, EV_READ | EV_PERSIST, on_output, c);
    event_add(c->in_event, NULL);
    event_add(c->out_event, NULL);
    return true;
}

void command_run(struct command *c, struct bytes input)
{
    assert(!c->pid);
    buf_clear(&c->input);
    buf_append_bytes(&c->input, input);
    buf_clear(&c->line);
    c->written = c->shown = 0;
    c->hidden = 0;
    c->last_line[0] = '\0';
    c->timed_out = false;
    if (start(c))
        set_timer(c, c->config.timeout);
    else
        end(c, (struct command_result){.end = COMMAND_NOT_STARTED, .code = errno});
}

bool command_cut_short(struct command *c)
{
    if (c->pid && !c->timed_out)
        set_timer(c, 0);
    return c->pid != 0;
}

struct command *command_new(const struct command_config *config)
{
    struct command *c = mem_zalloc(sizeof(*c));
    c->config = *config;
    c->in = c->out = -1;
    c->child_event = evsignal_new(config->base, SIGCHLD, on_child, c);
    c->timer = evtimer_new(config->base, on_timer, c);
    event_add(c->child_event, NULL);
    return c;
}

void command_free(struct command **cp)
{
    struct command *c = *cp;
    if (!c)
        return;
    if (c->pid > 0) {
        kill(-c->pid, SIGKILL);
        waitpid(c->pid, NULL, 0);
    }
    close_end(&c->in, &c->in_event);
    close_end(&c->out, &c->out_event);
    event_free(c->child_event);
    event_free(c->timer);
    buf_free(&c->input);
    buf_free(&c->line);
    free(c);
    *cp = NULL;
}
