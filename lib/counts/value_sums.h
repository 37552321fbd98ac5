/* value_sums: for each total with a value (counters.h), the sum of the absolute values that it has counted.
 *
 * Each slice and the archive's manifest keep these sums. No sum of counts, in any order of merging, exceeds the sum of
 * the absolute values. So as long as archive and slices together stay within VALUE_SUM_MAX, every count fits 64 bits.
 * The aggregator rejects an event that would exceed VALUE_SUM_MAX, and an import is refused.
 *
 * The manifest also has the sum of the imported counts of each total without a value. An import that would exceed
 * VALUE_SUM_IMPORTED_MAX is refused, so that no number of events makes these counts exceed 64 bits.
 *
 * 1. The sums bound the subtotals of the total, too.
 * 2. The sums are upper bounds: they do not decrease when counts are dropped or forgotten. A recount computes new sums.
 *
 * A zeroed list is empty. A list is sorted by namespace.
 */
#ifndef MILLRACE_VALUE_SUMS_H
#define MILLRACE_VALUE_SUMS_H

#include "base/bytes.h"

#define VALUE_SUM_MAX ((uint64_t)INT64_MAX)
#define VALUE_SUM_IMPORTED_MAX (UINT64_C(1) << 62)
#define VALUE_SUM_NS_TEXT 34 /* buffer for the namespace of a total or a subtotal */

struct value_sum {
    char ns[VALUE_SUM_NS_TEXT];
    uint64_t sum; /* at most VALUE_SUM_MAX */
};
struct value_sums {
    struct value_sum *list;
    size_t n;
};

void value_sums_free(struct value_sums *s);
struct value_sums value_sums_copy(const struct value_sums *s);
/* Finds a namespace, or adds it with the sum 0. The namespace has less than VALUE_SUM_NS_TEXT bytes. The pointer is valid
 * until the list changes. */
struct value_sum *value_sums_at(struct value_sums *s, struct bytes ns);
/* Finds the total of a total's or subtotal's namespace, or returns NULL. */
struct value_sum *value_sums_find(const struct value_sums *s, struct bytes ns);
/* Adds the totals with a value of a canonical text that are not in the list. */
void value_sums_note(struct value_sums *s, const char *counters);
/* Adds to a sum. A sum over VALUE_SUM_MAX becomes VALUE_SUM_MAX; then value_sum_add returns false. */
bool value_sum_add(struct value_sum *s, uint64_t more);
/* Adds all sums of `from`. Returns NULL, or the namespace of a sum that exceeded VALUE_SUM_MAX. */
const char *value_sums_add(struct value_sums *s, const struct value_sums *from);

/* The absolute value of a count. */
static inline uint64_t value_magnitude(int64_t n)
{
    return n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
}

#endif
