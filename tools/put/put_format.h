/* put_format: the forms of the lines that `millrace put` reads (--format), as a table of functions.
 *
 * A reader turns the lines of one input into events. A record is one line, or several (CSV). */
#ifndef MILLRACE_PUT_FORMAT_H
#define MILLRACE_PUT_FORMAT_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/csv_record.h"

enum put_result {
    PUT_MORE,       /* the record continues in the next line */
    PUT_NONE,       /* the names of the fields, or an empty line */
    PUT_EVENT,      /* record.event */
    PUT_WRONG,      /* record.text cannot become an event, record.why */
    PUT_UNREADABLE, /* no line of the file can, record.why */
};

/* Borrowed until the reader's next call. */
struct put_record {
    struct bytes event, text;
    const char *why;
    const char *note; /* what to tell the user; NULL: nothing */
    bool is_replaced; /* U+FFFD replaces bytes of the event */
};

/* Settings of the formats. */
struct put_form {
    const char *log_format; /* directives, or the name of a built-in format */
    struct csv_form csv;
};

struct put_format {
    const char *name;
    const char *unit; /* of what it reads: "line" */
    bool is_followed; /* with --follow */
    bool is_text;     /* line_source_as_text */
    /* NULL with the reason. The settings are borrowed. The error may be NULL for settings that have been read before. */
    void *(*new)(const struct put_form *form, struct error *error);
    void (*free)(void *reader);
    void (*begin)(void *reader); /* the next line is the first of a file */
    enum put_result (*add)(void *reader, struct bytes line, struct put_record *record);
    enum put_result (*end)(void *reader, struct put_record *record); /* the file ends */
    bool (*is_vital)(const void *reader); /* without the next line, no further line can be read */
};

/* NULL: no such format. */
const struct put_format *put_format_named(const char *name);

#endif
