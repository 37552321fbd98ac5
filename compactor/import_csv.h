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
    const char *counter; /* a namespace, or LABEL or LABEL/LABEL; NULL: each row names one in `counter` */
    const char *date, *key, *sub, *count; /* names of columns; NULL: the usual ones */
    const char *period;                   /* the date of all rows; NULL: it is in a column */
    bool counts_rows;                     /* a row counts once, and has no count */
    const char *unit;                     /* of the dates: hour, day or month; NULL: by their form */
    const char *zone;                     /* of the process, for the dates without an offset */
    const char *encoding;                 /* of the files (line_source_as_text) */
    char delimiter;                       /* 0: found */
    bool skips_bad;                       /* leave wrong rows out */
};

struct import_csv;

/* Returns NULL, with the reason, if the counter is unknown. `quarters_since` is that of the archive (manifest.h). */
struct import_csv *import_csv_new(
    const struct import_csv_spec *spec, int64_t quarters_since, struct error *error);
void import_csv_free(struct import_csv **c);
/* The namespace of the only counter; "": rows name it. */
const char *import_csv_ns(const struct import_csv *c);

enum import_csv_result {
    IMPORT_CSV_NONE,       /* a comment, the names of the columns, or a part of a row */
    IMPORT_CSV_RECORDS,    /* a row: import_csv_records */
    IMPORT_CSV_WRONG,      /* a wrong row: *why */
    IMPORT_CSV_UNREADABLE, /* a wrong file: *why */
};
/* The next line begins a file. */
void import_csv_begin(struct import_csv *c);
/* A line with its LF. *why is valid until the next call. */
enum import_csv_result import_csv_add(struct import_csv *c, struct bytes line, const char **why);
/* The file ends. */
enum import_csv_result import_csv_end(struct import_csv *c, const char **why);
/* The lines from the one that *why is about to the last line: those of the row, or from the quote that is never
 * closed. */
size_t import_csv_lines(const struct import_csv *c);

/* The records of a row, each with its LF; none if the count is 0. Valid until the next call. */
struct bytes import_csv_records(const struct import_csv *c);
/* The days and months of all rows until now. */
const struct coarse *import_csv_coarse(const struct import_csv *c);

#endif
