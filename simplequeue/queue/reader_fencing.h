/* epochs: which release was the last under each reader's name, so that of two readers under one name the older
 * can be told that it has been replaced.
 *
 * A reader begins with a release, which gives it an epoch, and shows that epoch when it reserves. Whoever released
 * later under the same name has another, so what the older one sends from then on is refused.
 *
 * 1. Epochs are never 0 and never given twice under one queue id, also not by another start of the daemon: they
 *    come from the sequence of the queue's lease numbers.
 * 2. The table holds FENCED_READERS_MAX names; the one that released longest ago goes. A name that is not in it has no
 *    current epoch: whoever shows one begins again, which is always safe.
 * 3. Memory only: after a restart every reader begins again, as its leases are gone too.
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
