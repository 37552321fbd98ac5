/* Disk space reserved behind the journal's end, so that a full disk still drains.
 *
 * Invariant: the bytes reserved are at least the bytes of the records that remove, one by one, every message in the queue, and
 * that move, one by one, every delayed message. Each op that adds to this sum has the journal reserve the new sum or is refused.
 * REMOVE and the MOVE of an ended delay reserve nothing: each uses at most what it takes off the sum. */
#include "simplequeue/queue/named_queue_internal.h"

#define RETRY_SPACE (1 * USEC_PER_SEC)
#define REMOVE_BYTES 96 /* a frame with the REMOVE of one message takes 88; each further range in it 16 */
#define MOVE_BYTES 128  /* a frame with the MOVE of one message, beside the message's own bytes */

uint64_t reserve_for_all(const struct named_queue *q, uint64_t spare)
{
    const struct queue_state *s = queue_state(q->core);
    uint64_t held = 0;
    for (int state = MESSAGE_PENDING; state < MESSAGE_STATES; state++)
        held += s->n[state];
    return held * REMOVE_BYTES + (s->to_move + q->to_move.n) * MOVE_BYTES + s->to_move_bytes +
           q->to_move.bytes + spare;
}

void reserve_expect_move(struct op *o, struct amount amount)
{
    o->to_move = amount;
    o->q->to_move.n += amount.n;
    o->q->to_move.bytes += amount.bytes;
}

void reserve_forget_move(struct op *o)
{
    o->q->to_move.n -= o->to_move.n;
    o->q->to_move.bytes -= o->to_move.bytes;
    o->to_move = (struct amount){0};
}

bool reserve_waits(const struct named_queue *q, enum op_kind kind, struct queue_now now)
{
    return q->full && now.monotonic < q->retry_space[kind];
}

/* Ignores the refusal of an op without a reserve, because another op of the same commit may have caused it. A refused MOVE counts all the
 * same: an unclean stop may have lost its space. */
void reserve_note(const struct op *o, const struct journal_commit *c)
{
    struct named_queue *q = o->q;
    enum op_kind kind = o->type->kind;
    if (c->result == JOURNAL_OK && kind == OP_PUT && !c->duplicate)
        q->full = false;
    if (c->result != JOURNAL_NO_SPACE || !(o->reserve || kind == OP_MOVE))
        return;
    q->full = true;
    if (o->reserve)
        q->retry_space[kind] = q->now.monotonic + RETRY_SPACE;
}
