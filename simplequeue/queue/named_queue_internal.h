/* named_queue_internal: declarations that the files of a named queue share. Only these files include it.
 *
 * An *op* is a durable operation in progress. The function that creates the op changes the queue, appends a record
 * and returns. When the journal has committed or refused the record, op_finish completes or undoes the change and
 * calls `done`.
 *
 * The files form layers. A file calls only files that are listed before it:
 *
 *     limits    depth, bytes and memory; eviction; disk space reserved for later records
 *     marks     the marks of producers, and the operations that move them
 *     op        append a record, finish the operation
 *     storage   trim the journal, rewrite old messages, spill, load
 *     erase     leave no removed message in a file
 *     put, lease, follow, move    the operations
 *     named_queue   open, recover, close; the queue's turn
 *
 * No layer calls a layer after it. After each commit, load and erasure, the journal calls the queue's turn
 * (named_queue_turn), which asks the layers for their next work. The functions in an op_type are the completion of the
 * journal's append. They use only the layers before op. */
#ifndef SIMPLEQUEUE_NAMED_QUEUE_INTERNAL_H
#define SIMPLEQUEUE_NAMED_QUEUE_INTERNAL_H

#include "simplequeue/queue/named_queue.h"
#include "simplequeue/queue/queue_log.h"

#include "base/text_hash.h"
#include <uthash.h>

#define MOVE_BYTES_MAX ((size_t)1 << 20) /* message bytes in a MOVE record; a longer message is alone */

/* A number of messages and their total bytes. */
struct amount {
    uint64_t n, bytes;
};

/* The steps of an erasure, in order (named_queue_erase.c). */
enum erase_step {
    ERASE_NOTHING,
    ERASE_FILES,    /* journal_erase */
    ERASE_SEGMENTS, /* the old segments are rewritten and trimmed */
    ERASE_REMOVAL,  /* their files are being removed */
    ERASE_ENDED,
};

enum op_kind { OP_PUT, OP_REMOVE, OP_DELAY, OP_BURY, OP_MOVE, OP_OPEN, OP_KEEP, OP_KINDS };

struct op;
struct op_type {
    enum op_kind kind;
    /* Completes the change if c->result is JOURNAL_OK, otherwise undoes the change. */
    void (*finish)(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome);
    /* For op_append_record: appends the op's record to q->record and sets o->reserve. */
    void (*encode)(struct op *o);
    bool
        repeats; /* append again if the disk is full, because another append of the commit may be the cause */
};

struct op {
    struct named_queue *q;
    const struct op_type *type;
    queue_done_fn *done;
    void *arg;
    uint64_t reserve;      /* bytes of disk space to reserve after the record */
    unsigned refused;      /* number of refusals because the disk is full */
    struct amount to_move; /* PUT, DELAY: messages that the op delays */

    uint64_t first_id;    /* PUT, MOVE: the first new id */
    size_t n;             /* messages */
    struct id_ranges ids; /* the busy messages */
    usec_t time; /* DELAY, late PUT: when due, monotonic; BURY: wall clock; MOVE: next attempt, monotonic */

    char *reason; /* BURY */
    size_t reason_len;

    char producer[NAME_LEN_MAX + 1]; /* PUT, REMOVE; "": none */
    uint64_t next;
    bool moves_mark;    /* the op is in the queue's list oldest..newest */
    bool sets_mark;     /* whatever it is: the producer's other puts wait */
    struct op *newer;   /* the next op in this list */
    struct op *retries; /* duplicates of this put that wait for its result */
    struct op *retry;   /* the next duplicate */

    struct queue_record_item *items; /* MOVE: n of them */
    struct buf texts;                /* their bytes */
    size_t gathered;                 /* number of items whose bytes are in texts */
    bool is_due;                     /* true: a delay ended; false: a kick */
    bool as_lines;                   /* drop the line end at the end of a message */
    struct queue_now now;
    struct op *next_gathering;

    struct store_span page; /* KEEP */
};

struct mark {
    UT_hash_handle hh;
    uint64_t value;
    char producer[NAME_LEN_MAX + 1];
};

/* Loads spilled messages through a journal_reader, the stream.
 *
 * 1. Only one span is loaded at a time. Messages arrive within journal_set_poll.
 * 2. If the next span is only a little further in the journal, the loader continues with the open stream, even
 *    within a record, so that a record is read only once.
 * 3. During a load no record from the span's offset on is trimmed. */
struct message_loader {
    struct journal_reader *reader; /* NULL: no stream */
    struct buf in;                 /* the current record and the bytes after it */
    size_t at;                     /* position of the next record in `in` */
    struct queue_record record;    /* the current record, if in_record */
    bool in_record;
    uint64_t began;   /* the offset at which the stream was opened */
    uint64_t next_id; /* id of the next message in a PUT or MOVE */
    uint64_t passed;  /* the highest id in the PUTs and MOVEs read so far */
    bool busy;
};

struct named_queue {
    struct named_queue_config config;
    char name[NAME_LEN_MAX + 1];
    char id[JOURNAL_ID_TEXT];
    struct queue *core;
    struct queue_openings openings;
    void *data;
    struct queue_now now;         /* of the last operation */
    bool notifying, notify_again; /* on_ready is running; it must be called once more */

    size_t under_way;     /* ops in the journal */
    struct buf record;    /* the record being appended */
    struct bytes *pieces; /* its parts */
    size_t pieces_cap;
    uint64_t last_record; /* the offset of the last committed record */
    bool committed;       /* the last op was committed */

    struct mark *marks;         /* for a queue without a journal; a journal has its own marks */
    struct op *oldest, *newest; /* ops in progress that move a mark */

    bool full;                    /* the disk refused the last put */
    usec_t retry_space[OP_KINDS]; /* monotonic; until this time an op of the kind is refused */
    struct amount to_move;        /* of ops in progress */

    struct message_loader loader;
    struct store_span span; /* being loaded */
    uint64_t wanted;        /* a single message to load; 0: none */
    bool had_wanted;        /* the last load was for a single message */
    size_t demand_items;    /* the largest number of messages that a waiting request needs; 0: none waits */
    size_t demand_bytes;
    char failure[256]; /* why spilled messages cannot be read; if set, nothing is loaded any more */

    struct queue_now opened;
    uint64_t lease_base;                /* of this opening */
    uint64_t open_record;               /* the offset of the last OPEN record */
    bool opening, open_missing;         /* an OPEN record is in progress; the last one was refused */
    bool keeping;                       /* a KEEP record is in progress */
    size_t keep_changes;                /* store.changes when the queue last looked for sparse segments */
    uint64_t keep_end;                  /* the journal's end at that time */
    uint64_t keep_from;                 /* erasure: the id after the last rewritten page */
    enum journal_result rewrite_result; /* of the last OPEN or KEEP record */
    unsigned rewrite_failures;          /* number of those that were refused in turn */

    enum erase_step erase_step;
    uint64_t erase_end;                   /* all removed messages are below this offset */
    char erase_error[JOURNAL_ERROR_TEXT]; /* "": none */

    struct op *gathering; /* MOVEs that wait for a load */
    struct id_ranges due; /* messages whose delay ended in this turn */
    size_t due_bytes;
    size_t move_limit; /* maximum bytes of a MOVE; lower after a full disk has refused one */
    size_t moving;     /* MOVEs of ended delays in progress */
};

/* named_queue_limits.c */

/* True if there is room for the messages `in` after the messages `out` are removed. */
bool limits_have_room(const struct named_queue *q, struct amount in, struct amount out);

#define SPARE_OF_PUT                                                                                         \
    ((uint64_t)64 << 10) /* a put leaves this many bytes for OPEN, BURY, DELAY, kicks and KEEP */
#define SPARE_FOR_KEEP                                                                                       \
    ((uint64_t)36 << 10) /* BURY, DELAY and kicks leave this many bytes for KEEP and OPEN */
/* Returns the size of the records that would remove all messages and move all delayed messages, plus `spare`. */
uint64_t reserve_for_all(const struct named_queue *q, uint64_t spare);
/* Until the op is committed or refused, reserve_for_all counts the messages that the op delays. */
void reserve_expect_move(struct op *o, struct amount amount);
void reserve_forget_move(struct op *o);
/* True if a full disk has refused an op of this kind within the last second. A retry could make the journal refuse
 * other ops of the commit. */
bool reserve_waits(const struct named_queue *q, enum op_kind kind, struct queue_now now);

#define FOLLOWER_MARK ":follower" /* no producer's: its opening is the name of the follower */

/* named_queue_marks.c */

void producer_marks_free(struct named_queue *q);
/* Makes the op raise the producer's mark to `next` in the same frame, unless it is as high, another op moves it, or
 * there is no room. */
void producer_mark_raise(struct op *o, struct bytes producer, uint64_t next);
/* Whether the producer has a mark, or there is room for one. The journal itself limits the producers of a durable queue. */
bool producer_has_room(const struct named_queue *q, const char *producer);
/* The producer's newest operation in progress that moves its mark; NULL: none. */
const struct op *producer_newest_put(const struct named_queue *q, const char *producer);
/* Adds the op to the operations in progress that move marks. */
void producer_mark_begin(struct op *o);
void producer_mark_decided(struct op *o);
void producer_mark_finish(struct op *o, const struct journal_commit *c);

/* named_queue_follow.c */

/* Names the follower that the journal has, once it is recovered. */
void follower_restore(struct named_queue *q);

/* named_queue_op.c */

struct op *op_new(struct named_queue *q, const struct op_type *type, queue_done_fn *done, void *arg);
void op_free(struct op *o);
/* Appends q->record and `texts`. QUEUE_OK: the op belongs to the journal until op_finish. Else it is unchanged. */
enum queue_result op_append(struct op *o, struct journal_append *a, const struct bytes *texts, size_t n,
    struct queue_now now, uint64_t *mark);
/* Encodes the record of an op without texts and appends the record. */
enum queue_result op_append_record(struct op *o, struct queue_now now);
/* Calls on_ready; if it is running, once more afterwards. */
void notify_ready(struct named_queue *q);
/* Finishes the op, calls `done` for the op and its duplicates, and frees them. */
void op_finish(const struct journal_commit *c, void *arg);

/* named_queue_storage.c */

/* Stops a load that is in progress. */
void load_stop(struct named_queue *q);

/* Appends an OPEN record, which contains the openings and the base of this session's lease numbers. */
void storage_append_open(struct named_queue *q);
/* Trims the journal, rewrites the messages of a segment that is sparse or to be erased, and spills and loads messages as
 * needed. */
void storage_maintain(struct named_queue *q);
/* True if all old segments are to be rewritten. */
static inline bool erases(const struct named_queue *q)
{
    return q->erase_step == ERASE_SEGMENTS && journal_earliest(q->config.journal) < q->erase_end;
}

/* named_queue_erase.c */

/* In each turn of the queue. */
void erase_continue(struct named_queue *q);

/* named_queue_move.c */

/* QUEUE_OK: continues the moves that wait for a load. Else ends them with `result`. */
void moves_resume(struct named_queue *q, enum queue_result result);

#endif
