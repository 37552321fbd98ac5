/* Follow and unfollow. The name of the follower is in the last OPEN record. */
#include "simplequeue/queue/named_queue_internal.h"

/* The reserve for removals stays untouched, however often the name changes on a full disk. */
static void name_encode(struct op *o)
{
    struct named_queue *q = o->q;
    o->reserve = reserve_for_all(q, SPARE_FOR_KEEP);
    queue_log_open(
        &q->record, queue_state(q->core)->next_id, q->lease_base, bytes_of(o->reason, o->reason_len));
}

/* True if the change holds: its record is committed, or it is only in memory because the disk is full. */
static bool name_holds(struct op *o, const struct journal_commit *c)
{
    struct named_queue *q = o->q;
    if (!c->duplicate) {
        q->naming--;
        if (c->result == JOURNAL_OK)
            q->open_record = c->start;
        else
            q->name_missing = true;
    }
    return c->result == JOURNAL_OK || c->result == JOURNAL_NO_SPACE;
}

/* Meanwhile the queue may have been unfollowed, and even be followed by another name. */
static void follow_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct queue *core = o->q->core;
    const struct queue_state *s = queue_state(core);
    bool holds = name_holds(o, c), is_present = strcmp(o->reason, s->follower) == 0;
    if (holds && is_present) {
        outcome->result = QUEUE_OK;
        outcome->ends_follow = s->follow > 0;
        outcome->follow = queue_follow(core);
    } else if (holds) {
        outcome->result = QUEUE_FOLLOW_ENDED;
    } else if (is_present && !s->follow) {
        queue_unfollow(core);
    }
}

static void unfollow_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    if (name_holds(o, c))
        outcome->result = QUEUE_OK;
}

/* Changes the name of the follower to o->reason, NULL: none, and appends a record unless the last one has this name. */
static enum queue_result set_name(struct op *o, bool is_new, struct queue_now now)
{
    struct named_queue *q = o->q;
    bool is_recorded = !is_new && !q->name_missing && !q->naming && !q->opening;
    enum queue_result r = QUEUE_NO_SPACE;
    if (q->config.journal && !is_recorded && !reserve_waits(q, OP_OPEN, now)) {
        q->naming++;
        r = op_append_record(o, now);
        q->naming -= r != QUEUE_OK;
    }
    if (r != QUEUE_OK && r != QUEUE_NO_SPACE) {
        op_free(o);
        return r;
    }
    q->name_missing = !is_recorded && r != QUEUE_OK;
    if (is_new && o->reason)
        queue_set_follower(q->core, o->reason);
    else if (is_new)
        queue_unfollow(q->core);
    notify_ready(q);
    if (r == QUEUE_NO_SPACE) { /* only in memory, or recorded already */
        q->under_way++;
        op_finish(&(struct journal_commit){.result = JOURNAL_OK, .duplicate = true}, o);
    }
    return QUEUE_OK;
}

enum queue_result named_queue_follow(
    struct named_queue *q, const char *reader, struct queue_now now, queue_done_fn *done, void *arg)
{
    static const struct op_type type = {OP_OPEN, follow_finish, name_encode, .repeats = false};
    const struct queue_state *s = queue_state(q->core);
    if (s->leases > 0)
        return QUEUE_HELD;
    if (s->follower[0] && strcmp(s->follower, reader) != 0)
        return QUEUE_FOLLOWED;
    struct op *o = op_new(q, &type, done, arg);
    o->reason = bytes_dup(bytes_str(reader));
    o->reason_len = strlen(reader);
    return set_name(o, !s->follower[0], now);
}

enum queue_result named_queue_unfollow(
    struct named_queue *q, struct queue_now now, queue_done_fn *done, void *arg)
{
    static const struct op_type type = {OP_OPEN, unfollow_finish, name_encode, .repeats = false};
    if (!queue_state(q->core)->follower[0])
        return QUEUE_NOTHING;
    return set_name(op_new(q, &type, done, arg), true, now);
}
