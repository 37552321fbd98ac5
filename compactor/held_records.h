/* held_records: the records of one month of a key, held until all records of the month are known. The month's record is
 * written before its days, and a day's record before its hours.
 *
 * 1. Records are in memory up to a bound. Further records, and a record that crosses the bound, are written to an
 *    unlinked file in the unfinished generation. A record is read again for each sum (month, day, hour) that includes
 *    the record.
 * 2. Records are held as archive text. The keys are subtotals in ascending order, except the last key (merge.c).
 */
#ifndef MILLRACE_HELD_RECORDS_H
#define MILLRACE_HELD_RECORDS_H

#include "compactor/record_reader.h"
#include "compactor/result.h"
#include "counts/records.h"

struct held_record {
    uint64_t at, len; /* offset in memory or in the file, and length with LF */
    bool in_file;
    enum period_unit unit;
    int64_t start; /* the first second of the period */
    char period[PERIOD_TEXT_MAX];
    size_t period_len;
};

struct held_records {
    const char *directory;
    const char *name; /* the source of the records, for errors; borrowed */
    size_t memory;
    struct buf text;
    int fd; /* -1: no file yet */
    uint64_t written;
    struct held_record *records;
    size_t n, room;
};

/* `directory` is borrowed. */
void held_records_init(struct held_records *h, const char *directory, size_t memory);
void held_records_free(struct held_records *h);
void held_records_clear(struct held_records *h);

/* Begins a record, whose pieces of text follow. */
struct held_record *held_records_begin(struct held_records *h);
enum compact_result held_records_append(struct held_records *h, struct bytes piece, struct error *error);
/* Like held_records_append of a whole line, given without LF. */
enum compact_result held_records_append_line(struct held_records *h, struct bytes line, struct error *error);
/* Initializes a reader of the i-th record. */
void held_records_read(const struct held_records *h, size_t i, struct record_reader *out);
/* The text of the records [from, to) with their LFs, or BYTES_NONE if any of these records is in the file. Valid
 * until the next append. */
struct bytes held_records_text(const struct held_records *h, size_t from, size_t to);

#endif
