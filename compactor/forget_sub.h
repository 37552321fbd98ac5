/* forget_sub: moves the counts of a sub key to the sub key `(other)` of the same records.
 *
 *     u.l|LINK.c413,bitly:3 jehiah:2          ->  u.l|LINK.c413,(other):2 bitly:3
 *
 * One pass over the archive collects the records `u.l|LINK.c413,(other):2`. A filter leaves the sub key out, and the merge adds the
 * collected records as sources, so the subtotals still add up to their totals.
 *
 * 1. NS|TEXT names a subtotal and a sub key: a text, or its stored form (a hash).
 * 2. The lookup of the text goes, too, unless a remaining record uses the text.
 * 3. The pass does not see slices, so the run must merge none: the filter would drop their counts of the sub key.
 * 4. Repeated, the pass collects nothing, and the run makes the same records again.
 * 5. Memory: that of external_sort.h. Records are never held whole.
 */
#ifndef MILLRACE_FORGET_SUB_H
#define MILLRACE_FORGET_SUB_H

#include "compactor/record_filter.h"
#include "compactor/result.h"
#include "counts/manifest.h"

struct forget_sub;

/* Returns NULL if the text is NS|TEXT, or the reason why it is not, a constant text. */
const char *forget_sub_check(const char *text);
/* Reads the current generation once. `text` has passed forget_sub_check. Always sets *out; free it after the run. COMPACT_REFUSED:
 * the archive does not have the subtotal. */
enum compact_result forget_sub_scan(const char *archive, const struct manifest *m, const char *text,
    size_t memory, struct forget_sub **out, struct error *error);
void forget_sub_free(struct forget_sub **f);
const struct record_filter *forget_sub_filter(const struct forget_sub *f);
/* The collected records; NULL if no record has the sub key. */
const struct count_sources *forget_sub_sources(const struct forget_sub *f);
/* The number of records with the sub key, without rollups, and of lookups that the filter leaves out. */
void forget_sub_report(const struct forget_sub *f, uint64_t *records, uint64_t *lookups);

#endif
