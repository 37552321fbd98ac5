/* record_scan: passes each record of an archive's current generation to a visitor. A removal of a key scans the archive
 * before the merge.
 *
 * Damage to a file may be found only at the file's end, so the visitor's results are valid only after COMPACT_OK. */
#ifndef MILLRACE_RECORD_SCAN_H
#define MILLRACE_RECORD_SCAN_H

#include "compactor/result.h"
#include "counts/count_merge.h"
#include "counts/manifest.h"
#include "counts/records.h"

/* `s` is at a record, whose values the visitor may read. `key` borrows from s->key, which is valid until the visitor
 * reads the first value. */
typedef enum compact_result record_visit(
    void *arg, struct count_source *s, const struct record_key *key, struct error *error);

/* Ends after the last record, or when the visitor returns a result other than COMPACT_OK. */
enum compact_result record_scan(
    const char *archive, const struct manifest *m, record_visit *visit, void *arg, struct error *error);

/* Adds 1 to *sets if the current record of the source, a set, has the member. */
enum compact_result record_scan_find_member(
    struct count_source *s, uint64_t member, uint64_t *sets, struct error *error);

#endif
