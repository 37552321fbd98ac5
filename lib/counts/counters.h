/* counters: the configuration's [input], [total NS] and [subtotal S.NS] sections, and the keys of an event under them.
 *
 *     [input]                              [total u]              [subtotal c.u]
 *     time = t                             key = l                key = c
 *     skip_if = _heartbeat_                label = user           label = country
 *
 * A key is a top-level field, host(field), or a "constant". docs/guide/counting.md has the rules for values: missing, null
 * and empty count as `None`, an integer as its digits; an array, an object or another number rejects the event.
 *
 * 1. Every total's namespace and every subtotal's pair occurs once; a subtotal's second part is a total.
 * 2. The order is the configuration's. Labels default to the namespace (its first part for a subtotal) and
 *    are names; totals' labels differ from each other, and those of one total's subtotals do.
 * 3. counters_extract either gives every key of the event or rejects it whole: an event is counted under all
 *    of its counters or under none.
 */
#ifndef MILLRACE_COUNTERS_H
#define MILLRACE_COUNTERS_H

#include "base/bytes.h"
#include "config/config.h"

enum counter_key_kind { COUNTER_FIELD, COUNTER_HOST, COUNTER_CONSTANT };

struct counter {
    const char *ns;       /* "u", or "c.u" */
    const char *label;    /* "user", "country" */
    const char *key_text; /* as configured: `l`, `host(u)`, `"all"` */
    enum counter_key_kind kind;
    const char *field; /* or the constant's text */
    size_t total;      /* of a subtotal: the index of its total in `totals` */
    uint64_t max_keys; /* distinct keys a slice, 0: no bound */
};

struct counters {
    const char *time_field;
    const char *time_unit; /* s, ms, us or ns */
    int64_t units_a_second;
    const char *skip_if; /* NULL: nothing is skipped */
    size_t n_totals, n_subtotals;
    const struct counter *totals, *subtotals;
    /* Canonical: a line for each setting that decides counts (labels do not), sorted: `total u key = l`. Equal texts
     * count alike. */
    const char *text;
};

/* 0, or -1 with the error naming file and line. Unknown settings in these sections are errors. At least one
 * total is required. */
int counters_read(const struct config *config, struct counters **out, struct config_error *error);
void counters_free(struct counters **c);

/* The line of `before` whose counter has another key in `now`, borrowed; BYTES_NONE: there is none. A counter that is in only
 * one of the two canonical texts is no conflict. */
struct bytes counters_conflict(const char *before, const char *now);
/* Appends the lines of `before` whose counter is not in `now`. The archive keeps them, in case the name is used again. */
void counters_append_missing(const char *before, const char *now, struct buf *out);

/* By namespace ("u" or "c.u"); NULL when there is none. */
const struct counter *counters_find(const struct counters *c, struct bytes ns);
/* By label; for a subtotal within `total`. */
const struct counter *counters_find_total_label(const struct counters *c, struct bytes label);
const struct counter *counters_find_sub_label(
    const struct counters *c, const struct counter *total, struct bytes label);

enum counters_verdict { COUNTERS_EVENT, COUNTERS_SKIPPED, COUNTERS_REJECTED };

struct counters_event {
    int64_t hour;              /* its first second */
    const struct bytes *texts; /* the full texts of keys, each key of the configuration once */
    size_t n_texts;            /* the same for every event */
    const size_t *text_of;     /* of each total, then of each subtotal: which text is its key */
    const char *reason;        /* of COUNTERS_REJECTED: one line, valid until the next extract */
};

/* Extracts events one after another; one reader a thread. Its output is valid until the next extract. */
struct counters_reader;
struct counters_reader *counters_reader_new(const struct counters *c); /* c must outlive it */
void counters_reader_free(struct counters_reader **r);
enum counters_verdict counters_extract(
    struct counters_reader *r, struct bytes line, struct counters_event *out);

/* ASCII-lowercased host of `scheme://authority/...` without user and port; the text itself without a scheme;
 * "None" if that leaves nothing. `space` is used for the lowercased copy. */
struct bytes counters_host(struct bytes text, struct buf *space);

#endif
