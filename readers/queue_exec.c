#include "readers/command.h"
#include "base/log.h"
#include "readers/reader_program.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define INPUT_MAX ((size_t)16 << 20) /* input of a run in bytes, unless one message is longer */

struct executor {
    struct daemon *daemon;
    struct reader_program *program;
    struct command *command;
    bool framed;
    char *shell[4]; /* argv of the `command` setting */
    struct buf input;
    struct stats_counter *hidden;
};

static const struct option_row option_rows[] = {
    READER_OPTIONS("queue_exec", "500"),
    {.name = "command",
        .type = OPTION_STRING,
        .help = "command to run with /bin/sh -c for each batch (default: program and arguments after the "
                "options)"},
    READER_BATCH_OPTIONS("100", "run"),
    {.name = "format",
        .type = OPTION_CHOICE,
        .fallback = "lines",
        .choices = "lines|framed",
        .help = "format of standard input: lines (messages that contain an LF are buried), or framed: ID "
                "TRIES LENGTH, LF, the bytes, LF"},
    READER_MS("timeout", "60s", 10, 86400000, "maximum duration of a run; then its process group is killed"),
    {.name = "output_max",
        .type = OPTION_SIZE,
        .fallback = "4K",
        .max = 1 << 20,
        .unit = "bytes",
        .help = "maximum output of a run to log"},
    {.name = NULL},
};

static int check(struct options *o, struct config_error *error)
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

static void on_line(struct bytes line, void *arg)
{
    (void)arg;
    log_info("output", LOG_B("line", line));
}

static void on_end(const struct command_result *result, void *arg)
{
    struct executor *x = arg;
    struct queuereader *reader = reader_program_reader(x->program);
    static const char *const ways[] = {
        [COMMAND_EXITED] = "exit status",
        [COMMAND_SIGNALLED] = "killed by signal",
        [COMMAND_TIMED_OUT] = "timeout: exit status",
        [COMMAND_NOT_STARTED] = "cannot start: errno",
    };
    bool killed = result->end == COMMAND_TIMED_OUT && result->signalled;
    char why[256];
    snprintf(why, sizeof(why), "%s %d%s%.150s", killed ? "timeout: killed by signal" : ways[result->end],
        result->code, *result->last_line ? ": " : "", result->last_line);
    if (result->hidden) {
        stats_add(x->hidden, result->hidden);
        log_info("output not logged", LOG_U("bytes", result->hidden));
    }
    if (result->end == COMMAND_EXITED && result->code == EX_OK)
        queuereader_delivered(reader);
    else if (result->end == COMMAND_EXITED && result->code == EX_DATAERR)
        queuereader_refused(reader, why);
    else
        queuereader_faulted(reader, why, QUEUEREADER_BACKOFF);
}

static void deliver(struct queuereader *reader, const struct queuereader_run *run, void *arg)
{
    (void)reader;
    struct executor *x = arg;
    buf_clear(&x->input);
    for (size_t i = 0; i < run->n; i++) {
        const struct message *m = &run->messages[i];
        if (x->framed)
            buf_printf(&x->input, "%" PRIu64 " %" PRIu64 " %zu\n", m->id, m->tries, m->text.len);
        buf_append_bytes(&x->input, m->text);
        buf_append_char(&x->input, '\n');
    }
    command_run(x->command, buf_bytes(&x->input));
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct options *o = daemon_options(d);
    struct executor *x = mem_zalloc(sizeof(*x));
    *ctx = x;
    x->daemon = d;
    x->framed = strcmp(options_string(o, "format"), "framed") == 0;
    x->hidden = stats_counter(
        daemon_stats(d), "output_not_logged_bytes_total", NULL, "Output of commands beyond output_max");
    char **argv = x->shell;
    if (options_operands(o, &argv) == 0) {
        x->shell[0] = mem_strdup("/bin/sh");
        x->shell[1] = mem_strdup("-c");
        x->shell[2] = mem_strdup(options_string(o, "command"));
        argv = x->shell;
    }
    struct command_config command = {
        .base = daemon_base(d),
        .argv = argv,
        .timeout = options_int(o, "timeout") * USEC_PER_MSEC,
        .output_max = (size_t)options_int(o, "output_max"),
        .on_line = on_line,
        .on_end = on_end,
        .arg = x,
    };
    x->command = command_new(&command);
    struct queuereader_destination destination = {
        .deliver = deliver,
        .arg = x,
        .lines = !x->framed,
        .max_bytes = INPUT_MAX,
    };
    x->program = reader_program_new(d, &destination, error);
    return x->program ? 0 : EX_CONFIG;
}

static void drain(void *ctx)
{
    reader_program_drain(((struct executor *)ctx)->program);
}

static bool abort_drain(void *ctx)
{
    struct executor *x = ctx;
    return reader_program_cut_short(x->program, command_cut_short(x->command));
}

static void stop(void *ctx)
{
    struct executor *x = ctx;
    if (!x)
        return;
    command_free(&x->command);
    reader_program_free(&x->program);
    for (size_t i = 0; i < 3; i++)
        free(x->shell[i]);
    buf_free(&x->input);
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
