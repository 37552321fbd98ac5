#include "simplequeue/server/overflow.h"

#include "simplequeue/server/queue_server.h"
#include "base/log.h"
#include "simplequeue/queue/overflow_log.h"

#include <stdlib.h>
#include <sysexits.h>

#define SAVE_BYTES_MAX (1u << 20) /* in one batch */
#define LOG_AGAIN (60 * USEC_PER_SEC)

struct overflow {
    struct overflow_log *log;
    char *path;
    bool is_device; /* all queues write to it */
    struct stats_counter *failures;
};

/* Messages on their way out of a queue. */
struct eviction {
    struct queue_server *server;
    struct named_queue *q;
    struct id_ranges ids;
    enum queue_result result; /* of the batch: what those are told for whom it was */
};

int overflow_open(struct queue_server *server, const char *path, void (*notify)(void *arg), void *arg,
    char *error, size_t error_size)
{
    if (!path)
        return 0;
    if (overflow_log_check(path, error, error_size) != 0)
        return -1;
    struct overflow *o = mem_zalloc(sizeof *o);
    o->path = mem_strdup(path);
    o->is_device = overflow_log_is_device(path);
    o->log = overflow_log_new(notify, arg);
    o->failures = stats_counter(daemon_stats(server->daemon), "overflow_failures_total", NULL,
        "batches that the overflow log did not take");
    server->overflow = o;
    return 0;
}

void overflow_close(struct queue_server *server)
{
    struct overflow *o = server->overflow;
    if (!o)
        return;
    overflow_log_free(&o->log);
    free(o->path);
    free(o);
    server->overflow = NULL;
}

/* Whether others wait for room, so that whoever comes now waits behind them. */
static bool has_line(const struct named_queue *q)
{
    const struct room_line *line = &served_of(q)->room;
    return line->first && !line->telling;
}

static char *path_of(const struct overflow *o, const struct named_queue *q)
{
    struct buf path = {0};
    buf_append_str(&path, o->path);
    if (!o->is_device && strcmp(named_queue_name(q), QUEUES_DEFAULT) != 0)
        buf_printf(&path, ".%s", named_queue_name(q));
    char *text = bytes_dup(buf_bytes(&path));
    buf_free(&path);
    return text;
}

static void append_line(struct buf *out, struct named_queue *q, uint64_t id)
{
    buf_append_bytes(out, queue_message(named_queue_core(q), id, NULL));
    buf_append_char(out, '\n');
}

static struct room_ask *line_take(struct room_line *line)
{
    struct room_ask *ask = line->first;
    line->first = ask->next;
    if (!line->first)
        line->last = NULL;
    return ask;
}

/* Those who are told to try may ask again, and are then at the line's end. */
static void tell(struct room_line *line, size_t n, enum queue_result result)
{
    line->telling = true;
    while (n-- > 0) {
        struct room_ask *ask = line_take(line);
        ask->told(ask, result);
    }
    line->telling = false;
}

/* What the first in the line need is set aside; how many of them that is. The last part may be for nobody yet: whoever
 * needs more than one batch holds is covered once the rest has left too. */
static size_t set_aside(struct named_queue *q, const struct room_line *line, struct id_ranges *ids)
{
    size_t covered = 0, n = 0;
    uint64_t bytes = 0, gone = 0;
    for (const struct room_ask *ask = line->first; ask; ask = ask->next, covered++) {
        n += ask->n;
        bytes += ask->bytes;
        if (named_queue_evict(q, n, bytes, ids, &gone) != EVICTION_ENOUGH)
            break;
    }
    return covered;
}

static void serve_line(void *arg);

static void write_aside(struct eviction *e);

static void serve_soon(struct eviction *e)
{
    daemon_post(e->server->daemon, serve_line, e);
}

/* Whether what is being committed may yet become what can be evicted, or leave. */
static bool is_under_way(struct named_queue *q)
{
    const uint64_t *n = queue_state(named_queue_core(q))->n;
    return n[MESSAGE_PENDING] + n[MESSAGE_BUSY] > 0;
}

/* What would go first has to be read from disk: as many as are put, or as many bytes, whichever bound is the one. */
static bool is_loading(struct named_queue *q, const struct room_ask *ask)
{
    return named_queue_prepare(q, ask->n, REPLY_BYTES_MAX) == QUEUE_LOADING ||
           named_queue_prepare(q, SIZE_MAX, ask->bytes) == QUEUE_LOADING;
}

/* Sets messages aside for the first in the line. Those for whom there is room, or will never be, are told. */
static void find_room(struct eviction *e, struct room_line *line)
{
    while (line->first) {
        line->covered = set_aside(e->q, line, &e->ids);
        if (e->ids.count)
            return;
        line->held_up = line->covered == 0 && (is_under_way(e->q) || is_loading(e->q, line->first));
        if (line->held_up)
            return;
        if (line->covered)
            tell(line, line->covered, QUEUE_OK);
        else
            tell(line, 1, named_queue_why_full(e->q, line->first->n, line->first->bytes));
        line->covered = 0;
    }
}

/* The batch is out of the queue, or back in it; or there is none yet. */
static void serve_line(void *arg)
{
    struct eviction *e = arg;
    struct room_line *line = &served_of(e->q)->room;
    tell(line, line->covered == 0 && e->result != QUEUE_OK ? 1 : line->covered, e->result);
    line->covered = 0;
    e->result = QUEUE_OK;
    find_room(e, line);
    if (e->ids.count)
        write_aside(e);
    if (e->ids.count || line->held_up)
        return;
    line->batch = NULL;
    e->server->pending--;
    server_check_drained(e->server);
    free(e);
}

void overflow_on_ready(struct named_queue *q)
{
    struct room_line *line = &served_of(q)->room;
    if (!line->held_up)
        return;
    line->held_up = false;
    serve_soon(line->batch);
}

static void on_removed(const struct queue_outcome *outcome, void *arg)
{
    struct eviction *e = arg;
    e->result = outcome->result;
    if (e->result == QUEUE_OK)
        stats_add(served_of(e->q)->overflowed, outcome->count);
    serve_soon(e); /* after this commit's readers have had their turn */
}

/* When it begins and when it ends: every put that is refused meanwhile tries again. */
static void log_failing(const struct named_queue *q, const char *why)
{
    struct served_queue *served = served_of(q);
    usec_t now = server_now().monotonic;
    if (served->overflow_failure_logged || now < served->log_overflow_at)
        return;
    log_error(
        "the overflow log failed: puts are refused", LOG_S("queue", named_queue_name(q)), LOG_S("why", why));
    served->overflow_failure_logged = true;
    served->log_overflow_at = now + LOG_AGAIN;
}

static void log_written(const struct named_queue *q)
{
    struct served_queue *served = served_of(q);
    if (served->overflow_failure_logged)
        log_info("the overflow log is written again", LOG_S("queue", named_queue_name(q)));
    served->overflow_failure_logged = false;
}

static void give_back(struct eviction *e, const char *why)
{
    log_failing(e->q, why);
    stats_add(e->server->overflow->failures, 1);
    named_queue_undo_evict(e->q, &e->ids);
    e->result = QUEUE_OVERFLOW_FAILED;
    serve_soon(e);
}

static void on_written(const char *error, void *arg)
{
    struct eviction *e = arg;
    if (error) {
        give_back(e, error);
        return;
    }
    log_written(e->q);
    e->result = named_queue_remove(e->q, &e->ids, server_now(), on_removed, e);
    if (e->result != QUEUE_OK)
        serve_soon(e);
}

static void write_aside(struct eviction *e)
{
    struct buf text = {0};
    for (size_t r = 0; r < e->ids.n; r++)
        for (uint64_t id = e->ids.at[r].first; id <= e->ids.at[r].last; id++)
            append_line(&text, e->q, id);
    char *path = path_of(e->server->overflow, e->q);
    overflow_log_write(e->server->overflow->log, path, &text, on_written, e);
    free(path);
}

static void line_add(struct queue_server *server, struct named_queue *q, struct room_ask *ask)
{
    struct room_line *line = &served_of(q)->room;
    ask->next = NULL;
    if (line->last)
        line->last->next = ask;
    else
        line->first = ask;
    line->last = ask;
    if (line->batch)
        return;
    line->batch = mem_zalloc(sizeof *line->batch);
    line->batch->server = server;
    line->batch->q = q;
    server->pending++;
    serve_soon(line->batch);
}

enum queue_result overflow_put(struct queue_server *server, struct named_queue *q,
    const struct queue_put *put, struct queue_now now, queue_done_fn *done, struct room_ask *ask,
    uint64_t *mark)
{
    enum queue_result r =
        put->n && has_line(q) ? QUEUE_FULL : named_queue_put(q, put, now, done, ask->arg, mark);
    if (!queue_is_full(r) || !server->overflow)
        return r;
    ask->n = put->n;
    ask->bytes = 0;
    for (size_t i = 0; i < put->n; i++)
        ask->bytes += put->messages[i].len;
    line_add(server, q, ask);
    return QUEUE_OK;
}

void overflow_poll(struct queue_server *server)
{
    if (server->overflow)
        overflow_log_poll(server->overflow->log);
}

void overflow_reopen(struct queue_server *server)
{
    char error[512];
    if (!server->overflow)
        return;
    overflow_log_reopen(server->overflow->log);
    server->overflow->is_device = overflow_log_is_device(server->overflow->path);
    if (overflow_log_check(server->overflow->path, error, sizeof error) == 0)
        log_info("overflow log reopened", LOG_S("file", server->overflow->path));
    else
        log_error("overflow log not reopened", LOG_S("why", error));
}

/* What a stop writes of a queue, in batches. */
struct saving {
    struct queue_server *server;
    struct named_queue *q;
    uint64_t saved, lost;
    char *why; /* NULL: nothing is lost */
};

struct saved_batch {
    struct saving *saving;
    uint64_t n;
    bool is_last;
};

static void end_saving(struct saving *s)
{
    const char *name = named_queue_name(s->q);
    if (s->saved)
        log_info("what the queue held went to the overflow log", LOG_S("queue", name),
            LOG_U("messages", s->saved));
    if (s->lost) {
        log_error("messages are lost: the overflow log failed", LOG_S("queue", name),
            LOG_U("messages", s->lost), LOG_S("why", s->why));
        daemon_set_status(s->server->daemon, EX_IOERR);
    }
    free(s->why);
    free(s);
}

static void on_saved(const char *error, void *arg)
{
    struct saved_batch *b = arg;
    struct saving *s = b->saving;
    *(error ? &s->lost : &s->saved) += b->n;
    if (error && !s->why)
        s->why = mem_strdup(error);
    if (b->is_last)
        end_saving(s);
    free(b);
}

static void save(struct saving *s, struct buf *text, uint64_t n, bool is_last)
{
    struct overflow *o = s->server->overflow;
    char *path = path_of(o, s->q);
    struct saved_batch *b = mem_zalloc(sizeof *b);
    *b = (struct saved_batch){s, n, is_last};
    overflow_log_write(o->log, path, text, on_saved, b);
    free(path);
}

static void save_queue(struct queue_server *server, struct named_queue *q)
{
    const struct queue_burial *burial;
    struct queue *core = named_queue_core(q);
    struct saving *s = mem_zalloc(sizeof *s);
    struct buf text = {0};
    uint64_t n = 0;
    s->server = server;
    s->q = q;
    for (uint64_t id = 0; queue_next_ready(core, id + 1, &id); n++) {
        if (text.len >= SAVE_BYTES_MAX) {
            save(s, &text, n, false);
            n = 0;
        }
        append_line(&text, q, id);
    }
    for (uint64_t id = 0; queue_next_buried(core, id + 1, &id, &burial); n++)
        append_line(&text, q, id);
    if (n)
        save(s, &text, n, true);
    else
        free(s);
}

void overflow_save(struct queue_server *server)
{
    if (!server->overflow || queues_count(server->queues) == 0 ||
        named_queue_journal(queues_at(server->queues, 0)))
        return;
    struct queue_now late = {INT64_MAX / 2, server_now().wall}; /* leases and delays are over */
    usec_t deadline;
    while (queues_next_deadline(server->queues, &deadline) && deadline <= late.monotonic)
        queues_tick(server->queues, late);
    for (size_t i = 0; i < queues_count(server->queues); i++)
        save_queue(server, queues_at(server->queues, i));
}
