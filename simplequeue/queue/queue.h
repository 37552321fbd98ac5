/* queue: the messages of one queue and their states, in memory, without journal and sockets. Times are monotonic.
 *
 *     pending --commit--> ready --reserve--> leased --hold--> busy --remove--> gone
 *                           ^                  |               |---delay---> delayed --due--> busy, moved
 *                           |<-return, expiry--'               |---bury----> buried  --kick-> busy, moved
 *                           `<-----------------abort-----------'
 *
 * A durable change has two steps: the message becomes pending (new) or busy, and when the journal has committed or
 * refused the record, the change is completed or undone. In between no reader can get or lease the message.
 *
 * A message may be *spilled*: its bytes are only in the journal (store.h). It keeps its state and position, and its
 * bytes must be loaded before it is delivered.
 *
 * 1. queue_add assigns consecutive ids. Two committed messages never have the same id; ids of refused messages may
 *    be used again.
 * 2. The ready message with the lowest id is delivered first. A message that becomes ready again keeps its id.
 * 3. A message belongs to at most one lease. Lease numbers ascend from lease_base and never repeat.
 * 4. All leases of a queue belong to readers with one name, which may be "".
 * 5. `tries` counts deliveries; after a restart only of messages whose delay, burial, move or copy recorded it.
 * 6. A queue has leases or a *follower*: a reader that reads all messages in the order of ids and settles what it has
 *    stored. Each follow has a number of the sequence of lease numbers. A message that was sent to the follower stays
 *    ready, but is not evicted. No message below a sent one becomes ready that was not sent. */
#ifndef SIMPLEQUEUE_QUEUE_H
#define SIMPLEQUEUE_QUEUE_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/heap.h"
#include "simplequeue/queue/store.h"

enum message_state {
    MESSAGE_GONE,
    MESSAGE_PENDING, /* put, not committed */
    MESSAGE_READY,
    MESSAGE_LEASED,
    MESSAGE_BUSY, /* its change is not yet committed or refused */
    MESSAGE_DELAYED,
    MESSAGE_BURIED,
    MESSAGE_STATES
};

struct id_range {
    uint64_t first, last; /* both inclusive */
};
/* Ascending ids, stored as ranges. A zeroed struct is empty. The struct owns its memory. */
struct id_ranges {
    struct id_range *at;
    size_t n, cap;
    uint64_t count; /* of ids */
};
void id_ranges_add(struct id_ranges *r, uint64_t id); /* extends the last range if possible */
void id_ranges_add_range(struct id_ranges *r, struct id_range range);
void id_ranges_free(struct id_ranges *r);

/* Visits each id of the ranges: for (struct id_walk w = {.ids = ids}; id_walk_next(&w);) use(w.id); */
struct id_walk {
    const struct id_ranges *ids;
    size_t range;
    uint64_t id; /* 0 before the first call */
};
static inline bool id_walk_next(struct id_walk *w)
{
    if (w->id && w->id < w->ids->at[w->range].last) {
        w->id++;
        return true;
    }
    w->range += w->id > 0;
    if (w->range == w->ids->n)
        return false;
    w->id = w->ids->at[w->range].first;
    return true;
}

/* Data that all queues of a daemon share: the heap of all deadlines, and totals. */
struct queue_shared {
    struct heap deadlines;
    uint64_t bytes, messages;   /* in all queues, spilled or not */
    uint64_t owners;            /* bytes of memory for leases, delays and burials */
    struct store_memory memory; /* for messages */
};
#define QUEUE_MESSAGE_COST sizeof(struct message) /* memory of a message in addition to its bytes */
/* The memory of all queues if no message were spilled, and if every message were. */
static inline uint64_t queue_shared_cost(const struct queue_shared *s)
{
    return s->bytes + s->messages * QUEUE_MESSAGE_COST + s->owners;
}
static inline uint64_t queue_shared_fixed(const struct queue_shared *s)
{
    return s->memory.spilled + s->owners;
}

enum queue_timer_kind { QUEUE_TIMER_LEASE, QUEUE_TIMER_DELAY, QUEUE_TIMER_PAUSE };
/* An entry of the heap of deadlines; `node` is its first member. */
struct queue_timer {
    struct heap_node node;
    enum queue_timer_kind kind;
    void *owner; /* of the queue */
    uint64_t id; /* LEASE: the number of the lease; DELAY: the id of the message */
};

/* Only the functions of the queue may change these values. */
struct queue_state {
    uint64_t n[MESSAGE_STATES];
    uint64_t bytes;                  /* committed */
    uint64_t pending_bytes;          /* not committed */
    uint64_t to_move, to_move_bytes; /* messages that are delayed, or are due and being moved */
    uint64_t next_id;    /* the last committed id plus one; pending messages have this and higher ids */
    uint64_t puts, gets; /* messages stored by puts; messages delivered */
    uint64_t expired;    /* leases that still had messages at their deadline */
    uint64_t depth_high_water;
    usec_t paused_until; /* 0: not paused */
    size_t leases;
    const char *reader;   /* name of the reader with the leases, if leases > 0 */
    const char *follower; /* name of the follower; "": none */
    uint64_t follow;      /* number of its follow; 0: it has not begun to read since the start */
    uint64_t sent;        /* messages below it were sent since the queue is followed; 0: not followed */
};

struct queue;
struct queue *queue_new(struct queue_shared *shared, uint64_t next_id, uint64_t lease_base, void *owner);
void queue_free(struct queue **q);
const struct queue_state *queue_state(const struct queue *q);
struct store *queue_store(
    struct queue *q); /* to spill and load messages, and for their offsets in the journal */
uint64_t queue_depth(const struct queue *q);      /* ready, leased, busy and delayed */
uint64_t queue_last_lease(const struct queue *q); /* the highest number used, or lease_base */

/* Puts. Messages must be committed or aborted in the order in which they were added. */

/* Adds copies of the messages as pending. Returns the first id. */
uint64_t queue_add(struct queue *q, const struct bytes *messages, size_t n);
/* Makes the added messages ready. */
void queue_add_commit(struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset);
/* Delays the added messages until `due`. */
void queue_add_commit_delayed(
    struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset, usec_t due);
void queue_add_abort(struct queue *q, uint64_t first_id, size_t n);
/* Adds n to the number of puts. Do not call this for moved messages. */
void queue_count_puts(struct queue *q, size_t n);
/* Updates depth_high_water. Not while the queue has both copies and originals of a move. */
void queue_note_depth(struct queue *q);
void queue_reset_high_water(struct queue *q);

/* The bytes of a message in the queue, valid until one is removed or spilled; ptr NULL: spilled. */
struct bytes queue_message(struct queue *q, uint64_t id, uint32_t *tries);

/* Deliveries. These functions stop before a spilled message, see queue_in_memory. */

/* Makes ready messages busy, beginning with the lowest id, and appends their ids to *out. Stops at max_items messages
 * or max_bytes bytes, but takes at least one message. */
void queue_take(struct queue *q, size_t max_items, size_t max_bytes, struct id_ranges *out);
/* Counts messages of queue_take as delivered. Call this when their removal is committed. */
void queue_count_given(struct queue *q, uint64_t n);
/* True if the reader may lease messages: no reader with another name has a lease. */
bool queue_admits(const struct queue *q, const char *reader);
/* As queue_take, but leases the messages until `deadline` (queue_admits must be true). Stops before a message that
 * queue_take or queue_block_reserves has made busy: it may become ready again, and readers need the order of ids.
 * The lease's number, or 0: no message is ready. */
uint64_t queue_reserve(struct queue *q, const char *reader, size_t max_items, size_t max_bytes,
    usec_t deadline, struct id_ranges *out);
/* As queue_take, but for eviction: only ids below `before`, none that was sent to the follower, no gets or tries counted, also
 * during a pause; spilled messages only if `spilled`. */
void queue_evict(struct queue *q, size_t max_items, uint64_t before, bool spilled, struct id_ranges *out);
/* Returns the bytes of the committed messages that are not ready. Visits each of these messages. */
uint64_t queue_bytes_not_ready(struct queue *q);

/* Pauses the queue until queue_resume or a restart: no message is delivered or leased. Unless `until` is
 * QUEUE_PAUSE_OPEN, a timer fires then. */
#define QUEUE_PAUSE_OPEN INT64_MAX
void queue_pause(struct queue *q, usec_t until);
void queue_resume(struct queue *q);

/* Leases. Ranges in `wanted` may be in any order and overlap. Each function returns the number of messages changed. */

/* Makes those messages of `wanted` busy that belong to the lease, and appends their ids to *out. */
uint64_t queue_hold(
    struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n, struct id_ranges *out);
/* Until the change of these busy messages is committed or aborted, reserves get no higher id. For delays and
 * burials: if these fail, the message is ready again at its former position. */
void queue_block_reserves(struct queue *q, const struct id_ranges *ids);
/* Makes those messages of `wanted` ready again that belong to the lease. */
uint64_t queue_return(struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n);
/* Changes the deadline of the lease. Returns false if no message is leased under this number. */
bool queue_touch(struct queue *q, uint64_t lease, usec_t deadline);
/* Ends all leases of readers with this name, and returns the number of messages that became ready. */
uint64_t queue_release(struct queue *q, const char *reader);
/* Call this when the timer of the lease has fired. Makes the messages of the lease ready again. */
void queue_lease_expire(struct queue *q, uint64_t lease);

/* Following. While the queue has a follower, it must not be taken from or reserved. */

/* Names the follower, or none (""). The queue must have no leases, and its follow must not have begun. */
void queue_set_follower(struct queue *q, const char *reader);
/* Begins the next follow, which reads from the first ready message on, and returns its number, never 0. */
uint64_t queue_follow(struct queue *q);
/* Ends the follow, and the queue has no follower any more. */
void queue_unfollow(struct queue *q);
/* Messages with ids of at least `from` are sent again, because their reply was lost. */
void queue_follow_rewind(struct queue *q, uint64_t from);
/* Finds the next message to send. */
bool queue_follow_next(struct queue *q, uint64_t *id);
/* Appends the next ready messages with ids below `before`, in the order of ids, to *out, as queue_reserve does. They stay
 * ready. */
void queue_follow_read(
    struct queue *q, size_t max_items, size_t max_bytes, uint64_t before, struct id_ranges *out);
/* Makes those ready messages of the range busy that were sent since the queue is followed, and appends their ids to *out. Returns
 * their number. */
uint64_t queue_hold_sent(struct queue *q, struct id_range range, struct id_ranges *out);
/* Returns the number and the bytes of the ready messages that were sent. Visits each of them. */
uint64_t queue_count_sent(struct queue *q, uint64_t *bytes);

/* Call one of these when the change of busy messages is committed or aborted. */

void queue_remove(struct queue *q, const struct id_ranges *ids);
void queue_delay(struct queue *q, const struct id_ranges *ids, usec_t due);
void queue_bury(struct queue *q, const struct id_ranges *ids, struct bytes reason, usec_t buried_at);
/* Each message becomes leased again if its lease has not ended, otherwise ready. */
void queue_abort(struct queue *q, const struct id_ranges *ids);

/* Makes a delayed or buried message busy, so that it can be moved and get a new id. Returns false if the message is
 * neither delayed nor buried. */
bool queue_set_aside(struct queue *q, uint64_t id);
/* Undoes queue_set_aside. A delayed message becomes due at `retry_at`. */
void queue_put_back(struct queue *q, uint64_t id, usec_t retry_at);
void queue_set_tries(struct queue *q, uint64_t id, uint32_t tries);

/* Searches. Each function finds the first matching message whose id is at least `from`, and returns false if there is
 * none. */

struct queue_burial {
    usec_t buried_at; /* wall clock */
    struct bytes reason;
};
struct queue_view {
    uint64_t id;
    enum message_state state;
    uint32_t tries;
    struct bytes text;                 /* ptr NULL: spilled */
    usec_t due;                        /* DELAYED */
    const struct queue_burial *burial; /* BURIED */
};
bool queue_next_held(struct queue *q, uint64_t from, struct queue_view *out);
bool queue_next_ready(struct queue *q, uint64_t from, uint64_t *id);
bool queue_next_buried(struct queue *q, uint64_t from, uint64_t *id, const struct queue_burial **burial);

/* Spilling. The caller loads messages with the functions of queue_store. */

#define QUEUE_WINDOW_MAX ((uint64_t)2 << 20) /* bounds of the read-ahead, a 64th of the memory limit */
#define QUEUE_WINDOW_MIN ((uint64_t)128 << 10)

/* While all queues use more than `limit` bytes, spills committed messages of this queue, the newest first, but not
 * the read-ahead or demanded ones. Not from within another function of the queue. */
void queue_spill(struct queue *q, uint64_t limit);
/* True if the first `items` ready messages, or `bytes` bytes of them, are in memory. Else *out is the span to load
 * next, or empty (last_id 0) if it is being loaded. They stay in memory until two more loads have ended. */
bool queue_in_memory(struct queue *q, size_t items, uint64_t bytes, uint64_t limit, struct store_span *out);
/* Called when a load has ended. */
void queue_demand_turn(struct queue *q);
/* Returns true if messages of the read-ahead are not in memory. *out is the span to load. */
bool queue_read_ahead(struct queue *q, uint64_t limit, struct store_span *out);

/* Recovery. Call these functions in the order of the records in the journal, before any other function. */

/* Adds the messages of a record. Returns false if first_id is below the next id. */
bool queue_restore_add(
    struct queue *q, uint64_t first_id, const struct bytes *messages, size_t n, uint64_t offset);
void queue_restore_next_id(struct queue *q, uint64_t next_id); /* at least this */
void queue_restore_lease_base(struct queue *q, uint64_t base); /* at least this */
/* Adds a message of which the journal has a copy at `offset`. Returns false if the message is already in the queue. */
bool queue_restore_kept(struct queue *q, uint64_t id, struct bytes message, uint32_t tries, uint64_t offset);
/* Removes those messages of the range that are in the queue. */
void queue_restore_remove(struct queue *q, struct id_range range);
/* Delays a ready message. */
void queue_restore_delay(struct queue *q, uint64_t id, usec_t due);
/* Makes the message busy, for queue_delay or queue_bury. Returns false if the message is busy or not in the queue. */
bool queue_restore_hold(struct queue *q, uint64_t id, uint32_t tries);

#endif
