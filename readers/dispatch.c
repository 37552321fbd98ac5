#include "readers/dispatch.h"

#include "base/backoff.h"
#include "base/heap.h"
#include "base/rate_limit.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#define LANES 4096 /* for DISPATCH_BY_KEY; messages of different keys in one lane wait for each other */
#define LANE_NONE UINT32_MAX
#define HELD_FACTOR 8 /* maximum leases of messages outside runs, while many messages wait for a retry */

enum item_state {
    ITEM_BEHIND, /* the item waits for an earlier message of its lane */
    ITEM_READY,
    ITEM_RETRYING,
    ITEM_RUNNING,
    ITEM_OVER, /* the message is delivered, poison, or dropped */
};

struct item {
    struct heap_node node; /* node in `ready`, ordered by age, or in `retries`, ordered by time */
    struct lease *lease;
    struct message *message;
    struct item *next; /* next message of the lane */
    uint64_t age;
    usec_t delay; /* delay before the last retry, as in backoff.current */
    size_t most;  /* maximum messages of a run that contains this message */
    uint32_t lane;
    enum item_state state;
};

struct lease {
    struct lease *next;
    struct batch batch;
    struct item *items;
    size_t unsettled; /* messages that are not acknowledged, buried, returned or dropped */
    size_t running;   /* messages in runs */
    usec_t ends, touch_at;
    bool nack_first;  /* true: try returns before acknowledgements; changes with each failure */
    bool may_be_over; /* an acknowledgement of all unsettled messages got no reply */
};

struct run {
    struct dispatch_run view;
    struct run *next;
    struct item **items;
};
static_assert(offsetof(struct item, node) == 0 && offsetof(struct run, view) == 0,
    "these members must be first, because items and runs are found by them");

struct dispatch {
    struct dispatch_config config;
    struct lease *leases; /* list of leases, the oldest first */
    struct item *tails[LANES];
    struct heap ready, retries;
    uint64_t next_age;
    struct run *first_run; /* list of the runs in progress */
    size_t runs;
    size_t held, running,
        done; /* numbers of messages that are not over, in runs, and delivered but not acknowledged */
    struct rate_limit rate_limit;
    struct backoff backoff;
    usec_t paused_until;
    bool stopping;
    struct dispatch_step doing;
    usec_t doing_since;
    struct buf ids;
};

struct dispatch *dispatch_new(const struct dispatch_config *config)
{
    struct dispatch *d = mem_zalloc(sizeof *d);
    assert(config->parallel > 0 && config->max_items > 0);
    d->config = *config;
    rate_limit_init(&d->rate_limit, config->rate);
    backoff_init(&d->backoff, config->backoff_min, config->backoff_max, config->seed);
    return d;
}

static void lease_free(struct lease *l)
{
    batch_free(&l->batch);
    free(l->items);
    free(l);
}

void dispatch_free(struct dispatch **p)
{
    struct dispatch *d = *p;
    if (!d)
        return;
    while (d->leases) {
        struct lease *l = d->leases;
        d->leases = l->next;
        lease_free(l);
    }
    heap_free(&d->ready);
    heap_free(&d->retries);
    buf_free(&d->ids);
    free(d);
    *p = NULL;
}

static void free_settled_leases(struct dispatch *d)
{
    for (struct lease **l = &d->leases; *l;) {
        struct lease *gone = *l;
        if (gone->unsettled > 0 || gone->running > 0) {
            l = &gone->next;
            continue;
        }
        *l = gone->next;
        lease_free(gone);
    }
}

bool dispatch_wants_more(const struct dispatch *d)
{
    if (d->stopping) /* runs may contain messages of a lost lease */
        return false;
    size_t idle = d->held - d->running;
    return idle - d->retries.n <= d->config.items / 2 && idle <= d->config.items * HELD_FACTOR;
}

static uint32_t lane_of(const struct dispatch *d, struct bytes text)
{
    switch (d->config.order) {
    case DISPATCH_IN_ORDER:
        return 0;
    case DISPATCH_BY_KEY:
        return (uint32_t)(d->config.key(text, d->config.arg) % LANES);
    case DISPATCH_IN_ANY_ORDER:
        break;
    }
    return LANE_NONE;
}

static void make_ready(struct dispatch *d, struct item *it)
{
    it->state = ITEM_READY;
    heap_put(&d->ready, &it->node, (int64_t)it->age);
}

/* Returns true if the message cannot be a line. */
static bool is_no_line(struct dispatch *d, struct batch *batch, size_t i)
{
    struct bytes text = batch->messages[i].text;
    if (d->config.lines && text.len == 0)
        batch_mark_poison(batch, i, "empty");
    else if (d->config.lines && memchr(text.ptr, '\n', text.len))
        batch_mark_poison(batch, i, "contains a line feed");
    return batch->messages[i].state == MESSAGE_POISON;
}

static void extend(const struct dispatch *d, struct lease *l, usec_t asked)
{
    l->ends = asked + d->config.lease - d->config.lease / 10;
    l->touch_at = asked + d->config.lease / 3;
}

void dispatch_add(struct dispatch *d, struct batch *batch, usec_t asked)
{
    struct lease *l = mem_zalloc(sizeof *l), **last = &d->leases;
    assert(!d->stopping && batch->n > 0);
    while (*last)
        last = &(*last)->next;
    *last = l;
    l->batch = *batch;
    *batch = (struct batch){0};
    l->items = mem_zalloc(l->batch.n * sizeof *l->items);
    l->unsettled = l->batch.n;
    extend(d, l, asked);
    for (size_t i = 0; i < l->batch.n; i++) {
        struct item *it = &l->items[i];
        *it = (struct item){.lease = l,
            .message = &l->batch.messages[i],
            .age = d->next_age++,
            .most = d->config.max_items,
            .lane = LANE_NONE,
            .state = ITEM_OVER};
        heap_node_init(&it->node);
        if (is_no_line(d, &l->batch, i))
            continue;
        d->held++;
        it->lane = lane_of(d, it->message->text);
        struct item **tail = it->lane == LANE_NONE ? NULL : &d->tails[it->lane];
        if (tail && *tail) {
            (*tail)->next = it;
            it->state = ITEM_BEHIND;
        } else {
            make_ready(d, it);
        }
        if (tail)
            *tail = it;
    }
}

/* Ends the first message of a lane, and makes the next message of the lane the first. */
static void end_item(struct dispatch *d, struct item *it)
{
    struct item *next = it->next;
    it->state = ITEM_OVER;
    it->next = NULL;
    d->held--;
    if (it->lane == LANE_NONE || d->stopping) /* `next` may be freed */
        return;
    if (!next)
        d->tails[it->lane] = NULL;
    else if (next->state == ITEM_BEHIND)
        make_ready(d, next);
}

static void wake_retries(struct dispatch *d, usec_t now)
{
    for (struct heap_node *n; (n = heap_first(&d->retries)) && n->priority <= now;) {
        heap_remove(&d->retries, n);
        make_ready(d, (struct item *)n);
    }
}

/* Returns the message that may follow `last` in a run: the next message of the lane, or the oldest ready message. */
static struct item *following(const struct dispatch *d, const struct item *last)
{
    return last->next ? last->next : (struct item *)heap_first(&d->ready);
}

/* Moves messages from `ready` to the run. The messages of a lane are adjacent in a run. */
static void fill_run(struct dispatch *d, struct run *run)
{
    struct item *it = (struct item *)heap_first(&d->ready);
    size_t most = it->most, bytes = 0, room = rate_limit_batch(&d->rate_limit);
    size_t cap = 0;
    if (most > room)
        most = room;
    for (size_t n = 0; it && n < most && n < it->most; n++) {
        bytes += it->message->text.len + 1;
        if (n > 0 && d->config.max_bytes && bytes > d->config.max_bytes)
            break;
        ARRAY_ROOM(run->items, cap, n + 1);
        run->items[n] = it;
        run->view.n = n + 1;
        if (it->most < most)
            most = it->most;
        heap_remove(&d->ready, &it->node);
        it->state = ITEM_RUNNING;
        it = following(d, it);
    }
}

static bool is_first_of_lane(const struct run *run, size_t i)
{
    return i == 0 || run->items[i - 1]->next != run->items[i];
}

/* Removes the messages from the run, and frees the run. The first message of each lane becomes ready, or waits until
 * time `retry`. */
static void put_back(struct dispatch *d, struct run *run, usec_t retry)
{
    for (size_t i = 0; i < run->view.n; i++) {
        struct item *it = run->items[i];
        it->lease->running--;
        if (it->state != ITEM_RUNNING) /* the message is over, or its lease is lost */
            continue;
        if (!is_first_of_lane(run, i)) {
            it->state = ITEM_BEHIND;
        } else if (retry > 0) {
            it->state = ITEM_RETRYING;
            heap_put(&d->retries, &it->node, retry);
        } else {
            make_ready(d, it);
        }
    }
    struct run **place = &d->first_run;
    while (*place != run)
        place = &(*place)->next;
    *place = run->next;
    d->runs--;
    d->running -= run->view.n;
    free(run->items);
    free(run->view.messages);
    free(run);
    free_settled_leases(d);
}

struct dispatch_run *dispatch_run_begin(struct dispatch *d, usec_t now, usec_t *until)
{
    *until = INT64_MAX;
    wake_retries(d, now);
    if (d->stopping || d->runs == d->config.parallel || d->done >= d->config.parallel * d->config.max_items)
        return NULL;
    if (!heap_first(&d->ready)) {
        if (heap_first(&d->retries))
            *until = heap_first(&d->retries)->priority;
        return NULL;
    }
    if (d->paused_until > now) {
        *until = d->paused_until;
        return NULL;
    }
    struct run *run = mem_zalloc(sizeof *run);
    fill_run(d, run);
    for (size_t i = 0; i < run->view.n; i++)
        run->items[i]->lease->running++;
    run->next = d->first_run;
    d->first_run = run;
    d->runs++;
    d->running += run->view.n;
    usec_t when = rate_limit_when(&d->rate_limit, run->view.n, now);
    if (when > now) {
        *until = when;
        put_back(d, run, 0);
        return NULL;
    }
    rate_limit_spend(&d->rate_limit, run->view.n, now);
    run->view.messages = mem_alloc(run->view.n * sizeof *run->view.messages);
    for (size_t i = 0; i < run->view.n; i++)
        run->view.messages[i] = run->items[i]->message;
    return &run->view;
}

void dispatch_run_delivered(struct dispatch *d, struct dispatch_run *view)
{
    struct run *run = (struct run *)view;
    for (size_t i = 0; i < run->view.n; i++) {
        struct item *it = run->items[i];
        if (it->state != ITEM_RUNNING)
            continue;
        it->message->state = MESSAGE_DONE;
        d->done++;
    }
    for (size_t i = 0; i < run->view.n; i++)
        if (run->items[i]->state == ITEM_RUNNING)
            end_item(d, run->items[i]);
    put_back(d, run, 0);
}

/* Removes the limits on the length of runs. Called after a poison message is found. */
static void forget_limits(struct dispatch *d)
{
    for (struct lease *l = d->leases; l; l = l->next)
        for (size_t i = 0; i < l->batch.n; i++)
            l->items[i].most = d->config.max_items;
}

void dispatch_run_refused(struct dispatch *d, struct dispatch_run *view, const char *reason)
{
    struct run *run = (struct run *)view;
    struct item *it = run->items[0];
    if (run->view.n > 1) {
        for (size_t i = 0; i < run->view.n; i++)
            run->items[i]->most = run->view.n / 2;
    } else if (it->state == ITEM_RUNNING) {
        batch_mark_poison(&it->lease->batch, (size_t)(it - it->lease->items), reason);
        end_item(d, it);
        forget_limits(d);
    }
    put_back(d, run, 0);
}

void dispatch_run_failed(struct dispatch *d, struct dispatch_run *view, usec_t now)
{
    struct run *run = (struct run *)view;
    d->backoff.current = run->items[0]->delay;
    usec_t wait = backoff_failed(&d->backoff);
    for (size_t i = 0; i < run->view.n; i++)
        run->items[i]->delay = d->backoff.current;
    put_back(d, run, now + wait);
}

void dispatch_run_again(struct dispatch *d, struct dispatch_run *view)
{
    put_back(d, (struct run *)view, 0);
}

size_t dispatch_runs(const struct dispatch *d)
{
    return d->runs;
}

struct dispatch_run *dispatch_run_first(const struct dispatch *d)
{
    return d->first_run ? &d->first_run->view : NULL;
}

void dispatch_pause(struct dispatch *d, usec_t until)
{
    d->paused_until = until;
}

/* Appends the ids of the lease's messages that are in `state` and in no run, as "A-B,C". Changes these messages to the
 * state `then`. */
static void take_ids(struct lease *l, enum message_state state, enum message_state then, struct buf *ids)
{
    struct message *m = l->batch.messages;
    for (size_t i = 0, end; i < l->batch.n; i = end) {
        for (end = i; end < l->batch.n && m[end].state == state && l->items[end].state != ITEM_RUNNING &&
                      m[end].id == m[i].id + (end - i);
             end++)
            m[end].state = then;
        if (end == i) {
            end++;
            continue;
        }
        if (ids->len > 0)
            buf_append_char(ids, ',');
        buf_append_u64(ids, m[i].id);
        if (end > i + 1) {
            buf_append_char(ids, '-');
            buf_append_u64(ids, m[end - 1].id);
        }
    }
}

/* Changes all messages of the lease in state `from` to state `to`. Returns the number of changed messages. */
static size_t change_state(struct lease *l, enum message_state from, enum message_state to)
{
    size_t n = 0;
    for (size_t i = 0; i < l->batch.n; i++)
        if (l->batch.messages[i].state == from) {
            l->batch.messages[i].state = to;
            n++;
        }
    return n;
}

static struct dispatch_step step_of_lease(struct dispatch *d, struct lease *l)
{
    struct dispatch_step step = {.action = DISPATCH_NOTHING, .lease = l->batch.lease};
    buf_clear(&d->ids);
    for (int i = 0; i < 2 && step.action == DISPATCH_NOTHING; i++) {
        bool nack = (i == 1) != l->nack_first;
        if (nack && d->stopping)
            take_ids(l, MESSAGE_WAITING, MESSAGE_GIVEN_BACK, &d->ids);
        else if (!nack)
            take_ids(l, MESSAGE_DONE, MESSAGE_TAKEN, &d->ids);
        if (d->ids.len > 0)
            step.action = nack ? DISPATCH_NACK : DISPATCH_ACK;
    }
    for (size_t i = 0; i < l->batch.n && step.action == DISPATCH_NOTHING; i++)
        if (l->batch.messages[i].state == MESSAGE_POISON) {
            step.action = DISPATCH_BURY;
            step.message = &l->batch.messages[i];
        }
    step.ids = buf_bytes(&d->ids);
    return step;
}

struct dispatch_step dispatch_step(struct dispatch *d, usec_t now)
{
    struct dispatch_step step = {.action = DISPATCH_NOTHING, .until = INT64_MAX};
    assert(d->doing.action == DISPATCH_NOTHING);
    for (struct lease *l = d->leases; l && step.action == DISPATCH_NOTHING; l = l->next) {
        if (l->unsettled == 0)
            continue;
        if (l->touch_at <= now)
            step = (struct dispatch_step){.action = DISPATCH_TOUCH, .lease = l->batch.lease};
        else if (l->touch_at < step.until)
            step.until = l->touch_at;
    }
    usec_t until = step.until;
    for (struct lease *l = d->leases; l && step.action == DISPATCH_NOTHING; l = l->next)
        if (l->unsettled > 0)
            step = step_of_lease(d, l);
    step.until = until;
    d->doing = step;
    d->doing_since = now;
    return step;
}

static struct lease *lease_of_step(const struct dispatch *d)
{
    struct lease *l = d->leases;
    while (l && l->batch.lease != d->doing.lease)
        l = l->next;
    assert(l);
    return l;
}

/* Removes messages that return to the queue from their lanes. No message is ready afterwards, because the dispatch
 * stops. */
static void give_back(struct dispatch *d, struct lease *l)
{
    for (size_t i = 0; i < l->batch.n; i++) {
        struct item *it = &l->items[i];
        if (it->message->state != MESSAGE_GIVEN_BACK || it->state == ITEM_OVER)
            continue;
        heap_remove(it->state == ITEM_RETRYING ? &d->retries : &d->ready, &it->node);
        it->state = ITEM_OVER;
        d->held--;
        l->unsettled--;
    }
}

void dispatch_step_done(struct dispatch *d)
{
    struct lease *l = lease_of_step(d);
    size_t n;
    l->may_be_over = false; /* an earlier acknowledgement has not ended the lease */
    switch (d->doing.action) {
    case DISPATCH_TOUCH:
        extend(d, l, d->doing_since);
        break;
    case DISPATCH_ACK:
        n = change_state(l, MESSAGE_TAKEN, MESSAGE_BURIED); /* BURIED: settled without a further request */
        d->done -= n;
        l->unsettled -= n;
        break;
    case DISPATCH_BURY:
        l->batch.messages[d->doing.message - l->batch.messages].state = MESSAGE_BURIED;
        l->unsettled--;
        break;
    case DISPATCH_NACK:
        give_back(d, l);
        break;
    case DISPATCH_NOTHING:
        break;
    }
    d->doing = (struct dispatch_step){.action = DISPATCH_NOTHING};
    free_settled_leases(d);
}

void dispatch_step_refused(struct dispatch *d, struct buf *ids)
{
    if (d->doing.action == DISPATCH_ACK)
        buf_append_bytes(ids, d->doing.ids);
    dispatch_step_done(d);
}

void dispatch_step_failed(struct dispatch *d, bool doubtful)
{
    struct lease *l = lease_of_step(d);
    if (d->doing.action == DISPATCH_ACK) {
        bool all = change_state(l, MESSAGE_TAKEN, MESSAGE_DONE) == l->unsettled;
        l->may_be_over = l->may_be_over || (doubtful && all);
    }
    for (size_t i = 0; i < l->batch.n && d->doing.action == DISPATCH_NACK; i++)
        if (l->batch.messages[i].state == MESSAGE_GIVEN_BACK && l->items[i].state != ITEM_OVER)
            l->batch.messages[i].state = MESSAGE_WAITING;
    l->nack_first = d->doing.action == DISPATCH_ACK;
    d->doing = (struct dispatch_step){.action = DISPATCH_NOTHING};
}

static bool is_done(const struct message *m)
{
    return m->state == MESSAGE_DONE || m->state == MESSAGE_TAKEN;
}

static size_t count_done(const struct lease *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->batch.n; i++)
        n += is_done(&l->batch.messages[i]);
    return n;
}

/* Drops the messages of the lease. Messages in runs become done, because the runs continue and may deliver these
 * messages. */
static void forget(struct dispatch *d, struct lease *l)
{
    d->done -= count_done(l);
    for (size_t i = 0; i < l->batch.n; i++) {
        struct item *it = &l->items[i];
        if (it->state == ITEM_OVER)
            continue;
        if (it->state == ITEM_READY || it->state == ITEM_RETRYING)
            heap_remove(it->state == ITEM_READY ? &d->ready : &d->retries, &it->node);
        if (it->state == ITEM_RUNNING)
            it->message->state = MESSAGE_DONE;
        it->state = ITEM_OVER;
        d->held--;
    }
    l->unsettled = 0;
}

void dispatch_step_lost(struct dispatch *d, struct buf *ids)
{
    struct lease *l = lease_of_step(d);
    change_state(l, MESSAGE_TAKEN, MESSAGE_DONE);
    forget(d, l);
    take_ids(l, MESSAGE_DONE, MESSAGE_DONE, ids);
    if (!l->may_be_over)
        d->stopping = true;
    d->doing = (struct dispatch_step){.action = DISPATCH_NOTHING};
    free_settled_leases(d);
}

bool dispatch_has_expired(const struct dispatch *d, usec_t now)
{
    const struct lease *l = d->leases;
    while (l && (l->unsettled == 0 || now < l->ends))
        l = l->next;
    return l != NULL;
}

void dispatch_stop(struct dispatch *d)
{
    for (struct lease *l = d->leases; l && !d->stopping; l = l->next)
        l->nack_first = true; /* failing acknowledgements may use up the time for the stop */
    d->stopping = true;
}

bool dispatch_is_stopping(const struct dispatch *d)
{
    return d->stopping;
}

bool dispatch_is_empty(const struct dispatch *d)
{
    return !d->leases && d->runs == 0;
}

bool dispatch_has_outcomes(const struct dispatch *d)
{
    for (const struct lease *l = d->leases; l; l = l->next)
        for (size_t i = 0; i < l->batch.n; i++)
            if (is_done(&l->batch.messages[i]) || l->batch.messages[i].state == MESSAGE_POISON)
                return true;
    return d->runs > 0;
}

void dispatch_resume(struct dispatch *d)
{
    assert(dispatch_is_empty(d));
    memset(d->tails, 0, sizeof d->tails); /* empties the lanes, whose messages returned to the queue */
    d->stopping = false;
}

void dispatch_unacknowledged(const struct dispatch *d, struct buf *ids)
{
    for (struct lease *l = d->leases; l; l = l->next) {
        change_state(l, MESSAGE_TAKEN, MESSAGE_DONE);
        if (l->unsettled > 0)
            take_ids(l, MESSAGE_DONE, MESSAGE_DONE, ids);
    }
}
