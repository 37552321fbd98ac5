#include "tools/put/put_run.h"

#include "base/io.h"
#include "config/pipeline_dirs.h"
#include "tools/put/log_format.h"
#include "tools/put/log_tail.h"
#include "tools/put/put_door.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>

#define DOOR_POLL (100 * USEC_PER_MSEC)
#define BATCH_BYTES ((size_t)1 << 20)
#define BATCH_DELAY_MAX (200 * USEC_PER_MSEC) /* longest time that a line waits until its batch is full */

volatile sig_atomic_t put_stopped;

const char *put_input_name(const struct put_input *in)
{
    return strcmp(in->name, "-") == 0 ? "standard input" : in->name;
}

static const char *queue_url(void *arg)
{
    struct put *p = ((struct put_input *)arg)->put;
    const char *url = options_string(p->o, "queue_url");
    if (url)
        return url;
    pipeline_close(&p->pipeline);
    pipeline_open(&p->pipeline, options_config(p->o), options_string(p->o, "data_dir"));
    if (!pipeline_is_stopped(&p->pipeline))
        return pipeline_url(&p->pipeline, "simplequeue");
    if (!p->has_waited)
        tool_fail(0, "the pipeline of %s is stopped; to post to another queue, use --queue-url=URL",
            p->pipeline.data_dir);
    p->has_waited = true;
    return NULL;
}

static const char *tag(void *arg, uint64_t sum)
{
    static char text[PUT_SOURCES_TAG];
    const struct put_input *in = arg;
    put_content_tag(&in->content, sum, text);
    return in->tail ? log_tail_tag(in->tail) : text;
}

static int refused(const struct put_batch_refusal *refusal, void *arg)
{
    struct put_input *in = arg;
    return put_rejects_add(
        &in->put->rejects, refusal, put_input_name(in), refusal->start - in->content.base, clock_monotonic());
}

/* Returns the longest time without progress; 0: unlimited. */
static usec_t timeout_of(const struct options *o)
{
    bool is_lasting = options_bool(o, "follow") && !options_is_set(o, "timeout");
    return is_lasting ? 0 : options_int(o, "timeout") * USEC_PER_MSEC;
}

void put_input_begin(struct put_input *in, struct put *put, const char *name, const char *producer)
{
    const struct options *o = put->o;
    *in = (struct put_input){.put = put,
        .name = mem_strdup(name),
        .csv = put->form.is_csv ? csv_new(&put->form.csv) : NULL,
        .log = put->form.log_format ? log_format_new(put->form.log_format, NULL) : NULL};
    in->batch = put_batch_new(&(struct put_batch_config){.url = queue_url,
        .arg = in,
        .queue = options_string(o, "queue"),
        .producer = producer,
        .tag = tag,
        .auth_token = put->token,
        .advice = options_text(o, "queue_url") ? "" : "; `millrace status` shows the pipeline",
        .refused = refused,
        .timeout = timeout_of(o),
        .stopped = &put_stopped});
}

void put_input_end(struct put_input *in, bool is_whole)
{
    struct put *p = in->put;
    struct put_batch_numbers n = put_batch_state(in->batch)->numbers;
    p->numbers.posted += n.posted;
    p->numbers.duplicates += n.duplicates;
    *ARRAY_ADD(p->done, p->n_done, p->room_done) =
        (struct put_done){in->name, n.posted + n.duplicates + n.refused, is_whole};
    csv_free(&in->csv);
    log_format_free(&in->log);
    buf_free(&in->event);
    put_batch_free(&in->batch);
    put_content_free(&in->content);
    line_source_close(&in->source);
    log_tail_close(&in->tail);
}

int put_flush(struct put_input *in)
{
    struct put *p = in->put;
    size_t lines = put_batch_state(in->batch)->lines;
    usec_t now = clock_monotonic(), when;
    while (lines > 0 && !put_stopped && (when = rate_limit_when(&p->rate, lines, now)) > now) {
        clock_sleep(when - now);
        now = clock_monotonic();
    }
    if (lines > 0)
        rate_limit_spend(&p->rate, lines, now);
    p->taken += lines;
    return put_batch_flush(in->batch);
}

static int flush_if_late(struct put_input *in)
{
    bool late =
        put_batch_state(in->batch)->lines > 0 && clock_monotonic() - in->batch_from >= BATCH_DELAY_MAX;
    return late ? put_flush(in) : 0;
}

/* Extends the batch to the end of the bytes taken, and adds an event unless it is empty. */
static void add(struct put_input *in, struct bytes event)
{
    put_batch_add(in->batch, event, in->content.base + in->content.end, put_content_sum(&in->content));
}

/* Moves past a record. Adds its event, which may be empty. */
static int move(struct put_input *in, struct bytes event)
{
    const struct put_batch_state *batch = put_batch_state(in->batch);
    int status = batch->lines > 0 && batch->body.len + event.len > BATCH_BYTES ? put_flush(in) : 0;
    if (status != 0)
        return status;
    if (batch->lines == 0)
        in->batch_from = clock_monotonic();
    add(in, event);
    put_counted_add(&in->put->counted, event, put_input_name(in), in->record_start);
    return batch->lines >= in->put->batch_lines ? put_flush(in) : flush_if_late(in);
}

void put_note_replaced(struct put_input *in)
{
    struct put *p = in->put;
    if (p->replaced++ == 0)
        tool_fail(0,
            "warning: the line at byte %" PRIu64
            " of %s has invalid text, which U+FFFD replaces; --encoding names another encoding",
            in->record_start, put_input_name(in));
}

/* A line that cannot become an event goes to the rejects, or ends the put. */
static int refuse(struct put_input *in, struct bytes line, const char *why)
{
    const struct put_batch_refusal refusal = {line, bytes_str(why), in->content.base + in->record_start};
    int status = in->put->rejects.file.path ? 0 : put_flush(in);
    if (status == 0)
        status = refused(&refusal, in);
    return status == 0 ? move(in, BYTES_NONE) : status;
}

static int take_csv(struct put_input *in, enum csv_result r)
{
    const struct csv_record *c = csv_record(in->csv);
    in->in_record = r == CSV_MORE;
    if (c->note)
        tool_fail(0, "warning: %s: %s", put_input_name(in), c->note);
    if (r == CSV_MORE)
        return flush_if_late(in);
    if (r == CSV_WRONG && c->has_names && c->unclosed == 0)
        return refuse(in, bytes_without_line_end(buf_bytes(&c->text)), c->wrong);
    if (r == CSV_EVENT && c->is_replaced)
        put_note_replaced(in);
    if (r != CSV_WRONG)
        return move(in, r == CSV_EVENT ? buf_bytes(&c->event) : BYTES_NONE);
    int status = put_flush(in);
    return status != 0 ? status
                       : tool_fail(EX_DATAERR, "%s: %s (the line at byte %" PRIu64 ")", put_input_name(in),
                             c->wrong, in->record_start + (c->unclosed > 0 ? c->unclosed_at : 0));
}

static enum put_door_result try_door(struct put *p, struct error *error)
{
    const struct put_door_place place = {
        options_config(p->o), options_string(p->o, "data_dir"), options_string(p->o, "queue_url") != NULL};
    return put_door_open(&place, p->form.log_format, &p->form.door, error);
}

/* Waits for the first start of the pipeline, as a put waits for the queue. Until then it is unknown whether the lines
 * need a door. With `queue_url`, the queue may be on another host, so the put does not wait. */
static enum put_door_result wait_for_door(struct put *p, struct error *error)
{
    bool is_remote = options_string(p->o, "queue_url") != NULL;
    usec_t began = clock_monotonic(), timeout = timeout_of(p->o);
    enum put_door_result r = try_door(p, error);
    while (r == PUT_DOOR_UNKNOWN && !is_remote && !put_stopped &&
           (timeout == 0 || clock_monotonic() - began < timeout)) {
        if (!p->has_waited)
            tool_fail(0,
                "waiting for the first start of a pipeline in %s, which shows whether its [door] adds to "
                "the lines; to post without waiting, use --config=FILE",
                pipeline_dir(options_config(p->o), options_string(p->o, "data_dir")));
        p->has_waited = true;
        clock_sleep(DOOR_POLL);
        r = try_door(p, error);
    }
    return r == PUT_DOOR_UNKNOWN && is_remote ? PUT_DOOR_OPEN : r;
}

int put_open_door(struct put *p, bool is_needed)
{
    struct error error;
    if (p->form.has_door)
        return 0;
    enum put_door_result r = is_needed ? wait_for_door(p, &error) : try_door(p, &error);
    p->form.has_door = r == PUT_DOOR_OPEN;
    if (r == PUT_DOOR_UNKNOWN && is_needed)
        return tool_fail(EX_TEMPFAIL, "no pipeline has started: nothing is posted");
    return r == PUT_DOOR_WRONG ? tool_fail(EX_CONFIG, "%s", error.text) : 0;
}

/* True for a line of metadata in a log of W3C's extended format. */
static bool is_directive(struct bytes line)
{
    static const char *const names[] = {
        "#Version:", "#Fields:", "#Software:", "#Date:", "#Start-Date:", "#End-Date:", "#Remark:"};
    size_t i = 0;
    while (i < sizeof names / sizeof *names && !bytes_starts_with(line, bytes_str(names[i])))
        i++;
    return i < sizeof names / sizeof *names;
}

static int take_log(struct put_input *in, struct bytes line)
{
    bool is_replaced = false;
    int status = put_open_door(in->put, true);
    if (status != 0)
        return status;
    struct bytes text = bytes_without_line_end(line);
    if (is_directive(text))
        text = BYTES_NONE;
    const char *why = text.len > 0 ? log_format_read(in->log, text, &in->event, &is_replaced) : NULL;
    if (why && memchr(text.ptr, '\0', text.len))
        why = CSV_HAS_NULS;
    if (why)
        return refuse(in, text, put_door_hide(in->put->form.door, why));
    if (is_replaced)
        put_note_replaced(in);
    if (text.len > 0)
        put_door_pass(in->put->form.door, in->log, &in->event);
    return move(in, text.len > 0 ? buf_bytes(&in->event) : BYTES_NONE);
}

bool put_needs_line(const struct put_input *in)
{
    return in->csv && (csv_record(in->csv)->is_inside || !csv_record(in->csv)->has_names);
}

/* Moves past a part of a line that is too long to be read. */
static int skip(struct put_input *in, bool is_last)
{
    struct put *p = in->put;
    bool is_reported = in->skipping && !is_last;
    uint64_t length = in->content.end - in->record_start;
    if (put_needs_line(in))
        return tool_fail(EX_DATAERR, "a record has a line over 64 MiB, or a quote is missing");
    int status = !p->rejects.file.path ? put_flush(in) : 0;
    in->skipping = !is_last;
    if (status == 0 && !is_reported)
        status = put_rejects_skip(&p->rejects, put_input_name(in), in->record_start, is_last ? length : 0);
    if (status == 0 && is_last)
        add(in, BYTES_NONE);
    return status == 0 ? flush_if_late(in) : status;
}

static void report_hole(struct put_input *in)
{
    if (in->hole > 0)
        tool_fail(0, "skipped %" PRIu64 " NUL bytes in %s", in->hole, put_input_name(in));
    in->hole = 0;
}

int put_take(struct put_input *in, enum line_source_result r, struct bytes bytes)
{
    uint64_t start = in->content.end;
    put_content_add(&in->content, bytes);
    if (r == LINE_SOURCE_HOLE) {
        in->put->skipped_bytes += bytes.len;
        in->hole += bytes.len;
        return 0;
    }
    report_hole(in);
    if (!in->in_record && !in->skipping)
        in->record_start = start;
    if (r != LINE_SOURCE_LINE)
        return skip(in, r == LINE_SOURCE_SKIPPED);
    in->unfinished = bytes.ptr[bytes.len - 1] != '\n';
    if (in->csv)
        return take_csv(in, csv_add(in->csv, bytes));
    bytes = bytes_without_mark(bytes);
    return in->log ? take_log(in, bytes) : move(in, bytes);
}

int put_take_end(struct put_input *in)
{
    report_hole(in);
    return in->csv && csv_end(in->csv) == CSV_WRONG ? take_csv(in, CSV_WRONG) : 0;
}

char *put_kept_path(const struct put *put, const char *beside, const char *suffix)
{
    struct stat st;
    char parent[PATH_MAX];
    const char *queue = options_string(put->o, "queue");
    const char *data_dir = pipeline_dir(options_config(put->o), options_string(put->o, "data_dir"));
    bool is_here = stat(data_dir, &st) == 0 ? S_ISDIR(st.st_mode) : errno == EACCES;
    char *dir = is_here && !options_string(put->o, "queue_url") ? mem_printf("%s/put", data_dir) : NULL;
    char *path = NULL;
    if (dir && io_make_dirs(dir) == 0)
        path = mem_printf("%s/%s.%s.%s", dir, queue, put->producer, suffix);
    else if (dir && beside) {
        struct buf owner = {0};
        int e = errno;
        io_append_owner(data_dir, &owner);
        tool_fail(0, "cannot write in %s: %s, so `millrace status` does not show this put%s", dir,
            strerror(e), owner.ptr ? owner.ptr : "");
        buf_free(&owner);
    }
    free(dir);
    if (path || !beside)
        return path;
    io_parent_of(beside, parent);
    return mem_printf("%s/.%s.%s.%s", parent, queue, put->producer, suffix);
}
