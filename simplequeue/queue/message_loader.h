/* readback: messages read back from a queue's journal, in the order of its records, on the journal's reader thread.
 *
 * 1. One reading at a time. `each` gets the messages from where the reading began on, until it says that it has
 *    enough or the journal ends; then `done` is called from journal_set_poll, or from inside message_loader_start when the
 *    journal cannot be opened there.
 * 2. A reading that begins where the last one left off goes on in the same stream, also inside a record, so that a
 *    record of many messages is read once though it is wanted in parts.
 * 3. A stream holds the journal's segment that it is in: message_loader_release lets go of it.
 */
#ifndef SIMPLEQUEUE_MESSAGE_LOADER_H
#define SIMPLEQUEUE_MESSAGE_LOADER_H

#include "journal/journal.h"

struct message_loader;

struct message_loader_request {
    uint64_t offset;  /* of a record: the messages wanted are in it or behind it */
    uint64_t from_id; /* nothing below it is wanted */
    bool in_order;    /* and what is wanted lies in the order of ids */
    /* False: enough. The bytes are good until it returns. */
    bool (*each)(uint64_t id, struct bytes message, void *arg);
    /* `failure` is NULL, or says why the reading broke off. */
    void (*done)(const char *failure, void *arg);
    void *arg;
};

struct message_loader *message_loader_new(struct journal *j);
/* A reading under way is dropped, its `done` not called. */
void message_loader_free(struct message_loader **r);
void message_loader_start(struct message_loader *r, const struct message_loader_request *ask);
bool message_loader_is_busy(const struct message_loader *r);
/* Nothing below `offset` is wanted any more. */
void message_loader_release(struct message_loader *r, uint64_t offset);

#endif
