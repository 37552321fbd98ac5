/* forget_rejects: erases matching entries among the rejects of an aggregator.
 *
 * The aggregator may have the newest file open, so an erased entry overwrites the entry in place, with the same length.
 *
 * 1. The file `erasing` beside the rejects first gets the erased entries, synced, and is removed once they are written and
 *    synced. After a crash, the next search first writes what `erasing` has, so that no entry stays half erased.
 * 2. A search reads only committed entries, which the aggregator does not change.
 * 3. One search of a directory at a time. */
#ifndef MILLRACE_FORGET_REJECTS_H
#define MILLRACE_FORGET_REJECTS_H

#include "counts/rejects.h"
#include "tools/forget_match.h"

#define FORGET_REJECTS_FILE "erasing"

struct forget_rejects {
    const char *dir; /* of the rejects */
    struct rejects_place from, end;
    struct forget_match *match;
    bool dry; /* change nothing */

    uint64_t read, matched, failed; /* results; failed: damaged, or too short to be erased */
    struct error error;
};

/* Returns 0, or an exit status with the error. Without the directory there are no entries. */
int forget_rejects_erase(struct forget_rejects *f);

extern size_t forget_rejects_batch; /* bytes of `erasing`; replaceable for tests */

#endif
