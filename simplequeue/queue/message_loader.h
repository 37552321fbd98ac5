/* message_loader: reads spilled messages from a queue's journal, in the order of its records, on the journal's reader thread.
 *
 * 1. One request is in progress at a time. `each` gets the messages from the request's offset on, until it returns false or the journal
 *    ends. Then `done` is called. Both are called from journal_set_poll only.
 * 2. The open stream also serves the next request if its messages lie a little ahead, even inside the same record. So a record of many
 *    messages is read once when its messages are loaded in parts.
 * 3. A stream keeps a segment of the journal from being deleted until message_loader_release closes it.
 */
#ifndef SIMPLEQUEUE_MESSAGE_LOADER_H
#define SIMPLEQUEUE_MESSAGE_LOADER_H

#include "journal/journal.h"

struct message_loader;

struct message_loader_request {
    uint64_t offset;  /* of the first record to read: a committed one */
    uint64_t from_id; /* the lowest id wanted */
    bool in_order;    /* the messages lie in the order of their ids */
    /* Returns false to end the request. The bytes are borrowed until it returns. */
    bool (*each)(uint64_t id, struct bytes message, void *arg);
    /* `failure` is NULL, or the reason why reading stopped early. */
    void (*done)(const char *failure, void *arg);
    void *arg;
};

struct message_loader *message_loader_new(struct journal *j);
/* Drops a request in progress without calling its `done`. */
void message_loader_free(struct message_loader **r);
void message_loader_start(struct message_loader *r, const struct message_loader_request *ask);
bool message_loader_is_busy(const struct message_loader *r);
/* Closes the stream if it is below `offset`. */
void message_loader_release(struct message_loader *r, uint64_t offset);

#endif
