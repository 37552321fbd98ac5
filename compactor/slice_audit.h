/* slice_audit: checks that the counts of a slice add up to its events.
 *
 * Each event is counted once under each counter of the slice (counters.h, rule 3). So the counts of each total, and of each
 * subtotal, add up to the number of events that the slice states. The audit adds up the counts while the compactor merges them,
 * before it publishes. A checksum shows that a block is the block that was written; the audit shows that no count is missing
 * or doubled.
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
/* Returns a source of the same records, which the audit adds up. Owns `run`, one of the slice's runs; the audit must outlive it. */
struct count_source *slice_audit_source(struct slice_audit *a, struct count_source *run);
/* Adds the counts that another audit of the same slice has seen: each audits a part of the records. */
void slice_audit_add(struct slice_audit *a, const struct slice_audit *part);
/* Call after all sources have ended. COMPACT_DAMAGED: the error names the slice and the counter. */
enum compact_result slice_audit_check(const struct slice_audit *a, struct error *error);

#endif
