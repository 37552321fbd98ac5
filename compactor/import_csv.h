/* import_csv: turns the rows of a CSV file of counts into records (docs/guide/import.md). The first row names the
 * columns.
 *
 *     date,key,sub,count             c.u|jehiah.o1v,JP:12
 *     2024-01-31,jehiah,JP,12
 *
 * 1. Keys are those of events with these values: functions, max_text and lookups are the same. A plain value also
 *    stands for a URL with this host, or for a query with this parameter.
 * 2. A date is a month, a day, an hour or a time. A count belongs to the first UTC hour that starts within its
 *    month, day or hour, or to the first quarter hour from quarters_since on. Months and days are in import_csv_coarse.
 * 3. Lines that begin with # before the names of the columns are comments.
 * 4. A wrong row has a reason and yields no record. A quote that is never closed makes the whole file wrong,
 *    because the value after the quote contains all later rows. */
#ifndef MILLRACE_IMPORT_CSV_H
#define MILLRACE_IMPORT_CSV_H

#include "base/csv_record.h"
#include "base/error.h"
#include "counts/coarse.h"
#include "counts/counters.h"

/* All texts are borrowed until import_csv_free. */
struct import_csv_spec {
    const struct counters *counters;
    const char *counter; /* a namespace, LABEL or LABEL/LABEL; NULL: from the column `counter` */
    const char *date, *key, *sub, *count; /* names of columns; NULL: the default names */
    const char *period;                   /* the date of all rows; NULL: from the column of dates */
    bool counts_rows;                     /* each row counts as one event; the file has no column of counts */
    const char *unit;                     /* unit of the dates: hour, day or month; NULL: from their form */
    const char *zone;     /* zone of dates without an offset; becomes the zone of the process */
    const char *encoding; /* encoding of the files (line_source_as_text) */
    char delimiter;       /* 0: found in the first line (csv_record.h) */
    bool skips_bad;       /* skip wrong rows */
};

struct import_csv;

/* Returns NULL, with the reason, if the counter is unknown. `quarters_since` is that of the archive (manifest.h). */
struct import_csv *import_csv_new(
    const struct import_csv_spec *spec, int64_t quarters_since, struct error *error);
void import_csv_free(struct import_csv **c);
/* The namespace of the counter of all rows; "": each row names its counter. */
const char *import_csv_ns(const struct import_csv *c);

enum import_csv_result {
    IMPORT_CSV_NONE,       /* a comment, the names of the columns, or a part of a row */
    IMPORT_CSV_RECORDS,    /* a row: import_csv_records */
    IMPORT_CSV_WRONG,      /* a wrong row: *why */
    IMPORT_CSV_UNREADABLE, /* a wrong file: *why */
};
/* Begins a file with the next line. */
void import_csv_begin(struct import_csv *c);
/* Takes a line with its LF. *why is valid until the next call. */
enum import_csv_result import_csv_add(struct import_csv *c, struct bytes line, const char **why);
/* Ends the file. */
enum import_csv_result import_csv_end(struct import_csv *c, const char **why);
/* The number of lines from the line that *why concerns to the last line: the lines of the row, or the lines from a
 * quote that is never closed. */
size_t import_csv_lines(const struct import_csv *c);

/* The records of the latest row, each with its LF; empty if the count is 0. Valid until the next call. */
struct bytes import_csv_records(const struct import_csv *c);
/* The imported days and months of all rows so far. */
const struct coarse *import_csv_coarse(const struct import_csv *c);

#endif
