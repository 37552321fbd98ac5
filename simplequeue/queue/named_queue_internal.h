/* named_queue_internal: declarations that the files of a named queue share. Only these files include it.
 *
 * An *op* is a durable operation in progress. The function that creates an op changes the queue, appends a record and
 * returns. Once the journal has committed or refused the record, op_finish completes or undoes the change and calls
 * `done`.
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
 * After each commit, load and erasure, the journal calls named_queue_turn, which starts the next work of each layer.
 * The functions in an op_type complete an append of the journal, and use only the layers before op. */
#ifndef SIMPLEQUEUE_NAMED_QUEUE_INTERNAL_H
#define SIMPLEQUEUE_NAMED_QUEUE_INTERNAL_H

#include "simplequeue/queue/named_queue.h"
#include "simplequeue/queue/queue_log.h"

#include "base/text_hash.h"
#include <uthash.h>

#define MOVE_BYTES_MAX ((size_t)1 << 20) /* for several messages in a MOVE record */

/* A number of messages and their total bytes. */
struct amount {
    uint64_t n, bytes;
};

/* The steps of an erasure, in order (named_queue_erase.c). */
enum erase_step {
    ERASE_NOTHING,
    ERASE_FILES,    /* journal_erase */
    ERASE_SEGMENTS, /* the messages in the old segments are rewritten, and the segments are trimmed */
    ERASE_REMOVAL,  /* the files of the trimmed segments are being removed */
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
        repeats; /* append again after JOURNAL_NO_SPACE, which another append of the commit may have caused */
};

struct op {
    struct named_queue *q;
    const struct op_type *type;
    queue_done_fn *done;
    void *arg;
    uint64_t reserve;      /* bytes of disk space to reserve after the record */
    unsigned refused;      /* number of refusals because the disk is full */
    struct amount to_move; /* PUT, DELAY: the messages that the op delays */

    uint64_t first_id;    /* PUT, MOVE: the first new id */
    size_t n;             /* messages */
    struct id_ranges ids; /* the busy messages */
    usec_t time; /* DELAY, late PUT: monotonic due time; BURY: wall clock; MOVE: monotonic time of a retry */

    char *reason; /* BURY */
    size_t reason_len;

    char producer[NAME_LEN_MAX + 1]; /* PUT, REMOVE; "": none */
    uint64_t next;
    bool moves_mark;    /* the op is in the queue's list from `oldest` to `newest` */
    bool sets_mark;     /* the op sets the mark to `next` without a comparison */
    struct op *newer;   /* the next op in the list from `oldest` to `newest` */
    struct op *retries; /* duplicates of this put that wait for its result */
    struct op *retry;   /* the next op in the list `retries` */

    struct queue_record_item *items; /* MOVE: an array of n items */
    struct buf texts;                /* MOVE: the bytes of the messages */
    size_t gathered;                 /* MOVE: number of items whose bytes are in `texts` */
    bool is_due;                     /* MOVE: true for ended delays, false for a kick */
    bool as_lines;                   /* MOVE: remove a line end at the end of each message */
    struct queue_now now;
    struct op *next_gathering;

    struct store_span page; /* KEEP */
};

struct mark {
    UT_hash_handle hh;
    uint64_t value;
    char producer[NAME_LEN_MAX + 1];
};

/* Loads spilled messages through a journal_reader (the stream).
 *
 * 1. Only one span is loaded at a time. Messages are loaded within journal_set_poll.
 * 2. If the next span begins only a little further in the journal, the loader continues with the open stream, even in
 *    the middle of a record. A record with messages of two spans is therefore read once.
 * 3. During a load the queue trims no record at or above the offset of the span. */
struct message_loader {
    struct journal_reader *reader; /* NULL: no stream */
    struct buf in;                 /* the current record and the bytes after it */
    size_t at;                     /* position of the next record in `in` */
    struct queue_record record;    /* the current record, if in_record */
    bool in_record;
    uint64_t began;   /* the journal offset at which the stream was opened */
    uint64_t next_id; /* id of the next message in a PUT or MOVE record */
    uint64_t passed;  /* the highest id in the PUT and MOVE records that were read */
    bool busy;
};

struct named_queue {
    struct named_queue_config config;
    char name[NAME_LEN_MAX + 1];
    char id[JOURNAL_ID_TEXT];
    struct queue *core;
    struct queue_openings openings;
    void *data;
    struct queue_now now;         /* time of the last operation */
    bool notifying, notify_again; /* on_ready is running; on_ready must be called once more */

    size_t under_way;     /* number of ops that the journal has not committed or refused */
    struct buf record;    /* the record being appended */
    struct bytes *pieces; /* the parts of the record being appended */
    size_t pieces_cap;
    uint64_t last_record; /* the offset of the last committed record */
    bool committed;       /* the last op was committed */

    struct mark *marks;         /* only for a queue without a journal; a journal stores marks itself */
    struct op *oldest, *newest; /* ops in progress that move a mark */

    bool full;                    /* true if the disk had no space for the last put */
    usec_t retry_space[OP_KINDS]; /* for each kind: monotonic time until which its ops are refused */
    struct amount to_move;        /* sum of to_move of all ops in progress */

    struct message_loader loader;
    struct store_span span; /* the span that is being loaded */
    uint64_t wanted;        /* id of a single message to load; 0: none */
    bool had_wanted;        /* the last load was for a single message */
    size_t demand_items;    /* the most messages that a waiting request needs; 0: no request waits */
    size_t demand_bytes;
    char failure[256]; /* reason why spilled messages cannot be read, after which no load begins; "": none */

    struct queue_now opened;
    uint64_t lease_base;        /* lease numbers of this opening (run of the daemon) are above this base */
    uint64_t open_record;       /* the offset of the last OPEN record */
    bool opening, open_missing; /* an OPEN record is in progress; the last OPEN record was refused */
    bool keeping;               /* a KEEP record is in progress */
    size_t keep_changes;        /* store.changes when the queue last looked for sparse segments */
    uint64_t keep_end;          /* the journal's end when the queue last looked for sparse segments */
    uint64_t keep_from;         /* during an erasure: the id after the last rewritten page */
    enum journal_result rewrite_result; /* result of the last OPEN or KEEP record */
    unsigned rewrite_failures;          /* number of consecutive refusals of OPEN and KEEP records */

    enum erase_step erase_step;
    uint64_t erase_end;                   /* the offset before which all messages to be erased are */
    char erase_error[JOURNAL_ERROR_TEXT]; /* "": none */

    struct op *gathering; /* MOVE ops that wait for a load */
    struct id_ranges due; /* messages whose delay ended in this turn */
    size_t due_bytes;
    size_t move_limit; /* maximum bytes of a MOVE record; lower after a full disk has refused a MOVE record */
    size_t moving;     /* number of MOVE ops in progress for ended delays */
};

/* named_queue_limits.c */

/* Returns true if the queue has room for the messages `in` once the messages `out` are removed. */
bool limits_have_room(const struct named_queue *q, struct amount in, struct amount out);

/* A put leaves SPARE_OF_PUT bytes for OPEN, BURY, DELAY, KEEP and kicks. BURY, DELAY and kicks leave SPARE_FOR_KEEP
 * bytes for KEEP and OPEN. */
#define SPARE_OF_PUT ((uint64_t)64 << 10)
#define SPARE_FOR_KEEP ((uint64_t)36 << 10)
/* Returns the size of the records that would remove all messages and move all delayed messages, plus `spare`. */
uint64_t reserve_for_all(const struct named_queue *q, uint64_t spare);
/* Until the op is committed or refused, reserve_for_all counts the messages that the op delays. */
void reserve_expect_move(struct op *o, struct amount amount);
void reserve_forget_move(struct op *o);
/* Returns true if a full disk has refused an op of this kind within the last second. A retry could make the journal
 * refuse the other ops of the same commit. */
bool reserve_waits(const struct named_queue *q, enum op_kind kind, struct queue_now now);

#define FOLLOWER_MARK ":follower" /* the mark whose opening is the follower's name */

/* named_queue_marks.c */

void producer_marks_free(struct named_queue *q);
/* Makes the op raise the producer's mark to `next` in the same frame. Does nothing if the mark is not below `next`, if
 * another op moves the mark, or if the table of marks is full. */
void producer_mark_raise(struct op *o, struct bytes producer, uint64_t next);
/* Returns true if the producer has a mark, or if the table of marks has room for it. With a journal, the journal limits
 * the number of producers. */
bool producer_has_room(const struct named_queue *q, const char *producer);
/* Returns the producer's newest operation in progress that moves its mark, or NULL. */
const struct op *producer_newest_put(const struct named_queue *q, const char *producer);
/* Adds the op to the operations in progress that move marks. */
void producer_mark_begin(struct op *o);
void producer_mark_decided(struct op *o);
void producer_mark_finish(struct op *o, const struct journal_commit *c);

/* named_queue_follow.c */

/* Restores the follower's name from the recovered journal. */
void follower_restore(struct named_queue *q);

/* named_queue_op.c */

struct op *op_new(struct named_queue *q, const struct op_type *type, queue_done_fn *done, void *arg);
void op_free(struct op *o);
/* Appends q->record and `texts`. QUEUE_OK: the op belongs to the journal until op_finish. Any other result: the op is
 * unchanged. */
enum queue_result op_append(struct op *o, struct journal_append *a, const struct bytes *texts, size_t n,
    struct queue_now now, uint64_t *mark);
/* Encodes the record of an op without texts and appends the record. */
enum queue_result op_append_record(struct op *o, struct queue_now now);
/* Calls on_ready. If on_ready is already running, calls on_ready once more after it returns. */
void notify_ready(struct named_queue *q);
/* Finishes the op, calls `done` for the op and its duplicates, and frees them. */
void op_finish(const struct journal_commit *c, void *arg);

/* named_queue_storage.c */

/* Stops the load in progress. */
void load_stop(struct named_queue *q);

/* Appends an OPEN record, which contains the openings and q->lease_base. */
void storage_append_open(struct named_queue *q);
/* Trims the journal, rewrites the messages of a segment that is sparse or must be erased, and spills and loads
 * messages. */
void storage_maintain(struct named_queue *q);
/* Returns true if an erasure still has segments to rewrite. */
static inline bool erases(const struct named_queue *q)
{
    return q->erase_step == ERASE_SEGMENTS && journal_earliest(q->config.journal) < q->erase_end;
}

/* named_queue_erase.c */

/* Called in each turn of the queue. Begins the next step of an erasure if the present step has ended. */
void erase_continue(struct named_queue *q);

/* named_queue_move.c */

/* If `result` is QUEUE_OK, continues the moves that wait for a load. Otherwise ends these moves with `result`. */
void moves_resume(struct named_queue *q, enum queue_result result);

#endif
