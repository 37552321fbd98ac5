#include "named_queue.h"

#include "queue_log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <uthash.h>

/* Lease numbers start at the wall clock's microseconds, or this far above where the last opening's did if
 * that is more. No opening gives out so many leases. */
#define LEASE_STEP (UINT64_C(1) << 36)
#define MOVE_RETRY (1 * USEC_PER_SEC)
#define MOVE_MAX_BYTES (1u << 20) /* of messages kicked in one record, but at least one message */
#define PRODUCERS_MAX 4096        /* without a journal */

enum op_kind { OP_PUT, OP_REMOVE, OP_DELAY, OP_BURY, OP_MOVE, OP_OPEN };

/* What is under way: enough to finish or undo it. */
struct op {
    struct named_queue *q;
    enum op_kind kind;
    uint64_t first_id; /* PUT, MOVE: the new ids */
    size_t n;
    struct id_ranges ids; /* the busy ones */
    usec_t time;          /* DELAY: due, monotonic; BURY: wall; MOVE: monotonic retry */
    char *reason;
    size_t reason_len;
    char producer[NAME_MAX_BYTES + 1];
    uint64_t next;
    struct op *newer;   /* in the list of puts under way that move a mark */
    bool moves_mark;    /* is in that list */
    struct op *retries; /* duplicates of this put, told when it is */
    struct op *retry;   /* the next of them */
    queue_done_fn *done;
    void *arg;
};

struct mark {
    UT_hash_handle hh;
    uint64_t value;
    char producer[NAME_MAX_BYTES + 1];
};

struct named_queue {
    struct named_queue_config config;
    char name[NAME_MAX_BYTES + 1];
    char id[JOURNAL_ID_TEXT];
    struct queue *core;
    struct buf record;    /* reused by every append */
    struct bytes *pieces; /* likewise */
    size_t pieces_cap;
    struct mark *marks;            /* memory only */
    struct op *oldest, *newest;    /* puts under way that move a mark */
    uint64_t last_record, trimmed; /* offsets */
    size_t under_way;
    void *data;
};

const char *queue_strerror(enum queue_result r)
{
    static const char *const texts[] = {
        [QUEUE_OK] = "done",
        [QUEUE_CONFLICT] = "the producer's mark is another",
        [QUEUE_TOO_MANY_PRODUCERS] = "the queue knows as many producers as it may",
        [QUEUE_FULL] = "the queue is full",
        [QUEUE_TOO_LARGE] = "this is more than one record holds",
        [QUEUE_OVERLOADED] = "too much is waiting to be committed",
        [QUEUE_NO_SPACE] = "the disk is full",
        [QUEUE_LATCHED] = "storage failed",
        [QUEUE_CLOSED] = "the daemon is stopping",
        [QUEUE_LEASE_LOST] = "none of these messages is under that lease",
        [QUEUE_NOTHING] = "there is no such message",
        [QUEUE_TOO_MANY_QUEUES] = "there are as many queues as there may be",
    };
    return texts[r];
}

static enum queue_result result_of(enum journal_result r)
{
    switch (r) {
    case JOURNAL_OK:
        return QUEUE_OK;
    case JOURNAL_CONFLICT:
        return QUEUE_CONFLICT;
    case JOURNAL_TOO_MANY_PRODUCERS:
        return QUEUE_TOO_MANY_PRODUCERS;
    case JOURNAL_TOO_LARGE:
        return QUEUE_TOO_LARGE;
    case JOURNAL_BUSY:
        return QUEUE_OVERLOADED;
    case JOURNAL_NO_SPACE:
        return QUEUE_NO_SPACE;
    case JOURNAL_CLOSED:
        return QUEUE_CLOSED;
    default:
        return QUEUE_LATCHED;
    }
}

const char *named_queue_name(const struct named_queue *q)
{
    return q->name;
}

const char *named_queue_id(const struct named_queue *q)
{
    return q->id;
}

struct queue *named_queue_core(struct named_queue *q)
{
    return q->core;
}

const struct queue *named_queue_core_const(const struct named_queue *q)
{
    return q->core;
}

const struct journal *named_queue_journal(const struct named_queue *q)
{
    return q->config.journal;
}

void named_queue_set_data(struct named_queue *q, void *data)
{
    q->data = data;
}

void *named_queue_data(const struct named_queue *q)
{
    return q->data;
}

static void tell_ready(struct named_queue *q)
{
    if (q->config.on_ready)
        q->config.on_ready(q, q->config.on_ready_arg);
}

/* ---- marks ---- */

static struct mark *find_mark(const struct named_queue *q, const char *producer)
{
    struct mark *m;
    HASH_FIND_STR(q->marks, producer, m);
    return m;
}

static void set_mark(struct named_queue *q, const char *producer, uint64_t value)
{
    struct mark *m = find_mark(q, producer);
    if (!m) {
        m = mem_zalloc(sizeof *m);
        snprintf(m->producer, sizeof m->producer, "%s", producer);
        HASH_ADD_STR(q->marks, producer, m);
    }
    m->value = value;
}

static uint64_t committed_mark(const struct named_queue *q, const char *producer)
{
    if (q->config.journal)
        return journal_mark(q->config.journal, bytes_str(producer), NULL);
    const struct mark *m = find_mark(q, producer);
    return m ? m->value : 0;
}

/* The mark once everything under way is committed: what the journal will judge a put by. */
static uint64_t coming_mark(const struct named_queue *q, const char *producer)
{
    const struct op *last = NULL;
    for (const struct op *o = q->oldest; o; o = o->newer)
        if (strcmp(o->producer, producer) == 0)
            last = o;
    return last ? last->next : committed_mark(q, producer);
}

static void marks_under_way_add(struct named_queue *q, struct op *o)
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

static void marks_under_way_remove(struct named_queue *q, const struct op *o)
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

/* ---- finishing what is under way ---- */

static void put_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct named_queue *q = o->q;
    marks_under_way_remove(q, o);
    if (c->result != JOURNAL_OK || c->duplicate) {
        queue_add_abort(q->core, o->first_id, o->n);
        outcome->count = 0;
        return;
    }
    if (o->producer[0] && !q->config.journal)
        set_mark(q, o->producer, o->next);
    if (o->n)
        queue_add_commit(q->core, o->first_id, o->n, c->start);
}

static void remove_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    (c->result == JOURNAL_OK ? queue_remove : queue_abort)(o->q->core, &o->ids);
}

static void delay_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    if (c->result == JOURNAL_OK)
        queue_delay(o->q->core, &o->ids, o->time);
    else
        queue_abort(o->q->core, &o->ids);
}

static void bury_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    if (c->result == JOURNAL_OK)
        queue_bury(o->q->core, &o->ids, bytes_of(o->reason, o->reason_len), o->time);
    else
        queue_abort(o->q->core, &o->ids);
}

static void put_back_all(struct named_queue *q, const struct id_ranges *ids, usec_t retry_at)
{
    for (size_t i = 0; i < ids->n; i++)
        for (uint64_t id = ids->at[i].first; id <= ids->at[i].last; id++)
            queue_put_back(q->core, id, retry_at);
}

static void move_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct queue *core = o->q->core;
    (void)outcome;
    if (c->result != JOURNAL_OK) {
        queue_add_abort(core, o->first_id, o->n);
        put_back_all(o->q, &o->ids, o->time);
        return;
    }
    queue_add_commit(core, o->first_id, o->n, c->start);
    queue_remove(core, &o->ids);
}

static void open_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)o;
    (void)c;
    (void)outcome;
}

typedef void finish_fn(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome);
static finish_fn *const finishes[] = {
    [OP_PUT] = put_finish,
    [OP_REMOVE] = remove_finish,
    [OP_DELAY] = delay_finish,
    [OP_BURY] = bury_finish,
    [OP_MOVE] = move_finish,
    [OP_OPEN] = open_finish,
};

/* Segments that hold nothing any more may go; the last record stays, because it carries the next id. */
static void trim(struct named_queue *q)
{
    uint64_t lowest = queue_lowest_offset(q->core);
    uint64_t keep = lowest < q->last_record ? lowest : q->last_record;
    if (!q->config.journal || keep < q->trimmed + q->config.trim_step)
        return;
    q->trimmed = keep;
    journal_trim(q->config.journal, keep);
}

static struct op *op_new(struct named_queue *q, enum op_kind kind, queue_done_fn *done, void *arg)
{
    struct op *o = mem_zalloc(sizeof *o);
    o->q = q;
    o->kind = kind;
    o->done = done;
    o->arg = arg;
    return o;
}

static void op_free(struct op *o)
{
    id_ranges_free(&o->ids);
    free(o->reason);
    free(o);
}

static void op_finish(const struct journal_commit *c, void *arg)
{
    struct op *o = arg;
    struct named_queue *q = o->q;
    struct queue_outcome outcome = {
        .result = result_of(c->result),
        .duplicate = c->duplicate,
        .first_id = o->first_id,
        .count = o->n,
    };
    q->under_way--;
    if (c->result == JOURNAL_OK && !c->duplicate)
        q->last_record = c->start;
    finishes[o->kind](o, c, &outcome);
    if (o->done)
        o->done(&outcome, o->arg);
    for (struct op *r = o->retries, *after; r; r = after) {
        after = r->retry;
        op_finish(&(struct journal_commit){.result = c->result, .duplicate = true}, r);
    }
    op_free(o);
    trim(q);
    tell_ready(q);
}

/* ---- appending ---- */

static struct bytes *pieces(struct named_queue *q, size_t n)
{
    if (n > q->pieces_cap) {
        q->pieces_cap = n;
        q->pieces = mem_realloc(q->pieces, n * sizeof *q->pieces);
    }
    return q->pieces;
}

/* Appends q->record followed by `texts`. The op is the journal's from then on, or refused and untouched. */
static enum queue_result append(struct op *o, struct journal_append *a, const struct bytes *texts, size_t n,
    struct queue_now now, uint64_t *mark)
{
    struct named_queue *q = o->q;
    q->under_way++;
    if (!q->config.journal) {
        op_finish(&(struct journal_commit){.result = JOURNAL_OK}, o);
        return QUEUE_OK;
    }
    struct bytes *all = pieces(q, n + 1);
    all[0] = buf_bytes(&q->record);
    for (size_t i = 0; i < n; i++)
        all[i + 1] = texts[i];
    a->pieces = all;
    a->n_pieces = n + 1;
    enum journal_result r = journal_append(q->config.journal, a, now.wall, op_finish, o, mark);
    if (r != JOURNAL_OK)
        q->under_way--;
    return result_of(r);
}

static enum queue_result append_record(struct op *o, struct queue_now now)
{
    struct journal_append a = {0};
    return append(o, &a, NULL, 0, now, NULL);
}

/* ---- putting ---- */

static bool has_room(const struct named_queue *q, const struct queue_put *put)
{
    const struct queue_limits *l = q->config.limits;
    const struct queue_state *s = queue_state(q->core);
    uint64_t bytes = 0, depth = queue_depth(q->core) + s->n[MESSAGE_PENDING];
    for (size_t i = 0; i < put->n; i++)
        bytes += put->messages[i].len;
    return (!l->max_depth || depth + put->n <= l->max_depth) &&
           (!l->max_bytes || s->bytes + s->pending_bytes + bytes <= l->max_bytes) &&
           (!l->max_memory || q->config.shared->bytes + bytes <= l->max_memory);
}

/* What the mark makes of the put, before the journal is asked: a duplicate needs no ids and no room, and
 * without a journal this is the judgement. */
static enum queue_result judge_mark(const struct named_queue *q, const struct queue_put *put,
    const char *producer, bool *duplicate, uint64_t *mark)
{
    uint64_t coming = coming_mark(q, producer);
    *duplicate = coming >= put->next;
    if (!*duplicate && coming != put->mark) {
        if (mark)
            *mark = committed_mark(q, producer);
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

static enum queue_result put_new(
    struct op *o, struct journal_append *a, const struct queue_put *put, struct queue_now now, uint64_t *mark)
{
    struct queue *core = o->q->core;
    o->n = put->n;
    o->first_id = put->n ? queue_add(core, put->messages, put->n) : queue_state(core)->next_id;
    buf_clear(&o->q->record);
    queue_log_put(&o->q->record, o->first_id, put->messages, put->n);
    uint64_t first_id = o->first_id;
    enum queue_result r = append(o, a, put->messages, put->n, now, mark);
    if (r != QUEUE_OK)
        queue_add_abort(core, first_id, put->n);
    return r;
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
        r = judge_mark(q, put, o->producer, &duplicate, mark);
    }
    if (r == QUEUE_OK && !duplicate && !has_room(q, put))
        r = QUEUE_FULL;
    if (r != QUEUE_OK) {
        op_free(o);
        return r;
    }
    if (duplicate) {
        put_duplicate(o);
        return QUEUE_OK;
    }
    marks_under_way_add(q, o);
    r = put_new(o, &a, put, now, mark);
    if (r != QUEUE_OK) {
        marks_under_way_remove(q, o);
        op_free(o);
    }
    return r;
}

/* ---- what becomes of messages taken or leased ---- */

/* Appends the record for the op's busy messages; on refusal they are what they were. */
static enum queue_result settle_busy(struct op *o, struct queue_now now)
{
    o->n = o->ids.count;
    enum queue_result r = append_record(o, now);
    if (r != QUEUE_OK) {
        queue_abort(o->q->core, &o->ids);
        op_free(o);
    }
    return r;
}

enum queue_result named_queue_remove(
    struct named_queue *q, struct id_ranges *taken, struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o = op_new(q, OP_REMOVE, done, arg);
    o->ids = *taken;
    *taken = (struct id_ranges){0};
    buf_clear(&q->record);
    queue_log_remove(&q->record, queue_state(q->core)->next_id, &o->ids);
    return settle_busy(o, now);
}

/* An op over what of `ids` is under the lease; NULL when nothing is. */
static struct op *hold(struct named_queue *q, enum op_kind kind, uint64_t lease, const struct id_range *ids,
    size_t n, queue_done_fn *done, void *arg)
{
    struct id_ranges held = {0};
    if (queue_hold(q->core, lease, ids, n, &held) == 0)
        return NULL;
    struct op *o = op_new(q, kind, done, arg);
    o->ids = held;
    buf_clear(&q->record);
    return o;
}

enum queue_result named_queue_ack(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n,
    struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o = hold(q, OP_REMOVE, lease, ids, n, done, arg);
    if (!o)
        return QUEUE_LEASE_LOST;
    queue_log_remove(&q->record, queue_state(q->core)->next_id, &o->ids);
    return settle_busy(o, now);
}

enum queue_result named_queue_delay(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, usec_t delay, struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o = hold(q, OP_DELAY, lease, ids, n, done, arg);
    if (!o)
        return QUEUE_LEASE_LOST;
    o->time = now.monotonic + delay;
    queue_log_delay(&q->record, q->core, &o->ids, now.wall + delay);
    return settle_busy(o, now);
}

enum queue_result named_queue_bury(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, struct bytes reason, struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o = hold(q, OP_BURY, lease, ids, n, done, arg);
    if (!o)
        return QUEUE_LEASE_LOST;
    o->time = now.wall;
    o->reason = bytes_dup(reason);
    o->reason_len = reason.len;
    queue_log_bury(&q->record, q->core, &o->ids, now.wall, reason);
    return settle_busy(o, now);
}

uint64_t named_queue_return(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n)
{
    uint64_t count = queue_return(q->core, lease, ids, n);
    tell_ready(q);
    return count;
}

uint64_t named_queue_release(struct named_queue *q, const char *reader)
{
    uint64_t count = queue_release(q->core, reader);
    tell_ready(q);
    return count;
}

/* ---- becoming ready late ---- */

/* Moves the op's messages, which are set aside, to the end. The new ones are copies until that is
 * committed. */
static enum queue_result move(struct op *o, struct queue_now now)
{
    struct named_queue *q = o->q;
    struct queue_record_item *items = mem_alloc(o->ids.count * sizeof *items);
    struct bytes *texts = mem_alloc(o->ids.count * sizeof *texts);
    for (size_t r = 0; r < o->ids.n; r++)
        for (uint64_t id = o->ids.at[r].first; id <= o->ids.at[r].last; id++, o->n++) {
            struct queue_record_item *item = &items[o->n];
            item->ids = (struct id_range){id, id};
            texts[o->n] = item->message = queue_message(q->core, id, &item->tries);
        }
    uint64_t first = o->first_id = queue_add(q->core, texts, o->n);
    for (size_t i = 0; i < o->n; i++)
        queue_set_tries(q->core, first + i, items[i].tries);
    buf_clear(&q->record);
    queue_log_move(&q->record, first, items, o->n);
    o->time = now.monotonic + MOVE_RETRY;
    struct journal_append a = {0};
    enum queue_result result = append(o, &a, texts, o->n, now, NULL);
    if (result != QUEUE_OK) {
        queue_add_abort(q->core, first, o->n);
        put_back_all(q, &o->ids, o->time);
        op_free(o);
    }
    free(items);
    free(texts);
    return result;
}

enum queue_result named_queue_kick(
    struct named_queue *q, size_t max_items, struct queue_now now, queue_done_fn *done, void *arg)
{
    uint64_t id = 0;
    size_t bytes = 0;
    const struct queue_burial *burial;
    struct op *o = op_new(q, OP_MOVE, done, arg);
    while (o->ids.count < max_items && queue_next_buried(q->core, id + 1, &id, &burial)) {
        bytes += queue_message(q->core, id, NULL).len;
        if (o->ids.count && bytes > MOVE_MAX_BYTES)
            break;
        queue_set_aside(q->core, id);
        id_ranges_add(&o->ids, id);
    }
    if (o->ids.count)
        return move(o, now);
    op_free(o);
    return QUEUE_NOTHING;
}

void named_queue_timer(struct named_queue *q, const struct queue_timer *timer, struct queue_now now)
{
    if (timer->kind == QUEUE_TIMER_LEASE) {
        queue_lease_expire(q->core, timer->id);
        tell_ready(q);
        return;
    }
    struct op *o = op_new(q, OP_MOVE, NULL, NULL);
    id_ranges_add(&o->ids, timer->id);
    bool waits = queue_set_aside(q->core, timer->id);
    assert(waits);
    (void)waits;
    move(o, now);
}

/* ---- opening and recovery ---- */

struct recovery {
    struct named_queue *q;
    struct queue_now now;
    char *error;
    size_t error_size;
    bool failed;
};

static bool recovery_fail(struct recovery *r, uint64_t offset, const char *reason)
{
    snprintf(r->error, r->error_size, "queue %s: the record at offset %llu is damaged: %s", r->q->name,
        (unsigned long long)offset, reason);
    r->failed = true;
    return false;
}

/* What the messages of a PUT or MOVE record were: the texts in one array, the old ids gone. */
static bool replay_messages(struct recovery *r, struct queue_record *record, uint64_t offset)
{
    struct queue *core = r->q->core;
    struct queue_record_item item;
    for (uint64_t id = record->id; queue_record_next(record, &item); id++) {
        if (!queue_restore_add(core, id, &item.message, 1, offset))
            return recovery_fail(r, offset, "its ids were given before");
        if (record->type == RECORD_MOVE) {
            queue_set_tries(core, id, item.tries);
            queue_restore_remove(core, item.ids);
        }
    }
    return true;
}

static void replay_removal(struct recovery *r, struct queue_record *record)
{
    struct queue_record_item item;
    while (queue_record_next(record, &item))
        queue_restore_remove(r->q->core, item.ids);
}

static void replay_aside(struct recovery *r, struct queue_record *record)
{
    struct queue *core = r->q->core;
    struct queue_record_item item;
    struct id_ranges ids = {0};
    while (queue_record_next(record, &item))
        if (queue_restore_hold(core, item.ids.first, item.tries))
            id_ranges_add(&ids, item.ids.first);
    if (record->type == RECORD_BURY)
        queue_bury(core, &ids, record->reason, record->time);
    else
        queue_delay(core, &ids, r->now.monotonic + (record->time - r->now.wall));
    id_ranges_free(&ids);
}

static bool replay(uint64_t offset, usec_t time, struct bytes payload, void *arg)
{
    struct recovery *r = arg;
    struct queue_record record;
    const char *reason;
    (void)time;
    if (payload.len == 0)
        return true;
    if (!queue_log_decode(payload, &record, &reason))
        return recovery_fail(r, offset, reason);
    r->q->last_record = offset;
    if (record.type == RECORD_PUT || record.type == RECORD_MOVE) {
        if (record.n && !replay_messages(r, &record, offset))
            return false;
    } else if (record.type == RECORD_REMOVE) {
        replay_removal(r, &record);
    } else if (record.type == RECORD_OPEN) {
        queue_restore_lease_base(r->q->core, record.lease_base + LEASE_STEP);
    } else {
        replay_aside(r, &record);
    }
    queue_restore_next_id(r->q->core, record.id);
    return true;
}

static bool recover(struct named_queue *q, struct queue_now now, char *error, size_t error_size)
{
    struct journal *j = q->config.journal;
    struct recovery r = {.q = q, .now = now, .error = error, .error_size = error_size};
    snprintf(q->id, sizeof q->id, "%s", journal_id(j));
    q->trimmed = journal_earliest(j);
    enum journal_result scan = journal_scan(j, q->trimmed, replay, &r);
    if (r.failed)
        return false;
    if (scan == JOURNAL_OK || scan == JOURNAL_END)
        return true;
    const char *why = journal_failure(j);
    snprintf(error, error_size, "queue %s: %s", q->name, why ? why : journal_strerror(scan));
    return false;
}

static void random_id(char id[JOURNAL_ID_TEXT])
{
    unsigned char raw[(JOURNAL_ID_TEXT - 1) / 2];
    ssize_t got = getrandom(raw, sizeof raw, 0);
    assert(got == (ssize_t)sizeof raw);
    (void)got;
    for (size_t i = 0; i < sizeof raw; i++)
        snprintf(id + 2 * i, 3, "%02x", raw[i]);
}

/* Says in the journal where this opening's lease numbers begin. Should a full disk refuse it, the numbers are
 * above the last opening's by the wall clock alone. */
static void append_open(struct named_queue *q, struct queue_now now)
{
    struct op *o = op_new(q, OP_OPEN, NULL, NULL);
    buf_clear(&q->record);
    queue_log_open(&q->record, queue_state(q->core)->next_id, queue_last_lease(q->core));
    if (append_record(o, now) != QUEUE_OK)
        op_free(o);
}

struct named_queue *named_queue_open(
    const struct named_queue_config *config, struct queue_now now, char *error, size_t error_size)
{
    struct named_queue *q = mem_zalloc(sizeof *q);
    q->config = *config;
    snprintf(q->name, sizeof q->name, "%s", config->name);
    q->core = queue_new(config->shared, 1, 0, q);
    if (!config->journal)
        random_id(q->id);
    else if (!recover(q, now, error, error_size)) {
        named_queue_free(&q);
        return NULL;
    }
    queue_restore_lease_base(q->core, (uint64_t)now.wall);
    append_open(q, now);
    return q;
}

void named_queue_free(struct named_queue **qp)
{
    struct named_queue *q = *qp;
    if (!q)
        return;
    if (q->config.journal)
        journal_close(&q->config.journal);
    assert(q->under_way == 0);
    queue_free(&q->core);
    struct mark *m, *after;
    HASH_ITER(hh, q->marks, m, after)
    {
        HASH_DEL(q->marks, m);
        free(m);
    }
    buf_free(&q->record);
    free(q->pieces);
    free(q);
    *qp = NULL;
}
