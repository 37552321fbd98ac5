/* ps_to_dynamodb: stores each line of a stream as an item of a DynamoDB table (dynamo_table.h), at least once.
 *
 * 1. Every line before the cursor is stored, or skipped. After a crash, the program continues at the stored cursor. Lines
 *    that were stored but are not below the stored cursor are stored again, which replaces an item by itself.
 * 2. At most `parallel` batches are in progress. A batch waits for earlier batches that share a key with it, so that the
 *    lines of one key are stored in the order of the stream. While more than `parallel` batches exist, the source pauses.
 * 3. A line that cannot become an item, or that DynamoDB refuses when it is sent alone, is appended to `rejects`, logged with
 *    its offsets, counted and skipped. After poison_limit skipped lines in a row, the program assumes that a setting is
 *    wrong, and retries the next one until a line is stored.
 * 4. Any other failure repeats the batch after a random time, and makes the program not ready with the reason. */
#include "base/backoff.h"
#include "base/erased_line.h"
#include "base/io.h"
#include "base/log.h"
#include "config/reject_options.h"
#include "daemon/loop_timer.h"
#include "dynamo/dynamo_settings.h"
#include "http/client/http_client.h"
#include "stream/stream_client.h"
#include "stream/stream_program.h"
#include "streams/archive/archive_lock.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define BATCH_BYTES                                                                                          \
    ((size_t)4 << 20) /* maximum bytes of the lines of a batch, which may replace each other */

static const struct option_row option_rows[] = {
    STREAM_OPTIONS("stream to read", "longest line accepted"),
    STREAM_ACCEPT_LOSS_OPTIONS(
        "although the stream is a restored copy; otherwise the program stays not ready"),
    DYNAMO_OPTIONS,
    SETTING_STRING("state", "state file with the offset below which all lines are stored"),
    SETTING_INT("parallel", "8", 1, 256, "maximum batches in progress"),
    SETTING_DURATION("backoff_min", "50ms", 1, 60000, "ms", "longest delay after the first failure"),
    SETTING_DURATION("backoff_max", "2s", 1, 600000, "ms", "longest delay between attempts"),
    SETTING_INT("poison_limit", "100", 0, 1000000,
        "maximum number of lines skipped in a row; further refused lines are retried (0: unlimited)"),
    SETTING_STRING("rejects", "file to which skipped lines are appended"),
    REJECT_LIMIT_OPTIONS,
    SETTING_DURATION("commit_every", "1s", 10, 3600000, "ms", "interval at which the state is stored"),
    {.name = NULL},
};

struct program;

/* The lines in the bytes [begin, end) of the stream. The list of batches is in the stream's order, and the first batch
 * begins at the cursor. */
struct batch {
    struct program *program;
    struct batch *next;
    struct dynamo_batch *items; /* NULL: a line to skip, or nothing but a move of the cursor */
    struct buf lines;
    size_t n_lines;
    uint64_t begin, end;
    char opening[STREAM_OPENING_TEXT]; /* opening (id of a run of pubsub) of the byte before `end` */
    char refusal[DYNAMO_WHY_MAX];      /* of a line to skip */
    struct backoff backoff;
    usec_t due;     /* time of the next attempt */
    bool is_closed; /* no more lines are added */
    enum { WAITING, UNDER_WAY, DONE } state;
};

struct program {
    struct daemon *daemon;
    struct http_client *source;
    struct dynamo_sink sink;
    struct stream_client *stream;
    struct archive_state state; /* the stored state, of which only the member `cursor` is used */
    const char *state_path;
    int state_lock; /* descriptor of the state's lock; -1: not locked */
    struct reject_file rejects;
    struct loop_timer *committer, *timer;
    bool state_found, state_failed;
    size_t parallel;
    usec_t backoff_min, backoff_max;
    uint64_t poison_limit; /* 0: unlimited */
    struct batch *first, *last;
    size_t n_batches, under_way;
    struct stream_cursor cursor; /* position before which every line is stored or skipped */
    uint64_t refused_in_row, seed;
    bool was_full, stopping;
    char trouble[400];
    struct stats_counter *lines, *failures, *refused;
};

static int check(struct options *o, struct error *error)
{
    const char *state = options_text(o, "state"), *rejects = options_text(o, "rejects");
    if (stream_program_check(o, error) != 0 || dynamo_settings_check(o, error) != 0)
        return -1;
    if (!state)
        return options_refuse(o, "state", error, "required: a file that stores the position in the stream");
    if (rejects && io_is_same_file(rejects, state))
        return options_refuse(o, "rejects", error, "is the state file");
    if (options_int(o, "backoff_min") > options_int(o, "backoff_max"))
        return options_refuse(o, "backoff_min", error, "larger than backoff_max");
    return 0;
}

static void end_drain(struct program *p);

static void on_change(void *arg)
{
    struct program *p = arg;
    if (!p->stream)
        return;
    stream_program_set_trouble(p->daemon, p->state_failed         ? "cannot store the state"
                                          : p->trouble[0] != '\0' ? p->trouble
                                                                  : stream_client_trouble(p->stream, NULL));
    if (daemon_is_draining(p->daemon) && p->under_way == 0)
        end_drain(p);
}

/* Stores the state. After a failed write, the next commit tries again. */
static void write_state(struct program *p)
{
    bool failed = archive_state_write(p->state_path, &p->state) != 0;
    if (failed && !p->state_failed)
        log_error("cannot store the state", LOG_S("path", p->state_path), LOG_S("error", strerror(errno)));
    p->state_failed = failed;
    p->state_found = p->state_found || !failed;
}

static void commit(struct program *p)
{
    struct stream_cursor *stored = &p->state.cursor;
    bool awaits = stream_program_awaits(p->stream) && stream_program_begins_at_end(p->daemon);
    bool same = strcmp(p->cursor.id, stored->id) == 0 && strcmp(p->cursor.opening, stored->opening) == 0 &&
                p->cursor.offset == stored->offset;
    /* A state without an id records that the stream did not exist, so that `latest` means its beginning. */
    if (p->cursor.id[0] == '\0' ? p->state_found || !awaits : same && !p->state_failed)
        return;
    *stored = p->cursor;
    write_state(p);
}

static void end_drain(struct program *p)
{
    commit(p);
    daemon_drained(p->daemon);
}

static void on_commit(void *arg)
{
    commit(arg);
    on_change(arg);
}

/* Inserts a batch after the batch `before`, or as the first batch if `before` is NULL. */
static struct batch *batch_new(struct program *p, struct batch *before, uint64_t begin, const char *opening)
{
    struct batch *b = mem_zalloc(sizeof *b), **place = before ? &before->next : &p->first;
    *b = (struct batch){.program = p, .next = *place, .begin = begin, .end = begin};
    backoff_init(&b->backoff, p->backoff_min, p->backoff_max, p->seed++);
    snprintf(b->opening, sizeof b->opening, "%s", opening);
    *place = b;
    if (p->last == before)
        p->last = b;
    p->n_batches++;
    return b;
}

static void batch_free(struct batch *b)
{
    dynamo_batch_free(&b->items);
    buf_free(&b->lines);
    free(b);
}

/* Moves the cursor past the leading batches that are DONE, and frees these batches. */
static void drop_done(struct program *p)
{
    while (p->first && p->first->state == DONE) {
        struct batch *b = p->first;
        p->first = b->next;
        p->last = p->first ? p->last : NULL;
        p->cursor.offset = b->end;
        memcpy(p->cursor.opening, b->opening, sizeof b->opening);
        p->n_batches--;
        batch_free(b);
    }
}

static void set_trouble(struct program *p, const char *text)
{
    if (strcmp(p->trouble, text) == 0)
        return;
    if (*text != '\0')
        log_warn("cannot store", LOG_S("error", text));
    snprintf(p->trouble, sizeof p->trouble, "%s", text);
}

static void wait_after(struct batch *b, const char *trouble)
{
    b->state = WAITING;
    b->due = clock_monotonic() + backoff_failed(&b->backoff);
    stats_add(b->program->failures, 1);
    set_trouble(b->program, trouble);
}

/* Skips the only line of a batch, or waits. */
static void skip(struct batch *b)
{
    struct program *p = b->program;
    char text[sizeof p->trouble];
    bool expired = false;
    if (p->poison_limit > 0 && p->refused_in_row >= p->poison_limit) {
        snprintf(text, sizeof text, "%" PRIu64 " lines in a row are refused (poison_limit): %.250s",
            p->refused_in_row, b->refusal);
        wait_after(b, text);
        return;
    }
    struct bytes line = bytes_of(b->lines.ptr, b->lines.len - 1);
    if (p->rejects.path && reject_file_add(&p->rejects, line, &expired) != 0) {
        snprintf(
            text, sizeof text, "cannot store a refused line in %.200s: %s", p->rejects.path, strerror(errno));
        wait_after(b, text);
        return;
    }
    if (expired)
        log_warn("deleted the oldest refused lines", LOG_S("path", p->rejects.path));
    log_warn("line skipped: it cannot be stored as an item", LOG_U("from", b->begin), LOG_U("to", b->end),
        LOG_S("error", b->refusal));
    stats_add(p->refused, 1);
    p->refused_in_row++;
    b->state = DONE;
}

/* Adds the line to the batch. Returns false if it has no room. A line that is not an item becomes a refusal of an empty batch. */
static bool take_line(struct batch *b, struct bytes line)
{
    const char *why;
    if (b->n_lines > 0 && b->lines.len + line.len > BATCH_BYTES)
        return false;
    if (!b->items)
        b->items = dynamo_batch_new(b->program->sink.table);
    enum dynamo_add added = dynamo_batch_add(b->items, bytes_of(line.ptr, line.len - 1), &why);
    if (added == DYNAMO_FULL || (added == DYNAMO_NO_ITEM && b->n_lines > 0))
        return false;
    if (added == DYNAMO_NO_ITEM) {
        snprintf(b->refusal, sizeof b->refusal, "%.*s", DYNAMO_WHY_MAX - 1, why);
        dynamo_batch_free(&b->items);
        b->is_closed = true;
    }
    buf_append_bytes(&b->lines, line);
    b->n_lines++;
    b->end += line.len;
    return true;
}

/* Replaces a refused batch by two halves, which wait. A single line is to be skipped. */
static void halve(struct batch *b, const char *why)
{
    struct program *p = b->program;
    struct bytes lines = buf_bytes(&b->lines);
    size_t n = b->n_lines, done = 0;
    uint64_t end = b->end;
    dynamo_batch_free(&b->items);
    b->state = WAITING;
    b->is_closed = true;
    if (n == 1) {
        snprintf(b->refusal, sizeof b->refusal, "%.*s", DYNAMO_WHY_MAX - 1, why);
        return;
    }
    struct buf all = b->lines;
    b->lines = (struct buf){0};
    b->n_lines = 0;
    b->end = b->begin;
    for (struct bytes line; bytes_take_line(&lines, &line); done++) {
        if (done == n / 2) {
            b = batch_new(p, b, b->end, b->opening);
            b->is_closed = true;
        }
        bool taken = take_line(b, bytes_of(line.ptr, line.len + 1));
        assert(taken);
    }
    assert(b->end == end);
    buf_free(&all);
}

static void start_waiting(struct program *p);

static void answered(struct dynamo_batch *items, enum dynamo_result result, const char *why, void *arg)
{
    struct batch *b = arg;
    struct program *p = b->program;
    char text[sizeof p->trouble];
    (void)items;
    p->under_way--;
    if (result == DYNAMO_OK) {
        b->state = DONE;
        stats_add(p->lines, b->n_lines);
        p->refused_in_row = 0;
        set_trouble(p, "");
    } else if (result == DYNAMO_REFUSED) {
        snprintf(text, sizeof text, "%s", why);
        halve(b, text);
    } else {
        wait_after(b, why);
    }
    drop_done(p);
    start_waiting(p);
    on_change(p);
}

/* Returns true if an earlier batch that is not done shares a key with this one. */
static bool is_behind(const struct program *p, const struct batch *b)
{
    for (const struct batch *e = p->first; e != b; e = e->next)
        if (e->state != DONE && e->items && dynamo_batch_shares_key(e->items, b->items))
            return true;
    return false;
}

static void send_batch(struct batch *b)
{
    b->state = UNDER_WAY;
    b->is_closed = true;
    b->program->under_way++;
    dynamo_batch_send(b->items, answered, b);
}

/* Sends the batches that are due. A batch that waits occupies one of the `parallel` slots. */
static void start_waiting(struct program *p)
{
    usec_t now = clock_monotonic(), wake = INT64_MAX;
    size_t slots = p->stopping ? 0 : p->parallel - p->under_way;
    for (struct batch *b = p->first; b && slots > 0; b = b->next) {
        if (b->state != WAITING)
            continue;
        slots--;
        if (b->due > now) {
            wake = b->due < wake ? b->due : wake;
        } else if (b->refusal[0] != '\0') {
            skip(b);
            slots += b->state == DONE;
            if (b->state == WAITING)
                wake = b->due < wake ? b->due : wake;
        } else if (!is_behind(p, b)) {
            send_batch(b);
        }
    }
    drop_done(p);
    if (wake != INT64_MAX)
        loop_timer_set(p->timer, wake > now ? wake - now : 0);
    if (p->was_full && p->n_batches <= p->parallel) {
        p->was_full = false;
        stream_client_resume(p->stream);
    }
}

static void on_timer(void *arg)
{
    start_waiting(arg);
    on_change(arg);
}

/* Adds a batch without lines, which only moves the cursor. */
static void pass(struct program *p, uint64_t begin, uint64_t end, const char *opening)
{
    struct batch *b = p->last;
    if (!b || b->state != DONE || strcmp(b->opening, opening) != 0)
        b = batch_new(p, b, begin, opening);
    b->state = DONE;
    b->is_closed = true;
    b->end = end;
}

static void on_lines(struct bytes lines, void *arg)
{
    struct program *p = arg;
    const struct stream_cursor *end = stream_client_cursor(p->stream);
    uint64_t at = end->offset - lines.len;
    for (struct bytes line; bytes_take_line(&lines, &line);) {
        struct batch *b = p->last;
        struct bytes whole = bytes_of(line.ptr, line.len + 1);
        if (erased_line_is(line))
            pass(p, at, at + whole.len, end->opening);
        else if (!b || b->is_closed || strcmp(b->opening, end->opening) != 0 || !take_line(b, whole)) {
            bool taken = take_line(batch_new(p, b, at, end->opening), whole);
            assert(taken);
        }
        at += whole.len;
    }
    drop_done(p);
    p->was_full = p->was_full || p->n_batches > p->parallel;
    if (p->was_full)
        stream_client_pause(p->stream);
    start_waiting(p);
}

static void on_begin(void *arg)
{
    struct program *p = arg;
    p->cursor = *stream_client_cursor(p->stream);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    struct program *p = arg;
    (void)before;
    struct batch *b = batch_new(p, p->last, after, stream_client_cursor(p->stream)->opening);
    b->state = DONE;
    b->is_closed = true;
    drop_done(p);
}

static double read_offset(void *ctx)
{
    return (double)((struct program *)ctx)->cursor.offset;
}

/* Reads and locks the state. Returns an exit status with the error. */
static int open_state(struct program *p, struct options *o, struct error *error)
{
    const char *stream = options_string(o, "stream");
    p->state_path = options_text(o, "state");
    p->state_lock = archive_lock_state(p->state_path, error);
    int found = p->state_lock < 0 ? -1 : archive_state_read(p->state_path, &p->state, error);
    if (found > 0 && strcmp(p->state.stream, stream) != 0)
        found = error_set(error, -1, "%s is the state of the stream %s", p->state_path, p->state.stream);
    if (found < 0) {
        options_refuse(o, "state", error, "%s", error->text);
        return EX_CONFIG;
    }
    p->state_found = found > 0;
    snprintf(p->state.stream, sizeof p->state.stream, "%s", stream);
    p->cursor = p->state.cursor;
    return EX_OK;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct stats *s = daemon_stats(d);
    struct program *p = mem_zalloc(sizeof *p);
    *ctx = p;
    p->daemon = d;
    p->state_lock = -1;
    p->parallel = (size_t)options_int(o, "parallel");
    p->backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC;
    p->backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC;
    p->poison_limit = (uint64_t)options_int(o, "poison_limit");
    p->seed = (uint64_t)clock_wall() ^ ((uint64_t)getpid() << 40);
    p->rejects = reject_options_file(o);
    int status = open_state(p, o, error);
    if (status != EX_OK)
        return status;
    p->source = stream_program_connect(d, error);
    if (!p->source || dynamo_sink_open(&p->sink, o, daemon_base(d), s, error) != 0)
        return EX_CONFIG;
    p->lines = stats_counter(s, "lines_delivered_total", NULL, "Lines stored");
    p->failures = stats_counter(s, "tries_failed_total", NULL, "Attempts that failed");
    p->refused = stats_counter(s, "lines_refused_total", NULL, "Lines skipped because they cannot be items");
    stats_gauge(s, "offset_bytes", NULL, "Offset below which the stream is stored", read_offset, p);
    p->timer = loop_timer_new(daemon_base(d), on_timer, p);
    p->stream = stream_program_follow(d, p->state_found, true,
        &(struct stream_client_config){.pubsub = p->source,
            .from = p->state.cursor,
            .loss = STREAM_LOSS_CROSSED,
            .on_begin = on_begin,
            .on_lines = on_lines,
            .on_gap = on_gap,
            .on_change = on_change,
            .arg = p});
    p->committer =
        loop_timer_every(daemon_base(d), options_int(o, "commit_every") * USEC_PER_MSEC, on_commit, p);
    daemon_set_not_ready(d, NOTICE_RECOVERING, DAEMON_WAIT, "asking pubsub for the stream");
    return 0;
}

/* Waits for the batches in progress, so that the next start does not store their lines again. */
static void drain(void *ctx)
{
    struct program *p = ctx;
    stream_client_stop(p->stream);
    p->stopping = true; /* end_drain is called once all batches in progress are answered */
    if (p->under_way == 0)
        end_drain(p);
    else
        commit(p);
}

static void stop(void *ctx)
{
    struct program *p = ctx;
    if (!p)
        return;
    stats_remove_gauges(daemon_stats(p->daemon), p);
    loop_timer_free(&p->committer);
    stream_client_free(&p->stream);
    while (p->first) {
        struct batch *b = p->first;
        p->first = b->next;
        batch_free(b);
    }
    dynamo_sink_close(&p->sink);
    loop_timer_free(&p->timer);
    http_client_free(&p->source);
    archive_state_free(&p->state);
    if (p->state_lock >= 0)
        io->close(p->state_lock);
    free(p);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "ps_to_dynamodb",
        .summary = "stores the lines of a stream as items of a DynamoDB table",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
