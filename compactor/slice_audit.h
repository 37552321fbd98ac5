/* slice_audit: checks that the counts of a slice add up to its events.
 *
 * Each event is counted once under each counter of the slice (counters.h, rule 4). So the counts of each total, and of
 * each subtotal, add up to the number of events in the slice's metadata. A total with a value or `having` has no such
 * number. Its subtotals add up to the same sum as the total, and no sum exceeds the slice's sum of absolute values. The audit adds up the counts while the
 * compactor merges them, before the compactor publishes a generation. Checksums show that each block is unchanged; the
 * audit shows that no count is missing or doubled.
 */
#ifndef MILLRACE_SLICE_AUDIT_H
#define MILLRACE_SLICE_AUDIT_H

#include "compactor/result.h"
#include "counts/count_merge.h"
#include "counts/slice_state.h"

struct slice_audit;

/* `path` appears in errors; copied. */
struct slice_audit *slice_audit_new(const char *path, const struct slice_state *state);
void slice_audit_free(struct slice_audit **a);
/* Returns a source that passes on the records of `run`, one of the slice's runs, and adds up their counts. The
 * source owns `run`. The audit must outlive the source. */
struct count_source *slice_audit_source(struct slice_audit *a, struct count_source *run);
/* Adds the sums of another audit, which has audited another part of the same slice's records. */
void slice_audit_add(struct slice_audit *a, const struct slice_audit *part);
/* Compares the sums with the slice's events and with each other. Call slice_audit_check after all sources have ended. COMPACT_DAMAGED:
 * the error names the slice and the counter. */
enum compact_result slice_audit_check(const struct slice_audit *a, struct error *error);

#endif
