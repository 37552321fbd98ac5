/* line_filter: decides which lines of a stream pass, removes or hashes fields of the passing lines, and adds the mark of their
 * link.
 *
 * A line is a JSON object whose fields are named by paths (json_path.h). The path of a field to drop or hash must not
 * have an index. A name in a path refers to all members with this name, even if the line spells the name with escapes.
 *
 * 1. The value of a dropped or hashed field never passes. A line that is not a JSON object is refused.
 * 2. All bytes except dropped and hashed fields stay unchanged. With MARKS_VERDICT, the member `marked` of a line is replaced,
 *    and is the last member.
 * 3. A line passes if keep_if is true and drop_if is false (counts/condition.h). Conditions test values before hashing.
 * 4. A heartbeat (a line that has the heartbeat field) passes regardless of the conditions and of MARKS_DROP.
 * 5. An erased line (base/erased_line.h) does not pass.
 *
 * A filter is not thread-safe: each thread needs its own filter. */
#ifndef MILLRACE_LINE_FILTER_H
#define MILLRACE_LINE_FILTER_H

#include "base/bytes.h"
#include "base/clock.h"
#include "filter/mark_reader.h"
#include "streams/filter/hash_key.h"

enum marks_action {
    MARKS_VERDICT, /* adds the member `marked`: the mark that applies to the line's link, or null */
    MARKS_DROP,    /* a line whose link is marked does not pass */
    MARKS_SHADOW,  /* logs marked links, at most ten a second */
};

/* `drop` and `hash` are lists of paths, separated by commas or spaces. NULL or "" is an empty list. line_filter_new
 * copies all texts. */
struct line_filter_spec {
    const char *drop;          /* fields to remove */
    const char *hash;          /* fields whose values are replaced by a token */
    struct hash_key *key;      /* borrowed; required with hash */
    const char *keep_if;       /* condition of the lines that pass; NULL: all lines */
    const char *drop_if;       /* condition of the lines that do not pass; NULL: none */
    const char *heartbeat;     /* the field that marks heartbeats; NULL: none */
    struct mark_reader *marks; /* borrowed; NULL: links are not checked */
    const char *marks_field;   /* the field with the link; required with marks */
    enum marks_action marks_action;
};

enum line_filter_result {
    LINE_PASSED,
    LINE_FILTERED,  /* keep_if is false, drop_if is true, or MARKS_DROP applies */
    LINE_UNDECIDED, /* a pattern took too many steps */
    LINE_REFUSED,   /* the line is not a JSON object, or is nested too deeply */
    LINE_OVERLONG,  /* the line is longer than max_line, so the source has cut off its end */
    LINE_RESULTS,
};

struct line_filter;

/* Returns NULL with the error if settings are invalid, contradict each other or could publish a value by mistake. */
struct line_filter *line_filter_new(const struct line_filter_spec *spec, struct error *error);
void line_filter_free(struct line_filter **f);
/* Gives a new key to a filter that was created with a key. The filter no longer uses the old key. */
void line_filter_set_key(struct line_filter *f, struct hash_key *key);
/* Filters a line without its LF. If the line passes, appends its edited text and an LF to *out. If the line does not
 * pass, *out is unchanged. */
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

/* Losses are lines that do not pass because the filter cannot decide: LINE_UNDECIDED and all later results. */
struct loss_log {
    struct line_counts counts; /* counts at the last report */
    usec_t at;                 /* time of the last report */
};
/* Logs the losses since the last report, at most every LOSS_LOG_INTERVAL, or immediately if `last` is true. The log
 * names the output `destination`. */
void loss_log_report(
    struct loss_log *log, const struct line_counts *c, const char *destination, usec_t now, bool last);

#endif
