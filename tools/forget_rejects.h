/* forget_rejects: erases matching entries in the rejects of an aggregator.
 *
 * Each entry is overwritten in place with an erased form of the same length, because the aggregator may have the newest
 * file open.
 *
 * 1. The erased forms are first written to the file `erasing` in the same directory, and synced. The file `erasing` is
 *    removed after the entries are overwritten and synced. After a crash, the next search first writes the entries of
 *    `erasing`, so that no entry stays partly erased.
 * 2. A search reads only committed entries. The aggregator does not change these entries.
 * 3. Only one search of a directory runs at a time. */
#ifndef MILLRACE_FORGET_REJECTS_H
#define MILLRACE_FORGET_REJECTS_H

#include "counts/rejects.h"
#include "tools/forget_match.h"

#define FORGET_REJECTS_FILE "erasing"

struct forget_rejects {
    const char *dir; /* directory of the rejects */
    struct rejects_place from, end;
    struct forget_match *match;
    bool dry; /* change nothing */

    uint64_t read, matched,
        failed; /* results: numbers of entries; failed: damaged, or too short to be erased */
    struct error error;
};

/* Erases matching entries. Returns 0, also if the directory does not exist, or an exit status with the error. */
int forget_rejects_erase(struct forget_rejects *f);

extern size_t forget_rejects_batch; /* maximum size of the file `erasing`; tests may change this value */

#endif
