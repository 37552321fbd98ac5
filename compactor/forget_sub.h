/* forget_sub: moves the counts of a sub key to the sub key `(other)` of the same records, or removes a member from sets.
 *
 *     u.l|LINK.c413,bitly:3 jehiah:2          ->  u.l|LINK.c413,(other):2 bitly:3
 *
 * forget_sub_scan reads the archive once, and collects the records `u.l|LINK.c413,(other):2`. A filter excludes the sub
 * key, and the merge adds the collected records as sources. So the subtotals still add up to their totals.
 *
 * If NS is the namespace of a unique counter, TEXT leaves every set of this counter. TEXT may also be the text of the
 * member's code (sets/set_code.h).
 *
 * 1. NS|TEXT consists of the namespace of a subtotal or a unique counter, and a sub key as text or in its stored form (a hash).
 * 2. The filter also excludes the lookup of the text, unless a remaining record uses the text.
 * 3. forget_sub_scan does not read slices. The run must merge no slices, because the filter would drop their counts of
 *    the sub key.
 * 4. A repeated forget_sub_scan collects nothing, and the run makes the same records again.
 * 5. Memory: bounded by external_sort.h. A record is never in memory as a whole.
 */
#ifndef MILLRACE_FORGET_SUB_H
#define MILLRACE_FORGET_SUB_H

#include "compactor/record_filter.h"
#include "compactor/result.h"
#include "counts/manifest.h"

struct forget_sub;

/* Returns NULL if the text has the form NS|TEXT, or a constant string with the reason why the text is refused. */
const char *forget_sub_check(const char *text);
/* Reads the current generation once. `text` has passed forget_sub_check. Always sets *out; free *out after the run.
 * COMPACT_USAGE: the archive does not have the subtotal. */
enum compact_result forget_sub_scan(const char *archive, const struct manifest *m, const char *text,
    size_t memory, struct forget_sub **out, struct error *error);
void forget_sub_free(struct forget_sub **f);
const struct record_filter *forget_sub_filter(const struct forget_sub *f);
/* The collected records; NULL if no record has the sub key. */
const struct count_sources *forget_sub_sources(const struct forget_sub *f);
/* True if the text leaves sets, because NS is the namespace of a unique counter. */
bool forget_sub_is_of_sets(const struct forget_sub *f);
/* *records: the number of records or sets with the sub key, without rollups. *lookups: the number of lookups that the filter
 * excludes. */
void forget_sub_report(const struct forget_sub *f, uint64_t *records, uint64_t *lookups);

#endif
