#include "readers/reader_plan.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define FENCES ((uint64_t)1 << PLAN_FENCE_BITS)
#define BATCHES_MAX 2
#define ACKS_MAX (BATCHES_MAX + 1)
#define STATE_EVERY USEC_PER_SEC      /* longest time between statements */
#define STATE_PAUSE (STATE_EVERY / 2) /* shortest time, for statements without a delivery */
#define PIGGYBACK_MAX 8000            /* maximum bytes of acks in a reserve */

enum plan_phase {
    PHASE_ACK,
    PHASE_RELEASE,
    PHASE_ASK,
    PHASE_FENCE,
    PHASE_WORK,
    PHASE_LAST_FENCE, /* rule 5, before stopping */
    PHASE_STOPPED,
    PHASE_OLD_COPY,
    PHASE_OLD_DESTINATION,
    PHASE_FOREIGN_MARK,
    PHASE_MARKS_USED_UP,
};

struct leased {
    struct batch batch;
    usec_t ends, touch_at;
};

/* A watermark once the mark exceeds last_id. */
struct claim {
    usec_t time; /* 0: none */
    uint64_t last_id;
};

struct plan {
    struct plan_config config;
    enum plan_phase phase;
    bool stopping;
    bool over;           /* the work ends when both lanes are idle */
    enum plan_phase end; /* the phase after the work */
    bool busy[PLAN_LANES];
    bool acks_piggyback; /* the current reserve contains acks */
    bool no_piggyback;   /* since the last release, the queue has refused a reserve with acks */
    bool lease_lost;     /* since the last release, a lease was lost */
    struct plan_step doing[PLAN_LANES];
    usec_t since[PLAN_LANES];
    struct backoff backoff[PLAN_LANES];
    usec_t pause[PLAN_LANES]; /* no step begins before this time */
    struct backoff rival;     /* rule 10 */
    usec_t works_since;       /* time of the first reserve after the release; 0: none */
    unsigned conflicts;       /* number of conflicts since the last delivery */

    char queue_id[NAME_LEN_MAX + 1];
    uint64_t next_id; /* the queue's next id at the last release */
    uint64_t epoch, mark;
    uint64_t acked_below;         /* of the last release, or of plan_destination_behind */
    char opening[MARK_LABEL_MAX]; /* as the destination stored it with the mark */
    struct openings *openings;    /* of the queue at the last release; NULL: unknown */
    /* The oldest is kept until it is stated, so that the watermark rises even if there is always a backlog. */
    struct claim oldest, newest;
    usec_t stated_at;
    usec_t destination_time,
        time_at_reserve; /* by the destination's clock, as last known, and when the reserve began; 0: not known */
    bool doubted;        /* the mark seems to be of another history, and is to be checked again */
    bool fresh;          /* no message was reserved since the release */
    uint64_t expected; /* unless fresh: the first id of the next batch */

    struct leased leased[BATCHES_MAX]; /* the first is being delivered */
    size_t n_leased;
    bool dry;                  /* the last reserve emptied the queue */
    bool unresolved;           /* an unanswered delivery may still reach the destination */
    size_t limit;              /* messages per delivery */
    size_t suspect_end;        /* end of the refused run; up to this message `limit` stays halved */
    struct buf acks[ACKS_MAX]; /* one lease each, oldest first */
};

struct plan *plan_new(const struct plan_config *config)
{
    struct plan *p = mem_zalloc(sizeof(*p));
    p->config = *config;
    p->phase = p->end = PHASE_RELEASE;
    backoff_init(&p->backoff[PLAN_QUEUE], config->backoff_min, config->backoff_max, config->seed);
    backoff_init(&p->backoff[PLAN_DESTINATION], config->backoff_min, config->backoff_max, ~config->seed);
    backoff_init(&p->rival, config->backoff_min, config->backoff_max, config->seed ^ (config->seed << 21));
    return p;
}

void plan_free(struct plan **p)
{
    if (!*p)
        return;
    for (size_t i = 0; i < BATCHES_MAX; i++)
        batch_free(&(*p)->leased[i].batch);
    for (size_t i = 0; i < ACKS_MAX; i++)
        buf_free(&(*p)->acks[i]);
    openings_free(&(*p)->openings);
    free(*p);
    *p = NULL;
}

static struct batch *front(struct plan *p)
{
    return &p->leased[0].batch;
}

/* Returns the first unsettled message of the first batch, or SIZE_MAX. */
static size_t first_unsettled(const struct plan *p)
{
    size_t first = batch_unsettled(&p->leased[0].batch);
    return first < p->leased[0].batch.n ? first : SIZE_MAX;
}

static bool is_poison(const struct plan *p, size_t i)
{
    return i != SIZE_MAX && p->leased[0].batch.messages[i].state == MESSAGE_POISON;
}

static void reset_limit(struct plan *p)
{
    p->limit = front(p)->n;
    p->suspect_end = 0;
}

/* Removes the first batch, but keeps the ids of its delivered messages as acks. */
static void pop_front(struct plan *p)
{
    struct buf *acks = p->acks;
    while (acks->len)
        acks++;
    batch_append_done(front(p), acks);
    batch_free(front(p));
    p->leased[0] = p->leased[1];
    p->leased[1] = (struct leased){0};
    p->n_leased--;
    p->dry = false;
    reset_limit(p);
}

/* Keeps the last slot for acks free, because the work may end in the middle of a batch. */
static void pop_settled(struct plan *p)
{
    while (p->n_leased && first_unsettled(p) == SIZE_MAX && !p->acks[1].len)
        pop_front(p);
}

static void acks_went(struct plan *p)
{
    struct buf first = p->acks[0];
    buf_clear(&first);
    memmove(p->acks, p->acks + 1, (ACKS_MAX - 1) * sizeof(*p->acks));
    p->acks[ACKS_MAX - 1] = first;
    pop_settled(p);
}

static bool is_at_work(const struct plan *p)
{
    return p->phase == PHASE_ASK || p->phase == PHASE_FENCE || p->phase == PHASE_WORK;
}

/* If the plan must stop or start again with RELEASE, ends the work as soon as both lanes are idle. */
static void leave_work_if_due(struct plan *p, usec_t now)
{
    bool lease_ended = false;
    for (size_t i = 0; i < p->n_leased; i++)
        lease_ended = lease_ended || now >= p->leased[i].ends;
    if (is_at_work(p) && (p->stopping || lease_ended))
        p->over = true;
    if (!p->over || p->busy[PLAN_QUEUE] || p->busy[PLAN_DESTINATION])
        return;
    if (p->stopping && p->unresolved && p->phase == PHASE_WORK) {
        p->phase = PHASE_LAST_FENCE;
        p->over = false;
        return;
    }
    if (p->n_leased)
        pop_front(p);
    while (p->n_leased) /* the release returns a second batch, which is not delivered */
        batch_free(&p->leased[--p->n_leased].batch);
    p->over = false;
    p->phase = p->acks[0].len && p->end == PHASE_RELEASE ? PHASE_ACK : p->end;
}

static struct plan_step mark_step(const struct plan *p, uint64_t id, uint64_t fence)
{
    struct plan_step step = {.action = PLAN_DELIVER, .mark = p->mark, .next = PLAN_MARK(id, fence)};
    if (p->openings)
        openings_lineage(p->openings, id - 1, step.opening, sizeof step.opening);
    lineage_cut_to_tag(step.opening, strlen(p->queue_id));
    return step;
}

static struct plan_step fence_step(struct plan *p)
{
    uint64_t id = p->mark >> PLAN_FENCE_BITS, fence = p->mark % FENCES + 1;
    if (fence == FENCES) {
        p->over = true;
        p->end = PHASE_MARKS_USED_UP;
        return (struct plan_step){.action = PLAN_WAIT};
    }
    return mark_step(p, id ? id : 1, fence);
}

/* Returns the latest watermark if all messages below `id` are settled, or NULL. */
static const struct claim *reached(const struct plan *p, uint64_t id)
{
    if (p->newest.time && p->newest.last_id < id)
        return &p->newest;
    return p->oldest.time && p->oldest.last_id < id ? &p->oldest : NULL;
}

static void claims_clear(struct plan *p)
{
    p->oldest = p->newest = (struct claim){0, 0};
}

/* If a clock was set back, the former times may lie after messages that are accepted from now on. If the queue states
 * no time, messages below last_id of an earlier claim may get new ids. */
static void add_claim(struct plan *p, const struct plan_accepted *a)
{
    usec_t time = a->before < p->time_at_reserve ? a->before : p->time_at_reserve;
    if (time < p->newest.time)
        claims_clear(p);
    if (time == 0)
        return;
    p->newest = (struct claim){time, a->last_id};
    if (p->oldest.time == 0)
        p->oldest = p->newest;
}

static void statement_done(struct plan *p)
{
    const struct plan_step *step = &p->doing[PLAN_DESTINATION];
    p->stated_at = p->since[PLAN_DESTINATION];
    if (p->newest.time <= step->watermark)
        claims_clear(p);
    else if (p->oldest.time <= step->watermark)
        p->oldest = p->newest;
}

static struct plan_step state_step(const struct plan *p, usec_t now)
{
    const struct claim *claim = reached(p, p->mark >> PLAN_FENCE_BITS);
    usec_t due = p->stated_at + (claim ? STATE_PAUSE : STATE_EVERY);
    if (now < due)
        return (struct plan_step){.action = PLAN_PAUSE, .until = due};
    struct plan_step step = {.action = PLAN_STATE, .mark = p->mark};
    if (claim)
        step.watermark = claim->time;
    return step;
}

/* The run begins with the first unsettled message. */
static struct plan_step deliver_step(const struct plan *p, size_t first)
{
    const struct batch *b = &p->leased[0].batch;
    size_t count = 0, bytes = 0;
    while (first + count < b->n && count < p->limit && b->messages[first + count].state == MESSAGE_WAITING) {
        bytes += b->messages[first + count].text.len + 1;
        if (count && p->config.max_bytes && bytes > p->config.max_bytes)
            break;
        count++;
    }
    struct plan_step step = mark_step(p, b->messages[first + count - 1].id + 1, 0);
    step.first = first;
    step.count = count;
    const struct claim *claim = reached(p, step.next >> PLAN_FENCE_BITS);
    if (claim)
        step.watermark = claim->time;
    return step;
}

static struct plan_step destination_step(struct plan *p, usec_t now)
{
    static const struct plan_step wait = {.action = PLAN_WAIT};
    if (p->over)
        return wait;
    if (p->phase == PHASE_ASK)
        return (struct plan_step){.action = PLAN_ASK};
    if (p->phase == PHASE_FENCE || p->phase == PHASE_LAST_FENCE)
        return fence_step(p);
    size_t first = p->phase == PHASE_WORK ? first_unsettled(p) : SIZE_MAX;
    if (first == SIZE_MAX)
        return p->config.states && p->phase == PHASE_WORK && !p->stopping ? state_step(p, now) : wait;
    if (is_poison(p, first))
        return p->unresolved ? fence_step(p) : wait;
    return deliver_step(p, first);
}

static struct plan_step touch_step(const struct plan *p, usec_t now)
{
    struct plan_step step = {.action = PLAN_WAIT};
    for (size_t i = 0; i < p->n_leased; i++) {
        const struct leased *l = &p->leased[i];
        if (step.action == PLAN_WAIT || l->touch_at < step.until)
            step = (struct plan_step){.action = PLAN_PAUSE, .until = l->touch_at, .lease = l->batch.lease};
    }
    if (step.action == PLAN_PAUSE && step.until <= now)
        step.action = PLAN_TOUCH;
    return step;
}

/* If a reserve is due, it contains the acks. A reserve waits for messages only if no batch is leased. */
static struct plan_step work_queue_step(const struct plan *p, usec_t now)
{
    size_t first = first_unsettled(p);
    struct plan_step touch = touch_step(p, now);
    if (touch.action == PLAN_TOUCH)
        return touch;
    if (is_poison(p, first) && !p->unresolved)
        return (struct plan_step){.action = PLAN_BURY, .first = first, .count = 1};
    bool more = p->n_leased == 0 || (p->n_leased < BATCHES_MAX && !p->dry);
    if (p->acks[0].len && (p->acks[0].len > PIGGYBACK_MAX || p->no_piggyback || !more))
        return (struct plan_step){.action = PLAN_ACK};
    bool is_stating = p->busy[PLAN_DESTINATION] && p->doing[PLAN_DESTINATION].action == PLAN_STATE;
    if (more && is_stating) /* its reply has a later time */
        return (struct plan_step){.action = PLAN_WAIT};
    if (more)
        return (struct plan_step){.action = PLAN_RESERVE, .wait = p->n_leased == 0};
    return touch;
}

/* As long as the destination has a run, the plan extends the lease of this run. A stop may be cut short. So when
 * stopping, the plan acknowledges delivered messages at once and does not wait for the run. Only the release returns
 * messages (rule 5). */
static struct plan_step leaving_queue_step(struct plan *p, usec_t now)
{
    if (!p->busy[PLAN_DESTINATION] || p->phase != PHASE_WORK)
        return (struct plan_step){.action = PLAN_WAIT};
    if (p->stopping && !p->acks[0].len)
        batch_take_done(front(p), &p->acks[0]);
    if (p->stopping && p->acks[0].len)
        return (struct plan_step){.action = PLAN_ACK};
    return p->lease_lost ? (struct plan_step){.action = PLAN_WAIT} : touch_step(p, now);
}

static struct plan_step queue_step(struct plan *p, usec_t now)
{
    static const enum plan_action actions[] = {
        [PHASE_ACK] = PLAN_ACK,
        [PHASE_RELEASE] = PLAN_RELEASE,
        [PHASE_ASK] = PLAN_WAIT,
        [PHASE_FENCE] = PLAN_WAIT,
        [PHASE_LAST_FENCE] = PLAN_WAIT,
        [PHASE_STOPPED] = PLAN_STOPPED,
        [PHASE_OLD_COPY] = PLAN_OLD_COPY,
        [PHASE_OLD_DESTINATION] = PLAN_OLD_DESTINATION,
        [PHASE_FOREIGN_MARK] = PLAN_FOREIGN_MARK,
        [PHASE_MARKS_USED_UP] = PLAN_MARKS_USED_UP,
    };
    if (p->over)
        return leaving_queue_step(p, now);
    if (p->phase == PHASE_WORK)
        return work_queue_step(p, now);
    return (struct plan_step){.action = actions[p->phase]};
}

struct plan_step plan_next(struct plan *p, enum plan_lane lane, usec_t now)
{
    assert(!p->busy[lane]);
    leave_work_if_due(p, now);
    struct plan_step step = lane == PLAN_QUEUE ? queue_step(p, now) : destination_step(p, now);
    if (step.action >= PLAN_WAIT)
        return step;
    /* When stopping, the plan ignores pauses, except before retries. */
    bool pauses = !p->stopping || (lane == PLAN_QUEUE && step.action != PLAN_RELEASE);
    if (p->pause[lane] > now && pauses)
        return (struct plan_step){.action = PLAN_PAUSE, .until = p->pause[lane]};
    p->busy[lane] = true;
    p->doing[lane] = step;
    p->since[lane] = now;
    if (step.action == PLAN_RESERVE) {
        p->acks_piggyback = p->acks[0].len > 0;
        p->time_at_reserve = p->destination_time;
    }
    return step;
}

static void end_step(struct plan *p, enum plan_lane lane, enum plan_action action)
{
    assert(p->busy[lane] && p->doing[lane].action == action);
    p->busy[lane] = false;
}

static void succeed_step(struct plan *p, enum plan_lane lane, enum plan_action action)
{
    end_step(p, lane, action);
    backoff_succeeded(&p->backoff[lane]);
    p->pause[lane] = 0;
}

/* Compares the mark with the queue's history (rule 6). own_from is 0 if it is unknown. */
static bool is_of_this_history(const struct plan *p, uint64_t *own_from)
{
    uint64_t id = p->mark >> PLAN_FENCE_BITS;
    *own_from = 0;
    bool agree =
        id <= 1 || !p->openings || openings_agree(p->openings, id - 1, bytes_str(p->opening), own_from);
    return agree && id <= p->next_id;
}

struct plan_old_copy plan_old_copy(const struct plan *p)
{
    struct plan_old_copy copy = {
        .mark_id = p->mark >> PLAN_FENCE_BITS, .opening = p->opening, .next_id = p->next_id};
    copy.is_ahead = p->opening[0] == '\0' && copy.mark_id > p->next_id;
    (void)is_of_this_history(p, &copy.own_from);
    copy.is_exact = copy.own_from > 0 && !copy.is_ahead;
    if (!copy.is_exact)
        copy.own_from = p->acked_below ? p->acked_below : 1;
    return copy;
}

void plan_released(struct plan *p, const struct plan_queue *queue)
{
    assert(queue->id.len <= NAME_LEN_MAX);
    succeed_step(p, PLAN_QUEUE, PLAN_RELEASE);
    if (!bytes_equal_str(queue->id, p->queue_id))
        p->doubted = false;
    memcpy(p->queue_id, queue->id.ptr, queue->id.len);
    p->queue_id[queue->id.len] = '\0';
    p->next_id = queue->next_id;
    p->epoch = queue->epoch;
    p->acked_below = queue->acked_below;
    openings_free(&p->openings);
    p->openings = queue->openings.len ? openings_from_text(queue->openings) : NULL;
    p->fresh = true;
    p->dry = p->unresolved = p->no_piggyback = p->lease_lost = false;
    claims_clear(p);
    p->works_since = 0;
    uint64_t own_from;
    if (p->stopping)
        p->phase = PHASE_STOPPED;
    else if (p->doubted && !is_of_this_history(p, &own_from))
        p->phase = PHASE_OLD_COPY;
    else
        p->phase = PHASE_ASK;
    p->doubted = false;
}

/* After the release, the queue may have assigned more ids or started again, and another process may have increased the
 * mark. So if the mark seems to be of another history, the plan first releases and compares again. Only then does it
 * treat the queue as an old copy. */
void plan_asked(struct plan *p, uint64_t mark, struct bytes opening)
{
    succeed_step(p, PLAN_DESTINATION, PLAN_ASK);
    uint64_t own_from;
    p->mark = mark;
    snprintf(p->opening, sizeof p->opening, "%.*s", (int)opening.len, opening.len ? opening.ptr : "");
    p->doubted = !is_of_this_history(p, &own_from);
    if (mark && !(mark >> PLAN_FENCE_BITS))
        p->phase = PHASE_FOREIGN_MARK;
    else
        p->phase = p->doubted ? PHASE_RELEASE : PHASE_FENCE;
}

/* True if there is no gap between the previous batch and this one (rule 4). */
static bool is_contiguous(const struct plan *p, const struct batch *batch)
{
    uint64_t expected = p->expected;
    for (size_t i = 0; i < batch->n; i++)
        if (batch->messages[i].id != expected++)
            return false;
    return true;
}

/* Takes over the batch. Messages below the destination's mark become DONE, and messages that cannot be lines become
 * POISON. */
static void add_batch(struct plan *p, struct batch *batch, usec_t now)
{
    for (size_t i = 0; i < batch->n; i++) {
        struct message *m = &batch->messages[i];
        if (m->id < p->mark >> PLAN_FENCE_BITS)
            m->state = MESSAGE_DONE;
        else if (p->config.lines && m->text.len == 0)
            batch_mark_poison(batch, i, "empty");
        else if (p->config.lines && memchr(m->text.ptr, '\n', m->text.len))
            batch_mark_poison(batch, i, "contains a line feed");
    }
    p->expected = batch->messages[batch->n - 1].id + 1;
    p->fresh = false;
    p->dry = batch->n < p->config.items;
    p->leased[p->n_leased++] = (struct leased){
        .batch = *batch,
        .ends = now + p->config.lease - p->config.lease / 10,
        .touch_at = now + p->config.lease / 3,
    };
    *batch = (struct batch){0};
    if (p->n_leased == 1)
        reset_limit(p);
    pop_settled(p);
}

void plan_reserved(struct plan *p, struct bytes queue_id, struct batch *batch,
    const struct plan_accepted *accepted, usec_t now)
{
    succeed_step(p, PLAN_QUEUE, PLAN_RESERVE);
    if (p->acks_piggyback)
        acks_went(p);
    if (!p->works_since)
        p->works_since = now;
    else if (now - p->works_since >= p->config.backoff_max)
        backoff_succeeded(&p->rival);
    bool same = bytes_equal_str(queue_id, p->queue_id);
    if (same)
        add_claim(p, accepted);
    if (!same || (!p->fresh && !is_contiguous(p, batch))) {
        p->over = true;
    } else if (batch->n && batch->messages[batch->n - 1].id >= PLAN_ID_MAX) {
        p->over = true;
        p->end = PHASE_MARKS_USED_UP;
    } else if (batch->n && !p->over) {
        add_batch(p, batch, now);
    } else if (!batch->n) {
        if (p->fresh)
            p->expected = p->next_id; /* the queue is empty, so the next message will have this id */
        p->fresh = false;
        p->dry = p->n_leased > 0;
    }
    batch_free(batch);
}

void plan_superseded(struct plan *p, usec_t now)
{
    succeed_step(p, PLAN_QUEUE, PLAN_RESERVE);
    for (size_t i = 0; i < ACKS_MAX; i++)
        buf_clear(&p->acks[i]); /* the release of the other process has ended their leases */
    p->pause[PLAN_QUEUE] = now + backoff_failed(&p->rival);
    p->over = true;
}

void plan_destination_behind(struct plan *p, uint64_t acked_below)
{
    succeed_step(p, PLAN_QUEUE, PLAN_RESERVE);
    p->acked_below = acked_below;
    p->over = true;
    p->end = PHASE_OLD_DESTINATION;
}

uint64_t plan_acked_below(const struct plan *p)
{
    return p->acked_below;
}

uint64_t plan_mark_id(const struct plan *p)
{
    return p->mark >> PLAN_FENCE_BITS;
}

void plan_touched(struct plan *p)
{
    usec_t sent = p->since[PLAN_QUEUE];
    succeed_step(p, PLAN_QUEUE, PLAN_TOUCH);
    for (size_t i = 0; i < p->n_leased; i++)
        if (p->leased[i].batch.lease == p->doing[PLAN_QUEUE].lease) {
            p->leased[i].ends = sent + p->config.lease - p->config.lease / 10;
            p->leased[i].touch_at = sent + p->config.lease / 3;
        }
}

static void run_is_settled(struct plan *p, size_t first, size_t count, enum message_state state)
{
    for (size_t i = first; i < first + count; i++)
        front(p)->messages[i].state = state;
    if (first + count >= p->suspect_end)
        p->limit = front(p)->n;
    pop_settled(p);
}

void plan_delivered(struct plan *p)
{
    succeed_step(p, PLAN_DESTINATION, PLAN_DELIVER);
    const struct plan_step *step = &p->doing[PLAN_DESTINATION];
    p->mark = step->next;
    p->unresolved = false;
    if (step->count) {
        statement_done(p);
        p->conflicts = 0;
        run_is_settled(p, step->first, step->count, MESSAGE_DONE);
    } else if (p->phase == PHASE_FENCE) {
        p->phase = PHASE_WORK;
    } else if (p->phase == PHASE_LAST_FENCE) {
        p->over = true;
    }
}

void plan_destination_time(struct plan *p, usec_t time, bool is_new_era)
{
    if (is_new_era) {
        p->time_at_reserve = 0;
        claims_clear(p);
    }
    p->destination_time = time;
}

void plan_stated(struct plan *p)
{
    succeed_step(p, PLAN_DESTINATION, PLAN_STATE);
    statement_done(p);
}

/* The destination's mark has changed, so an earlier delivery of this reader can no longer be stored. */
void plan_conflict(struct plan *p, usec_t now)
{
    succeed_step(p, PLAN_DESTINATION, p->doing[PLAN_DESTINATION].action);
    p->unresolved = false;
    if (++p->conflicts > 1)
        p->pause[PLAN_DESTINATION] = now + backoff_failed(&p->rival);
    if (p->phase == PHASE_FENCE)
        p->phase = PHASE_ASK;
    else
        p->over = true;
}

void plan_refused(struct plan *p, const char *reason)
{
    succeed_step(p, PLAN_DESTINATION, PLAN_DELIVER);
    const struct plan_step *step = &p->doing[PLAN_DESTINATION];
    if (step->count == 1) {
        batch_mark_poison(front(p), step->first, reason);
        return;
    }
    if (step->first + step->count > p->suspect_end)
        p->suspect_end = step->first + step->count;
    p->limit = step->count / 2;
}

void plan_buried(struct plan *p)
{
    succeed_step(p, PLAN_QUEUE, PLAN_BURY);
    p->suspect_end = 0; /* the poison is found */
    run_is_settled(p, p->doing[PLAN_QUEUE].first, 1, MESSAGE_BURIED);
}

void plan_acknowledged(struct plan *p)
{
    succeed_step(p, PLAN_QUEUE, PLAN_ACK);
    acks_went(p);
    if (p->phase == PHASE_ACK && !p->acks[0].len)
        p->phase = PHASE_RELEASE;
}

void plan_lease_lost(struct plan *p)
{
    enum plan_action action = p->doing[PLAN_QUEUE].action;
    succeed_step(p, PLAN_QUEUE, action);
    if (action == PLAN_RESERVE && p->acks_piggyback)
        acks_went(p);
    p->over = p->lease_lost = true;
}

bool plan_piggyback_refused(struct plan *p)
{
    if (!p->acks_piggyback)
        return false;
    end_step(p, PLAN_QUEUE, PLAN_RESERVE);
    p->no_piggyback = true;
    return true;
}

void plan_faulted(struct plan *p, enum plan_lane lane, usec_t now, usec_t wait)
{
    end_step(p, lane, p->doing[lane].action);
    p->pause[lane] = now + (wait >= 0 ? wait : backoff_failed(&p->backoff[lane]));
    if (lane == PLAN_QUEUE) {
        if (p->stopping && (p->phase == PHASE_RELEASE || p->phase == PHASE_ACK))
            p->end = PHASE_STOPPED;
        p->over = p->over || p->stopping || is_at_work(p);
        return;
    }
    const struct plan_step *step = &p->doing[PLAN_DESTINATION];
    if (step->action == PLAN_DELIVER && step->count)
        p->unresolved = true;
    if (p->phase == PHASE_FENCE)
        p->phase = PHASE_ASK; /* the fence may have changed the mark */
    if (p->phase == PHASE_LAST_FENCE) {
        p->unresolved = false; /* the last fence is tried only once */
        p->over = true;
    }
}

void plan_cancelled(struct plan *p, enum plan_lane lane)
{
    end_step(p, lane, p->doing[lane].action);
}

void plan_stop(struct plan *p)
{
    p->stopping = true;
    p->pause[PLAN_QUEUE] = 0;
}

const struct batch *plan_batch(const struct plan *p)
{
    return &p->leased[0].batch;
}

const char *plan_queue_id(const struct plan *p)
{
    return p->queue_id;
}

uint64_t plan_epoch(const struct plan *p)
{
    return p->epoch;
}

struct bytes plan_acks(const struct plan *p)
{
    return buf_bytes(&p->acks[0]);
}
