#include "stream/slot_outbox.h"

#include "base/backoff.h"
#include "base/log.h"
#include "base/random_id.h"
#include "daemon/loop_timer.h"
#include "http/client/http_pool.h"
#include "stream/publisher.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct item {
    struct item *next;
    uint64_t owner;
    uint64_t slot; /* microseconds */
    uint64_t n_lines;
    struct buf lines;
};

struct outbox {
    struct outbox_config config;
    struct publisher *publisher;
    struct loop_timer *timer;
    struct backoff backoff;
    char opening[RANDOM_ID_SIZE]; /* stored with each mark: shows whether this process has moved it */
    bool is_busy, is_known;       /* a request is in progress; `mark` is pubsub's */
    uint64_t mark, next;          /* marks A and B; B is of the batch */
    uint64_t floor;               /* the highest mark that another process has set */
    struct item *first, *last, *batch_last; /* batch_last NULL: no batch */
    size_t n, bytes;
    size_t singles; /* after a refusal: pieces to publish one by one */
    struct buf body;
    struct stats_counter *stored, *lines, *dropped, *dropped_late, *refused;
};

/* Removes the piece behind `before`; NULL: the first one. */
static void remove_after(struct outbox *o, struct item *before)
{
    struct item *i = before ? before->next : o->first;
    *(before ? &before->next : &o->first) = i->next;
    o->last = i->next ? o->last : before;
    o->bytes -= i->lines.len;
    o->n--;
    buf_free(&i->lines);
    free(i);
}

static void drop_after(struct outbox *o, struct item *before, struct stats_counter *counter)
{
    struct item *i = before ? before->next : o->first;
    stats_add(counter, 1);
    if (o->config.on_drop)
        o->config.on_drop(i->owner, buf_bytes(&i->lines), o->config.arg);
    remove_after(o, before);
}

static void make_batch(struct outbox *o)
{
    o->next = o->mark + 1;
    buf_clear(&o->body);
    for (struct item *i = o->first; i; i = i->next) {
        if (o->batch_last && (o->singles > 0 || o->body.len + i->lines.len > o->config.publish_max))
            break;
        buf_append_bytes(&o->body, buf_bytes(&i->lines));
        o->next = i->slot > o->next ? i->slot : o->next;
        o->batch_last = i;
    }
}

static void end_batch(struct outbox *o, bool is_stored)
{
    bool is_last;
    do {
        is_last = o->first == o->batch_last;
        o->singles -= o->singles > 0;
        if (!is_stored) {
            drop_after(o, NULL, o->refused);
            continue;
        }
        stats_add(o->stored, 1);
        stats_add(o->lines, o->first->n_lines);
        remove_after(o, NULL);
    } while (!is_last);
    o->batch_last = NULL;
    o->mark = is_stored ? o->next : o->mark;
}

/* Continues at pubsub's mark. Drops pieces that the stream may have, unless the mark is that of an older copy. */
static void adopt(struct outbox *o, uint64_t mark)
{
    struct item *before = NULL, *i;
    if (o->mark > 0 && mark != o->mark)
        log_warn("pubsub has another mark", LOG_S("producer", o->config.producer), LOG_U("mark", mark),
            LOG_U("expected", o->mark));
    while (mark > o->mark && (i = before ? before->next : o->first)) {
        if (i->slot <= mark)
            drop_after(o, before, o->dropped_late);
        else
            before = i;
    }
    o->floor = mark > o->mark ? mark : o->floor;
    o->mark = mark;
    o->is_known = true;
    o->batch_last = NULL;
}

/* Starts the next request, unless one is in progress or waits. */
static void work(void *arg)
{
    struct outbox *o = arg;
    if (o->is_busy || loop_timer_is_set(o->timer) || (o->is_known && !o->first))
        return;
    o->is_busy = true;
    if (!o->is_known) {
        publisher_ask(o->publisher, o->config.producer);
        return;
    }
    if (!o->batch_last)
        make_batch(o);
    publisher_send(o->publisher, &(struct publisher_run){.producer = o->config.producer,
                                     .mark = o->mark,
                                     .next = o->next,
                                     .lines = buf_bytes(&o->body),
                                     .opening = o->opening});
}

/* A duplicate is this process's own if the mark is its own. Only then is the batch stored. */
static void see_mark(struct outbox *o, const struct publisher_outcome *outcome)
{
    if (o->batch_last && outcome->mark == o->next && bytes_equal_str(outcome->opening, o->opening)) {
        o->is_known = true;
        end_batch(o, true);
    } else {
        adopt(o, outcome->mark);
    }
}

static void on_outcome(const struct publisher_outcome *outcome, void *arg)
{
    struct outbox *o = arg;
    const char *trouble = NULL;
    o->is_busy = false;
    if (outcome->result == PUBLISHER_ASKED) {
        see_mark(o, outcome);
    } else if (outcome->is_duplicate || outcome->result == PUBLISHER_CONFLICT) {
        o->is_known = false;
    } else if (outcome->result == PUBLISHER_STORED) {
        end_batch(o, true);
    } else if (outcome->result == PUBLISHER_REFUSED && o->batch_last != o->first) {
        for (struct item *i = o->first; i; i = i == o->batch_last ? NULL : i->next)
            o->singles++;
        o->batch_last = NULL;
    } else if (outcome->result == PUBLISHER_REFUSED) {
        log_error("pubsub refuses lines", LOG_S("error", outcome->why));
        end_batch(o, false);
    } else {
        trouble = outcome->why;
        loop_timer_set(o->timer, outcome->wait > 0 ? outcome->wait : backoff_failed(&o->backoff));
    }
    if (!trouble)
        backoff_succeeded(&o->backoff);
    work(o);
    o->config.on_change(trouble, o->config.arg);
}

void outbox_add(struct outbox *o, uint64_t owner, int64_t slot, struct buf *lines, uint64_t n_lines)
{
    uint64_t time = slot > 0 ? (uint64_t)slot * 1000 : 0;
    if (time <= o->floor) {
        stats_add(o->dropped_late, 1);
        if (o->config.on_drop)
            o->config.on_drop(owner, buf_bytes(lines), o->config.arg);
        buf_free(lines);
        return;
    }
    struct item *i = mem_alloc(sizeof *i);
    *i = (struct item){NULL, owner, time, n_lines, *lines};
    *lines = (struct buf){0};
    *(o->last ? &o->last->next : &o->first) = i;
    o->last = i;
    o->n++;
    o->bytes += i->lines.len;
    while (o->bytes > o->config.max_bytes && o->last != o->batch_last)
        drop_after(o, o->batch_last, o->dropped); /* the oldest behind the batch */
    work(o);
}

bool outbox_is_empty(const struct outbox *o)
{
    return !o->first;
}

uint64_t outbox_floor(const struct outbox *o)
{
    return o->floor;
}

STATS_READ(read_bytes, ((struct outbox *)ctx)->bytes)
STATS_READ(read_pieces, ((struct outbox *)ctx)->n)

/* Registers a counter PIECES_VERB_total. */
static struct stats_counter *counter(
    const struct outbox *o, const char *verb, const char *labels, const char *help)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s_total", o->config.pieces, verb);
    return stats_counter(o->config.stats, name, labels, help);
}

static void register_stats(struct outbox *o)
{
    static const char dropped[] = "Dropped, because waiting lines exceeded their memory, a later time was "
                                  "already published, or pubsub refused the lines";
    char waiting[64];
    snprintf(waiting, sizeof waiting, "waiting_%s", o->config.pieces);
    stats_gauge(o->config.stats, "waiting_bytes", NULL, "Bytes of lines that wait for pubsub", read_bytes, o);
    stats_gauge(o->config.stats, waiting, NULL, "Pieces of lines that wait for pubsub", read_pieces, o);
    o->stored = counter(o, "stored", NULL, "Stored in the stream");
    o->lines = stats_counter(o->config.stats, "lines_stored_total", NULL, "Lines stored in the stream");
    o->dropped = counter(o, "dropped", "reason=\"memory\"", dropped);
    o->dropped_late = counter(o, "dropped", "reason=\"mark\"", dropped);
    o->refused = counter(o, "dropped", "reason=\"refused\"", dropped);
}

struct outbox *outbox_new(const struct outbox_config *config)
{
    struct outbox *o = mem_zalloc(sizeof *o);
    o->config = *config;
    random_id(o->opening);
    backoff_init(&o->backoff, config->backoff_min, config->backoff_max, (uint64_t)clock_wall());
    o->timer = loop_timer_new(config->base, work, o);
    o->publisher = publisher_new(&(struct publisher_config){
        .pool = config->pool, .stream = config->stream, .on_outcome = on_outcome, .arg = o});
    register_stats(o);
    work(o);
    return o;
}

void outbox_free(struct outbox **op)
{
    struct outbox *o = *op;
    if (!o)
        return;
    stats_remove_gauges(o->config.stats, o);
    publisher_free(&o->publisher);
    loop_timer_free(&o->timer);
    while (o->first)
        remove_after(o, NULL);
    buf_free(&o->body);
    free(o);
    *op = NULL;
}
