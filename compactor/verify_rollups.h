/* verify_rollups: checks the subtotals of a shard, given in order, against their rollups and totals.
 *
 * A month precedes its days, and a day its hours. So the check keeps the rollups' lines, adds up the hours, and compares when
 * the period ends. */
#ifndef MILLRACE_VERIFY_ROLLUPS_H
#define MILLRACE_VERIFY_ROLLUPS_H

#include "archive/sorted_text.h"
#include "compactor/verify.h"
#include "counts/records.h"

struct verify_rollups;

/* `text` is the whole shard, in which the totals are found. Borrowed, with all lines, until the end. */
struct verify_rollups *verify_rollups_new(
    const struct sorted_text *text, int64_t hours_from, struct verify_report *report);
void verify_rollups_free(struct verify_rollups **v);

/* Takes the next subtotal. Returns NULL, or why the records before it are wrong; *key is then the wrong record's key. */
const char *verify_rollups_add(
    struct verify_rollups *v, const struct record_key *key, struct bytes line, struct bytes *wrong);
/* The same for the last periods. */
const char *verify_rollups_end(struct verify_rollups *v, struct bytes *wrong);
/* Whether an hour or a day of a subtotal has more counts than its total. */
bool verify_rollups_has_more(const struct verify_rollups *v);

#endif
