/* exposition: reads the samples of a scraped page, in Prometheus' text format 0.0.4 or in OpenMetrics 1.0.
 *
 *     exposition_init(&e, format, body);
 *     while (exposition_next(&e) == EXPOSITION_SAMPLE)
 *         ... e.sample ...
 *     exposition_free(&e);
 *
 * 1. A page is read as a whole or not at all: at the first error the caller drops the samples before it.
 * 2. Every line ends with LF, so a page that ends inside a line is an error. An OpenMetrics page ends with `# EOF`.
 * 3. Types, help texts, units and exemplars are checked for their form and ignored. A metric may change its type. A hash of
 *    the lines with # shows whether they have changed since another page.
 * 4. The texts of a sample point into the body or into the reader. They are valid until the next call. */
#ifndef MILLRACE_EXPOSITION_H
#define MILLRACE_EXPOSITION_H

#include "base/bytes.h"
#include "base/error.h"

enum exposition_format { EXPOSITION_TEXT, EXPOSITION_OPENMETRICS };

enum exposition_result {
    EXPOSITION_SAMPLE, /* `sample` is the next sample */
    EXPOSITION_END,
    EXPOSITION_BAD, /* `error` is "line N, column M: REASON" */
};

struct exposition_label {
    struct bytes name, value; /* the value is unescaped and valid UTF-8 */
};

struct exposition_sample {
    struct bytes name;
    const struct exposition_label
        *labels; /* in the order of the page; names may repeat, values may be empty */
    size_t n_labels;
    struct bytes value_text;
    double value;
    bool has_time;
    int64_t time; /* milliseconds since 1970; may be negative */
};

struct exposition {
    enum exposition_format format;
    const char *at, *end, *line, *line_end; /* position, end of the body, and the line in progress */
    size_t n_line;
    uint64_t comments; /* hash of the lines with # before `line` */
    bool is_ended;     /* after `# EOF` */
    struct exposition_label *labels;
    size_t n_labels, cap_labels;
    struct buf text; /* the unescaped values of the line */
    struct exposition_sample sample;
    struct error error;
};

/* Finds the format of a Content-Type. Returns false for an empty or unknown type. */
bool exposition_format_of(const char *content_type, enum exposition_format *format);

/* Borrows `body` until exposition_free. */
void exposition_init(struct exposition *e, enum exposition_format format, struct bytes body);
enum exposition_result exposition_next(struct exposition *e);
/* Sets an error of the sample's line, which a caller has found, and returns EXPOSITION_BAD. */
enum exposition_result exposition_refuse(struct exposition *e, const char *why);
void exposition_free(struct exposition *e);

/* True if `text` is a name of a label: [a-zA-Z_][a-zA-Z0-9_]*. */
bool exposition_is_label_name(struct bytes text);
/* As a label's name, or with colons. */
bool exposition_is_metric_name(struct bytes text);
/* Appends a text with \\, \" and \n decoded. A backslash before another character is part of the text. */
void exposition_unescape(struct bytes text, struct buf *out);

#endif
