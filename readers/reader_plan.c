#include "reader_plan.h"

#include <assert.h>
#include <stdlib.h>

enum plan_phase {
    PHASE_ACK,
    PHASE_RELEASE,
    PHASE_ASK,
    PHASE_RESERVE,
    PHASE_WORK,
    PHASE_STOPPED,
    PHASE_OLD_COPY,
};

struct plan {
    struct plan_config config;
    enum plan_phase phase;
    bool stopping;
    struct backoff backoff[2]; /* by plan_side */
    usec_t pause[2];           /* no try before */

    char queue_id[NAME_MAX_BYTES + 1];
    uint64_t next_id; /* of the queue, when last released */
    uint64_t mark;
    uint64_t doubted; /* a mark that was above next_id: looked at twice before it counts */

    bool fresh;        /* nothing was reserved since the release */
    uint64_t expected; /* the id with which the next batch goes on, when not fresh */

    struct batch batch;
    usec_t lease_ends;
    size_t limit;       /* messages delivered at once */
    size_t suspect_end; /* behind the run that was refused: up to here `limit` stays halved */
    struct buf acks;
};

struct plan *plan_new(const struct plan_config *config)
{
    struct plan *p = mem_zalloc(sizeof(*p));
    p->config = *config;
    p->phase = PHASE_RELEASE;
    backoff_init(&p->backoff[PLAN_QUEUE], config->backoff_min, config->backoff_max, config->seed);
    backoff_init(&p->backoff[PLAN_DESTINATION], config->backoff_min, config->backoff_max, ~config->seed);
    return p;
}

void plan_free(struct plan **p)
{
    if (!*p)
        return;
    batch_free(&(*p)->batch);
    buf_free(&(*p)->acks);
    free(*p);
    *p = NULL;
}

/* Leaves the batch. What of it is delivered is kept to be acknowledged. */
static void settle(struct plan *p)
{
    if (p->batch.n) {
        buf_clear(&p->acks);
        batch_append_done(&p->batch, &p->acks);
    }
    batch_free(&p->batch);
}

static void start_over(struct plan *p)
{
    settle(p);
    p->phase = p->acks.len ? PHASE_ACK : PHASE_RELEASE;
}

/* ---- what is next ---- */

/* The messages from the first unsettled one on that go out together. */
static size_t run_length(const struct plan *p, size_t first)
{
    size_t n = 0, bytes = 0;
    while (first + n < p->batch.n && n < p->limit && p->batch.messages[first + n].state == MESSAGE_WAITING) {
        bytes += p->batch.messages[first + n].text.len + 1;
        if (n && p->config.max_bytes && bytes > p->config.max_bytes)
            break;
        n++;
    }
    return n;
}

static struct plan_step work_step(const struct plan *p)
{
    size_t first = batch_unsettled(&p->batch);
    assert(first < p->batch.n);
    if (p->batch.messages[first].state == MESSAGE_POISON)
        return (struct plan_step){.action = PLAN_BURY, .first = first, .count = 1};
    size_t count = run_length(p, first);
    return (struct plan_step){
        .action = PLAN_DELIVER,
        .first = first,
        .count = count,
        .mark = p->mark,
        .next = p->batch.messages[first + count - 1].id + 1,
    };
}

static struct plan_step step_of_phase(const struct plan *p)
{
    static const enum plan_action actions[] = {
        [PHASE_ACK] = PLAN_ACK,
        [PHASE_RELEASE] = PLAN_RELEASE,
        [PHASE_ASK] = PLAN_ASK,
        [PHASE_RESERVE] = PLAN_RESERVE,
        [PHASE_STOPPED] = PLAN_STOPPED,
        [PHASE_OLD_COPY] = PLAN_OLD_COPY,
    };
    if (p->phase == PHASE_WORK)
        return work_step(p);
    return (struct plan_step){.action = actions[p->phase]};
}

static usec_t paused_until(const struct plan *p, enum plan_action action)
{
    switch (action) {
    case PLAN_ASK:
    case PLAN_DELIVER:
        return p->pause[PLAN_DESTINATION];
    case PLAN_RELEASE:
    case PLAN_RESERVE:
    case PLAN_BURY:
    case PLAN_ACK:
        return p->pause[PLAN_QUEUE];
    default:
        return 0;
    }
}

struct plan_step plan_next(struct plan *p, usec_t now)
{
    bool begun = p->phase == PHASE_ASK || p->phase == PHASE_RESERVE || p->phase == PHASE_WORK;
    if (begun && (p->stopping || (p->phase == PHASE_WORK && now >= p->lease_ends)))
        start_over(p);
    struct plan_step step = step_of_phase(p);
    usec_t until = p->stopping ? 0 : paused_until(p, step.action);
    if (until > now)
        return (struct plan_step){.action = PLAN_PAUSE, .until = until};
    return step;
}

/* ---- outcomes ---- */

static void went_well(struct plan *p, enum plan_side side)
{
    backoff_succeeded(&p->backoff[side]);
    p->pause[side] = 0;
}

void plan_released(struct plan *p, struct bytes queue_id, uint64_t next_id)
{
    assert(p->phase == PHASE_RELEASE && queue_id.len <= NAME_MAX_BYTES);
    went_well(p, PLAN_QUEUE);
    if (!bytes_equal_str(queue_id, p->queue_id))
        p->doubted = 0;
    if (queue_id.len)
        memcpy(p->queue_id, queue_id.ptr, queue_id.len);
    p->queue_id[queue_id.len] = '\0';
    p->next_id = next_id;
    p->fresh = true;
    if (p->stopping)
        p->phase = PHASE_STOPPED;
    else if (p->doubted > next_id)
        p->phase = PHASE_OLD_COPY;
    else
        p->phase = p->config.marks ? PHASE_ASK : PHASE_RESERVE;
    p->doubted = 0;
}

/* The mark was asked after the next id was told. Another process of this reader may have moved both in between, so a
 * mark above it is compared with a next id told later. */
void plan_asked(struct plan *p, uint64_t mark)
{
    assert(p->phase == PHASE_ASK);
    went_well(p, PLAN_DESTINATION);
    p->mark = p->queue_id[0] ? mark : 0;
    p->doubted = p->mark > p->next_id ? p->mark : 0;
    p->phase = p->doubted ? PHASE_RELEASE : PHASE_RESERVE;
}

/* Rule 4. */
static bool goes_on(const struct plan *p, const struct batch *batch)
{
    uint64_t expected = p->expected;
    for (size_t i = 0; i < batch->n; i++)
        if (batch->messages[i].id != expected++)
            return false;
    return true;
}

static void judge(struct plan *p)
{
    for (size_t i = 0; i < p->batch.n; i++) {
        struct message *m = &p->batch.messages[i];
        if (p->config.marks && m->id < p->mark)
            m->state = MESSAGE_DONE;
        else if (p->config.lines && m->text.len == 0)
            batch_mark_poison(&p->batch, i, "empty");
        else if (p->config.lines && memchr(m->text.ptr, '\n', m->text.len))
            batch_mark_poison(&p->batch, i, "holds a line feed");
    }
}

static void check_settled(struct plan *p)
{
    if (batch_unsettled(&p->batch) < p->batch.n)
        return;
    settle(p);
    p->phase = PHASE_RESERVE;
}

static void begin_work(struct plan *p, struct batch *batch, usec_t now)
{
    p->batch = *batch;
    p->fresh = false;
    p->expected = batch->messages[batch->n - 1].id + 1;
    p->lease_ends = now + p->config.lease - p->config.lease / 10;
    p->limit = batch->n;
    p->suspect_end = 0;
    p->phase = PHASE_WORK;
    *batch = (struct batch){0};
    judge(p);
    check_settled(p);
}

void plan_reserved(struct plan *p, struct bytes queue_id, struct batch *batch, usec_t now)
{
    assert(p->phase == PHASE_RESERVE);
    went_well(p, PLAN_QUEUE);
    buf_clear(&p->acks);
    bool same = bytes_equal_str(queue_id, p->queue_id);
    if (!same || (p->config.marks && !p->fresh && !goes_on(p, batch))) {
        batch_free(batch);
        p->phase = PHASE_RELEASE;
    } else if (batch->n) {
        begin_work(p, batch, now);
    } else {
        /* Nothing was there: the next message will be one that had no id yet. */
        if (p->fresh)
            p->expected = p->next_id;
        p->fresh = false;
        batch_free(batch);
    }
}

static void run_is_settled(struct plan *p, size_t first, size_t count, enum message_state state)
{
    for (size_t i = first; i < first + count; i++)
        p->batch.messages[i].state = state;
    if (first + count >= p->suspect_end)
        p->limit = p->batch.n;
    check_settled(p);
}

void plan_delivered(struct plan *p)
{
    assert(p->phase == PHASE_WORK);
    went_well(p, PLAN_DESTINATION);
    struct plan_step step = work_step(p);
    p->mark = step.next;
    run_is_settled(p, step.first, step.count, MESSAGE_DONE);
}

void plan_conflict(struct plan *p)
{
    assert(p->phase == PHASE_WORK);
    went_well(p, PLAN_DESTINATION);
    start_over(p);
}

void plan_refused(struct plan *p, const char *reason)
{
    assert(p->phase == PHASE_WORK);
    went_well(p, PLAN_DESTINATION);
    struct plan_step step = work_step(p);
    if (step.count == 1) {
        batch_mark_poison(&p->batch, step.first, reason);
        return;
    }
    if (step.first + step.count > p->suspect_end)
        p->suspect_end = step.first + step.count;
    p->limit = step.count / 2;
}

void plan_buried(struct plan *p)
{
    assert(p->phase == PHASE_WORK);
    went_well(p, PLAN_QUEUE);
    p->suspect_end = 0; /* what was suspected has been found */
    run_is_settled(p, batch_unsettled(&p->batch), 1, MESSAGE_BURIED);
}

void plan_acknowledged(struct plan *p)
{
    assert(p->phase == PHASE_ACK);
    went_well(p, PLAN_QUEUE);
    buf_clear(&p->acks);
    p->phase = PHASE_RELEASE;
}

void plan_lease_lost(struct plan *p)
{
    went_well(p, PLAN_QUEUE);
    settle(p);
    buf_clear(&p->acks);
    p->phase = PHASE_RELEASE;
}

void plan_faulted(struct plan *p, enum plan_side side, usec_t now)
{
    if (p->stopping) {
        p->phase = PHASE_STOPPED;
        return;
    }
    p->pause[side] = now + backoff_failed(&p->backoff[side]);
    if (side == PLAN_QUEUE && p->phase != PHASE_ACK)
        start_over(p);
}

void plan_stop(struct plan *p)
{
    p->stopping = true;
}

const struct batch *plan_batch(const struct plan *p)
{
    return &p->batch;
}

const char *plan_queue_id(const struct plan *p)
{
    return p->queue_id;
}

struct bytes plan_acks(const struct plan *p)
{
    return buf_bytes(&p->acks);
}

size_t plan_run_length(const struct plan *p)
{
    return p->phase == PHASE_WORK ? work_step(p).count : 0;
}

uint64_t plan_mark(const struct plan *p)
{
    return p->mark;
}

uint64_t plan_next_id(const struct plan *p)
{
    return p->next_id;
}
