/* readback: messages read back from a queue's journal, in the order of its records, on the journal's reader thread.
 *
 * 1. One reading at a time. `each` gets the messages from where the reading began on, until it says that it has
 *    enough or the journal ends; then `done` is called from journal_set_poll, or from inside readback_start when the
 *    journal cannot be opened there.
 * 2. A reading that begins where the last one left off goes on in the same stream, also inside a record, so that a
 *    record of many messages is read once though it is wanted in parts.
 * 3. A stream holds the journal's segment that it is in: readback_rest lets go of it.
 */
#ifndef SIMPLEQUEUE_READBACK_H
#define SIMPLEQUEUE_READBACK_H

#include "journal/journal.h"

struct readback;

struct readback_ask {
    uint64_t offset;  /* of a record: the messages wanted are in it or behind it */
    uint64_t from_id; /* nothing below it is wanted */
    bool in_order;    /* and what is wanted lies in the order of ids */
    /* False: enough. The bytes are good until it returns. */
    bool (*each)(uint64_t id, struct bytes message, void *arg);
    /* `failure` is NULL, or says why the reading broke off. */
    void (*done)(const char *failure, void *arg);
    void *arg;
};

struct readback *readback_new(struct journal *j);
/* A reading under way is dropped, its `done` not called. */
void readback_free(struct readback **r);
void readback_start(struct readback *r, const struct readback_ask *ask);
bool readback_is_busy(const struct readback *r);
/* Nothing below `offset` is wanted any more. */
void readback_rest(struct readback *r, uint64_t offset);

#endif
