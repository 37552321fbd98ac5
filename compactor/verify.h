/* verify: checks that the files of a generation agree with its manifest and with each other.
 *
 * 1. Each file has the size, record count and checksum of the manifest. Its lines are in order and in the archive's
 *    form (record_check), and each record is in the shard of its key.
 * 2. Each day is the sum of its hours, and each month of its days. The files `texts` of the manifest contain exactly
 *    the lookups (the texts of hashed keys).
 * 3. No hour of a subtotal has more counts than its total. An hour of a subtotal may have fewer counts than the total,
 *    if the counter was added later or is missing from an import; verify reports such hours. After an import, verify
 *    also reports surplus counts, but they are not an error.
 * 4. The generation equals its predecessor plus its slices, if both exist and the generation was not made by a change
 *    (change.h).
 *
 * Memory: the sums of one day and one month of a key, and the index of one file. The files are mapped.
 */
#ifndef MILLRACE_VERIFY_H
#define MILLRACE_VERIFY_H

#include "base/bytes.h"
#include "compactor/result.h"

struct verify_report {
    uint64_t generation, records, bytes;
    uint64_t unequal; /* number of hours and days of subtotals whose counts differ from the total's counts */
    char example[96]; /* the key of the first such hour or day */
    bool compared;    /* the generation was compared with its predecessor */
};

struct verify_spec {
    const char *archive;
    const char *slices; /* directory of the slices; NULL: do not compare with the predecessor */
    void (*on_progress)(uint64_t bytes, uint64_t total, void *arg); /* may be NULL */
    void *arg;
};

/* COMPACT_DAMAGED: the error names the file and the record. */
enum compact_result verify_archive(
    const struct verify_spec *spec, struct verify_report *report, struct error *error);

#endif
