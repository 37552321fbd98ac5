/* record_filter: a source of counts that excludes some counts of another source.
 *
 * 1. The filter decides by key and period, for each record of a subtotal, each hour of a total, and each lookup. The
 *    filter may also exclude one sub key from a subtotal's record.
 * 2. A total without a remaining hour, a subtotal's record without a remaining sub key, and a set without a remaining
 *    member are excluded.
 * 3. Several threads may call a filter's callbacks at once, each with its own sources.
 */
#ifndef MILLRACE_RECORD_FILTER_H
#define MILLRACE_RECORD_FILTER_H

#include "counts/count_merge.h"
#include "counts/manifest.h"
#include "counts/records.h"

struct record_filter {
    /* Returns false to exclude the counts. `start` is the first second of the subtotal's period, or of the total's
     * hour or quarter hour. `start` is 0 for a lookup, and for a total if by_hour is false. */
    bool (*keep)(void *arg, const struct record_key *key, int64_t start);
    void *arg;
    bool
        by_hour; /* call keep for each hour or quarter hour of a total; false: call keep once for each total */
    /* Returns the stored sub key to exclude from this subtotal's record, or BYTES_NONE. NULL: no sub key is excluded
     * from any record. */
    struct bytes (*without)(void *arg, const struct record_key *key);
    /* Returns true to exclude the member `member` from this set. NULL: no member is excluded. */
    bool (*without_member)(void *arg, const struct record_key *key);
    uint64_t member;
};

/* A callback that excludes the rollups that are derived from other records of the archive. Days whose hours were dropped, and
 * sets of days, are kept. */
bool record_filter_is_counted(void *manifest, const struct record_key *key, int64_t start);
/* Returns true if `ns` is `wanted`, or a subtotal of `wanted`: "u" includes "c.u". */
bool record_filter_has_namespace(struct bytes ns, struct bytes wanted);
/* Owns `inner`. The filter must outlive the source. */
struct count_source *record_filter_source(const struct record_filter *f, struct count_source *inner);

#endif
