/* batch: the messages of one reply of /reserve, with the state of each message.
 *
 * The ids in a batch ascend. Messages are processed in order. A message is *settled* when it is neither WAITING nor
 * POISON, so all messages before the first WAITING or POISON message are settled. */
#ifndef MILLRACE_BATCH_H
#define MILLRACE_BATCH_H

#include "base/bytes.h"

enum message_state {
    MESSAGE_WAITING,
    MESSAGE_DONE,   /* delivered; a dispatcher must acknowledge it */
    MESSAGE_TAKEN,  /* delivered, and its acknowledgement is under way */
    MESSAGE_POISON, /* cannot be delivered, must be buried */
    MESSAGE_BURIED,
    MESSAGE_GIVEN_BACK, /* the reader stopped and returned it to the queue undelivered */
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
    char opening[NAME_LEN_MAX + 1]; /* a reply to a follower: of all messages; "": unknown */
    struct message *messages;
    size_t n;
    struct buf memory;
};

/* Parses a body in which each message has a line `ID TRIES LENGTH`, LENGTH bytes, and an LF. Copies the body. If the
 * framing is invalid or the ids do not ascend, returns false and an empty batch. */
bool batch_parse(struct bytes body, uint64_t lease, struct batch *out);
void batch_free(struct batch *b); /* and zeroes it */

/* Returns the index of the first WAITING or POISON message, or n if all are settled. */
size_t batch_unsettled(const struct batch *b);
void batch_mark_poison(struct batch *b, size_t i, const char *reason); /* truncated to MESSAGE_REASON_MAX */

#endif
