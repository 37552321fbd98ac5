/* record_filter: a source of counts that leaves out some counts of another source.
 *
 * 1. The filter decides by key and period. It sees subtotals as they are, each hour of a total, and each lookup. It may also name a
 *    sub key that it leaves out of a subtotal's record.
 * 2. A total without a remaining hour, and a subtotal's record without a remaining sub key, are left out.
 * 3. The callback of a filter may be called by several threads at once, each with its own sources.
 */
#ifndef MILLRACE_RECORD_FILTER_H
#define MILLRACE_RECORD_FILTER_H

#include "counts/count_merge.h"
#include "counts/manifest.h"
#include "counts/records.h"

struct record_filter {
    /* False: leaves the counts out. `start` is the first second of the period: of a subtotal's record, or of an hour of a
     * total. It is 0 for a lookup, and for a total if by_hour is false. */
    bool (*keep)(void *arg, const struct record_key *key, int64_t start);
    void *arg;
    bool by_hour; /* keep is called for each hour of a total; else once for each total */
    /* The stored sub key to leave out of this subtotal's record; BYTES_NONE: none. NULL: none of any record. */
    struct bytes (*without)(void *arg, const struct record_key *key);
};

/* A callback that leaves out the rollups of an archive, which are derived from its hours. Days whose hours were dropped are counts. */
bool record_filter_is_counted(void *manifest, const struct record_key *key, int64_t start);
/* True if `ns` is `wanted`, or a subtotal of it: "u" includes "c.u". */
bool record_filter_has_namespace(struct bytes ns, struct bytes wanted);
/* Owns `inner`. The filter must outlive the source. */
struct count_source *record_filter_source(const struct record_filter *f, struct count_source *inner);

#endif
