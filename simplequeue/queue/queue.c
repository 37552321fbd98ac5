#include "simplequeue/queue/queue.h"

#include "base/lower_bound.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

static_assert((int)MESSAGE_GONE == (int)STORE_GONE && (int)MESSAGE_PENDING == (int)STORE_PENDING &&
                  (int)MESSAGE_READY == (int)STORE_READY,
    "the states of the store and of the queue must agree");

/* The first member of each struct to which message.owner can point. Ready and pending messages have no owner. */
enum owner_kind { OWNER_LEASE, OWNER_DELAY, OWNER_BURIAL };

struct lease {
    enum owner_kind kind;
    struct queue_timer timer; /* timer.id is the number of the lease */
    UT_hash_handle hh;        /* by timer.id */
    bool ended;               /* the lease is freed when it has no busy messages */
    size_t leased, busy;      /* numbers of leased and busy messages of the lease */
    size_t n;
    uint64_t ids[]; /* in ascending order */
};

struct delay {
    enum owner_kind kind;
    struct queue_timer timer; /* timer.id is the id of the message */
};

struct burial {
    enum owner_kind kind;
    struct queue_burial info;
    char reason[];
};

/* A binary min-heap of ids. */
struct id_heap {
    uint64_t *ids;
    size_t n, cap;
};

#define QUEUE_MAGIC 0x7175e0e1u

struct queue {
    unsigned magic;
    struct queue_shared *shared;
    void *owner;
    struct store store;
    struct queue_state state;
    uint64_t frontier;               /* no message before this id is ready */
    uint64_t sent_count, sent_bytes; /* of the ready messages before state.sent */
    /* Ids of busy messages, from queue_take and queue_block_reserves. The heap may also contain ids of messages that
     * are no longer busy. lowest_taken removes them. */
    struct id_heap taken;
    uint64_t demand;   /* requests wait for messages up to this id, which are therefore not spilled */
    uint64_t demanded; /* the value of `demand` at the previous load */
    uint64_t spill_at; /* bytes of memory above which the queue tries to spill again */
    struct lease *leases;
    uint64_t position; /* the next id to send to the follower */
    struct queue_timer pause;
    uint64_t last_lease;
    char reader[NAME_LEN_MAX + 1], follower[NAME_LEN_MAX + 1];
};

void id_ranges_add_range(struct id_ranges *r, struct id_range range)
{
    r->count += range.last - range.first + 1;
    if (r->n && r->at[r->n - 1].last + 1 == range.first) {
        r->at[r->n - 1].last = range.last;
        return;
    }
    *ARRAY_ADD(r->at, r->n, r->cap) = range;
}

void id_ranges_add(struct id_ranges *r, uint64_t id)
{
    id_ranges_add_range(r, (struct id_range){id, id});
}

void id_ranges_free(struct id_ranges *r)
{
    free(r->at);
    *r = (struct id_ranges){0};
}

static void id_heap_put(struct id_heap *h, uint64_t id)
{
    ARRAY_ROOM(h->ids, h->cap, h->n + 1);
    size_t at = h->n++;
    for (; at && h->ids[(at - 1) / 2] > id; at = (at - 1) / 2)
        h->ids[at] = h->ids[(at - 1) / 2];
    h->ids[at] = id;
}

static uint64_t id_heap_take(struct id_heap *h)
{
    uint64_t least = h->ids[0], moved = h->ids[--h->n];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < h->n) {
        if (child + 1 < h->n && h->ids[child + 1] < h->ids[child])
            child++;
        if (h->ids[child] >= moved)
            break;
        h->ids[at] = h->ids[child];
        at = child;
    }
    h->ids[at] = moved;
    return least;
}

struct queue *queue_new(struct queue_shared *shared, uint64_t next_id, uint64_t lease_base, void *owner)
{
    struct queue *q = mem_zalloc(sizeof *q);
    q->magic = QUEUE_MAGIC;
    q->shared = shared;
    q->owner = owner;
    q->last_lease = lease_base;
    q->state.next_id = q->frontier = next_id;
    q->state.reader = q->reader;
    q->state.follower = q->follower;
    heap_node_init(&q->pause.node);
    q->pause.kind = QUEUE_TIMER_PAUSE;
    q->pause.owner = owner;
    store_init(&q->store, next_id, &shared->memory);
    return q;
}

/* Returns the memory of an owner, including its entry in the heap. */
static size_t owner_cost(const void *owner)
{
    const struct lease *l = owner;
    const struct burial *b = owner;
    switch (*(const enum owner_kind *)owner) {
    case OWNER_LEASE:
        return sizeof *l + l->n * sizeof *l->ids + sizeof(void *);
    case OWNER_DELAY:
        return sizeof(struct delay) + sizeof(void *);
    case OWNER_BURIAL:
        return sizeof *b + b->info.reason.len;
    }
    return 0;
}

static void forget_owner(struct queue *q, void *owner)
{
    q->shared->owners -= owner_cost(owner);
    free(owner);
}

static void free_owner(struct queue *q, struct message *m)
{
    if (!m->owner)
        return;
    if (*(enum owner_kind *)m->owner == OWNER_DELAY) {
        heap_remove(&q->shared->deadlines, &((struct delay *)m->owner)->timer.node);
        q->state.to_move--;
        q->state.to_move_bytes -= m->len;
    }
    if (*(enum owner_kind *)m->owner != OWNER_LEASE)
        forget_owner(q, m->owner);
    m->owner = NULL;
}

void queue_free(struct queue **qp)
{
    struct queue *q = *qp;
    if (!q)
        return;
    assert(q->magic == QUEUE_MAGIC);
    uint64_t id = 0;
    struct message *m;
    for (uint64_t from = 0; store_next_unready(&q->store, from, &id, &m); from = id + 1)
        free_owner(q, m);
    struct lease *l, *after;
    HASH_ITER(hh, q->leases, l, after)
    {
        heap_remove(&q->shared->deadlines, &l->timer.node);
        HASH_DEL(q->leases, l);
        forget_owner(q, l);
    }
    q->shared->bytes -= q->state.bytes + q->state.pending_bytes;
    for (int s = MESSAGE_PENDING; s < MESSAGE_STATES; s++)
        q->shared->messages -= q->state.n[s];
    store_free(&q->store);
    free(q->taken.ids);
    heap_remove(&q->shared->deadlines, &q->pause.node);
    q->magic = 0;
    free(q);
    *qp = NULL;
}

const struct queue_state *queue_state(const struct queue *q)
{
    return &q->state;
}

uint64_t queue_depth(const struct queue *q)
{
    const uint64_t *n = q->state.n;
    return n[MESSAGE_READY] + n[MESSAGE_LEASED] + n[MESSAGE_BUSY] + n[MESSAGE_DELAYED];
}

uint64_t queue_last_lease(const struct queue *q)
{
    return q->last_lease;
}

struct store *queue_store(struct queue *q)
{
    return &q->store;
}

static void set_state(struct queue *q, uint64_t id, struct message *m, enum message_state state)
{
    if (id < q->state.sent && m->state == MESSAGE_READY) {
        q->sent_count--;
        q->sent_bytes -= m->len;
    }
    if (id < q->state.sent && state == MESSAGE_READY) {
        q->sent_count++;
        q->sent_bytes += m->len;
    }
    q->state.n[m->state]--;
    q->state.n[state]++;
    store_set_state(&q->store, id, m, state);
}

static void make_ready(struct queue *q, uint64_t id, struct message *m)
{
    set_state(q, id, m, MESSAGE_READY);
    m->owner = NULL;
    if (id < q->frontier)
        q->frontier = id;
}

static void drop(struct queue *q, uint64_t id, const struct message *m)
{
    q->state.n[m->state]--;
    q->shared->messages--;
    q->shared->bytes -= m->len;
    if (m->state == MESSAGE_PENDING)
        q->state.pending_bytes -= m->len;
    else
        q->state.bytes -= m->len;
    store_drop(&q->store, id);
}

uint64_t queue_add(struct queue *q, const struct bytes *messages, size_t n)
{
    uint64_t first = q->store.next_id;
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        store_add(&q->store, messages[i], MESSAGE_PENDING);
        bytes += messages[i].len;
    }
    q->state.n[MESSAGE_PENDING] += n;
    q->state.pending_bytes += bytes;
    q->shared->bytes += bytes;
    q->shared->messages += n;
    return first;
}

void queue_add_commit(struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset)
{
    assert(first_id >= q->state.next_id);
    uint64_t bytes = store_commit(&q->store, first_id, n, journal_offset);
    q->state.pending_bytes -= bytes;
    q->state.bytes += bytes;
    q->state.n[MESSAGE_PENDING] -= n;
    q->state.n[MESSAGE_READY] += n;
    q->state.next_id = first_id + n;
}

void queue_count_puts(struct queue *q, size_t n)
{
    q->state.puts += n;
}

void queue_add_abort(struct queue *q, uint64_t first_id, size_t n)
{
    for (uint64_t id = first_id; id < first_id + n; id++)
        drop(q, id, store_find(&q->store, id));
    store_undo(&q->store, q->state.next_id);
}

struct bytes queue_message(struct queue *q, uint64_t id, uint32_t *tries)
{
    const struct message *m = store_find(&q->store, id);
    assert(m);
    if (tries)
        *tries = m->tries;
    return message_bytes(m);
}

/* Finds the first ready message whose id is at least `from`. */
static bool next_ready(struct queue *q, uint64_t from, uint64_t *id)
{
    bool skips = from > q->frontier;
    if (!store_next_ready(&q->store, skips ? from : q->frontier, id))
        return false;
    if (!skips)
        q->frontier = *id;
    return true;
}

static void ready_take(struct queue *q, uint64_t id, struct message *m, enum message_state state)
{
    if (q->frontier == id)
        q->frontier = id + 1;
    set_state(q, id, m, state);
}

/* Returns the lowest id in q->taken whose message is still busy, or UINT64_MAX if all messages in q->taken have left
 * that state. */
static uint64_t lowest_taken(struct queue *q)
{
    for (; q->taken.n; id_heap_take(&q->taken)) {
        const struct message *m = store_find(&q->store, q->taken.ids[0]);
        if (m && m->state == MESSAGE_BUSY)
            return q->taken.ids[0];
    }
    return UINT64_MAX;
}

/* Changes ready messages to `state` (MESSAGE_READY: no change), and appends their ids to *out. */
static void take(struct queue *q, enum message_state state, uint64_t from, size_t max_items, size_t max_bytes,
    uint64_t before, struct id_ranges *out)
{
    uint64_t id = from;
    if (q->state.paused_until)
        return;
    for (size_t n = 0, bytes = 0; n < max_items && next_ready(q, id, &id) && id < before; n++, id++) {
        struct message *m = store_is_spilled(&q->store, id) ? NULL : store_find(&q->store, id);
        if (!m)
            return;
        if (n && bytes + m->len > max_bytes)
            return;
        bytes += m->len;
        if (state != MESSAGE_READY)
            ready_take(q, id, m, state);
        if (state == MESSAGE_BUSY) {
            id_heap_put(&q->taken, id);
        } else {
            if (m->tries < STORE_TRIES_MAX)
                m->tries++;
            q->state.gets++;
        }
        id_ranges_add(out, id);
    }
}

void queue_take(struct queue *q, size_t max_items, size_t max_bytes, struct id_ranges *out)
{
    lowest_taken(q); /* removes old ids from the heap */
    take(q, MESSAGE_BUSY, 0, max_items, max_bytes, UINT64_MAX, out);
}

uint64_t queue_bytes_not_ready(struct queue *q)
{
    uint64_t bytes = 0, id = 0;
    struct message *m;
    for (uint64_t from = 0; store_next_unready(&q->store, from, &id, &m); from = id + 1)
        bytes += m->state != MESSAGE_PENDING ? m->len : 0;
    return bytes;
}

void queue_count_given(struct queue *q, uint64_t n)
{
    q->state.gets += n;
}

void queue_evict(struct queue *q, size_t max_items, uint64_t before, bool spilled, struct id_ranges *out)
{
    uint64_t id;
    lowest_taken(q);
    for (size_t n = 0; n < max_items && next_ready(q, q->state.sent, &id) && id < before; n++) {
        if (!spilled && store_is_spilled(&q->store, id))
            return;
        ready_take(q, id, store_find(&q->store, id), MESSAGE_BUSY);
        id_heap_put(&q->taken, id);
        id_ranges_add(out, id);
    }
}

void queue_pause(struct queue *q, usec_t until)
{
    queue_resume(q);
    q->state.paused_until = until;
    if (until != QUEUE_PAUSE_OPEN)
        heap_put(&q->shared->deadlines, &q->pause.node, until);
}

void queue_resume(struct queue *q)
{
    q->state.paused_until = 0;
    heap_remove(&q->shared->deadlines, &q->pause.node);
}

void queue_note_depth(struct queue *q)
{
    if (queue_depth(q) > q->state.depth_high_water)
        q->state.depth_high_water = queue_depth(q);
}

void queue_reset_high_water(struct queue *q)
{
    q->state.depth_high_water = queue_depth(q);
}

static struct lease *find_lease(const struct queue *q, uint64_t number)
{
    struct lease *l;
    HASH_FIND(hh, q->leases, &number, sizeof number, l);
    return l;
}

/* Frees the lease if it has no messages. */
static void settle(struct queue *q, struct lease *l)
{
    if (l->leased || l->busy)
        return;
    heap_remove(&q->shared->deadlines, &l->timer.node);
    HASH_DEL(q->leases, l);
    forget_owner(q, l);
    q->state.leases--;
}

bool queue_admits(const struct queue *q, const char *reader)
{
    return q->state.leases == 0 || strcmp(q->reader, reader) == 0;
}

uint64_t queue_reserve(struct queue *q, const char *reader, size_t max_items, size_t max_bytes,
    usec_t deadline, struct id_ranges *out)
{
    assert(queue_admits(q, reader) && !q->follower[0] && out->count == 0);
    take(q, MESSAGE_LEASED, 0, max_items, max_bytes, lowest_taken(q), out);
    if (out->count == 0)
        return 0;
    snprintf(q->reader, sizeof q->reader, "%s", reader);
    struct lease *l = mem_alloc(sizeof *l + out->count * sizeof *l->ids);
    *l = (struct lease){.kind = OWNER_LEASE, .leased = out->count};
    l->timer = (struct queue_timer){.kind = QUEUE_TIMER_LEASE, .owner = q->owner, .id = ++q->last_lease};
    for (struct id_walk w = {.ids = out}; id_walk_next(&w);) {
        l->ids[l->n++] = w.id;
        store_find(&q->store, w.id)->owner = l;
    }
    q->shared->owners += owner_cost(l);
    heap_node_init(&l->timer.node);
    heap_put(&q->shared->deadlines, &l->timer.node, deadline);
    HASH_ADD(hh, q->leases, timer.id, sizeof l->timer.id, l);
    q->state.leases++;
    return l->timer.id;
}

/* Returns the index of the first id in the lease that is at least `id`. */
static size_t lease_index(const struct lease *l, uint64_t id)
{
    return LOWER_BOUND(i, 0, l->n, l->ids[i] < id);
}

/* Changes those messages of `wanted` that belong to the lease. If `out` is NULL, makes the messages ready. If not,
 * makes the messages busy and adds their ids to *out. Returns the number of changed messages. */
static uint64_t lease_take(
    struct queue *q, struct lease *l, const struct id_range *wanted, size_t n, struct id_ranges *out)
{
    uint64_t before = l->leased;
    for (size_t r = 0; r < n; r++)
        for (size_t i = lease_index(l, wanted[r].first); i < l->n && l->ids[i] <= wanted[r].last; i++) {
            struct message *m = store_find(&q->store, l->ids[i]);
            if (!m || m->owner != l || m->state != MESSAGE_LEASED)
                continue;
            l->leased--;
            if (out) {
                set_state(q, l->ids[i], m, MESSAGE_BUSY);
                id_ranges_add(out, l->ids[i]);
            } else {
                make_ready(q, l->ids[i], m);
            }
        }
    return before - l->leased;
}

uint64_t queue_hold(
    struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n, struct id_ranges *out)
{
    struct lease *l = find_lease(q, lease);
    uint64_t count = l ? lease_take(q, l, wanted, n, out) : 0;
    if (l)
        l->busy += count;
    return count;
}

void queue_block_reserves(struct queue *q, const struct id_ranges *ids)
{
    lowest_taken(q);
    for (struct id_walk w = {.ids = ids}; id_walk_next(&w);)
        id_heap_put(&q->taken, w.id);
}

uint64_t queue_return(struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n)
{
    struct lease *l = find_lease(q, lease);
    if (!l)
        return 0;
    uint64_t count = lease_take(q, l, wanted, n, NULL);
    settle(q, l);
    return count;
}

bool queue_touch(struct queue *q, uint64_t lease, usec_t deadline)
{
    struct lease *l = find_lease(q, lease);
    if (!l || l->ended || l->leased == 0)
        return false;
    heap_put(&q->shared->deadlines, &l->timer.node, deadline);
    return true;
}

/* Ends the lease and makes its leased messages ready again. Busy messages leave the lease when their change is
 * committed or aborted. */
static uint64_t lease_end(struct queue *q, struct lease *l)
{
    uint64_t count = lease_take(q, l, &(struct id_range){0, UINT64_MAX}, l->leased ? 1 : 0, NULL);
    l->ended = true;
    heap_remove(&q->shared->deadlines, &l->timer.node);
    settle(q, l);
    return count;
}

uint64_t queue_release(struct queue *q, const char *reader)
{
    uint64_t count = 0;
    struct lease *l, *after;
    if (strcmp(q->reader, reader) != 0)
        return 0;
    HASH_ITER(hh, q->leases, l, after)
    count += lease_end(q, l);
    return count;
}

void queue_lease_expire(struct queue *q, uint64_t number)
{
    struct lease *l = find_lease(q, number);
    if (l && lease_end(q, l))
        q->state.expired++;
}

/* Following */

void queue_set_follower(struct queue *q, const char *reader)
{
    assert(q->state.leases == 0 && q->state.follow == 0);
    snprintf(q->follower, sizeof q->follower, "%s", reader);
}

uint64_t queue_follow(struct queue *q)
{
    assert(q->state.leases == 0 && q->follower[0]);
    q->position = 0;
    return q->state.follow = ++q->last_lease;
}

void queue_unfollow(struct queue *q)
{
    q->position = q->state.sent = q->state.follow = q->sent_count = q->sent_bytes = 0;
    queue_set_follower(q, "");
}

void queue_follow_rewind(struct queue *q, uint64_t from)
{
    if (from < q->position)
        q->position = from;
}

/* Raises `sent`, and counts the ready messages that this adds. */
static void raise_sent(struct queue *q, uint64_t sent)
{
    uint64_t id = q->state.sent;
    for (; id < sent && next_ready(q, id, &id) && id < sent; id++) {
        q->sent_count++;
        q->sent_bytes += store_find(&q->store, id)->len;
    }
    if (q->state.sent < sent)
        q->state.sent = sent;
}

void queue_follow_skip(struct queue *q, uint64_t from)
{
    assert(from <= q->state.next_id);
    if (q->position < from)
        q->position = from;
    raise_sent(q, from);
}

bool queue_follow_next(struct queue *q, uint64_t *id)
{
    return next_ready(q, q->position, id);
}

void queue_follow_read(
    struct queue *q, size_t max_items, size_t max_bytes, uint64_t before, struct id_ranges *out)
{
    uint64_t taken = lowest_taken(q);
    assert(q->state.follow && out->count == 0);
    take(q, MESSAGE_READY, q->position, max_items, max_bytes, taken < before ? taken : before, out);
    if (out->count)
        q->position = out->at[out->n - 1].last + 1;
    raise_sent(q, q->position);
}

uint64_t queue_hold_sent(struct queue *q, struct id_range range, uint64_t most, struct id_ranges *out)
{
    uint64_t before = out->count, end = range.last < q->state.sent ? range.last + 1 : q->state.sent;
    for (uint64_t id = range.first; out->count - before < most && next_ready(q, id, &id) && id < end; id++) {
        ready_take(q, id, store_find(&q->store, id), MESSAGE_BUSY);
        id_ranges_add(out, id);
    }
    return out->count - before;
}

uint64_t queue_count_sent(const struct queue *q, uint64_t *bytes)
{
    *bytes = q->sent_bytes;
    return q->sent_count;
}

/* Removes the message from its lease, or frees its delay or burial. */
static void leave_owner(struct queue *q, struct message *m)
{
    if (m->owner && *(enum owner_kind *)m->owner == OWNER_LEASE) {
        struct lease *l = m->owner;
        l->busy--;
        m->owner = NULL;
        settle(q, l);
        return;
    }
    free_owner(q, m);
}

static struct message *find_busy(struct queue *q, uint64_t id)
{
    struct message *m = store_find(&q->store, id);
    assert(m && m->state == MESSAGE_BUSY);
    return m;
}

void queue_remove(struct queue *q, const struct id_ranges *ids)
{
    for (struct id_walk w = {.ids = ids}; id_walk_next(&w);) {
        struct message *m = find_busy(q, w.id);
        leave_owner(q, m);
        drop(q, w.id, m);
    }
}

void queue_abort(struct queue *q, const struct id_ranges *ids)
{
    for (struct id_walk w = {.ids = ids}; id_walk_next(&w);) {
        struct message *m = find_busy(q, w.id);
        struct lease *l = m->owner;
        assert(!l || l->kind == OWNER_LEASE);
        if (l && !l->ended) {
            set_state(q, w.id, m, MESSAGE_LEASED);
            l->busy--;
            l->leased++;
        } else {
            leave_owner(q, m);
            make_ready(q, w.id, m);
        }
    }
}

static void delay_one(struct queue *q, uint64_t id, struct message *m, usec_t due)
{
    leave_owner(q, m);
    struct delay *d = mem_zalloc(sizeof *d);
    d->kind = OWNER_DELAY;
    d->timer = (struct queue_timer){.kind = QUEUE_TIMER_DELAY, .owner = q->owner, .id = id};
    heap_node_init(&d->timer.node);
    heap_put(&q->shared->deadlines, &d->timer.node, due);
    q->shared->owners += owner_cost(d);
    q->state.to_move++;
    q->state.to_move_bytes += m->len;
    m->owner = d;
    set_state(q, id, m, MESSAGE_DELAYED);
}

void queue_delay(struct queue *q, const struct id_ranges *ids, usec_t due)
{
    for (struct id_walk w = {.ids = ids}; id_walk_next(&w);)
        delay_one(q, w.id, find_busy(q, w.id), due);
}

void queue_add_commit_delayed(
    struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset, usec_t due)
{
    queue_add_commit(q, first_id, n, journal_offset);
    for (uint64_t id = first_id; id < first_id + n; id++)
        delay_one(q, id, store_find(&q->store, id), due);
}

void queue_bury(struct queue *q, const struct id_ranges *ids, struct bytes reason, usec_t buried_at)
{
    for (struct id_walk w = {.ids = ids}; id_walk_next(&w);) {
        struct message *m = find_busy(q, w.id);
        leave_owner(q, m);
        struct burial *b = mem_alloc(sizeof *b + reason.len);
        b->kind = OWNER_BURIAL;
        memcpy(b->reason, reason.ptr ? reason.ptr : "", reason.len);
        b->info = (struct queue_burial){buried_at, bytes_of(b->reason, reason.len)};
        q->shared->owners += owner_cost(b);
        m->owner = b;
        set_state(q, w.id, m, MESSAGE_BURIED);
    }
}

bool queue_set_aside(struct queue *q, uint64_t id)
{
    struct message *m = store_find(&q->store, id);
    if (!m || (m->state != MESSAGE_DELAYED && m->state != MESSAGE_BURIED))
        return false;
    if (m->state == MESSAGE_DELAYED)
        heap_remove(&q->shared->deadlines, &((struct delay *)m->owner)->timer.node);
    set_state(q, id, m, MESSAGE_BUSY);
    return true;
}

void queue_put_back(struct queue *q, uint64_t id, usec_t retry_at)
{
    struct message *m = store_find(&q->store, id);
    assert(m && m->state == MESSAGE_BUSY && m->owner);
    if (*(enum owner_kind *)m->owner == OWNER_BURIAL) {
        set_state(q, id, m, MESSAGE_BURIED);
        return;
    }
    heap_put(&q->shared->deadlines, &((struct delay *)m->owner)->timer.node, retry_at);
    set_state(q, id, m, MESSAGE_DELAYED);
}

void queue_set_tries(struct queue *q, uint64_t id, uint32_t tries)
{
    struct message *m = store_find(&q->store, id);
    assert(m);
    m->tries = (tries < STORE_TRIES_MAX ? tries : STORE_TRIES_MAX) & STORE_TRIES_MAX;
}

bool queue_next_held(struct queue *q, uint64_t from, struct queue_view *out)
{
    *out = (struct queue_view){0};
    if (!store_next_held(&q->store, from, &out->id))
        return false;
    const struct message *m = store_find(&q->store, out->id);
    out->state = m->state;
    out->tries = m->tries;
    out->text = message_bytes(m);
    if (m->state == MESSAGE_DELAYED)
        out->due = ((const struct delay *)m->owner)->timer.node.priority;
    if (m->state == MESSAGE_BURIED)
        out->burial = &((const struct burial *)m->owner)->info;
    return true;
}

bool queue_next_buried(struct queue *q, uint64_t from, uint64_t *id, const struct queue_burial **burial)
{
    struct message *m;
    if (q->state.n[MESSAGE_BURIED] == 0)
        return false;
    for (; store_next_unready(&q->store, from, id, &m); from = *id + 1)
        if (m->state == MESSAGE_BURIED) {
            *burial = &((const struct burial *)m->owner)->info;
            return true;
        }
    return false;
}

bool queue_next_ready(struct queue *q, uint64_t from, uint64_t *id)
{
    return store_next_ready(&q->store, from, id);
}

/* Spilling */

/* Returns the size of the read-ahead, that is, the bytes of the next ready messages that stay in memory. */
static uint64_t window(uint64_t limit)
{
    uint64_t share = limit / 64;
    return share < QUEUE_WINDOW_MIN ? QUEUE_WINDOW_MIN : share > QUEUE_WINDOW_MAX ? QUEUE_WINDOW_MAX : share;
}

/* Returns the id at which the next delivery begins. A follower already has the messages before this id. */
static uint64_t reading_from(const struct queue *q)
{
    return q->position > q->frontier ? q->position : q->frontier;
}

void queue_spill(struct queue *q, uint64_t limit)
{
    const struct store_memory *memory = &q->shared->memory;
    uint64_t owners = q->shared->owners, most = limit > owners ? limit - owners : 0, through;
    struct store_span unused;
    if (memory->all <= most || memory->all < q->spill_at)
        return;
    store_in_memory(
        &q->store, reading_from(q), q->position > q->frontier, SIZE_MAX, window(limit), 0, &unused, &through);
    uint64_t demand = q->demand > q->demanded ? q->demand : q->demanded;
    if (through < demand)
        through = demand;
    store_spill(&q->store, reading_from(q), through, memory->all - most);
    q->spill_at = memory->all > most ? memory->all + STORE_PAGE_BYTES : 0;
}

bool queue_in_memory(struct queue *q, size_t items, uint64_t bytes, uint64_t limit, struct store_span *out)
{
    uint64_t through;
    if (q->store.spilled == 0 || q->state.n[MESSAGE_READY] == 0)
        return true;
    bool there = store_in_memory(
        &q->store, reading_from(q), q->position > q->frontier, items, bytes, window(limit), out, &through);
    if (q->demand < through)
        q->demand = through;
    return there;
}

bool queue_read_ahead(struct queue *q, uint64_t limit, struct store_span *out)
{
    uint64_t through;
    return q->store.spilled > 0 && q->state.n[MESSAGE_READY] > 0 &&
           !store_in_memory(&q->store, reading_from(q), q->position > q->frontier, SIZE_MAX, window(limit),
               window(limit) / 2, out, &through) &&
           out->last_id > 0;
}

void queue_demand_turn(struct queue *q)
{
    q->demanded = q->demand;
    q->demand = 0;
}

bool queue_restore_kept(struct queue *q, uint64_t id, struct bytes message, uint32_t tries, uint64_t offset)
{
    if (store_find(&q->store, id))
        return false;
    store_insert(&q->store, id, message.len, offset);
    queue_set_tries(q, id, tries);
    q->state.n[MESSAGE_READY]++;
    q->state.bytes += message.len;
    q->shared->bytes += message.len;
    q->shared->messages++;
    if (id < q->frontier)
        q->frontier = id;
    return true;
}

bool queue_restore_add(
    struct queue *q, uint64_t first_id, const struct bytes *messages, size_t n, uint64_t offset)
{
    if (first_id < q->store.next_id)
        return false;
    store_skip_to(&q->store, first_id);
    queue_add(q, messages, n);
    queue_add_commit(q, first_id, n, offset);
    return true;
}

void queue_restore_next_id(struct queue *q, uint64_t next_id)
{
    if (next_id <= q->store.next_id)
        return;
    store_skip_to(&q->store, next_id);
    q->state.next_id = next_id;
}

void queue_restore_lease_base(struct queue *q, uint64_t base)
{
    if (base > q->last_lease)
        q->last_lease = base;
}

void queue_restore_delay(struct queue *q, uint64_t id, usec_t due)
{
    delay_one(q, id, store_find(&q->store, id), due);
}

bool queue_restore_hold(struct queue *q, uint64_t id, uint32_t tries)
{
    struct message *m = store_find(&q->store, id);
    if (!m || m->state == MESSAGE_BUSY)
        return false;
    set_state(q, id, m, MESSAGE_BUSY);
    queue_set_tries(q, id, tries);
    return true;
}

void queue_restore_remove(struct queue *q, struct id_range range)
{
    for (uint64_t id = range.first; store_next_held(&q->store, id, &id) && id <= range.last; id++) {
        struct message m = store_peek(&q->store, id);
        free_owner(q, &m);
        drop(q, id, &m);
    }
}
