#include "readers/reader_plan.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCHES_MAX 2
#define STATE_EVERY USEC_PER_SEC      /* longest time between two watermarks */
#define STATE_PAUSE (STATE_EVERY / 2) /* shortest time between two watermarks without a delivery */

enum plan_phase {
    PHASE_FOLLOW,
    PHASE_ASK,
    PHASE_WORK,
    PHASE_UNFOLLOW,
    PHASE_STOPPED,
    PHASE_OLD_COPY,
    PHASE_OLD_DESTINATION,
};

/* A time that becomes a watermark once the mark exceeds last_id. */
struct claim {
    usec_t time; /* 0: no claim */
    uint64_t last_id, after;
};

/* The destination had the messages before `mark` at time `since`. */
struct stored {
    uint64_t mark;
    usec_t since;
};
#define STORED_PARTS 256 /* marks of the same part of settle_after are kept as one */
#define ASK_PARTS 16     /* the plan asks for settling at most once in this part of settle_after */

struct plan {
    struct plan_config config;
    enum plan_phase phase;
    bool stopping;
    bool over;           /* true: the work ends when both lanes are idle */
    enum plan_phase end; /* the phase after the work */
    bool busy[PLAN_LANES];
    struct plan_step doing[PLAN_LANES];
    usec_t since[PLAN_LANES];
    struct backoff backoff[PLAN_LANES];
    usec_t pause[PLAN_LANES]; /* times before which no step of the lane begins */
    struct backoff rival;     /* backoff after takeovers (rule 8) */
    usec_t works_since;       /* time of the first read after FOLLOW; 0: none */
    unsigned conflicts;       /* number of conflicts since the last delivery */

    char queue_id[NAME_LEN_MAX + 1];
    uint64_t number, mark;
    bool follows;    /* as far as known, `number` is the present follow, and M was read in this follow */
    bool is_checked; /* since FOLLOW, a READ with M was answered, so the queue is not an old copy (rule 6) */
    bool has_unfollowed;           /* the queue has answered UNFOLLOW */
    uint64_t acked_below;          /* argument of plan_destination_behind */
    char opening[MARK_LABEL_MAX];  /* opening that the destination stores with the mark */
    char latest[NAME_LEN_MAX + 1]; /* opening of the queue's latest message at the last FOLLOW */
    /* The oldest claim is kept until it is sent, so that the watermark rises even if the queue is never empty. */
    struct claim oldest, newest;
    usec_t stated_at;
    usec_t destination_time,
        time_at_read; /* latest known time of the destination's clock, now and when the READ began; 0: not known */
    uint64_t destination_position, position_at_read; /* likewise */

    uint64_t settled; /* S; marks of `stored` are higher and ascend */
    uint64_t aged;    /* argument of plan_destination_has */
    uint64_t last_id; /* of the last READ's claim */
    uint64_t
        floor; /* the queue has settled the messages before this id; the destination has lost some of them */
    struct stored *stored;
    size_t n_stored, cap_stored;
    usec_t asked_at; /* time of the last ASK for settling */

    uint64_t from;                     /* the first id that the plan has not read */
    struct batch batches[BATCHES_MAX]; /* the first batch is being delivered */
    size_t n_batches;
    bool dry;        /* the last read emptied the queue */
    bool unresolved; /* an earlier delivery may still reach the destination (rule 5) */
    uint64_t
        unresolved_below; /* with settle_after: earlier deliveries have messages before this id (rule 10) */
    size_t limit;         /* messages per delivery */
    size_t suspect_end;   /* end of the refused run, up to which `limit` stays halved */
};

struct plan *plan_new(const struct plan_config *config)
{
    struct plan *p = mem_zalloc(sizeof *p);
    p->config = *config;
    p->phase = p->end = PHASE_FOLLOW;
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
        batch_free(&(*p)->batches[i]);
    free((*p)->stored);
    free(*p);
    *p = NULL;
}

static struct batch *front(struct plan *p)
{
    return &p->batches[0];
}

/* Returns the index of the first unsettled message in the first batch, or SIZE_MAX. */
static size_t first_unsettled(const struct plan *p)
{
    size_t first = batch_unsettled(&p->batches[0]);
    return first < p->batches[0].n ? first : SIZE_MAX;
}

static bool is_poison(const struct plan *p, size_t i)
{
    return i != SIZE_MAX && p->batches[0].messages[i].state == MESSAGE_POISON;
}

static void reset_limit(struct plan *p)
{
    p->limit = front(p)->n;
    p->suspect_end = 0;
}

static void pop_settled(struct plan *p)
{
    while (p->n_batches && first_unsettled(p) == SIZE_MAX) {
        batch_free(front(p));
        p->batches[0] = p->batches[1];
        p->batches[1] = (struct batch){0};
        p->n_batches--;
        p->dry = false;
        reset_limit(p);
    }
}

/* Notes at the begin of a delivery or statement that M is stored. */
static void note_stored(struct plan *p, usec_t now)
{
    const struct stored *last = p->n_stored ? &p->stored[p->n_stored - 1] : NULL;
    usec_t part = p->config.settle_after / STORED_PARTS + 1;
    if (p->mark <= (last ? last->mark : p->settled))
        return;
    if (!last || last->since / part != now / part)
        p->n_stored++;
    ARRAY_ROOM(p->stored, p->cap_stored, p->n_stored);
    p->stored[p->n_stored - 1] = (struct stored){p->mark, now};
}

/* Returns the number of marks that are old enough at time `now`. */
static size_t count_due(const struct plan *p, usec_t now)
{
    size_t n = 0;
    while (n < p->n_stored && p->stored[n].since + p->config.settle_after <= now)
        n++;
    return n;
}

/* Returns the mark that an ASK at time `now` could settle, or 0. */
static uint64_t due_mark(const struct plan *p, usec_t now)
{
    size_t n = count_due(p, now);
    return n && now - p->asked_at >= p->config.settle_after / ASK_PARTS ? p->stored[n - 1].mark : 0;
}

/* Raises S to the marks that were old enough at the last ASK, and that the destination shows (rule 10). */
static void settle_stored(struct plan *p)
{
    size_t n = count_due(p, p->asked_at);
    while (n && p->stored[n - 1].mark > p->aged)
        n--;
    if (n == 0)
        return;
    p->settled = p->stored[n - 1].mark;
    p->n_stored -= n;
    memmove(p->stored, p->stored + n, p->n_stored * sizeof *p->stored);
}

/* Forgets the marks that the destination has lost. */
static void forget_lost(struct plan *p)
{
    while (p->n_stored && p->stored[p->n_stored - 1].mark > p->mark)
        p->n_stored--;
    if (p->settled > p->mark)
        p->settled = p->mark;
}

static uint64_t settle_mark(const struct plan *p)
{
    return p->config.settle_after ? p->settled : p->mark;
}

/* Returns true if the plan reads no more (rule 11). */
static bool is_handing_over(const struct plan *p)
{
    return p->config.hand_over && p->phase == PHASE_WORK && p->is_checked && !p->unresolved;
}

/* If the plan must stop or start again with FOLLOW, ends the work as soon as both lanes are idle. */
static void leave_work_if_due(struct plan *p)
{
    if (is_handing_over(p) && p->n_batches == 0 && settle_mark(p) == p->mark)
        p->stopping = true;
    if (p->stopping && p->phase <= PHASE_WORK)
        p->over = true;
    if (!p->over || p->busy[PLAN_QUEUE] || p->busy[PLAN_DESTINATION])
        return;
    while (p->n_batches)
        batch_free(&p->batches[--p->n_batches]);
    p->over = false;
    if (!p->stopping || p->end != PHASE_FOLLOW) {
        p->phase = p->end;
        p->follows = false; /* M is of a follow that has ended */
        return;
    }
    bool is_settled = !p->config.settle_after || (p->is_checked && p->settled == p->mark);
    if (!p->is_checked)
        p->mark = 0;
    p->phase = p->follows && !p->unresolved && is_settled ? PHASE_UNFOLLOW : PHASE_STOPPED;
}

static struct plan_step mark_step(const struct plan *p, uint64_t next, const char *opening)
{
    struct plan_step step = {.action = PLAN_DELIVER, .mark = p->mark, .next = next};
    snprintf(step.opening, sizeof step.opening, "%s", opening);
    return step;
}

/* Returns the latest watermark if all messages before `id` are settled, or NULL. */
static const struct claim *reached(const struct plan *p, uint64_t id)
{
    if (p->newest.time && p->newest.last_id < id)
        return &p->newest;
    return p->oldest.time && p->oldest.last_id < id ? &p->oldest : NULL;
}

static void claims_clear(struct plan *p)
{
    p->oldest = p->newest = (struct claim){0, 0, 0};
}

/* Adds the claim of a READ. If a clock was set back, earlier claims are dropped, because messages that the queue
 * accepts from now on may have earlier times. A reply has no time while a message is delayed. Such a reply also drops
 * earlier claims, because a delayed message can get a new id above their last_id. */
static void add_claim(struct plan *p, const struct plan_accepted *a)
{
    usec_t time = a->before < p->time_at_read ? a->before : p->time_at_read;
    if (time < p->newest.time)
        claims_clear(p);
    p->newest = (struct claim){time, a->last_id, p->position_at_read};
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

static void set_watermark(struct plan_step *step, const struct claim *claim)
{
    step->watermark = claim ? claim->time : 0;
    step->watermark_after = claim ? claim->after : 0;
}

static struct plan_step state_step(const struct plan *p, usec_t now)
{
    const struct claim *claim = reached(p, p->mark);
    usec_t due = p->stated_at + (claim ? STATE_PAUSE : STATE_EVERY);
    if (now < due)
        return (struct plan_step){.action = PLAN_PAUSE, .until = due};
    struct plan_step step = {.action = PLAN_STATE, .mark = p->mark};
    set_watermark(&step, claim);
    return step;
}

/* Returns the step that delivers a run from the first unsettled message on. */
static struct plan_step deliver_step(const struct plan *p, size_t first)
{
    const struct batch *b = &p->batches[0];
    size_t count = 0, bytes = 0;
    while (first + count < b->n && count < p->limit && b->messages[first + count].state == MESSAGE_WAITING) {
        bytes += b->messages[first + count].text.len + 1;
        if (count && p->config.max_bytes && bytes > p->config.max_bytes)
            break;
        count++;
    }
    struct plan_step step = mark_step(p, b->messages[first + count - 1].id + 1, b->opening);
    step.first = first;
    step.count = count;
    set_watermark(&step, reached(p, step.next));
    return step;
}

/* Returns true if the destination has no mark of the queue, so that the destination learns of this producer. Also
 * returns true for a mark without an opening, which an operator has set. */
static bool needs_mark(const struct plan *p, struct plan_step *step)
{
    *step = mark_step(p, p->mark ? p->mark : 1, p->latest);
    return p->mark == 0 || (!p->opening[0] && p->latest[0]);
}

static struct plan_step destination_step(struct plan *p, usec_t now)
{
    static const struct plan_step wait = {.action = PLAN_WAIT};
    struct plan_step step;
    if (p->phase == PHASE_ASK)
        return (struct plan_step){.action = PLAN_ASK};
    if (p->over || p->phase != PHASE_WORK || (p->mark && !p->is_checked))
        return wait;
    if (needs_mark(p, &step))
        return step;
    if (due_mark(p, now))
        return (struct plan_step){.action = PLAN_ASK, .next = due_mark(p, now)};
    size_t first = first_unsettled(p);
    if (first == SIZE_MAX)
        return p->config.states ? state_step(p, now) : wait;
    return is_poison(p, first) ? wait : deliver_step(p, first);
}

/* Returns the next READ. A READ waits for messages only if the plan has no messages and M is checked. */
static struct plan_step read_step(const struct plan *p)
{
    bool is_stating = p->busy[PLAN_DESTINATION] && p->doing[PLAN_DESTINATION].action == PLAN_STATE;
    bool more = p->n_batches == 0 || (p->n_batches < BATCHES_MAX && !p->dry);
    if (!more || is_stating || is_handing_over(p)) /* the reply to PLAN_STATE contains a later time */
        return (struct plan_step){.action = PLAN_WAIT};
    struct plan_step step = {.action = PLAN_READ,
        .mark = p->mark,
        .settle = settle_mark(p),
        .from = p->from,
        .wait = p->n_batches == 0 && p->is_checked};
    memcpy(step.opening, p->opening, sizeof step.opening);
    return step;
}

static struct plan_step queue_step(const struct plan *p)
{
    static const enum plan_action actions[] = {
        [PHASE_FOLLOW] = PLAN_FOLLOW,
        [PHASE_ASK] = PLAN_WAIT,
        [PHASE_UNFOLLOW] = PLAN_UNFOLLOW,
        [PHASE_STOPPED] = PLAN_STOPPED,
        [PHASE_OLD_COPY] = PLAN_OLD_COPY,
        [PHASE_OLD_DESTINATION] = PLAN_OLD_DESTINATION,
    };
    size_t first = first_unsettled(p);
    if (p->over)
        return (struct plan_step){.action = PLAN_WAIT};
    if (p->phase != PHASE_WORK)
        return (struct plan_step){.action = actions[p->phase], .mark = p->mark, .settle = settle_mark(p)};
    if (is_poison(p, first))
        return (struct plan_step){.action = PLAN_BURY, .first = first, .count = 1};
    return read_step(p);
}

struct plan_step plan_next(struct plan *p, enum plan_lane lane, usec_t now)
{
    assert(!p->busy[lane]);
    leave_work_if_due(p);
    struct plan_step step = lane == PLAN_QUEUE ? queue_step(p) : destination_step(p, now);
    if (step.action >= PLAN_WAIT)
        return step;
    if (p->pause[lane] > now && !p->stopping)
        return (struct plan_step){.action = PLAN_PAUSE, .until = p->pause[lane]};
    p->busy[lane] = true;
    p->doing[lane] = step;
    p->since[lane] = now;
    if (p->config.settle_after && (step.action == PLAN_DELIVER || step.action == PLAN_STATE))
        note_stored(p, now);
    if (step.action == PLAN_READ) {
        p->time_at_read = p->destination_time;
        p->position_at_read = p->destination_position;
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

void plan_followed(struct plan *p, const struct plan_queue *queue)
{
    assert(queue->id.len <= NAME_LEN_MAX);
    succeed_step(p, PLAN_QUEUE, PLAN_FOLLOW);
    if (!bytes_equal_str(queue->id, p->queue_id))
        p->settled = p->floor = 0;
    if (queue->number != p->number + 1) /* another process may have stored M again since then */
        p->n_stored = 0;
    memcpy(p->queue_id, queue->id.ptr, queue->id.len);
    p->queue_id[queue->id.len] = '\0';
    p->number = queue->number;
    p->follows = true;
    p->is_checked = false;
    snprintf(p->latest, sizeof p->latest, "%.*s", (int)queue->opening.len,
        queue->opening.len ? queue->opening.ptr : "");
    p->from = 0;
    p->unresolved |= queue->is_takeover;
    p->unresolved_below = p->config.settle_after ? queue->next_id : 0;
    claims_clear(p);
    p->works_since = 0;
    p->phase = PHASE_ASK;
}

void plan_asked(struct plan *p, uint64_t mark, struct bytes opening)
{
    succeed_step(p, PLAN_DESTINATION, PLAN_ASK);
    p->asked_at = p->since[PLAN_DESTINATION];
    if (p->phase == PHASE_WORK) {
        settle_stored(p);
        p->over |= mark < p->doing[PLAN_DESTINATION].next;
        return;
    }
    p->mark = mark > p->floor ? mark : p->floor;
    snprintf(p->opening, sizeof p->opening, "%.*s", mark >= p->floor ? (int)opening.len : 0,
        opening.len ? opening.ptr : "");
    if (p->config.settle_after) {
        p->from = p->mark;
        p->unresolved &= p->mark < p->unresolved_below;
        forget_lost(p);
        settle_stored(p);
    }
    p->phase = PHASE_WORK;
}

void plan_destination_has(struct plan *p, uint64_t settled, uint64_t aged)
{
    p->aged = aged;
    if (p->n_stored == 0 && settled > p->settled)
        p->settled = settled;
}

/* Takes over the batch. Messages before the mark become DONE, because the queue repeats messages whose removal failed.
 * Messages that cannot be lines become POISON. Returns false if the batch has a message that the plan already has. */
static bool add_batch(struct plan *p, struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        struct message *m = &batch->messages[i];
        if (m->id < p->mark)
            m->state = MESSAGE_DONE;
        else if (m->id < p->from)
            return false;
        else if (p->config.lines && m->text.len == 0)
            batch_mark_poison(batch, i, "empty");
        else if (p->config.lines && memchr(m->text.ptr, '\n', m->text.len))
            batch_mark_poison(batch, i, "contains a line feed");
    }
    if (p->from <= batch->messages[batch->n - 1].id)
        p->from = batch->messages[batch->n - 1].id + 1;
    p->batches[p->n_batches++] = *batch;
    *batch = (struct batch){0};
    if (p->n_batches == 1)
        reset_limit(p);
    pop_settled(p);
    return true;
}

void plan_read(struct plan *p, struct batch *batch, const struct plan_accepted *accepted, usec_t now)
{
    succeed_step(p, PLAN_QUEUE, PLAN_READ);
    p->is_checked = true;
    if (!p->works_since)
        p->works_since = now;
    else if (now - p->works_since >= p->config.backoff_max)
        backoff_succeeded(&p->rival);
    add_claim(p, accepted);
    p->last_id = accepted->last_id;
    size_t n = batch->n;
    if (n && !add_batch(p, batch))
        p->over = true;
    p->dry = n < p->config.items;
    /* A paused queue gives no message either, so only its highest id shows that it has no message from M on. Then an
     * earlier delivery has none. */
    bool is_empty = n == 0 && p->n_batches == 0 && accepted->before != 0 && accepted->last_id < p->mark;
    if ((p->config.hand_over || p->config.settle_after) && is_empty)
        p->unresolved = false;
    batch_free(batch);
}

void plan_superseded(struct plan *p, usec_t now)
{
    succeed_step(p, PLAN_QUEUE, p->doing[PLAN_QUEUE].action);
    p->pause[PLAN_QUEUE] = now + backoff_failed(&p->rival);
    p->follows = false;
    p->over = true;
}

void plan_other_history(struct plan *p)
{
    succeed_step(p, PLAN_QUEUE, PLAN_READ);
    p->over = true;
    p->end = PHASE_OLD_COPY;
}

void plan_destination_behind(struct plan *p, uint64_t acked_below)
{
    succeed_step(p, PLAN_QUEUE, PLAN_READ);
    p->acked_below = acked_below;
    p->over = true;
    if (p->config.settle_after)
        p->floor = acked_below;
    else
        p->end = PHASE_OLD_DESTINATION;
}

uint64_t plan_acked_below(const struct plan *p)
{
    return p->acked_below;
}

uint64_t plan_mark(const struct plan *p)
{
    return p->mark;
}

uint64_t plan_settled(const struct plan *p)
{
    return p->settled > p->floor ? p->settled : p->floor;
}

uint64_t plan_due(const struct plan *p)
{
    return p->doing[PLAN_DESTINATION].next;
}

uint64_t plan_unsettled(const struct plan *p)
{
    uint64_t below = settle_mark(p) ? settle_mark(p) : 1;
    return p->mark > below ? p->mark - below : 0;
}

uint64_t plan_backlog(const struct plan *p)
{
    return p->last_id >= p->mark ? p->last_id - p->mark + 1 : 0;
}

const char *plan_opening(const struct plan *p)
{
    return p->opening;
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
    if (step->next > p->mark &&
        step->next >= p->unresolved_below) /* a higher mark excludes earlier deliveries */
        p->unresolved = false;
    p->mark = step->next;
    memcpy(p->opening, step->opening, sizeof p->opening);
    if (step->count) {
        statement_done(p);
        p->conflicts = 0;
        run_is_settled(p, step->first, step->count, MESSAGE_DONE);
    }
}

void plan_destination_time(struct plan *p, usec_t time, bool is_new_era)
{
    if (is_new_era) {
        p->time_at_read = 0;
        claims_clear(p);
    }
    p->destination_time = time;
}

void plan_destination_position(struct plan *p, uint64_t position)
{
    p->destination_position = position;
}

void plan_stated(struct plan *p)
{
    succeed_step(p, PLAN_DESTINATION, PLAN_STATE);
    statement_done(p);
}

/* Another process has changed the mark, and may have further deliveries in progress. */
void plan_conflict(struct plan *p, usec_t now)
{
    succeed_step(p, PLAN_DESTINATION, p->doing[PLAN_DESTINATION].action);
    p->unresolved = true;
    if (++p->conflicts > 1)
        p->pause[PLAN_DESTINATION] = now + backoff_failed(&p->rival);
    p->over = true;
}

void plan_refused(struct plan *p, const char *reason)
{
    succeed_step(p, PLAN_DESTINATION, PLAN_DELIVER);
    const struct plan_step *step = &p->doing[PLAN_DESTINATION];
    assert(step->count > 0);
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
    p->suspect_end = 0; /* the poison message is found */
    run_is_settled(p, p->doing[PLAN_QUEUE].first, 1, MESSAGE_BURIED);
}

void plan_bury_lost(struct plan *p)
{
    succeed_step(p, PLAN_QUEUE, PLAN_BURY);
    p->over = true;
}

void plan_unfollowed(struct plan *p)
{
    succeed_step(p, PLAN_QUEUE, PLAN_UNFOLLOW);
    p->has_unfollowed = true;
    p->phase = PHASE_STOPPED;
}

void plan_faulted(struct plan *p, enum plan_lane lane, usec_t now, usec_t wait)
{
    const struct plan_step *step = &p->doing[lane];
    end_step(p, lane, step->action);
    p->pause[lane] = now + (wait >= 0 ? wait : backoff_failed(&p->backoff[lane]));
    p->unresolved |= step->action == PLAN_DELIVER && step->count;
    p->over |= p->config.settle_after && (step->action == PLAN_DELIVER || step->action == PLAN_STATE);
    if (step->action == PLAN_UNFOLLOW)
        p->phase = PHASE_STOPPED;
}

void plan_cancelled(struct plan *p, enum plan_lane lane)
{
    end_step(p, lane, p->doing[lane].action);
}

void plan_set_max_bytes(struct plan *p, size_t max_bytes)
{
    p->config.max_bytes = max_bytes;
}

void plan_stop(struct plan *p)
{
    p->stopping = true;
}

const struct batch *plan_batch(const struct plan *p)
{
    return &p->batches[0];
}

const char *plan_queue_id(const struct plan *p)
{
    return p->queue_id;
}

bool plan_has_unfollowed(const struct plan *p)
{
    return p->has_unfollowed || !p->queue_id[0];
}

uint64_t plan_number(const struct plan *p)
{
    return p->number;
}
