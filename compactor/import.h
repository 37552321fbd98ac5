/* import: reads files of records (docs/formats/records.md), sorted or not, or CSV files of counts (import_csv.h),
 * as sources of counts for a run.
 *
 * 1. Every line passes record_check. Otherwise the import publishes nothing and fails with the file and the number of
 *    the line.
 * 2. A checksum of the unpacked text identifies a file. The checksum of a CSV file also covers the name of its counter.
 *    A file that the archive's manifest lists, or that occurs twice in one import, is refused unless `again` is set.
 * 3. All files of one import count as one text. A rollup whose hours or days are in the text is derived from these
 *    again, and a day must be the sum of its hours. A day without its hours is accepted only before hours_from. A
 *    month without its days is refused. The set of a day is united with the sets of its hours. For a counter by hour,
 *    the set of a day without its hours is accepted only before hours_from, too.
 * 4. Subtotals need not add up to totals: an import may carry only some of the counters.
 * 5. The records of each part of the shards are sorted separately, so that a merge can read each part in a thread.
 * 6. Only a counter with a value has counts that are 0 or negative. For a counter that is not in the archive, the
 *    configuration says whether it has a value.
 * 7. The parts share the memory. A part needs the memory of its external_sort, plus twice the length of its longest
 *    line. */
#ifndef MILLRACE_IMPORT_H
#define MILLRACE_IMPORT_H

#include "compactor/import_csv.h"
#include "compactor/result.h"
#include "counts/count_merge.h"
#include "counts/manifest.h"

struct import_spec {
    char *const *files; /* paths; "-" is standard input */
    size_t n_files;
    const char *directory; /* directory for temporary files, which have no names */
    size_t memory;
    bool again;
    const struct manifest *archive; /* the current generation */
    const char *counters; /* canonical text of the configured counters; NULL: no configuration was given */
    int64_t hours_from;   /* as in the manifest of the new generation */
    uint32_t shards;      /* number of shards of the new generation */
    uint32_t parts;       /* at least 1; see import_parts_max */
    const struct import_csv_spec *csv; /* how to read CSV files; NULL: the files have records */
    /* Called at intervals; may be NULL. */
    void (*on_progress)(uint64_t bytes, uint64_t total, uint64_t records, void *arg);
    void *arg;
};

/* Memory for each part. With less memory, a part has more temporary files, which are all open during the merge. */
#define IMPORT_PART_MEMORY ((size_t)64 << 20)
/* The maximum number of parts for this memory. */
static inline uint32_t import_parts_max(size_t memory)
{
    return memory > IMPORT_PART_MEMORY ? (uint32_t)(memory / IMPORT_PART_MEMORY) : 1;
}

struct import;

/* Reads and sorts all files. Always sets *out; free it after the run. */
enum compact_result import_read(const struct import_spec *spec, struct import **out, struct error *error);
void import_free(struct import **i);

/* The results of import_parts (`parts` of run.h) and import_entries are valid until import_free. */
const struct count_sources *import_parts(const struct import *i);
const struct manifest_import *import_entries(const struct import *i, size_t *n);
/* For each total with a value, and each total that the archive does not have: the largest sum of absolute values of
 * the total and its subtotals, which bounds all of them. */
const struct value_sums *import_sums(const struct import *i);
/* The lines, in the canonical text of the configured counters, of the imported counters with a value that the archive
 * does not have. */
const char *import_new_counters(const struct import *i);
/* The days and months of CSV files; NULL: the files are records. */
const struct coarse *import_coarse(const struct import *i);
/* The extreme periods of the imported counts. */
struct import_periods {
    int64_t newest_hour;    /* the latest hour whose counts are not from quarter hours; 0: none */
    int64_t oldest_quarter; /* the earliest quarter hour; 0: none */
};
struct import_periods import_periods(const struct import *i);
/* The numbers of rows of CSV files that were skipped, and of their lines. *first names the first line of the first
 * such row, and the reason; empty: no row was skipped. */
struct import_skipped {
    uint64_t rows, lines;
};
struct import_skipped import_skipped(const struct import *i, const char **first);
/* The number of lookups with the same hash and different texts that the sort has found. */
uint64_t import_collisions(const struct import *i, const char **key);

#endif
