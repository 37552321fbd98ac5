/* batch: the messages of one lease, parsed from a reply of /reserve, and the state of each.
 *
 * Ids rise within a batch. Messages are processed in order, so all messages before the first WAITING or POISON one are settled. */
#ifndef MILLRACE_BATCH_H
#define MILLRACE_BATCH_H

#include "base/bytes.h"

enum message_state {
    MESSAGE_WAITING,
    MESSAGE_DONE,   /* delivered: to be acknowledged */
    MESSAGE_TAKEN,  /* delivered, and already listed by batch_take_done */
    MESSAGE_POISON, /* cannot be delivered: to be buried */
    MESSAGE_BURIED,
    MESSAGE_GIVEN_BACK, /* returned to the queue undelivered when the reader stopped */
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

/* Parses a sequence of `ID TRIES LENGTH\n` bytes `\n`; copies the body. Returns false, and an empty batch, if the framing is invalid
 * or the ids do not rise. */
bool batch_parse(struct bytes body, uint64_t lease, struct batch *out);
void batch_free(struct batch *b); /* and zeroes it */

/* Returns the index of the first WAITING or POISON message, or n if all are settled. */
size_t batch_unsettled(const struct batch *b);
void batch_mark_poison(struct batch *b, size_t i, const char *reason); /* truncated to MESSAGE_REASON_MAX */
/* Appends `LEASE:A-B,C`, the ids of the DONE messages. Returns false if there are none. */
bool batch_append_done(const struct batch *b, struct buf *out);
/* As batch_append_done, and marks the messages TAKEN. */
void batch_take_done(struct batch *b, struct buf *out);

#endif
