/* named_queue_internal: what named_queue's own files share. Nobody else includes it.
 *
 * An *op* is a durable operation under way: made by the operation, appended, and finished or undone when the journal
 * has told its outcome.
 */
#ifndef SIMPLEQUEUE_NAMED_QUEUE_INTERNAL_H
#define SIMPLEQUEUE_NAMED_QUEUE_INTERNAL_H

#include "simplequeue/queue/named_queue.h"
#include "simplequeue/queue/queue_log.h"
#include "simplequeue/queue/message_loader.h"

#include <uthash.h>

#define MOVE_BYTES_MAX ((size_t)1 << 20) /* of messages moved in one record, but at least one message */

enum op_kind { OP_PUT, OP_REMOVE, OP_DELAY, OP_BURY, OP_MOVE, OP_OPEN, OP_KEEP, OP_KINDS };

struct amount {
    uint64_t n, bytes; /* messages, and all of theirs together */
};

/* What is under way: enough to finish or undo it. */
struct op {
    struct named_queue *q;
    enum op_kind kind;
    uint64_t first_id; /* PUT, MOVE: the new ids */
    size_t n;
    struct id_ranges ids; /* the busy ones */
    usec_t time;          /* DELAY, a late PUT: due, monotonic; BURY: wall; MOVE: monotonic retry */
    char *reason;
    size_t reason_len;
    char producer[NAME_LEN_MAX + 1];
    uint64_t next;
    struct op *newer;                /* in the list of puts under way that move a mark */
    bool moves_mark;                 /* is in that list */
    struct op *retries;              /* duplicates of this put, told when it is */
    struct op *retry;                /* the next of them */
    struct queue_record_item *items; /* MOVE: n of them, and their bytes as far as gathered */
    size_t gathered;
    bool is_due; /* MOVE: else kicked */
    struct buf texts;
    struct queue_now now; /* MOVE: when it was asked for */
    struct op *next_gathering;
    struct store_span page; /* KEEP */
    unsigned refused;       /* REMOVE: how often for want of room */
    size_t reserve;         /* in the journal, behind it */
    struct amount late;     /* PUT, DELAY: messages that will be delayed once it is committed */
    uint64_t used;          /* of q->room */
    uint64_t used_before;   /* q->used, with its own */
    queue_done_fn *done;
    void *arg;
};

struct mark {
    UT_hash_handle hh;
    uint64_t value;
    char producer[NAME_LEN_MAX + 1];
};

struct named_queue {
    struct named_queue_config config;
    char name[NAME_LEN_MAX + 1];
    char id[JOURNAL_ID_TEXT];
    struct queue *core;
    struct buf record;    /* reused by every append */
    struct bytes *pieces; /* likewise */
    size_t pieces_cap;
    struct mark *marks;         /* memory only */
    struct op *oldest, *newest; /* puts under way that move a mark */
    uint64_t last_record;       /* its offset */
    uint64_t open_record;       /* where the journal says lease_base, or that of an opening before */
    uint64_t lease_base;        /* this opening's */
    struct queue_now opened;
    struct queue_now now;       /* of the last operation */
    bool opening, open_missing; /* the OPEN record is under way; was refused */
    size_t under_way;
    struct op *spare;              /* ops to be used again, linked by `retry` */
    struct message_loader *loader; /* NULL without a journal */
    struct store_span span;        /* being read back */
    uint64_t wanted;               /* a message that something waits for; 0: none */
    bool had_wanted;               /* it had its turn */
    size_t demand_items;           /* what requests wait for; 0: none does */
    size_t demand_bytes;
    bool full;                      /* the disk was, for the last that asked for room of its own */
    usec_t refused_until[OP_KINDS]; /* monotonic: when an op of the kind may ask for room again */
    uint64_t kept_when_full;        /* bytes of KEEP records since it is */
    uint64_t
        room; /* what is left at least of what the last record that asked for some reserved in the journal */
    uint64_t used;      /* bytes that all ops so far have used of what others reserved */
    struct amount late; /* of ops under way */
    size_t
        move_limit; /* bytes that are moved at once when they are due; fewer when the disk had no room for that */
    size_t moving; /* MOVEs of what is due under way */
    uint64_t bits_id,
        bits_end; /* nothing below it is held, nor spoken of by what the journal has from that offset on */
    bool lacked_room;     /* the journal had none for the last removal */
    bool bits_owed;       /* some of what is held has no place for its bits */
    bool keeping;         /* a KEEP record is under way */
    size_t keep_changes;  /* of the queue, when it was last seen whether something should be kept */
    uint64_t keep_end;    /* and of the journal */
    struct op *gathering; /* moves that wait for messages that are away */
    struct id_ranges due; /* set aside by their timers in this turn */
    size_t due_bytes;
    char failure[256]; /* messages could not be read back: nothing more is */
    void *data;
};

/* named_queue.c */
/* Says in the journal where this opening's lease numbers begin: at the opening, when the record is about to be trimmed,
 * and when it was refused. */
void named_queue_append_open(struct named_queue *q);

/* named_queue_commit.c */
struct op *op_new(struct named_queue *q, enum op_kind kind, queue_done_fn *done, void *arg);
void op_free(struct op *o);
void op_free_spare(struct named_queue *q);
/* Finishes or undoes the op, tells its outcome and that of the duplicates that wait for it, and frees it. */
void op_finish(const struct journal_commit *c, void *arg);
/* Appends q->record followed by `texts`. The op is the journal's from then on, or refused and untouched. */
enum queue_result op_append(struct op *o, struct journal_append *a, const struct bytes *texts, size_t n,
    struct queue_now now, uint64_t *mark);
enum queue_result op_append_record(struct op *o, struct queue_now now);

/* named_queue_reserve.c */
/* What a record that adds so many messages reserves, so that each can be removed on a full disk, and what is delayed moved. */
size_t op_reserve(const struct named_queue *q, size_t n);
/* Once the op is committed so many messages will be delayed: counted in what is reserved from now on, until the op is decided. */
void op_expect_late(struct op *o, size_t n, uint64_t bytes);
void op_late_decided(struct op *o);
/* The same where a removal is said by bits, before that many are added. False: the disk is full. */
bool named_queue_reserve_bits(struct op *o, size_t n, struct queue_now now);
/* And for all that is held: 0, or -1 with errno; what could not be had is asked for again before the next are added. */
int named_queue_reserve_held(struct named_queue *q);
/* An op of the kind found the disk full so short a while ago that asking again is not worth it. One kind says nothing of another, which may
 * take less. */
bool named_queue_waits(const struct named_queue *q, enum op_kind kind, struct queue_now now);
/* Of an op whose record is q->record: a removal that bits shall say; one for which nothing is left; what it reserves, of an op
 * that by itself reserves nothing. */
bool op_bits_are_due(const struct op *o);
bool op_lacks_room(const struct op *o);
size_t op_reserve_again(const struct op *o);
/* It is about to be appended, in so many bytes; was decided. */
void op_use_room(struct op *o, size_t bytes);
void op_note_room(struct op *o, const struct journal_commit *c);
void op_give_room_back(struct op *o); /* it was not written */

/* named_queue_put.c */
/* The put is decided: its mark is not under way any more. */
void named_queue_mark_decided(struct named_queue *q, const struct op *o);
/* Memory only: the producer's mark is committed. */
void named_queue_mark_set(struct named_queue *q, const char *producer, uint64_t value);
void named_queue_marks_free(struct named_queue *q);

/* named_queue_disk.c */
/* The KEEP record of an op is committed, or refused. */
void named_queue_kept(struct op *o, const struct journal_commit *c);
/* After anything that changed what is held: trims, spills, reads ahead. */
void named_queue_maintain(struct named_queue *q);

/* named_queue_lease.c */
/* Goes on with what waits for messages that were away; anything but QUEUE_OK for `give_up` is what they are told instead. */
void named_queue_resume(struct named_queue *q, enum queue_result give_up);
void named_queue_notify_ready(struct named_queue *q);
/* What was set aside to be moved goes back to where it was; what is delayed is due at `retry_at`. */
void named_queue_put_back(struct named_queue *q, const struct id_ranges *ids, usec_t retry_at);
/* A MOVE is decided. Where what was due found no room, less is moved at once. */
void op_move_decided(struct op *o, enum journal_result r);

#endif
