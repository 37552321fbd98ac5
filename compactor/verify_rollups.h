/* verify_rollups: checks the subtotals of a shard, given in order, against their rollups and totals.
 *
 * A month precedes its days, a day its hours, and an hour its quarter hours. So the check keeps the rollups' lines, adds up
 * the other records, and compares the sum with the rollup when the period ends. */
#ifndef MILLRACE_VERIFY_ROLLUPS_H
#define MILLRACE_VERIFY_ROLLUPS_H

#include "archive/sorted_text.h"
#include "compactor/verify.h"
#include "counts/manifest.h"
#include "counts/records.h"
#include "counts/value_sums.h"

struct verify_rollups;

/* `text` is the whole shard, in which the check finds the totals. `values` names the totals with a value. `text`,
 * `manifest`, `values` and all lines are borrowed until verify_rollups_free. */
struct verify_rollups *verify_rollups_new(const struct sorted_text *text, const struct manifest *manifest,
    const struct value_sums *values, struct verify_report *report);
void verify_rollups_free(struct verify_rollups **v);

/* Adds the next subtotal. Returns NULL, or the reason why a record before this subtotal is wrong; if there is a reason,
 * *wrong is the key of the wrong record. */
const char *verify_rollups_add(
    struct verify_rollups *v, const struct record_key *key, struct bytes line, struct bytes *wrong);
/* Checks the last periods, and returns as verify_rollups_add does. */
const char *verify_rollups_end(struct verify_rollups *v, struct bytes *wrong);
/* Returns true if a period of a subtotal has more counts than its total. Values are not compared, because a subtotal
 * without one of the negative values has a larger sum than its total. */
bool verify_rollups_has_more(const struct verify_rollups *v);

#endif
