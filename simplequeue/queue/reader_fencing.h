/* reader_fencing: the latest epoch of each reader's name, to refuse a reader that another one has replaced.
 *
 * A reader starts with a release, which gives it an epoch, and sends that epoch with each reserve. A later release under the same name
 * gives a higher epoch, so requests with the older one are refused.
 *
 * 1. Epochs are never 0 and never repeat under one queue id, not even after a restart: they are numbers of the queue's lease sequence.
 * 2. The table holds FENCED_READERS_MAX names and forgets the one that released longest ago. An unknown name has no epoch: a reader
 *    that sends one starts again, which is always safe.
 * 3. In memory only: after a restart every reader starts again, because its leases are gone too.
 */
#ifndef SIMPLEQUEUE_READER_FENCING_H
#define SIMPLEQUEUE_READER_FENCING_H

#include "base/bytes.h"

#define FENCED_READERS_MAX 64

struct epoch {
    char reader[NAME_LEN_MAX + 1];
    uint64_t epoch;
};
/* A zeroed one is empty. Owns its memory. */
struct reader_fencing {
    struct epoch *at;
    size_t n;
};
void reader_fencing_free(struct reader_fencing *e);
/* `epoch` is higher than any before. */
void reader_fencing_begin(struct reader_fencing *e, const char *reader, uint64_t epoch);
/* 0 when none is known. */
uint64_t reader_fencing_current(const struct reader_fencing *e, const char *reader);

#endif
