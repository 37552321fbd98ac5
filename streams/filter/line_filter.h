/* line_filter: which lines of a stream go on, and what is left of them.
 *
 * A line is a JSON object. Fields are top-level members; a name means every member of that name, however it is escaped.
 *
 * 1. A field to be dropped or hashed is never in what goes on as it was: a line that is no JSON object is refused, not
 *    passed.
 * 2. Bytes that are not part of such a field are kept as they are.
 * 3. The conditions on the subject are of its text: a string's characters, an integer's digits, "true", "false"; of a
 *    missing or null one, an array, an object or another number there is none, and no condition holds of none.
 *    All conditions given must hold; with duplicate fields the last counts. They see the line before hashing.
 * 4. A heartbeat (a line that has the heartbeat field) goes on whatever the conditions are.
 *
 * Not thread-safe: one a thread. */
#ifndef MILLRACE_LINE_FILTER_H
#define MILLRACE_LINE_FILTER_H

#include "base/bytes.h"
#include "streams/filter/hash_key.h"

#define LINE_FILTER_ERROR_TEXT 300

/* Lists are names separated by commas or spaces; NULL or "": none. All is copied but the key. */
struct line_filter_spec {
    const char *drop; /* fields that are taken out */
    const char *
        hash; /* fields whose value is replaced by a token: strings by their characters, others as they stand */
    struct hash_key *key;  /* borrowed; needed with hash */
    const char *subject;   /* the field that the conditions are about; NULL: no conditions */
    const char *values;    /* its text is one of these, separated by commas */
    const char *prefix;    /* its text begins so */
    const char *pattern;   /* a PCRE2 pattern is found in its text */
    const char *heartbeat; /* a field's name; NULL: there are none */
};

enum line_filter_result {
    LINE_PASSED,
    LINE_FILTERED,  /* a condition did not hold */
    LINE_UNDECIDED, /* the pattern took too many steps to tell */
    LINE_REFUSED,   /* no JSON object, or nested too deep */
};

struct line_filter;

/* NULL with the reason: a pattern that is none (and where), conditions without a subject, hash without a key, a field in both
 * lists, an empty name between commas, a text that is no UTF-8: JSON is, so that a field so named would never be taken out. */
struct line_filter *line_filter_new(const struct line_filter_spec *spec, char error[LINE_FILTER_ERROR_TEXT]);
void line_filter_free(struct line_filter **f);
/* Of a filter that has one; the key that it had is not used any more. */
void line_filter_set_key(struct line_filter *f, struct hash_key *key);
/* `line` is without its LF. LINE_PASSED: what goes on is appended to *out, with an LF. Otherwise *out is as before. */
enum line_filter_result line_filter_apply(struct line_filter *f, struct bytes line, struct buf *out);

#endif
