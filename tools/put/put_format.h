/* put_format: turns the lines of one input of `millrace put` into events (--format).
 *
 * A record is one line, or several (CSV). */
#ifndef MILLRACE_PUT_FORMAT_H
#define MILLRACE_PUT_FORMAT_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/csv_record.h"
#include "tools/put/put_door.h"

enum put_result {
    PUT_MORE,       /* the record continues in the next line */
    PUT_NONE,       /* the names of the fields, or an empty line */
    PUT_EVENT,      /* record.event */
    PUT_WRONG,      /* record.text cannot become an event, record.why */
    PUT_UNREADABLE, /* neither this line nor a later one can, record.why */
};

/* Borrowed until the reader's next call. */
struct put_record {
    struct bytes event, text;
    const char *why;
    size_t at;        /* where the line begins in the text to which a PUT_UNREADABLE refers */
    const char *note; /* a warning for the user; NULL: none */
    bool is_replaced; /* U+FFFD replaces bytes of the event */
};

/* Settings, borrowed by the readers. */
struct put_form {
    bool is_csv;            /* read by whole files, as text of any origin */
    const char *log_format; /* directives, or the name of a built-in format; NULL: each line is an event */
    struct csv_form csv;
    struct put_door *door; /* of log_format; NULL: none */
};

struct put_reader;
/* NULL with the reason. The error may be NULL for settings that have been read before. */
struct put_reader *put_reader_new(const struct put_form *form, struct error *error);
void put_reader_free(struct put_reader **r);
enum put_result put_reader_add(struct put_reader *r, struct bytes line, struct put_record *record);
/* The input ends. */
enum put_result put_reader_end(struct put_reader *r, struct put_record *record);
/* True if no further line can be read without the next one. */
bool put_reader_needs_line(const struct put_reader *r);

#endif
