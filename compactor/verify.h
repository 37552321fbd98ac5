/* verify: checks everything that a generation says about itself.
 *
 * 1. The size, record count and checksum of each file; the order of its lines; each line as the archive writes it
 *    (record_check); each record in the shard of its key.
 * 2. Each day is the sum of its hours, and each month of its days. The texts are the lookups.
 * 3. No hour of a subtotal has more counts than its total. An hour may have fewer counts: the counter may have been
 *    added later, or may be missing from an import. Such hours are reported. After an import, surplus counts are
 *    reported too, but are not an error.
 * 4. The generation equals its predecessor plus its slices, if both exist and the generation was not made by a change
 *    (change.h).
 *
 * Memory: the sums of one day and one month of a key, and the index of one file. Files are mapped.
 */
#ifndef MILLRACE_VERIFY_H
#define MILLRACE_VERIFY_H

#include "base/bytes.h"
#include "compactor/result.h"

struct verify_report {
    uint64_t generation, records, bytes;
    uint64_t unequal; /* hours and days of subtotals whose counts differ from their total's */
    char example[96]; /* the key of the first */
    bool compared;    /* with the generation before */
};

struct verify_spec {
    const char *archive;
    const char *slices; /* NULL: do not compare with the generation before */
    void (*on_progress)(uint64_t bytes, uint64_t total, void *arg); /* may be NULL */
    void *arg;
};

/* COMPACT_DAMAGED: the error names the file and the record. */
enum compact_result verify_archive(
    const struct verify_spec *spec, struct verify_report *report, struct error *error);

#endif
