/* queue_exec: runs a command once for each batch of messages, with the batch as standard input.
 *
 * 1. The command runs in a separate process group. After the timeout this group gets SIGTERM, and after the further
 *    time GRACE it gets SIGKILL. If this process dies, the command also gets SIGKILL.
 * 2. The command's standard output and standard error are the same pipe. queue_exec reads this pipe continuously, so
 *    that the command never blocks on output. queue_exec logs whole non-empty lines, at most output_max bytes per run,
 *    and only counts all other bytes.
 * 3. The command need not read its input. Input that the command does not read is dropped.
 * 4. A run ends when the command exits, even if another process still has the pipes open. Only one run is in progress
 *    at a time. */
#include "base/child_fork.h"
#include "base/errno_class.h"
#include "base/log.h"
#include "daemon/loop_timer.h"
#include "readers/reader_program.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define INPUT_MAX ((size_t)16 << 20) /* maximum input bytes of a run with several messages */
#define GRACE USEC_PER_SEC
#define OUTPUT_LINE_MAX 1000 /* maximum bytes of a logged line */

struct executor {
    struct daemon *daemon;
    struct reader_program *program;
    bool framed;
    char *shell[4]; /* argv of the `command` setting */
    char **argv;    /* execvp searches PATH for argv[0] */
    usec_t timeout;
    size_t output_max;
    struct stats_counter *hidden_total;
    /* the current run */
    pid_t pid; /* 0: no command is running */
    bool timed_out;
    int in, out;              /* queue_exec's ends of the pipes; -1: closed */
    struct dispatch_run *run; /* NULL: none */
    struct buf input, line;
    size_t written;
    uint64_t shown, hidden; /* bytes of output that were logged, and that were not logged */
    char last_line[OUTPUT_LINE_MAX + 1];
    struct event *child_event, *in_event, *out_event;
    struct loop_timer *timer;
};

static const struct option_row option_rows[] = {
    READER_OPTIONS("queue_exec", "500"),
    SETTING_STRING("command",
        "command to run with /bin/sh -c for each batch (default: program and arguments after the options)"),
    READER_BATCH_OPTIONS("100", "run"),
    SETTING_CHOICE("format", "lines", "lines|framed",
        "format of standard input: lines (messages that contain an LF are buried), or framed: ID TRIES "
        "LENGTH, LF, the bytes, LF"),
    READER_MS("timeout", "60s", 10, 86400000, "maximum duration of a run, after which queue_exec kills it"),
    SETTING_SIZE("output_max", "4K", 0, 1 << 20, "maximum output of a run that is logged"),
    {.name = NULL},
};

static int check(struct options *o, struct error *error)
{
    char **operands;
    bool given = options_operands(o, &operands) > 0;
    const char *command = options_string(o, "command");
    if (reader_program_check_batch(o, error) != 0)
        return -1;
    if (given != (command && *command))
        return 0;
    return options_refuse(o, "command", error, "%s",
        given ? "give one command, as a setting or after the options"
              : "required: --command='...', or -- PROGRAM ARGUMENT...");
}

/* Logs a line of output. `lf` is 1 if the line ended with an LF, otherwise 0. The LF counts as a byte of output. */
static void show_line(struct executor *x, size_t lf)
{
    struct bytes line = buf_bytes(&x->line);
    bool fits = x->shown + line.len + lf <= x->output_max;
    if (fits)
        x->shown += line.len + lf;
    else
        x->hidden += line.len + lf;
    if (!line.len)
        return;
    memcpy(x->last_line, line.ptr, line.len);
    x->last_line[line.len] = '\0';
    if (fits)
        log_info("output", LOG_B("line", line));
    buf_clear(&x->line);
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

/* Reads output of the command, at most the size of a pipe's buffer per call, so that much output does not block the
 * loop. Returns false at the end of the output. */
static bool read_output(struct executor *x)
{
    char piece[65536];
    ssize_t n = x->out >= 0 ? read(x->out, piece, sizeof piece) : 0;
    for (ssize_t i = 0; i < n; i++) {
        if (piece[i] == '\n')
            show_line(x, 1);
        else if (x->line.len < OUTPUT_LINE_MAX)
            buf_append_char(&x->line, piece[i]);
        else
            x->hidden++;
    }
    return n > 0 || (n < 0 && errno_is_retry(errno));
}

static void on_output(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct executor *x = arg;
    if (!read_output(x))
        close_end(&x->out, &x->out_event);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct executor *x = arg;
    ssize_t n = write(fd, x->input.ptr + x->written, x->input.len - x->written);
    if (n > 0)
        x->written += (size_t)n;
    if ((n < 0 && !errno_is_retry(errno)) || x->written == x->input.len)
        close_end(&x->in, &x->in_event);
}

/* Ends the run. `exited` is true if the command exited without a signal. */
static void end_run(struct executor *x, const char *how, int code, bool exited)
{
    struct dispatcher *dispatcher = reader_program_dispatcher(x->program);
    struct dispatch_run *run = x->run;
    char why[256];
    x->pid = 0;
    x->run = NULL;
    loop_timer_stop(x->timer);
    (void)read_output(x);
    show_line(x, 0);
    close_end(&x->in, &x->in_event);
    close_end(&x->out, &x->out_event);
    snprintf(why, sizeof why, "%s%s %d%s%.150s", x->timed_out ? "timeout: " : "", how, code,
        *x->last_line ? ": " : "", x->last_line);
    if (x->hidden) {
        stats_add(x->hidden_total, x->hidden);
        log_info("output not logged", LOG_U("bytes", x->hidden));
    }
    if (exited && code == EX_OK)
        dispatcher_delivered(dispatcher, run);
    else if (exited && code == EX_DATAERR)
        dispatcher_refused(dispatcher, run, why);
    else
        dispatcher_down(dispatcher, run, why, QUEUEREADER_BACKOFF);
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct executor *x = arg;
    int status;
    if (!x->pid || waitpid(x->pid, &status, WNOHANG) != x->pid)
        return;
    if (x->timed_out)
        kill(-x->pid, SIGKILL); /* kills processes of the group that have ignored SIGTERM */
    if (WIFSIGNALED(status))
        end_run(x, "killed by signal", WTERMSIG(status), false);
    else
        end_run(x, "exit status", WEXITSTATUS(status), !x->timed_out);
}

static void on_timer(void *arg)
{
    struct executor *x = arg;
    if (!x->pid)
        return;
    kill(-x->pid, x->timed_out ? SIGKILL : SIGTERM);
    x->timed_out = true;
    loop_timer_set(x->timer, GRACE);
}

/* Executes the command in the child process. The parent has only one thread, so the child may call any function. */
static void become(const struct executor *x, int in, int out, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execvp(x->argv[0], x->argv);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", x->argv[0], strerror(errno));
    _exit(127);
}

/* Starts the command. Returns false with errno if the command cannot be started. */
static bool start_run(struct executor *x)
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
    x->pid = child_fork();
    if (x->pid == 0)
        become(x, in[0], out[1], parent);
    int error = errno;
    close(in[0]);
    close(out[1]);
    x->in = in[1];
    x->out = out[0];
    errno = error;
    if (x->pid < 0)
        return false;
    setpgid(x->pid, x->pid); /* the child also calls setpgid, because either process may run first */
    x->in_event = event_new(daemon_base(x->daemon), x->in, EV_WRITE | EV_PERSIST, on_writable, x);
    x->out_event = event_new(daemon_base(x->daemon), x->out, EV_READ | EV_PERSIST, on_output, x);
    event_add(x->in_event, NULL);
    event_add(x->out_event, NULL);
    return true;
}

static void deliver(struct dispatcher *dispatcher, struct dispatch_run *run, void *arg)
{
    (void)dispatcher;
    struct executor *x = arg;
    assert(!x->pid && !x->run);
    x->run = run;
    buf_clear(&x->input);
    for (size_t i = 0; i < run->n; i++) {
        const struct message *m = run->messages[i];
        if (x->framed)
            buf_printf(&x->input, "%" PRIu64 " %" PRIu64 " %zu\n", m->id, m->tries, m->text.len);
        buf_append_bytes(&x->input, m->text);
        buf_append_char(&x->input, '\n');
    }
    buf_clear(&x->line);
    x->written = x->shown = 0;
    x->hidden = 0;
    x->last_line[0] = '\0';
    x->timed_out = false;
    if (start_run(x))
        loop_timer_set(x->timer, x->timeout);
    else
        end_run(x, "cannot start: errno", errno, false);
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct executor *x = mem_zalloc(sizeof *x);
    *ctx = x;
    x->daemon = d;
    x->framed = strcmp(options_string(o, "format"), "framed") == 0;
    x->hidden_total = stats_counter(
        daemon_stats(d), "output_not_logged_bytes_total", NULL, "Output of commands beyond output_max");
    if (options_operands(o, &x->argv) == 0) {
        x->shell[0] = mem_strdup("/bin/sh");
        x->shell[1] = mem_strdup("-c");
        x->shell[2] = mem_strdup(options_string(o, "command"));
        x->argv = x->shell;
    }
    x->timeout = options_int(o, "timeout") * USEC_PER_MSEC;
    x->output_max = (size_t)options_int(o, "output_max");
    x->in = x->out = -1;
    x->child_event = evsignal_new(daemon_base(d), SIGCHLD, on_child, x);
    x->timer = loop_timer_new(daemon_base(d), on_timer, x);
    event_add(x->child_event, NULL);
    struct dispatcher_config config = {
        .lines = !x->framed,
        .max_bytes = INPUT_MAX,
        .parallel = 1,
        .order = DISPATCH_IN_ORDER,
        .deliver = deliver,
        .arg = x,
    };
    x->program = reader_program_new_dispatcher(d, &config, error);
    return x->program ? 0 : EX_CONFIG;
}

static void drain(void *ctx)
{
    reader_program_drain(((struct executor *)ctx)->program);
}

static bool abort_drain(void *ctx)
{
    struct executor *x = ctx;
    if (x->pid && !x->timed_out)
        loop_timer_set(x->timer, 0); /* ends the run as the timeout does */
    return reader_program_cut_short(x->program, x->pid != 0);
}

static void stop(void *ctx)
{
    struct executor *x = ctx;
    if (!x)
        return;
    if (x->pid > 0) {
        kill(-x->pid, SIGKILL);
        waitpid(x->pid, NULL, 0);
    }
    if (x->run)
        dispatcher_again(reader_program_dispatcher(x->program), x->run);
    close_end(&x->in, &x->in_event);
    close_end(&x->out, &x->out_event);
    event_free(x->child_event);
    loop_timer_free(&x->timer);
    reader_program_free(&x->program);
    for (size_t i = 0; i < 3; i++)
        free(x->shell[i]);
    buf_free(&x->input);
    buf_free(&x->line);
    free(x);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "queue_exec",
        .summary = "runs a command for each batch of messages of a queue",
        .operands = "[-- PROGRAM ARGUMENT...]",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .abort_drain = abort_drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
