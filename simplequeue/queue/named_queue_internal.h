/* named_queue_internal: declarations that the files of a named queue share. Only these files include it.
 *
 * An *op* is a durable operation in progress. Its owner changes the queue, appends a record and returns. When the journal has
 * committed or refused the record, op_finish completes or undoes the change and calls `done`.
 *
 * The files form layers, and each calls only those before it:
 *
 *     limits    depth, bytes and memory; eviction
 *     op        append a record, finish the operation; disk space reserved for later records
 *     storage   trim the journal, rewrite old messages, spill, load
 *     put, lease, move    the operations
 *     named_queue   open, recover, close
 *
 * The op and storage layers end each step with q->step, which named_queue sets. It wakes waiters and maintains the storage.
 */
#ifndef SIMPLEQUEUE_NAMED_QUEUE_INTERNAL_H
#define SIMPLEQUEUE_NAMED_QUEUE_INTERNAL_H

#include "simplequeue/queue/named_queue.h"
#include "simplequeue/queue/queue_log.h"

#include <uthash.h>

#define MOVE_BYTES_MAX ((size_t)1 << 20) /* message bytes in one MOVE record; a longer message moves alone */

/* Messages and their bytes. */
struct amount {
    uint64_t n, bytes;
};

enum op_kind { OP_PUT, OP_REMOVE, OP_DELAY, OP_BURY, OP_MOVE, OP_OPEN, OP_KEEP, OP_KINDS };

struct op;
struct op_type {
    enum op_kind kind;
    /* Completes the change if c->result is JOURNAL_OK, else undoes it. */
    void (*finish)(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome);
    /* Appends the op's record to q->record and sets o->reserve; for op_append_record. */
    void (*encode)(struct op *o);
    bool
        repeats; /* append again after a refusal by a full disk: the journal refuses all appends of a commit together */
};

struct op {
    struct named_queue *q;
    const struct op_type *type;
    queue_done_fn *done;
    void *arg;
    uint64_t reserve;      /* bytes that must stay free behind the record */
    unsigned refused;      /* how often a full disk has refused it */
    struct amount to_move; /* PUT, DELAY: messages that the op delays */

    uint64_t first_id;    /* PUT, MOVE: the first new id */
    size_t n;             /* messages */
    struct id_ranges ids; /* the busy messages */
    usec_t time; /* DELAY, delayed PUT: due, monotonic; BURY: wall clock; MOVE: next try, monotonic */

    char *reason; /* BURY */
    size_t reason_len;

    char producer[NAME_LEN_MAX + 1]; /* PUT; "": none */
    uint64_t next;
    bool moves_mark;    /* is in the list oldest..newest of the queue */
    struct op *newer;   /* the next op in this list */
    struct op *retries; /* duplicates of this put that wait for its outcome */
    struct op *retry;   /* the next duplicate; the next spare op */

    struct queue_record_item *items; /* MOVE: n of them */
    struct buf texts;                /* their bytes */
    size_t gathered;                 /* items whose bytes are in texts */
    bool is_due;                     /* true: a delay ended; false: a kick */
    struct queue_now now;
    struct op *next_gathering;

    struct store_span page; /* KEEP */
};

struct mark {
    UT_hash_handle hh;
    uint64_t value;
    char producer[NAME_LEN_MAX + 1];
};

/* Reads spilled messages from the journal, in the order of its records, on the journal's reader thread.
 *
 * 1. One span is loaded at a time, in journal_set_poll.
 * 2. The open stream also serves the next span if its messages lie a little ahead, even inside the same record. So a
 *    record of many messages is read only once, even if its messages are loaded in parts.
 * 3. A stream keeps a segment of the journal from being deleted until it is closed.
 */
struct message_loader {
    struct journal_reader *reader; /* NULL: no stream */
    struct buf in;                 /* payloads from the current record on */
    size_t at;                     /* position of the next record in `in` */
    struct queue_record record;    /* the current record, if in_record */
    bool in_record;
    uint64_t began;   /* the offset where the stream was opened */
    uint64_t next_id; /* of the next message in a PUT or MOVE */
    uint64_t passed;  /* the highest id of the PUTs and MOVEs read so far */
    bool busy;
};

struct named_queue {
    struct named_queue_config config;
    char name[NAME_LEN_MAX + 1];
    char id[JOURNAL_ID_TEXT];
    struct queue *core;
    void *data;
    void (*step)(struct named_queue *q); /* after each op and each load */
    struct queue_now now;                /* of the last operation */
    bool notifying, notify_again;        /* inside on_ready; something happened since it began */

    size_t under_way;     /* ops in the journal */
    struct op *spare;     /* freed ops, linked by `retry` */
    struct buf record;    /* the record being appended */
    struct bytes *pieces; /* its parts */
    size_t pieces_cap;
    uint64_t last_record; /* the offset of the last committed record */
    bool committed;       /* the last op was committed */

    struct mark *marks;         /* of a queue without a journal; the journal keeps its own */
    struct op *oldest, *newest; /* puts in progress that move a mark */

    bool full;                    /* the disk refused the last put */
    usec_t retry_space[OP_KINDS]; /* monotonic: an op of the kind is refused until then */
    struct amount to_move;        /* of ops in progress */

    struct message_loader loader;
    struct store_span span; /* being loaded */
    uint64_t wanted;        /* a single message to load; 0: none */
    bool had_wanted;        /* the last load was for a single message */
    size_t demand_items;    /* the most messages that a waiting request needs; 0: no request waits */
    size_t demand_bytes;
    char failure[256]; /* the reason why spilled messages cannot be read; nothing is loaded any more */

    struct queue_now opened;
    uint64_t lease_base;        /* of this opening */
    uint64_t open_record;       /* the offset of the last OPEN record */
    bool opening, open_missing; /* an OPEN record is in progress; the last one was refused */
    bool keeping;               /* a KEEP record is in progress */
    size_t keep_changes;        /* store.changes at the last look for sparse segments */
    uint64_t keep_end;          /* the journal's end at that time */

    struct op *gathering; /* MOVEs that wait for a load */
    struct id_ranges due; /* messages whose delay ended in this turn */
    size_t due_bytes;
    size_t move_limit; /* maximum bytes of a MOVE; lowered after the disk refused one */
    size_t moving;     /* MOVEs of ended delays in progress */
};

/* named_queue_limits.c */

/* True if the messages `in` fit once the messages `out` are removed. */
bool limits_have_room(const struct named_queue *q, struct amount in, struct amount out);

/* named_queue_op.c */

#define SPARE_OF_PUT                                                                                         \
    ((uint64_t)64 << 10) /* free bytes that a put leaves for OPEN, BURY, DELAY, kicks and KEEP */
#define SPARE_FOR_KEEP                                                                                       \
    ((uint64_t)36 << 10) /* free bytes that BURY, DELAY and kicks leave for KEEP and OPEN */
/* The bytes of the records that remove all messages and move all delayed ones, plus `spare`. */
uint64_t reserve_for_all(const struct named_queue *q, uint64_t spare);
/* Makes reserve_for_all count the messages that the op delays, until the op is committed or refused. */
void reserve_expect_move(struct op *o, struct amount amount);
void reserve_forget_move(struct op *o);
/* True if the disk refused an op of this kind within the last second: a retry would make the journal refuse other ops too. */
bool reserve_waits(const struct named_queue *q, enum op_kind kind, struct queue_now now);

struct op *op_new(struct named_queue *q, const struct op_type *type, queue_done_fn *done, void *arg);
void op_free(struct op *o);
void op_free_spare(struct named_queue *q);
/* Appends q->record followed by `texts`. On QUEUE_OK the journal owns the op; else the op is unchanged. */
enum queue_result op_append(struct op *o, struct journal_append *a, const struct bytes *texts, size_t n,
    struct queue_now now, uint64_t *mark);
/* Encodes and appends an op whose record has no texts. */
enum queue_result op_append_record(struct op *o, struct queue_now now);
/* Calls on_ready. If called from inside on_ready, calls it again after it returns. */
void notify_ready(struct named_queue *q);
/* Finishes the op, calls `done` for the op and its duplicates, and frees them. */
void op_finish(const struct journal_commit *c, void *arg);

/* named_queue_put.c */

void producer_marks_free(struct named_queue *q);

/* named_queue_storage.c */

/* Ends a load in progress. */
void load_stop(struct named_queue *q);

/* Appends an OPEN record, which holds the base of this session's lease numbers. */
void storage_append_open(struct named_queue *q);
/* Trims the journal, rewrites the messages of a sparse segment, spills and loads. */
void storage_maintain(struct named_queue *q);

/* named_queue_move.c */

/* Continues the moves that wait for a load, or ends them with `result` if it is not QUEUE_OK. */
void moves_resume(struct named_queue *q, enum queue_result result);

#endif
