/* batch: the messages of one reply to /reserve, with the state of each message. An opening is a run of the queue's
 * daemon.
 *
 * The ids in a batch ascend. Messages are processed in order. A message is *settled* when it is neither WAITING nor
 * POISON, so all messages before the first WAITING or POISON message are settled. */
#ifndef MILLRACE_BATCH_H
#define MILLRACE_BATCH_H

#include "base/bytes.h"

enum message_state {
    MESSAGE_WAITING,
    MESSAGE_DONE,   /* delivered; a dispatcher must acknowledge it */
    MESSAGE_TAKEN,  /* delivered; the acknowledgement is in progress */
    MESSAGE_POISON, /* the message can never be delivered and must be buried */
    MESSAGE_BURIED,
    MESSAGE_GIVEN_BACK, /* not delivered: the reader returned the message to the queue when it stopped */
};

#define MESSAGE_REASON_MAX 200

struct message {
    uint64_t id, tries;
    struct bytes text; /* points into the memory of the batch */
    enum message_state state;
    char *reason; /* reason why a POISON message cannot be delivered */
};

struct batch {
    uint64_t lease;
    /* In a reply to a follower: the opening in which the ids of all messages were assigned; "": unknown. */
    char opening[NAME_LEN_MAX + 1];
    struct message *messages;
    size_t n;
    struct buf memory;
};

/* Parses a body in which each message consists of a line `ID TRIES LENGTH`, LENGTH bytes, and an LF. Copies the body.
 * If the framing is invalid, or the ids do not ascend, returns false with an empty batch. */
bool batch_parse(struct bytes body, uint64_t lease, struct batch *out);
void batch_free(struct batch *b); /* also zeroes the batch */

/* Returns the index of the first WAITING or POISON message, or n if all messages are settled. */
size_t batch_unsettled(const struct batch *b);
/* Makes message i POISON. Truncates the reason to MESSAGE_REASON_MAX bytes. */
void batch_mark_poison(struct batch *b, size_t i, const char *reason);

#endif
