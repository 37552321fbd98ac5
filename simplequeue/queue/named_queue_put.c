/* Putting, and the producers' marks that make its retries harmless. */
#include "simplequeue/queue/named_queue_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define PRODUCERS_MAX 4096    /* without a journal */
#define EVICT_ITEMS_MAX 50000 /* set aside at once, */
#define EVICT_BYTES_MAX (4u << 20)

static struct mark *find_mark(const struct named_queue *q, const char *producer)
{
    struct mark *m;
    HASH_FIND_STR(q->marks, producer, m);
    return m;
}

void named_queue_mark_set(struct named_queue *q, const char *producer, uint64_t value)
{
    struct mark *m = find_mark(q, producer);
    if (!m) {
        m = mem_zalloc(sizeof *m);
        snprintf(m->producer, sizeof m->producer, "%s", producer);
        HASH_ADD_STR(q->marks, producer, m);
    }
    m->value = value;
}

void named_queue_marks_free(struct named_queue *q)
{
    struct mark *m, *after;
    HASH_ITER(hh, q->marks, m, after)
    {
        HASH_DEL(q->marks, m);
        free(m);
    }
}

uint64_t named_queue_mark(const struct named_queue *q, const char *producer, bool *known)
{
    if (q->config.journal)
        return journal_mark(q->config.journal, bytes_str(producer), known);
    const struct mark *m = find_mark(q, producer);
    if (known)
        *known = m != NULL;
    return m ? m->value : 0;
}

/* The mark once everything under way is committed: what the journal will judge a put by. */
static uint64_t coming_mark(const struct named_queue *q, const char *producer)
{
    const struct op *last = NULL;
    for (const struct op *o = q->oldest; o; o = o->newer)
        if (strcmp(o->producer, producer) == 0)
            last = o;
    return last ? last->next : named_queue_mark(q, producer, NULL);
}

static void mark_add(struct named_queue *q, struct op *o)
{
    if (!o->producer[0])
        return;
    o->moves_mark = true;
    if (q->newest)
        q->newest->newer = o;
    else
        q->oldest = o;
    q->newest = o;
}

void named_queue_mark_decided(struct named_queue *q, const struct op *o)
{
    struct op *before = NULL;
    if (!o->moves_mark)
        return;
    for (struct op *at = q->oldest; at != o; at = at->newer)
        before = at;
    if (before)
        before->newer = o->newer;
    else
        q->oldest = o->newer;
    if (q->newest == o)
        q->newest = before;
}

static struct amount amount_of(const struct queue_put *put)
{
    struct amount a = {.n = put->n};
    for (size_t i = 0; i < put->n; i++)
        a.bytes += put->messages[i].len;
    return a;
}

static uint64_t cost_of(struct amount a)
{
    return a.bytes + a.n * QUEUE_MESSAGE_COST;
}

/* With a journal messages go to disk before memory is full: then only what is kept of those counts. */
static bool memory_has_room(
    uint64_t most, const struct queue_shared *shared, bool on_disk, struct amount in, struct amount out)
{
    return !most || (on_disk ? queue_shared_fixed(shared) < most
                             : queue_shared_cost(shared) - cost_of(out) + cost_of(in) <= most);
}

static bool has_memory(const struct named_queue *q, struct amount in, struct amount out)
{
    const struct named_queue_config *c = &q->config;
    return memory_has_room(c->limits->max_memory, c->shared, c->journal != NULL, in, out);
}

static bool has_room(const struct named_queue *q, struct amount in, struct amount out)
{
    const struct queue_limits *l = q->config.limits;
    const struct queue_state *s = queue_state(q->core);
    uint64_t depth = queue_depth(q->core) + s->n[MESSAGE_PENDING] - out.n;
    return (!l->max_depth || depth + in.n <= l->max_depth) &&
           (!l->max_bytes || s->bytes + s->pending_bytes - out.bytes + in.bytes <= l->max_bytes) &&
           has_memory(q, in, out);
}

static bool ever_fits(const struct queue_limits *l, bool on_disk, struct amount in)
{
    return (!l->max_depth || in.n <= l->max_depth) && (!l->max_bytes || in.bytes <= l->max_bytes) &&
           (!l->max_memory || on_disk || cost_of(in) <= l->max_memory);
}

enum queue_result named_queue_why_full(const struct named_queue *q, size_t n, uint64_t bytes)
{
    struct amount in = {n, bytes}, none = {0};
    if (!ever_fits(q->config.limits, q->config.journal != NULL, in))
        return QUEUE_NEVER_FITS;
    return has_memory(q, in, none) ? QUEUE_FULL : QUEUE_MEMORY_FULL;
}

enum queue_result named_queue_check_first_put(const struct queue_limits *limits,
    const struct queue_shared *shared, bool on_disk, size_t n, uint64_t bytes)
{
    struct amount in = {n, bytes};
    if (n == 0)
        return QUEUE_OK;
    if (!ever_fits(limits, on_disk, in))
        return QUEUE_NEVER_FITS;
    if (on_disk && queue_log_put_size(n, bytes) > JOURNAL_FRAME_MAX)
        return QUEUE_TOO_LARGE;
    bool fits = memory_has_room(limits->max_memory, shared, on_disk, in, (struct amount){0});
    return fits ? QUEUE_OK : QUEUE_MEMORY_FULL;
}

/* False when it is plain that no eviction helps. */
static bool may_have_room(const struct named_queue *q, struct amount in, struct amount out)
{
    const struct queue_limits *l = q->config.limits;
    const struct queue_state *s = queue_state(q->core);
    uint64_t stays = queue_depth(q->core) - s->n[MESSAGE_READY] - out.n + s->n[MESSAGE_PENDING];
    return (!l->max_depth || stays + in.n <= l->max_depth) && (!l->max_bytes || in.bytes <= l->max_bytes) &&
           (!q->config.journal || has_memory(q, in, out));
}

/* Whether there would be room with everything gone that is ready or set aside. */
static bool will_have_room(const struct named_queue *q, struct amount in, struct amount out)
{
    const struct queue_state *s = queue_state(q->core);
    out.n += s->n[MESSAGE_READY];
    out.bytes += s->bytes - queue_bytes_not_ready(q->core);
    return has_room(q, in, out);
}

/* One at a time, because only the bounds tell how many it takes. False when that was not enough. */
static bool evict(struct named_queue *q, struct amount in, struct amount *out, struct id_ranges *more)
{
    uint64_t most = out->bytes + EVICT_BYTES_MAX;
    while (!has_room(q, in, *out)) {
        uint64_t before = more->count;
        if (before == EVICT_ITEMS_MAX || out->bytes >= most)
            return false;
        queue_evict(q->core, 1, UINT64_MAX, false, more);
        if (more->count == before)
            return false;
        out->n++;
        out->bytes += queue_message(q->core, more->at[more->n - 1].last, NULL).len;
    }
    return true;
}

enum queue_eviction named_queue_evict(
    struct named_queue *q, size_t n, uint64_t bytes, struct id_ranges *evicted, uint64_t *evicted_bytes)
{
    struct amount in = {n, bytes}, out = {evicted->count, *evicted_bytes};
    struct id_ranges more = {0};
    enum queue_eviction room = may_have_room(q, in, out) ? EVICTION_ENOUGH : EVICTION_IMPOSSIBLE;
    if (room == EVICTION_ENOUGH && !evict(q, in, &out, &more))
        room = more.count && will_have_room(q, in, out) ? EVICTION_PARTIAL : EVICTION_IMPOSSIBLE;
    if (room == EVICTION_IMPOSSIBLE) {
        queue_abort(q->core, &more);
    } else {
        for (size_t i = 0; i < more.n; i++)
            id_ranges_add_range(evicted, more.at[i]);
        *evicted_bytes = out.bytes;
    }
    id_ranges_free(&more);
    return room;
}

/* What the mark makes of the put, before the journal is asked: a duplicate needs no ids and no room, and
 * without a journal this is the judgement. */
static enum queue_result check_mark(const struct named_queue *q, const struct queue_put *put,
    const char *producer, bool *duplicate, uint64_t *mark)
{
    uint64_t coming = coming_mark(q, producer);
    *duplicate = coming >= put->next;
    if (!*duplicate && coming != put->mark) {
        if (mark)
            *mark = named_queue_mark(q, producer, NULL);
        return QUEUE_CONFLICT;
    }
    if (!q->config.journal && !find_mark(q, producer) && HASH_COUNT(q->marks) >= PRODUCERS_MAX)
        return QUEUE_TOO_MANY_PRODUCERS;
    return QUEUE_OK;
}

/* A duplicate is told when what moved the mark is committed. The journal is not asked: were the original
 * refused meanwhile, it would take the retry, whose messages are not in the queue, for new. */
static void put_duplicate(struct op *o)
{
    struct op *original = o->q->oldest;
    while (original && (strcmp(original->producer, o->producer) != 0 || original->next < o->next))
        original = original->newer;
    o->q->under_way++;
    if (!original) {
        op_finish(&(struct journal_commit){.result = JOURNAL_OK, .duplicate = true}, o);
        return;
    }
    o->retry = original->retries;
    original->retries = o;
}

/* q->late counts what the put delays already, when there is room to reserve for it. */
static enum queue_result put_new(
    struct op *o, struct journal_append *a, const struct queue_put *put, struct queue_now now, uint64_t *mark)
{
    struct queue *core = o->q->core;
    if (put->n && !named_queue_reserve_bits(o, put->n, now))
        return QUEUE_NO_SPACE;
    a->reserve = op_reserve(o->q, put->n);
    o->n = put->n;
    o->first_id = put->n ? queue_add(core, put->messages, put->n) : queue_state(core)->next_id;
    buf_clear(&o->q->record);
    o->time = put->delay ? now.monotonic + put->delay : 0;
    if (o->q->config.journal && put->delay)
        queue_log_put_late(&o->q->record, o->first_id, put->messages, put->n, now.wall + put->delay);
    else if (o->q->config.journal)
        queue_log_put(&o->q->record, o->first_id, put->messages, put->n);
    uint64_t first_id = o->first_id;
    enum queue_result r = op_append(o, a, put->messages, put->n, now, mark);
    if (r != QUEUE_OK)
        queue_add_abort(core, first_id, put->n);
    return r;
}

static enum queue_result may_store(
    const struct named_queue *q, const struct queue_put *put, struct queue_now now)
{
    struct amount in = amount_of(put);
    if (in.n && !has_room(q, in, (struct amount){0}))
        return named_queue_why_full(q, in.n, in.bytes);
    return named_queue_waits(q, OP_PUT, now) ? QUEUE_NO_SPACE : QUEUE_OK;
}

enum queue_result named_queue_put(struct named_queue *q, const struct queue_put *put, struct queue_now now,
    queue_done_fn *done, void *arg, uint64_t *mark)
{
    bool duplicate = false;
    struct op *o = op_new(q, OP_PUT, done, arg);
    struct journal_append a = {.producer = put->producer, .mark = put->mark, .next = put->next};
    enum queue_result r = QUEUE_OK;
    if (put->producer.len) {
        snprintf(o->producer, sizeof o->producer, "%.*s", (int)put->producer.len, put->producer.ptr);
        o->next = put->next;
        r = check_mark(q, put, o->producer, &duplicate, mark);
    }
    if (r == QUEUE_OK && !duplicate)
        r = may_store(q, put, now);
    if (r != QUEUE_OK) {
        op_free(o);
        return r;
    }
    if (duplicate) {
        put_duplicate(o);
        return QUEUE_OK;
    }
    mark_add(q, o);
    if (put->delay) {
        struct amount late = amount_of(put);
        op_expect_late(o, late.n, late.bytes);
    }
    r = put_new(o, &a, put, now, mark);
    if (r != QUEUE_OK) {
        op_late_decided(o);
        named_queue_mark_decided(q, o);
        op_free(o);
    }
    return r;
}
