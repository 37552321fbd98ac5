#include "streams/forward/forwarder.h"

#include "base/erased_line.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/loop_timer.h"
#include "http/client/http_client.h"
#include "streams/archive/archive_lock.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define POISON_RETRY (1 * USEC_PER_SEC)
#define WHY_MAX 300

/* The lines in the bytes [begin, end) of the stream. The list of batches is in the stream's order, and the first batch
 * begins at the cursor. */
struct batch {
    struct forward_batch view;
    struct batch *next;
    uint64_t begin, end;
    char opening[STREAM_OPENING_TEXT]; /* of the byte before `end` */
    char unfit[WHY_MAX];               /* why the only line cannot be sent; "": it can */
    usec_t due;     /* time of the next attempt; before `due` the batch gathers lines or waits for a retry */
    bool is_closed; /* no more lines are added */
    enum { WAITING, UNDER_WAY, DONE } state;
};
static_assert(offsetof(struct batch, view) == 0, "a batch is found by its view");

struct forwarder {
    struct forwarder_config config;
    struct http_client *source;
    struct stream_client *stream;
    struct archive_state state; /* the stored state, of which only the member `cursor` is used */
    const char *state_path;
    int state_lock;   /* descriptor of the state's lock; -1: not locked */
    bool state_found; /* a state was found at the start, or has been stored */
    bool state_failed;
    struct reject_file rejects; /* path NULL: skipped lines are only logged */
    struct loop_timer *committer, *timer;
    size_t parallel;
    uint64_t poison_limit; /* 0: unlimited */
    struct batch *first, *last;
    size_t n_batches, under_way;
    struct stream_cursor cursor; /* position before which every line is delivered or skipped */
    uint64_t refused_in_row;     /* number of lines skipped since the last delivered line */
    bool refuses_all;            /* poison_limit is reached, and another line was refused */
    bool was_full, stopping;
    char trouble[400];
    struct stats_counter *lines, *batches, *failures, *refused;
};

int forwarder_check(struct options *o, struct error *error)
{
    const char *rejects = options_text(o, "rejects");
    if (rejects && io_is_same_file(rejects, options_text(o, "state")))
        return options_refuse(o, "rejects", error, "is the state file");
    return 0;
}

/* Stores the state. After a failed write, delivery continues, and the next commit tries again. */
static void write_state(struct forwarder *f)
{
    bool failed = archive_state_write(f->state_path, &f->state) != 0;
    if (failed && !f->state_failed)
        log_error("cannot store the state", LOG_S("path", f->state_path), LOG_S("error", strerror(errno)));
    f->state_failed = failed;
    f->state_found = f->state_found || !failed;
}

/* If the stream does not exist yet, `latest` means the beginning of the stream. A state without an id records this
 * position, so that a restart after the creation of the stream also begins at the first line. */
static void commit(struct forwarder *f)
{
    struct stream_cursor *stored = &f->state.cursor;
    bool awaits = stream_program_awaits(f->stream) && stream_program_begins_at_end(f->config.daemon);
    bool same = strcmp(f->cursor.id, stored->id) == 0 && strcmp(f->cursor.opening, stored->opening) == 0 &&
                f->cursor.offset == stored->offset;
    if (f->cursor.id[0] == '\0' ? f->state_found || !awaits : same && !f->state_failed)
        return;
    *stored = f->cursor;
    write_state(f);
}

static void on_change(void *arg)
{
    struct forwarder *f = arg;
    if (!f->stream)
        return;
    if (f->cursor.id[0] == '\0')
        commit(f);
    stream_program_set_trouble(f->config.daemon, f->state_failed ? "cannot store the state"
                                                 : f->trouble[0] != '\0'
                                                     ? f->trouble
                                                     : stream_client_trouble(f->stream, NULL));
}

static void on_commit(void *arg)
{
    commit(arg);
    on_change(arg);
}

/* Inserts a batch after the batch `before`, or as the first batch if `before` is NULL. */
static struct batch *batch_new(struct forwarder *f, struct batch *before, uint64_t begin, const char *opening)
{
    struct batch *b = mem_zalloc(sizeof *b), **place = before ? &before->next : &f->first;
    *b = (struct batch){.view.forwarder = f, .next = *place, .begin = begin, .end = begin};
    b->due = clock_monotonic() + f->config.gather;
    snprintf(b->opening, sizeof b->opening, "%s", opening);
    *place = b;
    if (f->last == before)
        f->last = b;
    f->n_batches++;
    return b;
}

static void forget(struct batch *b)
{
    if (b->view.data)
        b->view.forwarder->config.sink->forget(&b->view);
}

static void drop_first(struct forwarder *f)
{
    struct batch *b = f->first;
    f->first = b->next;
    f->last = f->first ? f->last : NULL;
    f->n_batches--;
    forget(b);
    buf_free(&b->view.lines);
    free(b);
}

/* Moves the cursor past the leading batches that are DONE. */
static void drop_done(struct forwarder *f)
{
    while (f->first && f->first->state == DONE) {
        f->cursor.offset = f->first->end;
        memcpy(f->cursor.opening, f->first->opening, sizeof f->cursor.opening);
        drop_first(f);
    }
}

/* Returns true if the batch has no room for a line of `n` bytes, including the LF. */
static bool is_full(const struct batch *b, size_t n)
{
    const struct forwarder_config *c = &b->view.forwarder->config;
    return b->view.n >= c->batch_lines || b->view.lines.len + n > c->batch_bytes;
}

/* Adds a line with its LF. Returns false if the batch has no room, or cannot contain this line beside others. */
static bool take_line(struct batch *b, struct bytes line)
{
    const struct forwarder_sink *sink = b->view.forwarder->config.sink;
    const char *why = NULL;
    enum forward_add added = FORWARD_ADDED;
    if (b->view.n > 0 && is_full(b, line.len))
        return false;
    if (sink->add)
        added = sink->add(&b->view, bytes_of(line.ptr, line.len - 1), &why);
    if (added == FORWARD_FULL || (added == FORWARD_UNFIT && b->view.n > 0))
        return false;
    if (added == FORWARD_UNFIT) {
        snprintf(b->unfit, sizeof b->unfit, "%s", why);
        b->is_closed = true;
        forget(b);
    }
    buf_append_bytes(&b->view.lines, line);
    b->view.n++;
    b->end += line.len;
    return true;
}

static void set_trouble(struct forwarder *f, const char *text)
{
    if (strcmp(f->trouble, text) == 0)
        return;
    if (*text != '\0')
        log_warn("cannot deliver", LOG_S("error", text));
    snprintf(f->trouble, sizeof f->trouble, "%s", text);
}

static void wait_after(struct batch *b, const char *trouble, usec_t wait)
{
    b->state = WAITING;
    b->due = wait > 0 ? clock_monotonic() + wait : 0;
    set_trouble(b->view.forwarder, trouble);
}

/* Skips the only line of a batch, or waits. */
static void skip(struct batch *b, const char *why)
{
    struct forwarder *f = b->view.forwarder;
    char text[sizeof f->trouble];
    bool expired = false;
    struct bytes line = bytes_of(b->view.lines.ptr, b->view.lines.len - 1);
    /* Without a limit, a mistyped setting would make the program skip all lines. */
    f->refuses_all = f->poison_limit > 0 && f->refused_in_row >= f->poison_limit;
    if (f->refuses_all) {
        snprintf(text, sizeof text, "the destination refuses every line (poison_limit): %.300s", why);
        wait_after(b, text, POISON_RETRY);
        return;
    }
    if (f->rejects.path && reject_file_add(&f->rejects, line, &expired) != 0) {
        snprintf(
            text, sizeof text, "cannot store a refused line in %.200s: %s", f->rejects.path, strerror(errno));
        wait_after(b, text, POISON_RETRY);
        return;
    }
    if (expired)
        log_warn("deleted the oldest refused lines", LOG_S("path", f->rejects.path));
    log_warn("line skipped: the destination refuses the line", LOG_U("from", b->begin), LOG_U("to", b->end),
        LOG_S("error", why));
    set_trouble(f, "");
    stats_add(f->refused, 1);
    f->refused_in_row++;
    b->state = DONE;
}

/* Replaces a batch by two halves, which wait. */
static void halve(struct batch *b)
{
    struct forwarder *f = b->view.forwarder;
    struct buf all = b->view.lines;
    struct bytes lines = buf_bytes(&all);
    size_t half = b->view.n / 2;
    forget(b);
    b->view.lines = (struct buf){0};
    b->view.n = 0;
    b->end = b->begin;
    b->due = 0;
    b->state = WAITING;
    struct batch *rest = NULL;
    for (struct bytes line; bytes_take_line(&lines, &line);) {
        if (!rest && b->view.n == half) {
            rest = batch_new(f, b, b->end, b->opening);
            rest->due = 0;
            rest->is_closed = true;
        }
        bool taken = take_line(rest ? rest : b, bytes_of(line.ptr, line.len + 1));
        assert(taken);
        (void)taken;
    }
    buf_free(&all);
}

/* Returns true if the batch must wait for an earlier one. */
static bool is_behind(const struct forwarder *f, const struct batch *b)
{
    const struct forwarder_sink *sink = f->config.sink;
    for (const struct batch *e = f->first; sink->shares_key && e != b; e = e->next)
        if (e->state != DONE && e->view.data && sink->shares_key(&e->view, &b->view))
            return true;
    return false;
}

static bool is_due(const struct batch *b, usec_t now)
{
    return b->due <= now || (!b->is_closed && (b->next || is_full(b, 1)));
}

/* Sends a batch that is due, or skips its line. Returns the time of the next attempt; INT64_MAX: after the next event. */
static usec_t start_batch(struct forwarder *f, struct batch *b, usec_t now)
{
    if (!is_due(b, now))
        return b->due;
    if (b->unfit[0] != '\0') {
        skip(b, b->unfit);
        return b->state == DONE ? INT64_MAX : b->due;
    }
    usec_t wait = is_behind(f, b) ? -1 : f->config.sink->send(&b->view);
    if (wait != 0)
        return wait < 0 ? INT64_MAX : now + wait;
    b->state = UNDER_WAY;
    b->is_closed = true;
    f->under_way++;
    return INT64_MAX;
}

static void start_waiting(void *arg)
{
    struct forwarder *f = arg;
    usec_t now = clock_monotonic(), wake = INT64_MAX;
    size_t slots = f->stopping ? 0 : f->parallel - f->under_way;
    for (struct batch *b = f->first; b && slots > 0; b = b->next) {
        if (b->state != WAITING)
            continue;
        usec_t next = start_batch(f, b, now);
        wake = next < wake ? next : wake;
        slots -= b->state != DONE;
    }
    drop_done(f);
    if (wake != INT64_MAX)
        loop_timer_set(f->timer, wake > now ? wake - now : 0);
    if (f->was_full && f->n_batches <= f->parallel) {
        f->was_full = false;
        stream_client_resume(f->stream);
    }
    on_change(f);
}

static void end_drain(struct forwarder *f)
{
    commit(f);
    daemon_drained(f->config.daemon);
}

/* Continues after the outcome of a batch. */
static void go_on(struct forwarder *f)
{
    f->under_way--;
    drop_done(f);
    start_waiting(f);
    if (f->stopping && f->under_way == 0)
        end_drain(f);
}

void forwarder_delivered(struct forward_batch *view)
{
    struct batch *b = (struct batch *)view;
    struct forwarder *f = view->forwarder;
    b->state = DONE;
    stats_add(f->batches, 1);
    stats_add(f->lines, view->n);
    f->refuses_all = false;
    f->refused_in_row = 0;
    set_trouble(f, "");
    go_on(f);
}

void forwarder_refused(struct forward_batch *view, const char *why)
{
    struct forwarder *f = view->forwarder;
    stats_add(f->failures, 1);
    if (view->n > 1)
        halve((struct batch *)view);
    else
        skip((struct batch *)view, why);
    go_on(f);
}

void forwarder_failed(struct forward_batch *view, const char *why, usec_t wait)
{
    struct forwarder *f = view->forwarder;
    stats_add(f->failures, 1);
    wait_after((struct batch *)view, why, wait);
    go_on(f);
}

void forwarder_again(struct forward_batch *view)
{
    forwarder_failed(view, view->forwarder->trouble, 0);
}

/* Adds a batch without lines, which only moves the cursor once the earlier batches are DONE. */
static void pass(struct forwarder *f, uint64_t begin, uint64_t end, const char *opening)
{
    struct batch *b = f->last;
    if (!b || b->state != DONE || strcmp(b->opening, opening) != 0)
        b = batch_new(f, b, begin, opening);
    b->state = DONE;
    b->end = end;
}

static void on_lines(struct bytes lines, void *arg)
{
    struct forwarder *f = arg;
    const struct stream_cursor *end = stream_client_cursor(f->stream);
    uint64_t at = end->offset - lines.len;
    for (struct bytes line; bytes_take_line(&lines, &line); at += line.len + 1) {
        struct batch *b = f->last;
        struct bytes whole = bytes_of(line.ptr, line.len + 1);
        bool is_open = b && b->state == WAITING && !b->is_closed && strcmp(b->opening, end->opening) == 0;
        if (erased_line_is(line))
            pass(f, at, at + whole.len, end->opening);
        else if (!is_open || !take_line(b, whole))
            (void)take_line(batch_new(f, b, at, end->opening), whole);
    }
    drop_done(f);
    f->was_full = f->was_full || f->n_batches > f->parallel;
    if (f->was_full)
        stream_client_pause(f->stream);
    start_waiting(f);
}

static void on_begin(void *arg)
{
    struct forwarder *f = arg;
    f->cursor = *stream_client_cursor(f->stream);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    struct forwarder *f = arg;
    (void)before;
    batch_new(f, f->last, after, stream_client_cursor(f->stream)->opening)->state = DONE;
    drop_done(f);
}

STATS_READ(read_refuses_all, ((struct forwarder *)ctx)->refuses_all)
STATS_READ(read_offset, ((struct forwarder *)ctx)->cursor.offset)

static void register_stats(struct forwarder *f)
{
    static const struct stats_row rows[] = {
        {"offset_bytes", "Offset below which the stream is delivered", read_offset},
        {"refuses_all", "1 while poison_limit is reached: refused lines are retried, not skipped",
            read_refuses_all},
        {0},
    };
    struct stats *s = daemon_stats(f->config.daemon);
    f->lines = stats_counter(s, "lines_delivered_total", NULL, "Lines delivered");
    f->batches = stats_counter(s, "batches_delivered_total", NULL, "Batches delivered");
    f->failures = stats_counter(s, "tries_failed_total", NULL, "Attempts that failed");
    f->refused = stats_counter(
        s, "lines_refused_total", NULL, "Lines skipped because the destination can never accept them");
    stats_gauges(s, rows, NULL, f);
}

/* Reads and locks the state. Returns 0, or -1 with the error. */
static int open_state(struct forwarder *f, struct options *o, struct error *error)
{
    const char *stream = options_string(o, "stream");
    f->state_path = options_text(o, "state");
    f->state_lock = archive_lock_state(f->state_path, error);
    int found = f->state_lock < 0 ? -1 : archive_state_read(f->state_path, &f->state, error);
    if (found > 0 && strcmp(f->state.stream, stream) != 0)
        found = error_set(error, -1, "%s is the state of the stream %s", f->state_path, f->state.stream);
    if (found < 0)
        return options_refuse(o, "state", error, "%s", error->text);
    f->state_found = found > 0;
    snprintf(f->state.stream, sizeof f->state.stream, "%s", stream);
    f->cursor = f->state.cursor;
    return 0;
}

struct forwarder *forwarder_new(const struct forwarder_config *config, struct error *error)
{
    struct daemon *d = config->daemon;
    struct options *o = daemon_options(d);
    struct forwarder *f = mem_zalloc(sizeof *f);
    f->config = *config;
    f->state_lock = -1;
    f->parallel = (size_t)options_int(o, "parallel");
    f->poison_limit = (uint64_t)options_int(o, "poison_limit");
    f->rejects = reject_options_file(o);
    register_stats(f);
    if (open_state(f, o, error) == 0)
        f->source = stream_program_connect(d, error);
    if (!f->source) {
        forwarder_free(&f);
        return NULL;
    }
    f->timer = loop_timer_new(daemon_base(d), start_waiting, f);
    f->stream = stream_program_follow(d, f->state_found, true,
        &(struct stream_client_config){.pubsub = f->source,
            .from = f->state.cursor,
            .loss = STREAM_LOSS_CROSSED,
            .on_begin = on_begin,
            .on_lines = on_lines,
            .on_gap = on_gap,
            .on_change = on_change,
            .arg = f});
    f->committer =
        loop_timer_every(daemon_base(d), options_int(o, "commit_every") * USEC_PER_MSEC, on_commit, f);
    return f;
}

void forwarder_free(struct forwarder **p)
{
    struct forwarder *f = *p;
    if (!f)
        return;
    stats_remove_gauges(daemon_stats(f->config.daemon), f);
    loop_timer_free(&f->committer);
    loop_timer_free(&f->timer);
    stream_client_free(&f->stream);
    while (f->first)
        drop_first(f);
    http_client_free(&f->source);
    archive_state_free(&f->state);
    if (f->state_lock >= 0)
        io->close(f->state_lock);
    free(f);
    *p = NULL;
}

void forwarder_drain(struct forwarder *f)
{
    stream_client_stop(f->stream);
    f->stopping = true;
    if (f->under_way == 0)
        end_drain(f);
    else
        commit(f);
}

void *forwarder_arg(const struct forwarder *f)
{
    return f->config.arg;
}

const struct stream_place *forwarder_place(const struct forwarder *f)
{
    return stream_client_place(f->stream);
}
