/* Room on the disk for what must be said of messages later: what is reserved, what uses it, and what waits for it. */
#include "simplequeue/queue/named_queue_internal.h"

#include <errno.h>

#define FULL_RETRY (1 * USEC_PER_SEC) /* puts are refused without asking the journal for so long */
#define RESERVE_EACH 96               /* a frame with the removal of one message */
#define FRAME 64                      /* less than that of it is the frame's */
#define LATE_EACH 128 /* a frame that moves one message, beside its bytes; and some to spare */
#define RESERVE_LEAST ((uint64_t)64 << 10) /* for what else must be said: */
#define RESERVE_KEEPS ((uint64_t)36 << 10) /* burials leave so much: for what is said again of old segments */
#define RESERVE_OTHERS ((uint64_t)48 << 10) /* removals on a full disk leave so much of it */

/* For moving to the end, one by one, all that is delayed or about to be. */
static uint64_t late_reserve(const struct named_queue *q)
{
    const struct queue_state *s = queue_state(q->core);
    return (s->late + q->late.n) * LATE_EACH + s->late_bytes + q->late.bytes;
}

/* For removing one by one all that is held, or the oldest segment's: that gives its place back, which is enough for the next.
 * Where it is not, as with many messages put at once that are shorter than what removing each writes, there are the bits. */
size_t op_reserve(const struct named_queue *q, size_t n)
{
    const uint64_t *held = queue_state(q->core)->n;
    uint64_t segment = 4 * q->config.trim_step;
    for (int s = MESSAGE_PENDING; s < MESSAGE_STATES; s++)
        n += held[s];
    uint64_t removals = n * RESERVE_EACH;
    return (size_t)(RESERVE_LEAST + (removals < segment ? removals : segment) + late_reserve(q));
}

void op_expect_late(struct op *o, size_t n, uint64_t bytes)
{
    o->late = (struct amount){n, bytes};
    o->q->late.n += n;
    o->q->late.bytes += bytes;
}

void op_late_decided(struct op *o)
{
    o->q->late.n -= o->late.n;
    o->q->late.bytes -= o->late.bytes;
    o->late = (struct amount){0};
}

/* Of ids from `first` on that nobody has yet, for so many; and for those that what is delayed will have. */
static int reserve_ahead(struct named_queue *q, uint64_t n)
{
    uint64_t first = queue_next_add(q->core);
    n += queue_state(q->core)->late + q->late.n;
    return n ? gone_reserve(q->config.gone, first, first + n - 1) : 0;
}

/* Block by block: between two messages may be ids that nobody has, by the thousand million. */
int named_queue_reserve_held(struct named_queue *q)
{
    uint64_t from = 1, id;
    q->bits_owed = true;
    for (; queue_next_held_id(q->core, from, &id); from = (id / GONE_BLOCK_IDS + 1) * GONE_BLOCK_IDS)
        if (gone_reserve(q->config.gone, id, id) != 0)
            return -1;
    if (reserve_ahead(q, 0) != 0)
        return -1;
    q->bits_owed = false;
    return 0;
}

static void refused(struct op *o, struct queue_now now)
{
    o->q->full = true;
    o->q->refused_until[o->kind] = now.monotonic + FULL_RETRY;
}

/* Where it is not for want of room that there is no file, as when there is no descriptor, the messages are taken all the same:
 * it may have passed by the next time. */
bool named_queue_reserve_bits(struct op *o, size_t n, struct queue_now now)
{
    struct named_queue *q = o->q;
    if (!q->config.gone)
        return true;
    if (!(q->bits_owed && named_queue_reserve_held(q) != 0) && reserve_ahead(q, n) == 0)
        return true;
    if (errno != ENOSPC && errno != EDQUOT) {
        q->bits_owed = true;
        return true;
    }
    refused(o, now);
    return false;
}

bool named_queue_waits(const struct named_queue *q, enum op_kind kind, struct queue_now now)
{
    return q->full && now.monotonic < q->refused_until[kind];
}

/* What removals leave in the journal on a full disk is for what lets go of its oldest segment, and for what is delayed. */
bool op_bits_are_due(const struct op *o)
{
    const struct named_queue *q = o->q;
    return o->kind == OP_REMOVE && q->config.gone && q->full &&
           q->room < q->record.len + RESERVE_OTHERS + late_reserve(q);
}

/* What is delayed was promised its room. */
bool op_lacks_room(const struct op *o)
{
    const struct named_queue *q = o->q;
    uint64_t late = late_reserve(q);
    return o->kind == OP_BURY && q->config.journal && q->full && late &&
           q->room < q->record.len + FRAME + late + RESERVE_KEEPS;
}

static bool asks_by_itself(const struct op *o)
{
    return o->kind == OP_PUT || o->kind == OP_DELAY || o->kind == OP_MOVE || o->kind == OP_KEEP;
}

/* While the disk has room, what others have used of it is had again, before anybody else takes it: what is delayed has no
 * bits to go by. */
size_t op_reserve_again(const struct op *o)
{
    const struct named_queue *q = o->q;
    uint64_t late = late_reserve(q);
    return !asks_by_itself(o) && !q->full && late && q->room < late + RESERVE_OTHERS ? op_reserve(q, 0) : 0;
}

void op_use_room(struct op *o, size_t bytes)
{
    struct named_queue *q = o->q;
    bytes = o->reserve ? 0 : bytes + FRAME;
    q->used += bytes;
    o->used_before = q->used;
    o->used = bytes < q->room ? bytes : q->room;
    q->room -= o->used;
}

void op_give_room_back(struct op *o)
{
    o->q->room += o->used;
    o->used = 0;
}

/* What was appended behind it has used of what it reserved. */
static void note_reserve(const struct op *o)
{
    struct named_queue *q = o->q;
    uint64_t since = q->used - o->used_before;
    q->room = o->reserve > since ? o->reserve - since : 0;
    q->full = q->lacked_room = false;
    q->kept_when_full = 0;
}

/* Only what asks for room of its own, or finds none where it should, tells how the disk is. */
void op_note_room(struct op *o, const struct journal_commit *c)
{
    struct named_queue *q = o->q;
    if (c->result != JOURNAL_OK)
        op_give_room_back(o);
    if (c->result == JOURNAL_OK && o->reserve && !c->duplicate)
        note_reserve(o);
    if (c->result == JOURNAL_NO_SPACE && o->reserve)
        refused(o, q->now);
    if (c->result == JOURNAL_NO_SPACE && (o->kind == OP_PUT || o->kind == OP_MOVE))
        q->full = true;
}
