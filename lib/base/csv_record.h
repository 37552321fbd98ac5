/* csv_record: turns the records of a CSV file (RFC 4180) into events, JSON objects. The first record names the
 * fields.
 *
 *     time,user,note            {"time":1332547200,"user":"ann","note":"a, b"}
 *     1332547200,ann,"a, b"
 *
 * 1. Quotes have no meaning beyond RFC 4180: a value in quotes may contain delimiters, line ends, and quotes as "".
 * 2. The delimiter is given, or named by a first line "sep=;", or that of CSV_DELIMITERS that the first line has
 *    most often.
 * 3. An empty value is left out. A value of at most CSV_NUMBER_MAX bytes that is a JSON number without an exponent
 *    stays a number, so 007 is a text, and 12.0 is 12. Bytes that are not UTF-8 become U+FFFD.
 * 4. A column without a name, or with the name of an earlier one, is left out (note). Empty values may follow the
 *    last column.
 * 5. A record with more or fewer fields than the first one is wrong, and so is a quote within a value without
 *    quotes. After a wrong record, the next line begins a new record.
 * 6. A byte order mark before the first record, and empty lines, are ignored.
 * 7. A value of the time column that is not a number or an RFC 3339 time, but a time by the form or in a form of
 *    rfc3339_read_lenient, becomes an RFC 3339 time. A record with any other value there is wrong.
 * 8. Without a time column in the file, a record with such a value is wrong, because the event would have a text
 *    without a zone as its time. The time column "" accepts the text. */
#ifndef MILLRACE_CSV_RECORD_H
#define MILLRACE_CSV_RECORD_H

#include "base/bytes.h"

#define CSV_NUMBER_MAX 18 /* longer ones may not fit 64 bits */
#define CSV_DELIMITERS ",;\t|"
#define CSV_FIELDS_MAX 1000
/* The reason why text is refused that is in UTF-16 and was not converted. */
#define CSV_HAS_NULS "the line has NUL bytes; UTF-16 needs --encoding=UTF-16LE or UTF-16BE"
#define CSV_RECORD_MAX ((size_t)16 << 20)

enum csv_result {
    CSV_MORE,  /* the record continues in the next line */
    CSV_NONE,  /* the names of the fields, or an empty line */
    CSV_EVENT, /* the record has an event */
    CSV_WRONG, /* the record has the reason; without names the file cannot be read */
};

struct csv;

/* Reads a delimiter as the user writes it: one character, or tab. False: it cannot be one. */
bool csv_read_delimiter(const char *text, char *delimiter);

struct csv_form {
    char delimiter;          /* 0: found */
    const char *time_column; /* NULL: not known; "": none */
    const char *time_form;   /* of strptime; NULL: none */
    bool has_zone;           /* the zone of times without a zone was chosen: no note about these times */
};

/* The texts of the form are borrowed until csv_free. */
struct csv *csv_new(const struct csv_form *form);
void csv_free(struct csv **c);
/* The next line is the first of a file. */
void csv_begin(struct csv *c);
/* A line with its LF. Without an LF, the line ends the file. */
enum csv_result csv_add(struct csv *c, struct bytes line);
/* The file ends. CSV_WRONG if a record does not end before, else CSV_NONE. */
enum csv_result csv_end(struct csv *c);
#define CSV_NO_COLUMN SIZE_MAX
/* The column with this name; CSV_NO_COLUMN: none has it. */
size_t csv_column(const struct csv *c, const char *name);
/* The value of a column (csv_column) as it is in the file, without quotes. Empty: the record has none. */
struct bytes csv_value(const struct csv *c, size_t column);

struct csv_record {
    struct buf event, text; /* the event; the record as it was read */
    char wrong[200];
    const char *note; /* what a reader of the file should know, once a file and kind; NULL: nothing */
    bool has_names;   /* of the fields */
    bool is_inside;   /* the last line did not end the record */
    bool is_replaced; /* the event has U+FFFD for invalid bytes */
    size_t lines;     /* of the record, until now */
    /* The number of lines from the one with the quote that the file or CSV_RECORD_MAX leaves open, and the offset
     * of that line in the text. 0: the record ended, or is wrong for another reason. */
    size_t unclosed, unclosed_at;
};
/* Borrowed until the next call of csv_add, csv_end or csv_begin. */
const struct csv_record *csv_record(struct csv *c);

#endif
