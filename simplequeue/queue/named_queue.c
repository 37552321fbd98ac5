#include "simplequeue/queue/named_queue_internal.h"
#include "base/random_id.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* Each run of the daemon has a lease base: the wall-clock time in microseconds, or the previous base plus LEASE_STEP if
 * this sum is higher. A run uses fewer than LEASE_STEP lease numbers. */
#define LEASE_STEP (UINT64_C(1) << 36)

const char *queue_strerror(enum queue_result r)
{
    static const char *const texts[] = {
        [QUEUE_OK] = "done",
        [QUEUE_CONFLICT] = "the producer's mark differs",
        [QUEUE_TOO_MANY_PRODUCERS] = "the queue already has its maximum number of producers",
        [QUEUE_FULL] = "the queue is full",
        [QUEUE_MEMORY_FULL] = "all queues together exceed max_memory",
        [QUEUE_NEVER_FITS] = "the request exceeds the limits of the queue",
        [QUEUE_OVERFLOW_FAILED] = "the queue is full, and the overflow log cannot be written",
        [QUEUE_TOO_LARGE] = "the request is larger than a journal record",
        [QUEUE_OVERLOADED] = "too many bytes wait to be committed",
        [QUEUE_MARK_BUSY] = "another request is moving the producer's mark",
        [QUEUE_NO_SPACE] = "the disk is full",
        [QUEUE_LATCHED] = "storage failed",
        [QUEUE_CLOSED] = "the daemon is stopping",
        [QUEUE_LEASE_LOST] = "none of these messages is under this lease",
        [QUEUE_NOTHING] = "no such message",
        [QUEUE_TOO_MANY_QUEUES] = "max_queues is reached",
        [QUEUE_LOADING] = "the messages are being read from disk",
        [QUEUE_NO_DESCRIPTORS] = "out of file descriptors",
        [QUEUE_HELD] = "a reader holds leases",
        [QUEUE_FOLLOWED] = "a reader follows the queue",
        [QUEUE_FOLLOW_ENDED] = "the number is not that of the current follow",
    };
    return texts[r];
}

const char *named_queue_name(const struct named_queue *q)
{
    return q->name;
}

const char *named_queue_id(const struct named_queue *q)
{
    return q->id;
}

struct queue *named_queue_core(const struct named_queue *q)
{
    return q->core;
}

bool named_queue_disk_is_full(const struct named_queue *q)
{
    return q->full;
}

void named_queue_set_disk_full(struct named_queue *q, bool full)
{
    q->full = full;
}

const struct journal *named_queue_journal(const struct named_queue *q)
{
    return q->config.journal;
}

const struct queue_openings *named_queue_openings(const struct named_queue *q)
{
    return &q->openings;
}

void named_queue_set_data(struct named_queue *q, void *data)
{
    q->data = data;
}

void *named_queue_data(const struct named_queue *q)
{
    return q->data;
}

struct recovery {
    struct named_queue *q;
    struct queue_now now;
    usec_t written; /* wall-clock time of the current record */
    char *error;
    size_t error_size;
    bool failed;
};

static bool recovery_fail(struct recovery *r, uint64_t offset, const char *reason)
{
    snprintf(r->error, r->error_size, "queue %s: cannot read the record at offset %llu: %s", r->q->name,
        (unsigned long long)offset, reason);
    r->failed = true;
    return false;
}

/* Returns the monotonic time when a delay ends. A record contains the wall-clock time, but the clock may have been
 * ahead at the time of the record, or may be behind now. The message therefore waits at most for the delay that the
 * record began. */
static usec_t due_at(const struct recovery *r, usec_t time)
{
    usec_t wait = time - r->now.wall, delay = time - r->written;
    return r->now.monotonic + (delay >= 0 && wait > delay ? delay : wait);
}

static bool replay_messages(struct recovery *r, struct queue_record *record, uint64_t offset)
{
    struct queue *core = r->q->core;
    struct queue_record_item item;
    usec_t due = due_at(r, record->time);
    for (uint64_t id = record->id; queue_record_next(record, &item); id++) {
        if (!queue_restore_add(core, id, &item.message, 1, offset))
            return recovery_fail(r, offset, "the ids are not above the ids of earlier records");
        if (record->type == RECORD_MOVE) {
            queue_set_tries(core, id, item.tries);
            queue_restore_remove(core, item.ids);
        } else if (record->type == RECORD_PUT_LATE) {
            queue_restore_delay(core, id, due);
        }
    }
    return true;
}

static void replay_kept(struct recovery *r, struct queue_record *record, uint64_t offset)
{
    struct queue *core = r->q->core;
    struct queue_record_item item;
    queue_restore_next_id(core, record->id);
    while (queue_record_next(record, &item)) {
        struct id_range id = item.ids;
        struct id_ranges ids = {.at = &id, .n = 1, .count = 1};
        if (id.first >= record->id || !queue_restore_kept(core, id.first, item.message, item.tries, offset))
            continue;
        if (item.kept == KEPT_DELAYED) {
            queue_restore_delay(core, id.first, due_at(r, item.time));
        } else if (item.kept == KEPT_BURIED && queue_restore_hold(core, id.first, item.tries)) {
            queue_bury(core, &ids, item.reason, item.time);
        }
    }
}

static void replay_open(struct named_queue *q, struct queue_record *record)
{
    struct queue_record_item item;
    char opening[OPENING_TEXT];
    q->openings.n = 0;
    while (queue_record_next(record, &item)) {
        opening_decode(item.opening.ptr, opening);
        queue_openings_add(&q->openings, opening, item.ids.first);
    }
    queue_restore_lease_base(q->core, record->lease_base + LEASE_STEP);
}

static bool replay(const struct journal_scanned *frame, void *arg)
{
    struct recovery *r = arg;
    struct queue *core = r->q->core;
    struct queue_record record;
    struct queue_record_item item;
    const char *reason;
    r->written = frame->time;
    if (frame->payload.len == 0)
        return true;
    if (!queue_log_decode(frame->payload, &record, &reason))
        return recovery_fail(r, frame->offset, reason);
    r->q->last_record = frame->offset;
    if (queue_record_is_dense(&record)) {
        if (record.n && !replay_messages(r, &record, frame->offset))
            return false;
        if (record.n) /* needed if a full disk has refused the OPEN record */
            queue_openings_add(&r->q->openings, frame->opening, record.id);
    } else if (record.type == RECORD_KEEP) {
        replay_kept(r, &record, frame->offset);
    } else if (record.type == RECORD_REMOVE) {
        while (queue_record_next(&record, &item))
            queue_restore_remove(core, item.ids);
    } else if (record.type == RECORD_OPEN) {
        replay_open(r->q, &record);
        r->q->open_record = frame->offset;
    } else {
        struct id_ranges ids = {0};
        while (queue_record_next(&record, &item))
            if (queue_restore_hold(core, item.ids.first, item.tries))
                id_ranges_add(&ids, item.ids.first);
        if (record.type == RECORD_BURY)
            queue_bury(core, &ids, record.reason, record.time);
        else
            queue_delay(core, &ids, due_at(r, record.time));
        id_ranges_free(&ids);
    }
    queue_restore_next_id(core, record.id);
    if (r->q->config.limits->max_memory)
        queue_spill(core, r->q->config.limits->max_memory);
    return true;
}

/* A hole in the journal may have contained messages that were already delivered. The queue skips their ids, so that a
 * relay never mistakes a new message for a published message. The number of skipped ids depends on the holes and not on
 * the last known id, because earlier OPEN records may also be lost. */
static bool recover(struct named_queue *q, struct queue_now now, char *error, size_t error_size)
{
    struct journal *j = q->config.journal;
    struct recovery r = {.q = q, .now = now, .error = error, .error_size = error_size};
    enum journal_result scan = journal_scan(j, journal_earliest(j), replay, &r);
    if (r.failed)
        return false;
    if (scan != JOURNAL_OK && scan != JOURNAL_END) {
        const char *why = journal_failure(j);
        snprintf(error, error_size, "queue %s: %s%s", q->name, why ? why : journal_strerror(scan),
            scan == JOURNAL_DAMAGED ? "; " QUEUE_REPAIR_HINT : "");
        return false;
    }
    uint64_t holes = journal_committed_end(j) / JOURNAL_HOLE - q->last_record / JOURNAL_HOLE;
    uint64_t next_id = queue_state(q->core)->next_id;
    if (holes > 0)
        queue_openings_add(&q->openings, "", next_id);
    next_id += holes * QUEUE_ID_HOLE;
    queue_restore_next_id(q->core, next_id);
    queue_openings_add(&q->openings, journal_opening(j), next_id);
    return true;
}

/* The journal calls named_queue_turn after each commit, load and erasure. */
static void named_queue_turn(struct journal *j, bool moved, void *arg)
{
    struct named_queue *q = arg;
    (void)j;
    (void)moved;
    moves_resume(q, QUEUE_OK);
    notify_ready(q);
    storage_maintain(q);
    erase_continue(q);
}

struct named_queue *named_queue_open(const struct named_queue_config *config, struct queue_now now,
    enum queue_result *result, char *error, size_t error_size)
{
    struct named_queue *q = mem_zalloc(sizeof *q);
    q->config = *config;
    q->move_limit = MOVE_BYTES_MAX;
    snprintf(q->name, sizeof q->name, "%s", config->name);
    q->core = queue_new(config->shared, 1, 0, q);
    if (config->id && config->id[0])
        snprintf(q->id, sizeof q->id, "%s", config->id);
    else if (config->journal)
        snprintf(q->id, sizeof q->id, "%s", journal_id(config->journal));
    else
        random_id(q->id);
    *result = QUEUE_OK;
    if (config->journal)
        *result = recover(q, now, error, error_size) ? QUEUE_OK : QUEUE_LATCHED;
    if (*result != QUEUE_OK) {
        named_queue_free(&q);
        return NULL;
    }
    follower_restore(q);
    q->config.id = NULL; /* the caller owns the id */
    queue_restore_lease_base(q->core, (uint64_t)now.wall);
    queue_reset_high_water(q->core);
    q->lease_base = queue_last_lease(q->core);
    q->opened = now;
    if (config->journal)
        journal_observe(config->journal, named_queue_turn, q);
    storage_append_open(q);
    return q;
}

void named_queue_free(struct named_queue **qp)
{
    struct named_queue *q = *qp;
    if (!q)
        return;
    if (q->config.journal)
        journal_observe(q->config.journal, NULL, NULL);
    load_stop(q);
    moves_resume(q, QUEUE_CLOSED);
    if (q->config.journal)
        journal_close(&q->config.journal);
    assert(q->under_way == 0);
    queue_free(&q->core);
    producer_marks_free(q);
    buf_free(&q->record);
    free(q->pieces);
    free(q);
    *qp = NULL;
}
