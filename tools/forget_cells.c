#include "tools/forget_cells.h"

#include "base/amount.h"
#include "base/bit_ranges.h"
#include "base/rfc3339.h"
#include "json/json_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define POLL (100 * USEC_PER_MSEC)
#define DEFAULT_CONFIG "/etc/millrace/millrace.conf"

/* The messages that nats_to_pubsub of a cell has copied. */
struct copies {
    const struct config_section *cell;
    usec_t begun, end;             /* monotonic times of the wait */
    char stream[NAME_LEN_MAX + 1]; /* of JetStream */
    uint64_t partitions;
    int64_t max_age; /* of the messages in JetStream, in seconds; 0: not known */
    bool is_done;    /* all messages from before the wait are copied */
    struct error why;
};

static void ask_copier(struct copies *c)
{
    char partitions[BIT_RANGES_TEXT] = "";
    struct bytes bad;
    double waited = (double)(clock_monotonic() - c->begun) / USEC_PER_SEC;
    struct json_doc *d = tool_ask_cell(c->cell, "nats_to_pubsub", "/stats?format=json", &c->why);
    struct json_value lag = json_doc_at(d, "/lag_seconds");
    double behind = lag.type == JSON_F64 ? lag.v.f64 : (double)json_doc_number(d, "/lag_seconds");
    uint64_t unread = json_doc_number(d, "/unread_queues");
    c->is_done = lag.type != JSON_MISSING && behind < waited && unread == 0;
    if (d && unread > 0)
        error_set(&c->why, EX_TEMPFAIL, "nats_to_pubsub has not read %" PRIu64 " %s since its start", unread,
            plural(unread, "queue", "queues"));
    else if (d)
        error_set(&c->why, EX_TEMPFAIL, "nats_to_pubsub is %.0f s behind JetStream", behind);
    json_doc_copy(d, c->stream, sizeof c->stream, "/nats_stream");
    json_doc_copy(d, partitions, sizeof partitions, "/partitions");
    (void)bit_ranges_read(partitions, &c->partitions, &bad);
    c->max_age = (int64_t)json_doc_number(d, "/stream_max_age_seconds");
    json_doc_free(&d);
}

static void *await_copies(void *item)
{
    struct copies *c = item;
    for (ask_copier(c); !c->is_done && clock_monotonic() < c->end; ask_copier(c))
        clock_sleep(POLL);
    return NULL;
}

/* Names the partitions of the i-th cell's stream that no cell copies, unless an earlier cell has the same stream. */
static int check_partitions(const struct copies *list, size_t n, size_t i, forget_say_fn *say)
{
    char partitions[BIT_RANGES_TEXT];
    uint64_t copied = 0;
    for (size_t k = 0; k < n; k++) {
        bool is_same = strcmp(list[k].stream, list[i].stream) == 0;
        if (is_same && k < i)
            return EX_OK;
        copied |= is_same ? list[k].partitions : 0;
    }
    if (copied == UINT64_MAX)
        return EX_OK;
    say("cells", "", "no cell copies partitions %s of %s; their events are not erased",
        bit_ranges_write(~copied, partitions), list[i].stream);
    return EX_TEMPFAIL;
}

int forget_cells_await(const struct options *o, const struct config *config, forget_say_fn *say)
{
    char text[RFC3339_TEXT];
    struct copies *list = NULL;
    usec_t begun = clock_monotonic();
    int64_t max_age = 0;
    int status = EX_OK;
    size_t n = 0, cap = 0;
    for (const struct config_section *cell = NULL; (cell = tool_next_cell(config, cell));)
        if (config_value(cell, "nats_to_pubsub_url"))
            *ARRAY_ADD(list, n, cap) = (struct copies){
                .cell = cell, .begun = begun, .end = begun + options_int(o, "wait") * USEC_PER_MSEC};
    tool_each(list, n, sizeof *list, await_copies);
    for (size_t i = 0; i < n; i++) {
        if (!list[i].is_done)
            say("cell", list[i].cell->name, "%s; events that it copies later remain", list[i].why.text);
        status = list[i].is_done ? status : EX_TEMPFAIL;
        max_age = list[i].max_age > max_age ? list[i].max_age : max_age;
    }
    bool is_known = status == EX_OK;
    for (size_t i = 0; i < n && is_known; i++)
        if (check_partitions(list, n, i, say) != EX_OK)
            status = EX_TEMPFAIL;
    free(list);
    if (max_age > 0)
        say("kept", "JetStream",
            "the text, until %s (max_age of the stream); and the queues of other hosts, until "
            "settle_after and POST /erase",
            rfc3339_write(clock_wall() / USEC_PER_SEC + max_age, text));
    return status;
}

/* Appends a setting as a word of the shell. */
static void append_setting(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, " --%s='", name);
    for (; *value; value++)
        if (*value == '\'')
            buf_append_str(out, "'\\''");
        else
            buf_append_char(out, *value);
    buf_append_char(out, '\'');
}

static void append_command(struct buf *out, const struct options *o, const struct config_section *cell)
{
    const char *config = config_value(cell, "config");
    buf_append_str(out, "millrace forget --local");
    append_setting(out, "config", config ? config : DEFAULT_CONFIG);
    append_setting(out, "field", options_string(o, "field"));
    append_setting(out, "value", options_string(o, "value"));
    if (options_bool(o, "dry_run"))
        buf_append_str(out, " --dry-run");
    else
        buf_printf(out, " --wait=%" PRId64 "ms", options_int(o, "wait"));
    if (options_bool(o, "contains"))
        buf_append_str(out, " --contains");
    buf_append_str(out, "\n");
}

/* Runs the command on the host of the cell. */
static int run(const struct config_section *cell, struct bytes command, forget_say_fn *say)
{
    const char *shell = config_value(cell, "shell");
    FILE *script = tmpfile();
    struct tool_args a = {0};
    if (!script || fwrite(command.ptr, 1, command.len, script) != command.len || fflush(script) != 0 ||
        lseek(fileno(script), 0, SEEK_SET) != 0)
        return tool_fail(EX_TEMPFAIL, "cannot write a temporary file");
    tool_add_arg(&a, "/bin/sh");
    tool_add_arg(&a, "-c");
    tool_add_arg(&a, "%s", shell);
    say("cell", cell->name, "%s:", shell);
    int status = tool_wait(tool_start(&a, fileno(script), STDIN_FILENO));
    fclose(script);
    say("cell", cell->name, status == EX_OK ? "done" : "not done (status %d); repeat the command", status);
    return status == EX_OK ? EX_OK : EX_TEMPFAIL;
}

static bool is_this_pipeline(const struct pipeline *pipeline, const struct config_section *cell)
{
    const char *url = config_value(cell, "aggregator_url");
    return !pipeline->daemons[peer_named("aggregator") - peers].is_off && url &&
           strcmp(url, pipeline_url(pipeline, "aggregator")) == 0;
}

static int forget_cell(const struct options *o, const struct pipeline *pipeline,
    const struct config_section *cell, forget_say_fn *say)
{
    struct buf command = {0};
    int status = EX_TEMPFAIL;
    append_command(&command, o, cell);
    if (is_this_pipeline(pipeline, cell)) {
        status = EX_OK;
    } else if (config_value(cell, "shell")) {
        status = run(cell, buf_bytes(&command), say);
    } else {
        say("cell", cell->name, "not done: on its host, run %.*s", (int)command.len - 1, command.ptr);
    }
    buf_free(&command);
    return status;
}

int forget_cells(const struct options *o, const struct pipeline *pipeline, forget_say_fn *say)
{
    int status = EX_OK;
    for (const struct config_section *cell = NULL; (cell = tool_next_cell(pipeline->config, cell));)
        if (forget_cell(o, pipeline, cell, say) != EX_OK)
            status = EX_TEMPFAIL;
    return status;
}
