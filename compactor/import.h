/* import: reads files of records (docs/formats/records.md), sorted or not, or CSV files of counts (import_csv.h),
 * as sources of counts for a run.
 *
 * 1. Every line passes record_check, or the import is refused with the file and the number of the line. Nothing
 *    was published then.
 * 2. A checksum of the unpacked text identifies a file. The checksum of a CSV file also covers the name of its counter.
 *    A file that the archive's manifest lists, or that occurs twice in one import, is refused unless `again` is set.
 * 3. All files of one import are one text. A rollup is left out if the text has hours or days of its period, from
 *    which it is derived; a day must be their sum. A day without its hours is kept if it is before hours_from; else
 *    it is refused, as is a month without its days.
 *    The set of a day is united with those of its hours. For a counter by hour, the set of a day without its hours is
 *    refused as the counts of such a day are.
 * 4. Subtotals need not add up to totals: an import may carry only some of the counters.
 * 5. The records of each part of the shards are sorted by themselves, so that a merge can read the parts in
 *    several threads.
 * 6. Only a counter with a value has counts that are 0 or negative. A counter that the archive does not have is
 *    as configured.
 * 7. The parts share the memory. Memory: the bound of external_sort for each part, and besides, for each part, its
 *    longest line twice. */
#ifndef MILLRACE_IMPORT_H
#define MILLRACE_IMPORT_H

#include "compactor/import_csv.h"
#include "compactor/result.h"
#include "counts/count_merge.h"
#include "counts/manifest.h"

struct import_spec {
    char *const *files; /* paths; "-" is standard input */
    size_t n_files;
    const char *directory; /* for temporary files without names */
    size_t memory;
    bool again;
    const struct manifest *archive; /* the current generation */
    const char *counters; /* canonical text of the configured counters; NULL: no configuration was given */
    int64_t hours_from;   /* of the generation to be made */
    uint32_t shards;      /* of the generation to be made */
    uint32_t parts;       /* at least 1; see import_parts_max */
    const struct import_csv_spec *csv; /* the files are CSV; NULL: records */
    /* Called at intervals; may be NULL. */
    void (*on_progress)(uint64_t bytes, uint64_t total, uint64_t records, void *arg);
    void *arg;
};

/* More parts have more and shorter runs in temporary files, all of which are open during the merge. */
#define IMPORT_PART_MEMORY ((size_t)64 << 20)
/* The parts for which the memory suffices. */
static inline uint32_t import_parts_max(size_t memory)
{
    return memory > IMPORT_PART_MEMORY ? (uint32_t)(memory / IMPORT_PART_MEMORY) : 1;
}

struct import;

/* Reads and sorts all files. Always sets *out; free it after the run. */
enum compact_result import_read(const struct import_spec *spec, struct import **out, struct error *error);
void import_free(struct import **i);

/* Both are valid until import_free. The parts are those of run.h. */
const struct count_sources *import_parts(const struct import *i);
const struct manifest_import *import_entries(const struct import *i, size_t *n);
/* The sums of absolute values of each counter with a value, and of each counter that the archive does not have. Only for
 * the sum of a counter's subtotals that is the largest. */
const struct value_sums *import_sums(const struct import *i);
/* The lines, in the canonical text of the configured counters, of the imported counters with a value that the archive
 * does not have. */
const char *import_new_counters(const struct import *i);
/* The days and months of CSV files; NULL: the files are records. */
const struct coarse *import_coarse(const struct import *i);
/* The periods of the imported counts. */
struct import_periods {
    int64_t newest_hour;    /* the latest hour with counts of its own; 0: none */
    int64_t oldest_quarter; /* the earliest quarter hour; 0: none */
};
struct import_periods import_periods(const struct import *i);
/* Rows of CSV files that were left out, and their lines. *first is the first line of the first row, with the
 * reason; empty: none was. */
struct import_skipped {
    uint64_t rows, lines;
};
struct import_skipped import_skipped(const struct import *i, const char **first);
/* Lookups of one hash with different texts, as far as the sort has met them. */
uint64_t import_collisions(const struct import *i, const char **key);

#endif
