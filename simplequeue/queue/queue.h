/* queue: one queue's messages and what state each is in. Memory and rules only: no journal, no sockets; the
 * time is an argument, on the monotonic clock.
 *
 *     pending --commit--> ready --reserve--> leased --hold--> busy --remove--> gone
 *                           ^                  |               |---delay---> delayed --due--> busy, moved
 *                           |<-return, expiry--'               |---bury----> buried  --kick-> busy, moved
 *                           `<-----------------abort-----------'
 *
 * What must be durable happens in two steps: the message is set aside (pending, busy), and when the journal
 * has committed or refused it the step is finished or undone. In between it is neither shown, leased, nor
 * given to anybody, so nothing uncommitted is ever seen, and its lease may end meanwhile without harm.
 *
 * A message may be *away*: only its place in the journal and its length are in memory (see store.h). It has its state
 * and its place in the order like others; only its bytes must be loaded before it is given out.
 *
 * 1. Ids rise by one in the order of queue_add, which is the order in which messages become ready; they never
 *    repeat. Ids of refused messages are given again unless later ones were committed; then they stay unused.
 * 2. The lowest ready id is always taken first. A message put back is in its place, which is its id.
 * 3. A message is under at most one lease. Lease numbers rise from lease_base and are never given twice; readers'
 *    epochs are of the same sequence.
 * 4. All leases at a time belong to one reader's name; "" is the name of those that give none.
 * 5. tries counts how often a message was leased or taken, since the daemon started or since what the journal
 *    remembers of it (a delay, a burial).
 */
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
    MESSAGE_BUSY, /* set aside until the journal has committed what becomes of it */
    MESSAGE_DELAYED,
    MESSAGE_BURIED,
    MESSAGE_STATES
};

struct id_range {
    uint64_t first, last; /* both inclusive */
};
/* Ids in rising order as few ranges; a zeroed one is empty. Owns its memory. */
struct id_ranges {
    struct id_range *at;
    size_t n, cap;
    uint64_t count; /* of ids */
};
void id_ranges_add(struct id_ranges *r, uint64_t id); /* joins the last range when it follows it */
void id_ranges_add_range(struct id_ranges *r, struct id_range range);
void id_ranges_free(struct id_ranges *r);

/* What the queues of one daemon share: a heap of every deadline, and counts. */
struct queue_shared {
    struct heap deadlines;
    uint64_t bytes, messages;   /* held, wherever they are */
    uint64_t owners;            /* bytes that leases, delays and burials take */
    struct store_memory memory; /* that the messages cost */
};
#define QUEUE_MESSAGE_COST sizeof(struct message) /* beside its bytes */
/* What all messages would take in memory; and what they take of it although all that can be is on disk. */
static inline uint64_t queue_shared_cost(const struct queue_shared *s)
{
    return s->bytes + s->messages * QUEUE_MESSAGE_COST + s->owners;
}
static inline uint64_t queue_shared_fixed(const struct queue_shared *s)
{
    return s->memory.spilled + s->owners;
}

enum queue_timer_kind { QUEUE_TIMER_LEASE, QUEUE_TIMER_DELAY, QUEUE_TIMER_PAUSE };
/* What is in the heap of deadlines; `node` is its first member. */
struct queue_timer {
    struct heap_node node;
    enum queue_timer_kind kind;
    struct queue *queue;
    uint64_t id; /* the lease's number, or the delayed message's id; of a pause nothing */
};

/* Read freely; only the queue changes it. */
struct queue_state {
    uint64_t n[MESSAGE_STATES];
    uint64_t bytes;                  /* committed and held */
    uint64_t pending_bytes;          /* not committed */
    uint64_t to_move, to_move_bytes; /* delayed messages and those whose delay ended, until they are moved */
    uint64_t next_id;    /* one past the last committed message; the next has it unless one is pending */
    uint64_t puts, gets; /* messages stored by puts; messages given out */
    uint64_t expired;    /* leases that ran out holding messages */
    uint64_t depth_high_water;
    usec_t paused_until; /* 0: it is not */
    size_t leases;
    const char *reader; /* whose leases they are; means something while leases > 0 */
};

struct queue;
struct queue *queue_new(struct queue_shared *shared, uint64_t next_id, uint64_t lease_base, void *owner);
void queue_free(struct queue **q);
const struct queue_state *queue_state(const struct queue *q);
void *queue_owner(const struct queue *q);
/* Ready, leased and delayed. */
uint64_t queue_depth(const struct queue *q);
uint64_t queue_last_lease(const struct queue *q); /* the highest number given, or lease_base */
/* The journal offset that every message held is at or above; see store_lowest_offset. */
uint64_t queue_lowest_offset(const struct queue *q);

/* The id that queue_add will give. */
uint64_t queue_next_add(const struct queue *q);
/* Copies the messages as pending; the first one's id. */
uint64_t queue_add(struct queue *q, const struct bytes *messages, size_t n);
/* What was added is ready. Commits and aborts come in the order of the adds. */
void queue_add_commit(struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset);
/* They are of a put, not moved. */
void queue_count_puts(struct queue *q, size_t n);
void queue_add_abort(struct queue *q, uint64_t first_id, size_t n);
/* As queue_add_commit, but they are delayed until `due`, and never were ready. */
void queue_add_commit_delayed(
    struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset, usec_t due);

/* The message's bytes, good until a message is removed or spilled; and its tries. It must be held. ptr is NULL when it
 * is away. */
struct bytes queue_message(struct queue *q, uint64_t id, uint32_t *tries);

/* Up to max_items ready messages, the lowest ids first, as long as their bytes together are within max_bytes
 * (but at least one) become busy; appended to *out. None at or behind one that is away: see queue_in_memory. */
void queue_take(struct queue *q, size_t max_items, size_t max_bytes, struct id_ranges *out);

/* The same as leased until `deadline`, but none behind a message that queue_take or queue_block_reserves has set aside and whose end is
 * not committed yet: were that put back, whoever relays by marks would have published past it, and take it for
 * published. The lease's number, or 0 when nothing is ready. The reader must be admitted. */
bool queue_admits(const struct queue *q, const char *reader);
uint64_t queue_reserve(struct queue *q, const char *reader, size_t max_items, size_t max_bytes,
    usec_t deadline, struct id_ranges *out);

/* Up to max_items ready messages, the lowest ids below `before` first, become busy, to be removed without having been
 * given to anybody: they count neither as gets nor as tries, and a pause does not hold them back. `away`: also those
 * whose bytes are away. */
void queue_evict(struct queue *q, size_t max_items, uint64_t before, bool spilled, struct id_ranges *out);
/* Of messages that are committed and not ready. Looks at each of them. */
uint64_t queue_bytes_not_ready(struct queue *q);
/* So many that queue_take set aside have been given out. */
void queue_count_given(struct queue *q, uint64_t n);

/* Until `until`, when the timer in the heap of deadlines tells, nothing is taken or reserved; all else goes on.
 * QUEUE_PAUSE_OPEN: until queue_resume. A pause takes the place of the one before. Memory only. */
#define QUEUE_PAUSE_OPEN INT64_MAX
void queue_pause(struct queue *q, usec_t until);
void queue_resume(struct queue *q);
/* depth_high_water is at least the depth there is: not called between the two halves of a move, which is in both places. */
void queue_note_depth(struct queue *q);
/* depth_high_water begins again at the depth there is. */
void queue_reset_high_water(struct queue *q);

/* Those of `wanted` (any order, may overlap) that are leased under the number become busy; appended to *out.
 * How many. */
uint64_t queue_hold(
    struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n, struct id_ranges *out);
/* Busy messages that may yet come back in their place, whatever became of their lease: nothing behind them is reserved
 * until they are decided. For what is moved away (delayed, buried); an acknowledged message was done with. */
void queue_block_reserves(struct queue *q, const struct id_ranges *ids);
/* Those of `wanted` that are leased under the number are ready again in their place. How many. */
uint64_t queue_return(struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n);
/* The lease ends at `deadline` instead. False when it has none leased any more. */
bool queue_touch(struct queue *q, uint64_t lease, usec_t deadline);
/* Every lease of that reader ends, and a new epoch of it begins: *epoch (see reader_fencing.h). How many messages are back
 * in their place. */
uint64_t queue_release(struct queue *q, const char *reader, uint64_t *epoch);
/* The epoch of the last release under that name; 0 when it is not known. */
uint64_t queue_epoch(const struct queue *q, const char *reader);
/* A lease's deadline has come (its timer was first in the heap): the messages are back in their place. */
void queue_lease_expire(struct queue *q, uint64_t lease);

void queue_remove(struct queue *q, const struct id_ranges *ids);
/* Back: under their lease if it still runs, else ready in their place. What queue_set_aside took goes back
 * by queue_put_back. */
void queue_abort(struct queue *q, const struct id_ranges *ids);
/* Delayed until `due`, then the timer in the heap of deadlines tells. */
void queue_delay(struct queue *q, const struct id_ranges *ids, usec_t due);
void queue_bury(struct queue *q, const struct id_ranges *ids, struct bytes reason, usec_t buried_at);

/* A delayed or buried message becomes busy, to be moved to the end under a new id. False when it is
 * neither. */
bool queue_set_aside(struct queue *q, uint64_t id);
/* A message set aside goes back to where it was; a delayed one is due at `retry_at`. */
void queue_put_back(struct queue *q, uint64_t id, usec_t retry_at);
/* The new message has been delivered as often as the old one. */
void queue_set_tries(struct queue *q, uint64_t id, uint32_t tries);

struct queue_burial {
    usec_t buried_at; /* wall clock */
    struct bytes reason;
};
/* The first buried message at or after `from`; false when there is none. */
bool queue_next_buried(struct queue *q, uint64_t from, uint64_t *id, const struct queue_burial **burial);

/* The first ready message at or after `from`; false when there is none. */
bool queue_next_ready(struct queue *q, uint64_t from, uint64_t *id);

/* Messages whose bytes are on disk: "away". Reading them again is the owner's. */
#define QUEUE_WINDOW_MAX ((uint64_t)2 << 20) /* read ahead: a 64th of the limit, within these */
#define QUEUE_WINDOW_MIN ((uint64_t)128 << 10)

/* While the daemon's queues together take more than `limit` bytes of memory, committed messages go away: not a window
 * of what will be read next, nor what is demanded, and the newest first. Not from inside another call. */
void queue_spill(struct queue *q, uint64_t limit);
bool queue_is_spilled(struct queue *q, uint64_t id);
/* Whether the first `items` ready messages, or the first of `bytes` together, are in memory. If not, *out is what to
 * load next for it, unless that is under way (last_id 0). They are demanded: not spilled before something was loaded twice. */
bool queue_in_memory(struct queue *q, size_t items, uint64_t bytes, uint64_t limit, struct store_span *out);
/* Something was loaded: whoever waits asks again. */
void queue_demand_turn(struct queue *q);
/* Whether the window of what will be read next is incomplete, and *out is to be loaded. */
bool queue_read_ahead(struct queue *q, uint64_t limit, struct store_span *out);
/* What to load for one message; false when it is not away, or being loaded. */
bool queue_span_of(struct queue *q, uint64_t id, struct store_span *out);
void queue_load_begin(struct queue *q, const struct store_span *span);
bool queue_load(struct queue *q, uint64_t id, struct bytes text); /* see store_load */
bool queue_load_end(struct queue *q, const struct store_span *span);

struct queue_view {
    uint64_t id;
    enum message_state state;
    uint32_t tries;
    struct bytes text;                 /* ptr NULL: away */
    usec_t due;                        /* DELAYED */
    const struct queue_burial *burial; /* BURIED */
};
/* The first message held at or after `from`; false when there is none. */
bool queue_next_held(struct queue *q, uint64_t from, struct queue_view *out);
/* Its id alone, which changes the form of no page. */
bool queue_next_held_id(struct queue *q, uint64_t from, uint64_t *id);
/* How often queue_lowest_offset may have changed so far. */
size_t queue_changes(const struct queue *q);
/* See store_bytes_below, store_next_below, store_set_kept. */
uint64_t queue_bytes_below(const struct queue *q, uint64_t offset);
bool queue_next_below(const struct queue *q, uint64_t offset, uint64_t from, struct store_span *out);
void queue_set_kept(struct queue *q, const struct store_span *page, uint64_t offset);
bool queue_load_misses(struct queue *q, const struct store_span *span);

/* Recovery: in the order of the journal, before anything above. */
/* False when the id is below the next. */
bool queue_restore_add(
    struct queue *q, uint64_t first_id, const struct bytes *messages, size_t n, uint64_t offset);
void queue_restore_next_id(struct queue *q, uint64_t next_id); /* at least this */
void queue_restore_lease_base(struct queue *q, uint64_t base); /* at least this */
/* The message is said again at that offset. False when it is held from before. */
bool queue_restore_kept(struct queue *q, uint64_t id, struct bytes message, uint32_t tries, uint64_t offset);
/* Those of the range that are held are gone. */
void queue_restore_remove(struct queue *q, struct id_range range);
/* A ready message is delayed. */
void queue_restore_delay(struct queue *q, uint64_t id, usec_t due);
/* A message held and not busy becomes busy, for queue_delay or queue_bury. False when it is not held. */
bool queue_restore_hold(struct queue *q, uint64_t id, uint32_t tries);

#endif
