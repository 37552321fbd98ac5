/* queue: the messages of one queue and their states, in memory, without journal and sockets. Times are monotonic.
 *
 *     pending --commit--> ready --reserve--> leased --hold--> busy --remove--> gone
 *                           ^                  |               |---delay---> delayed --due--> busy, moved
 *                           |<-return, expiry--'               |---bury----> buried  --kick-> busy, moved
 *                           `<-----------------abort-----------'
 *
 * A durable change has two steps. First the message becomes pending (if it is new) or busy. Once the journal has
 * committed or refused the record, the change is completed or undone. Between the two steps no reader can get or lease
 * the message.
 *
 * A message may be *spilled*, which means that its bytes are only in the journal (store.h). A spilled message keeps its
 * state and position, but must be loaded before it is delivered.
 *
 * 1. queue_add assigns consecutive ids. Two committed messages never have the same id, but a new message may have the
 *    id of a refused one.
 * 2. The ready message with the lowest id is delivered first. A message that becomes ready again keeps its id.
 * 3. A message belongs to at most one lease. Lease numbers ascend from lease_base and never repeat.
 * 4. All leases of a queue belong to readers with one name, which may be "".
 * 5. `tries` counts deliveries of a message. A restart resets `tries` to 0, unless a record of a delay, burial, move or
 *    copy of the message contains it.
 * 6. A queue has leases or a *follower*, but not both. A follower reads all messages in the order of ids and settles
 *    those that it has stored. Lease numbers and the numbers of follows are one sequence. A message that was sent to
 *    the follower stays ready, but is not evicted. If an unsent message has a lower id than a sent message, the unsent
 *    message does not become ready. */
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
    MESSAGE_BUSY, /* a change of the message is not yet committed or refused */
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
    uint64_t count; /* number of ids */
};
void id_ranges_add(struct id_ranges *r, uint64_t id); /* extends the last range if `id` follows it */
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
    uint64_t bytes, messages;   /* totals of all queues, including spilled messages */
    uint64_t owners;            /* bytes of memory for leases, delays and burials */
    struct store_memory memory; /* memory for messages */
};
#define QUEUE_MESSAGE_COST sizeof(struct message) /* memory of a message in addition to its bytes */
/* queue_shared_cost returns the memory that all queues would use if no message was spilled. queue_shared_fixed returns
 * the memory that spilling cannot free. */
static inline uint64_t queue_shared_cost(const struct queue_shared *s)
{
    return s->bytes + s->messages * QUEUE_MESSAGE_COST + s->owners;
}
static inline uint64_t queue_shared_fixed(const struct queue_shared *s)
{
    return s->memory.spilled + s->owners;
}

enum queue_timer_kind { QUEUE_TIMER_LEASE, QUEUE_TIMER_DELAY, QUEUE_TIMER_PAUSE };
/* An entry of the heap of deadlines. `node` must be the first member. */
struct queue_timer {
    struct heap_node node;
    enum queue_timer_kind kind;
    void *owner; /* the owner of the queue */
    uint64_t id; /* number of the lease (LEASE), or id of the message (DELAY) */
};

/* Only the functions of the queue may change these values. */
struct queue_state {
    uint64_t n[MESSAGE_STATES];
    uint64_t bytes;                  /* bytes of committed messages */
    uint64_t pending_bytes;          /* bytes of pending messages */
    uint64_t to_move, to_move_bytes; /* delayed messages, and due messages that are being moved */
    uint64_t next_id;    /* the last committed id plus one; pending messages have ids from next_id on */
    uint64_t puts, gets; /* messages stored by puts; messages delivered */
    uint64_t expired;    /* leases that still had messages at their deadline */
    uint64_t depth_high_water;
    usec_t paused_until; /* 0: not paused */
    size_t leases;
    const char *reader;   /* name of the reader with the leases, if leases > 0 */
    const char *follower; /* name of the follower; "": the queue has no follower */
    uint64_t follow; /* number of the present follow; 0: no follow has begun since the start of the daemon */
    uint64_t sent;   /* ready messages before this id were sent to the follower; 0: no message was sent */
};

struct queue;
struct queue *queue_new(struct queue_shared *shared, uint64_t next_id, uint64_t lease_base, void *owner);
void queue_free(struct queue **q);
const struct queue_state *queue_state(const struct queue *q);
struct store *queue_store(
    struct queue *q); /* for spilling, loading, and the messages' offsets in the journal */
uint64_t queue_depth(const struct queue *q);      /* number of ready, leased, busy and delayed messages */
uint64_t queue_last_lease(const struct queue *q); /* the highest lease number so far, or lease_base */

/* Puts. Call queue_add_commit and queue_add_abort in the order of the queue_add calls. */

/* Adds copies of the messages in state pending. Returns the id of the first message. */
uint64_t queue_add(struct queue *q, const struct bytes *messages, size_t n);
/* Makes the added messages ready. */
void queue_add_commit(struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset);
/* Delays the added messages until `due`. */
void queue_add_commit_delayed(
    struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset, usec_t due);
void queue_add_abort(struct queue *q, uint64_t first_id, size_t n);
/* Adds n to the number of puts. Do not call queue_count_puts for moved messages. */
void queue_count_puts(struct queue *q, size_t n);
/* Updates depth_high_water. Do not call queue_note_depth during a move, when the queue has two copies of each moved
 * message. */
void queue_note_depth(struct queue *q);
void queue_reset_high_water(struct queue *q);

/* Returns the bytes of a message, valid until any message is removed or spilled. If the message is spilled, `ptr` is
 * NULL. */
struct bytes queue_message(struct queue *q, uint64_t id, uint32_t *tries);

/* Deliveries. queue_take, queue_reserve and queue_follow_read stop before a spilled message: see queue_in_memory. */

/* Makes ready messages busy, beginning with the lowest id, and appends their ids to *out. Stops at max_items messages
 * or max_bytes bytes, but takes at least one message. */
void queue_take(struct queue *q, size_t max_items, size_t max_bytes, struct id_ranges *out);
/* Counts n messages as delivered. Call queue_count_given when the removal of messages from queue_take is committed. */
void queue_count_given(struct queue *q, uint64_t n);
/* Returns true if no reader with another name has a lease, so that `reader` may lease messages. */
bool queue_admits(const struct queue *q, const char *reader);
/* Leases messages until `deadline`, with the limits of queue_take. queue_admits must be true. Stops before a busy
 * message of queue_take or queue_block_reserves, because a busy message may become ready again and must then be
 * delivered first. Returns the lease's number, or 0 if no message is leased. */
uint64_t queue_reserve(struct queue *q, const char *reader, size_t max_items, size_t max_bytes,
    usec_t deadline, struct id_ranges *out);
/* Makes the oldest ready messages whose ids are less than `before` busy, even during a pause, and appends their ids to
 * *out. Stops before a spilled message unless `spilled` is true. Skips messages that were sent to the follower, and
 * counts no delivery. */
void queue_evict(struct queue *q, size_t max_items, uint64_t before, bool spilled, struct id_ranges *out);
/* Returns the bytes of the committed messages that are not ready. Visits each of these messages. */
uint64_t queue_bytes_not_ready(struct queue *q);

/* Pauses deliveries and leases until queue_resume or a restart. Unless `until` is QUEUE_PAUSE_OPEN, a timer fires at
 * the time `until`. */
#define QUEUE_PAUSE_OPEN INT64_MAX
void queue_pause(struct queue *q, usec_t until);
void queue_resume(struct queue *q);

/* Leases. Ranges in `wanted` may be in any order and may overlap. A uint64_t result is the number of changed
 * messages. */

/* Makes those messages of `wanted` busy that belong to the lease, and appends their ids to *out. */
uint64_t queue_hold(
    struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n, struct id_ranges *out);
/* Stops queue_reserve before these busy messages until their change is committed or aborted. Delays and burials need
 * this, because after a failure the messages are ready again at their former positions. */
void queue_block_reserves(struct queue *q, const struct id_ranges *ids);
/* Makes those messages of `wanted` ready again that belong to the lease. */
uint64_t queue_return(struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n);
/* Changes the deadline of the lease. Returns false if the lease has no messages. */
bool queue_touch(struct queue *q, uint64_t lease, usec_t deadline);
/* Ends all leases of readers with this name, and returns the number of messages that became ready. */
uint64_t queue_release(struct queue *q, const char *reader);
/* Makes the messages of a lease ready again. Call queue_lease_expire when the timer of the lease has fired. */
void queue_lease_expire(struct queue *q, uint64_t lease);

/* Following. While the queue has a follower, do not call queue_take and queue_reserve. */

/* Sets the follower's name; "": no follower. Before this call, the queue must have no leases and no present follow. */
void queue_set_follower(struct queue *q, const char *reader);
/* Begins a follow that reads from the first ready message on. Returns the number of the follow, which is never 0. */
uint64_t queue_follow(struct queue *q);
/* Ends the follow and removes the follower. */
void queue_unfollow(struct queue *q);
/* Makes the follower's next read begin at id `from`, because the reply with the messages from `from` on was lost. */
void queue_follow_rewind(struct queue *q, uint64_t from);
/* Skips the messages before id `from`, which the follower has from an earlier follow. They count as sent. */
void queue_follow_skip(struct queue *q, uint64_t from);
/* Finds the next message to send to the follower. */
bool queue_follow_next(struct queue *q, uint64_t *id);
/* Appends the ids of the next ready messages whose ids are less than `before` to *out, with the limits of queue_take.
 * The messages stay ready. */
void queue_follow_read(
    struct queue *q, size_t max_items, size_t max_bytes, uint64_t before, struct id_ranges *out);
/* Makes those ready messages of the range busy that were sent to the follower, at most the first `most`, and appends
 * their ids to *out. Returns the number of these messages. */
uint64_t queue_hold_sent(struct queue *q, struct id_range range, uint64_t most, struct id_ranges *out);
/* Returns the number and the bytes of the ready messages that were sent to the follower. */
uint64_t queue_count_sent(const struct queue *q, uint64_t *bytes);

/* Call queue_remove, queue_delay or queue_bury when the change of busy messages is committed, and queue_abort when it
 * is refused. */

void queue_remove(struct queue *q, const struct id_ranges *ids);
void queue_delay(struct queue *q, const struct id_ranges *ids, usec_t due);
void queue_bury(struct queue *q, const struct id_ranges *ids, struct bytes reason, usec_t buried_at);
/* Makes each message leased again if its lease has not ended, otherwise ready. */
void queue_abort(struct queue *q, const struct id_ranges *ids);

/* Makes a delayed or buried message busy, so that it can be moved and get a new id. Returns false if the message is
 * neither delayed nor buried. */
bool queue_set_aside(struct queue *q, uint64_t id);
/* Undoes queue_set_aside. A delayed message becomes due at `retry_at`. */
void queue_put_back(struct queue *q, uint64_t id, usec_t retry_at);
void queue_set_tries(struct queue *q, uint64_t id, uint32_t tries);

/* Searches. Each function finds the first matching message with an id of at least `from`, and returns false if no
 * message matches. */

struct queue_burial {
    usec_t buried_at; /* wall clock */
    struct bytes reason;
};
struct queue_view {
    uint64_t id;
    enum message_state state;
    uint32_t tries;
    struct bytes text;                 /* the message; ptr is NULL if it is spilled */
    usec_t due;                        /* DELAYED: end of the delay */
    const struct queue_burial *burial; /* BURIED: time and reason */
};
bool queue_next_held(struct queue *q, uint64_t from, struct queue_view *out);
bool queue_next_ready(struct queue *q, uint64_t from, uint64_t *id);
bool queue_next_buried(struct queue *q, uint64_t from, uint64_t *id, const struct queue_burial **burial);

/* Spilling. The caller loads messages with the functions of queue_store. */

/* The read-ahead is a 64th of the memory limit, within these bounds. */
#define QUEUE_WINDOW_MAX ((uint64_t)2 << 20)
#define QUEUE_WINDOW_MIN ((uint64_t)128 << 10)

/* If all queues together use more than `limit` bytes, spills committed messages of this queue, the newest first.
 * Excludes the read-ahead, and messages that waiting requests need. */
void queue_spill(struct queue *q, uint64_t limit);
/* Returns true if the first `items` ready messages, or the first `bytes` bytes of ready messages, are in memory. If
 * false, *out is the span to load next, or empty (last_id 0) if that span is being loaded. The requested messages are
 * not spilled until two more loads have ended. */
bool queue_in_memory(struct queue *q, size_t items, uint64_t bytes, uint64_t limit, struct store_span *out);
/* Must be called when a load has ended. Afterwards, messages that were needed only before the previous load may be
 * spilled. */
void queue_demand_turn(struct queue *q);
/* Returns true if messages of the read-ahead are not in memory. *out is the span to load. */
bool queue_read_ahead(struct queue *q, uint64_t limit, struct store_span *out);

/* Recovery. Call the queue_restore functions in the order of the journal's records, before any other function. */

/* Adds the messages of a record. Returns false if first_id is below the next id. */
bool queue_restore_add(
    struct queue *q, uint64_t first_id, const struct bytes *messages, size_t n, uint64_t offset);
/* queue_restore_next_id and queue_restore_lease_base raise the next id and the lease base to at least the given
 * value. */
void queue_restore_next_id(struct queue *q, uint64_t next_id);
void queue_restore_lease_base(struct queue *q, uint64_t base);
/* Adds a message whose copy is in the journal at `offset`. Returns false if the message is already in the queue. */
bool queue_restore_kept(struct queue *q, uint64_t id, struct bytes message, uint32_t tries, uint64_t offset);
/* Removes those messages of the range that are in the queue. */
void queue_restore_remove(struct queue *q, struct id_range range);
/* Delays a ready message. */
void queue_restore_delay(struct queue *q, uint64_t id, usec_t due);
/* Makes the message busy before queue_delay or queue_bury. Returns false if the message is busy or not in the queue. */
bool queue_restore_hold(struct queue *q, uint64_t id, uint32_t tries);

#endif
