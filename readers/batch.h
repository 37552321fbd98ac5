/* batch: the messages of one lease, as a reply of /reserve framed them, and what became of each.
 *
 * Ids rise within a batch. Messages are worked on in their order: everything before the first that is WAITING or
 * POISON is settled. */
#ifndef MILLRACE_BATCH_H
#define MILLRACE_BATCH_H

#include "base/bytes.h"

enum message_state {
    MESSAGE_WAITING,
    MESSAGE_DONE,   /* delivered, now or earlier: to be acknowledged */
    MESSAGE_TAKEN,  /* it was done, and batch_take_done has listed it */
    MESSAGE_POISON, /* can never be delivered: to be buried */
    MESSAGE_BURIED,
    MESSAGE_GIVEN_BACK, /* not begun when the reader was stopped */
};

#define MESSAGE_REASON_MAX 200

struct message {
    uint64_t id, tries;
    struct bytes text; /* in the batch's memory */
    enum message_state state;
    char *reason; /* of a poison message */
};

struct batch {
    uint64_t lease;
    struct message *messages;
    size_t n;
    struct buf memory;
};

/* Reads `ID TRIES LENGTH\n` bytes `\n`, again and again. The body is copied. False, and an empty batch, when it is
 * framed otherwise or ids do not rise. */
bool batch_parse(struct bytes body, uint64_t lease, struct batch *out);
void batch_free(struct batch *b); /* back to zeroed */

/* The first message that is WAITING or POISON; n when all are settled. */
size_t batch_unsettled(const struct batch *b);
void batch_mark_poison(struct batch *b, size_t i, const char *reason); /* cut at MESSAGE_REASON_MAX */
/* Appends `LEASE:A-B,C` of what is DONE. Nothing, and false, when nothing is. */
bool batch_append_done(const struct batch *b, struct buf *out);
void batch_take_done(struct batch *b, struct buf *out); /* likewise; they are not listed again */

#endif
