#include "simplequeue/server/overflow.h"

#include "base/log.h"
#include "base/stats.h"
#include "daemon/daemon.h"
#include "simplequeue/queue/overflow_log.h"
#include "simplequeue/server/queue_server.h"

#include <stdlib.h>
#include <sysexits.h>

#define SAVE_BYTES_MAX (1u << 20) /* bytes of messages per batch */
#define LOG_AGAIN (60 * USEC_PER_SEC)

struct overflow {
    struct queue_loop *loop;
    struct overflow_log *log;
    char *path;
    bool is_device; /* the path is a device, which all queues share */
    struct stats_counter *failures;
};

/* An eviction makes room in one queue, one batch of messages at a time, until no put waits for room. */
struct eviction {
    struct overflow *o;
    struct named_queue *q;
    struct id_ranges ids;     /* the messages of the batch; they are busy */
    enum queue_result result; /* result of the last batch */
    bool held_up;             /* the eviction waits for an operation or a load of the queue */
};

struct overflow *overflow_open(struct queue_loop *loop, const char *path, void (*notify)(void *arg),
    void *arg, char *error, size_t error_size)
{
    if (overflow_log_check(path, error, error_size) != 0)
        return NULL;
    struct overflow *o = mem_zalloc(sizeof *o);
    o->loop = loop;
    o->path = mem_strdup(path);
    o->is_device = overflow_log_is_device(path);
    o->log = overflow_log_new(notify, arg);
    o->failures = stats_counter(daemon_stats(loop->daemon), "overflow_failures_total", NULL,
        "batches that could not be written to the overflow log");
    return o;
}

/* Appends the text to the log file of the queue. */
static void log_write(
    struct overflow *o, const struct named_queue *q, struct buf *text, overflow_log_done *done, void *arg)
{
    struct buf path = {0};
    buf_append_str(&path, o->path);
    if (!o->is_device && strcmp(named_queue_name(q), QUEUES_DEFAULT) != 0)
        buf_printf(&path, ".%s", named_queue_name(q));
    buf_append_char(&path, '\0');
    overflow_log_write(o->log, path.ptr, text, done, arg);
    buf_free(&path);
}

static void append_line(struct buf *out, struct named_queue *q, uint64_t id)
{
    buf_append_bytes(out, queue_message(named_queue_core(q), id, NULL));
    buf_append_char(out, '\n');
}

/* Retries or refuses the puts that the batch covers. A put that still has no room waits again, at the end of the
 * line. */
static void answer_covered(struct named_queue *q, enum queue_result result)
{
    struct served_queue *served = served_of(q);
    served->room_granted = true;
    while (served->puts.first && served->puts.first->covered) {
        if (result == QUEUE_OK)
            wait_wake(served->puts.first, WAIT_RETRY);
        else
            wait_refuse(served->puts.first, result, NULL);
    }
    served->room_granted = false;
}

/* Returns true if messages must be read from disk before an eviction can make room for the put. */
static bool is_loading(struct named_queue *q, const struct wait *put)
{
    uint64_t sent = queue_state(named_queue_core(q))->sent, id;
    if (sent > 0) /* messages before `sent` are not evicted */
        return queue_next_ready(named_queue_core(q), sent, &id) &&
               named_queue_prepare_message(q, id) == QUEUE_LOADING;
    return named_queue_prepare(q, put->put.n, REPLY_BYTES_MAX) == QUEUE_LOADING ||
           named_queue_prepare(q, SIZE_MAX, put->put.bytes) == QUEUE_LOADING;
}

/* Chooses the messages of the next batch to make room for the first puts in the line. A batch covers a put if the batch
 * makes enough room for it. If a put needs several batches, only the last batch covers the put. Puts that already have
 * room are retried, and puts that can never have room are refused. */
static void find_room(struct eviction *e)
{
    const struct wait_line *line = &served_of(e->q)->puts;
    const uint64_t *states = queue_state(named_queue_core(e->q))->n;
    while (line->first && !e->ids.count) {
        struct wait *first = line->first;
        size_t n = 0;
        uint64_t bytes = 0, evicted = 0;
        bool enough = true;
        for (struct wait *w = first; w && enough; w = w->after) {
            n += w->put.n;
            bytes += w->put.bytes;
            enough = w->covered = named_queue_evict(e->q, n, bytes, &e->ids, &evicted) == EVICTION_ENOUGH;
        }
        if (e->ids.count)
            return;
        /* The eviction waits if an operation in progress may make room or release messages, or if the first messages
         * must be read from disk. */
        e->held_up = !first->covered &&
                     (states[MESSAGE_PENDING] + states[MESSAGE_BUSY] > 0 || is_loading(e->q, first));
        if (e->held_up)
            return;
        if (first->covered)
            answer_covered(e->q, QUEUE_OK);
        else
            wait_refuse(first, named_queue_why_full(e->q, first->put.n, first->put.bytes), NULL);
    }
}

static void on_written(const char *error, void *arg);

/* Posted to the loop when an eviction begins and after each of its batches. */
static void serve_line(void *arg)
{
    struct eviction *e = arg;
    struct wait *first = served_of(e->q)->puts.first;
    if (e->result != QUEUE_OK && first) /* refuse the first put even if it needs more batches */
        first->covered = true;
    answer_covered(e->q, e->result);
    e->result = QUEUE_OK;
    find_room(e);
    if (e->ids.count) {
        struct buf text = {0};
        for (struct id_walk w = {.ids = &e->ids}; id_walk_next(&w);)
            append_line(&text, e->q, w.id);
        log_write(e->o, e->q, &text, on_written, e);
    }
    if (e->ids.count || e->held_up)
        return;
    served_of(e->q)->eviction = NULL;
    queue_loop_end(e->o->loop);
    free(e);
}

static void serve_soon(struct eviction *e)
{
    daemon_post(e->o->loop->daemon, serve_line, e);
}

void overflow_on_ready(struct overflow *o, struct named_queue *q)
{
    struct eviction *e = o ? served_of(q)->eviction : NULL;
    if (!e || !e->held_up)
        return;
    e->held_up = false;
    serve_soon(e);
}

static void on_removed(const struct queue_outcome *outcome, void *arg)
{
    struct eviction *e = arg;
    e->result = outcome->result;
    if (e->result == QUEUE_OK)
        stats_add(served_of(e->q)->overflowed, outcome->count);
    serve_soon(e); /* in a later turn, so that readers that wait for this commit are served first */
}

/* Every put that needs room writes again after a failure, so only the first failure and the recovery are logged. */
static void on_written(const char *error, void *arg)
{
    struct eviction *e = arg;
    struct served_queue *served = served_of(e->q);
    usec_t now = queue_loop_now().monotonic;
    if (error) {
        if (!served->overflow_failure_logged && now >= served->log_overflow_at) {
            log_error("the overflow log failed: puts are refused", LOG_S("queue", named_queue_name(e->q)),
                LOG_S("error", error));
            served->overflow_failure_logged = true;
            served->log_overflow_at = now + LOG_AGAIN;
        }
        stats_add(e->o->failures, 1);
        named_queue_undo_evict(e->q, &e->ids);
        e->result = QUEUE_OVERFLOW_FAILED;
    } else {
        if (served->overflow_failure_logged)
            log_info("the overflow log is written again", LOG_S("queue", named_queue_name(e->q)));
        served->overflow_failure_logged = false;
        e->result = named_queue_remove(e->q, &e->ids, queue_loop_now(), on_removed, e);
    }
    if (e->result != QUEUE_OK)
        serve_soon(e);
}

bool overflow_wait(struct overflow *o, struct named_queue *q, const struct first_put *put,
    struct http_request *req, wait_fn *retry, void *arg)
{
    struct served_queue *served = served_of(q);
    if (!o)
        return false;
    struct wait *w = wait_add(o->loop, &served->puts, req, retry, arg);
    w->q = q;
    w->put = *put;
    if (served->eviction)
        return true;
    served->eviction = mem_zalloc(sizeof *served->eviction);
    *served->eviction = (struct eviction){.o = o, .q = q};
    queue_loop_begin(o->loop);
    serve_soon(served->eviction);
    return true;
}

void overflow_poll(struct overflow *o)
{
    if (o)
        overflow_log_poll(o->log);
}

void overflow_reopen(struct overflow *o)
{
    char error[512];
    if (!o)
        return;
    overflow_log_reopen(o->log);
    o->is_device = overflow_log_is_device(o->path);
    if (overflow_log_check(o->path, error, sizeof error) == 0)
        log_info("overflow log reopened", LOG_S("path", o->path));
    else
        log_error("overflow log not reopened", LOG_S("error", error));
}

/* Progress of saving the messages of one queue when the daemon stops. */
struct saving {
    uint64_t n; /* messages in the current batch */
    uint64_t saved, lost;
    char *error; /* the first error */
};

static void on_saved(const char *error, void *arg)
{
    struct saving *s = arg;
    *(error ? &s->lost : &s->saved) += s->n;
    s->n = 0;
    if (error && !s->error)
        s->error = mem_strdup(error);
}

/* Writes the messages in batches, so that a failure loses only one batch. */
static void save_queue(struct overflow *o, struct named_queue *q)
{
    const struct queue_burial *burial;
    const char *name = named_queue_name(q);
    struct queue *core = named_queue_core(q);
    struct saving s = {0};
    struct buf text = {0};
    for (uint64_t id = 0; queue_next_ready(core, id + 1, &id); s.n++) {
        if (text.len >= SAVE_BYTES_MAX)
            log_write(o, q, &text, on_saved, &s);
        append_line(&text, q, id);
    }
    for (uint64_t id = 0; queue_next_buried(core, id + 1, &id, &burial); s.n++)
        append_line(&text, q, id);
    if (s.n)
        log_write(o, q, &text, on_saved, &s);
    if (s.saved)
        log_info("moved the messages of the queue to the overflow log", LOG_S("queue", name),
            LOG_U("messages", s.saved));
    if (s.lost) {
        log_error("messages are lost: the overflow log failed", LOG_S("queue", name),
            LOG_U("messages", s.lost), LOG_S("error", s.error));
        daemon_set_status(o->loop->daemon, EX_IOERR);
    }
    free(s.error);
}

void overflow_close(struct overflow **p)
{
    struct overflow *o = *p;
    if (!o)
        return;
    struct queues *qs = o->loop->queues;
    overflow_log_stop(o->log);
    queues_flush(qs); /* commits the last removals before their evictions are freed */
    if (queues_count(qs) > 0 && !named_queue_journal(queues_at(qs, 0))) {
        struct queue_now late = {
            INT64_MAX / 2, queue_loop_now().wall}; /* a time after the end of all leases and delays */
        usec_t deadline;
        while (queues_next_deadline(qs, &deadline) && deadline <= late.monotonic)
            queues_tick(qs, late);
        for (size_t i = 0; i < queues_count(qs); i++)
            save_queue(o, queues_at(qs, i));
    }
    overflow_log_free(&o->log);
    free(o->path);
    free(o);
    *p = NULL;
}
