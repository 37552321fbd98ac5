/* line_filter: decides which lines of a stream pass, and removes or hashes fields of the passing lines.
 *
 * A line is a JSON object. Paths (json_path.h) name its fields; the path of a field to drop or hash has no index. A
 * name refers to all members with that name, even if the line spells it with escapes.
 *
 * 1. The original value of a dropped or hashed field never passes. A line that is not a JSON object is refused.
 * 2. All other bytes stay unchanged.
 * 3. Conditions compare the subject's text: a string's characters, an integer's digits, "true" or "false". For any
 *    other value, and for a missing subject, every condition is false. All given conditions must hold. If a field
 *    occurs twice, the last one counts. Conditions see the line before hashing.
 * 4. A heartbeat (a line that has the heartbeat field) passes regardless of the conditions.
 *
 * 5. An erased line (base/erased_line.h) does not pass.
 *
 * Not thread-safe: one per thread. */
#ifndef MILLRACE_LINE_FILTER_H
#define MILLRACE_LINE_FILTER_H

#include "base/bytes.h"
#include "base/clock.h"
#include "streams/filter/hash_key.h"

/* Lists are paths separated by commas or spaces; NULL or "": none. Everything but the key is copied. */
struct line_filter_spec {
    const char *drop;      /* fields to remove */
    const char *hash;      /* fields whose values are replaced by a token */
    struct hash_key *key;  /* borrowed; required with hash */
    const char *subject;   /* the field that the conditions test; NULL: no conditions */
    const char *values;    /* condition: the subject's text is one of these, separated by commas */
    const char *prefix;    /* condition: the subject's text begins with this */
    const char *pattern;   /* condition: this PCRE2 pattern matches in the subject's text */
    const char *heartbeat; /* the field that marks heartbeats; NULL: none */
};

enum line_filter_result {
    LINE_PASSED,
    LINE_FILTERED,  /* a condition is false */
    LINE_UNDECIDED, /* the pattern took too many steps */
    LINE_REFUSED,   /* not a JSON object, or nested too deeply */
    LINE_OVERLONG,  /* not filtered: the source cut it at max_line */
    LINE_RESULTS,
};

struct line_filter;

/* Returns NULL with the error: settings that are invalid, contradict each other or could publish a value by
 * mistake. */
struct line_filter *line_filter_new(const struct line_filter_spec *spec, struct error *error);
void line_filter_free(struct line_filter **f);
/* Replaces the key of a filter that has one; the old key is no longer used. */
void line_filter_set_key(struct line_filter *f, struct hash_key *key);
/* Filters a line without its LF. If it passes, appends its edited text and an LF to *out; otherwise *out is unchanged. */
enum line_filter_result line_filter_apply(struct line_filter *f, struct bytes line, struct buf *out);

#define LOSS_LOG_INTERVAL (10 * USEC_PER_SEC)

struct line_counts {
    uint64_t read, by[LINE_RESULTS];
};
static inline void line_counts_add(struct line_counts *c, enum line_filter_result result)
{
    c->read++;
    c->by[result]++;
}

/* Losses: lines that were left out because the filter could not judge them. These are the results from LINE_UNDECIDED
 * on. */
struct loss_log {
    struct line_counts counts; /* at the last report */
    usec_t at;
};
/* Logs the losses since the last report, at most every LOSS_LOG_INTERVAL, or at once if `last`. `destination` names the output in the
 * log. */
void loss_log_report(
    struct loss_log *log, const struct line_counts *c, const char *destination, usec_t now, bool last);

#endif
