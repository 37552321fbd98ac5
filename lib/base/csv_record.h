/* csv_record: converts the records of a CSV file (RFC 4180) to events, which are JSON objects. The first record names
 * the fields.
 *
 *     time,user,note            {"time":1332547200,"user":"ann","note":"a, b"}
 *     1332547200,ann,"a, b"
 *
 * 1. Quotes have no meaning beyond RFC 4180: a value in quotes may contain delimiters, line ends, and quotes as "".
 * 2. The caller sets the delimiter, or a first line such as "sep=;" names it. Otherwise it is the one of
 *    CSV_DELIMITERS that is most frequent in the first line.
 * 3. An empty value is left out. A value of at most CSV_NUMBER_MAX bytes that is a JSON number without an exponent
 *    stays a number, so 007 is a text, and 12.0 is 12. Bytes that are not UTF-8 become U+FFFD.
 * 4. A column without a name, or with the name of an earlier column, is left out, with a note. Empty values may
 *    follow the last column.
 * 5. A record with more or fewer fields than the first record is wrong, and so is a quote inside a value that does
 *    not begin with a quote. After a wrong record, the next line begins a new record.
 * 6. A byte order mark before the first record, and empty lines, are ignored.
 * 7. Numbers and RFC 3339 times in the time column do not change. Other times, in time_form or in a form of
 *    rfc3339_read_lenient, become RFC 3339 times. A record with any other value in the time column is wrong.
 * 8. If the file has no time column, a record is wrong if a value is a time only in a form of rfc3339_read_lenient,
 *    because the event would contain a time without a zone. With time_column "", such values are accepted as
 *    texts. */
#ifndef MILLRACE_CSV_RECORD_H
#define MILLRACE_CSV_RECORD_H

#include "base/bytes.h"

#define CSV_NUMBER_MAX 18 /* longer numbers may exceed 64 bits */
#define CSV_DELIMITERS ",;\t|"
#define CSV_FIELDS_MAX 1000
/* The reason for refusing UTF-16 text that was not converted. */
#define CSV_HAS_NULS "the line has NUL bytes; UTF-16 needs --encoding=UTF-16LE or UTF-16BE"
#define CSV_RECORD_MAX ((size_t)16 << 20)

enum csv_result {
    CSV_MORE,  /* the record continues in the next line */
    CSV_NONE,  /* the names of the fields, or an empty line */
    CSV_EVENT, /* the record has an event */
    CSV_WRONG, /* `wrong` has the reason; if has_names is false, the file cannot be read */
};

struct csv;

/* Reads a delimiter as a user writes it: one character, or tab. Returns false if the text is not a delimiter. */
bool csv_read_delimiter(const char *text, char *delimiter);

struct csv_form {
    char delimiter;          /* 0: found in the first line (rule 2) */
    const char *time_column; /* name; NULL: not known; "": none (rule 8) */
    const char *time_form;   /* form of times, for strptime; NULL: none */
    bool has_zone;           /* the user chose the zone of times without a zone, so they need no note */
};

/* The texts of the form are borrowed until csv_free. */
struct csv *csv_new(const struct csv_form *form);
void csv_free(struct csv **c);
/* Begins a file with the next line. */
void csv_begin(struct csv *c);
/* Takes a line with its LF. A line without an LF ends the file. */
enum csv_result csv_add(struct csv *c, struct bytes line);
/* Ends the file. Returns CSV_WRONG if the last record is incomplete, otherwise CSV_NONE. */
enum csv_result csv_end(struct csv *c);
#define CSV_NO_COLUMN SIZE_MAX
/* Returns the column with this name, or CSV_NO_COLUMN. */
size_t csv_column(const struct csv *c, const char *name);
/* Returns the value of a column (csv_column), without quotes but otherwise as in the file; empty if the record does
 * not have the column. */
struct bytes csv_value(const struct csv *c, size_t column);

struct csv_record {
    struct buf event, text; /* the event; the record as it was read */
    char wrong[200];
    const char *note; /* a note for the user, each kind once for each file; NULL: none */
    bool has_names;   /* the names of the fields are known */
    bool is_inside;   /* the last line did not end the record */
    bool is_replaced; /* the event has U+FFFD for invalid bytes */
    size_t lines;     /* number of lines of the record so far */
    /* For a quote that is not closed before the end of the file or before CSV_RECORD_MAX: the number of lines from
     * the line with the quote on, and the offset of this line in `text`. 0: another result. */
    size_t unclosed, unclosed_at;
};
/* Borrowed until the next call of csv_add, csv_end or csv_begin. */
const struct csv_record *csv_record(struct csv *c);

#endif
