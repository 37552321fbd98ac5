/* counters: reads the configuration's sections [input], [counters], [total NS] and [subtotal S.NS], and extracts an
 * event's keys.
 *
 *     [input]                              [total u]              [subtotal c.u]
 *     time = t                             key = l                key = c
 *     skip_if = _heartbeat_                label = user           label = country
 *
 * A key is a field, a function of a field (key_function.h), or a "constant". Paths (json_path.h) name fields. docs/guide/counting.md has the rules
 * for values: a missing, null or empty value counts as `None`, and an integer as its digits. If the value is an array,
 * an object or a number that is not an integer, the event is rejected.
 *
 * 1. The namespaces of totals and of subtotals are unique. A subtotal's second part names a total.
 * 2. Counters keep the configuration's order. A label defaults to the namespace, or to its first part for a subtotal.
 *    Labels are unique among the totals, and among the subtotals of each total.
 * 3. counters_extract either returns every key of an event or rejects the event. An event is counted under all
 *    counters or under none.
 */
#ifndef MILLRACE_COUNTERS_H
#define MILLRACE_COUNTERS_H

#include "base/bytes.h"
#include "config/config.h"

#define COUNTERS_MAX 2046 /* totals and subtotals together */

enum counter_key_kind { COUNTER_FIELD, COUNTER_FUNCTION, COUNTER_CONSTANT };
struct key_function;

struct counter {
    const char *ns;       /* "u", or "c.u" */
    const char *label;    /* "user", "country" */
    const char *key_text; /* as configured: `l`, `host(u)`, `"all"` */
    enum counter_key_kind kind;
    const char *field;                   /* or the constant's text */
    const struct key_function *function; /* of a COUNTER_FUNCTION */
    const char *argument;                /* of the function; NULL: none */
    size_t total;                        /* of a subtotal: the index of its total in `totals` */
    uint64_t
        max_keys; /* different keys in a slice; 0: unlimited. A limited counter shares no text with another. */
};

struct counters {
    const char *time_field;
    const char *time_unit; /* s, ms, us or ns */
    bool time_is_lenient;  /* event_seconds_read_lenient */
    bool time_default_now; /* the API adds its time to an event without the time field */
    int64_t units_a_second;
    const char *skip_if; /* NULL: nothing is skipped */
    size_t max_text;     /* bytes of a key; longer keys are bounded (component_bound) */
    int64_t max_ahead;   /* seconds that an event's time may be ahead of the clock; 0: unlimited */
    size_t n_totals, n_subtotals;
    const struct counter *totals, *subtotals;
    /* Canonical form: sorted lines such as `total u key = l`, one for each setting that affects counts. Labels do not.
     * Configurations with equal texts produce equal counts. */
    const char *text;
};

/* Returns 0, or -1 with an error that names file and line. Unknown settings in these sections are errors. At least one
 * total is required. */
int counters_read(const struct config *config, struct counters **out, struct error *error);
void counters_free(struct counters **c);

/* Compares two canonical texts. Returns the first line of `before` whose counter has a different key in `now`,
 * borrowed, or BYTES_NONE if there is none. A counter that only one of the texts has is no conflict. */
struct bytes counters_conflict(const char *before, const char *now);
/* Appends the lines of `before` whose counter is not in `now`. The archive keeps these lines, to notice if a later
 * counter reuses the name with another key. */
void counters_append_missing(const char *before, const char *now, struct buf *out);

/* The i-th counter: totals first, then subtotals. */
static inline const struct counter *counters_at(const struct counters *c, size_t i)
{
    return i < c->n_totals ? &c->totals[i] : &c->subtotals[i - c->n_totals];
}
/* True if the counters have the same key, however it is written. */
bool counter_has_key_of(const struct counter *a, const struct counter *b);
/* Finds a counter by namespace ("u" or "c.u"), or returns NULL. */
const struct counter *counters_find(const struct counters *c, struct bytes ns);
/* Find a total by label, or a subtotal of `total` by label. */
const struct counter *counters_find_total_label(const struct counters *c, struct bytes label);
const struct counter *counters_find_sub_label(
    const struct counters *c, const struct counter *total, struct bytes label);

enum counters_verdict { COUNTERS_EVENT, COUNTERS_SKIPPED, COUNTERS_REJECTED };

struct counters_event {
    int64_t time;              /* Unix seconds */
    int64_t hour;              /* its first second */
    const struct bytes *texts; /* one text for each distinct key setting, bounded to max_text */
    size_t n_texts;            /* the same for every event */
    const size_t *text_of;     /* for each total, then each subtotal: the index of its key in texts */
    const char *reason;        /* with COUNTERS_REJECTED: one line, valid until the next extract */
};

/* Extracts events one after another. Each thread needs its own reader. The output is valid until the next extract. */
struct counters_reader;
struct counters_reader *counters_reader_new(const struct counters *c); /* c must outlive it */
void counters_reader_free(struct counters_reader **r);
const size_t *counters_reader_text_of(
    const struct counters_reader *r); /* counters_event.text_of of every event */
/* Sets the time (Unix seconds) with which max_ahead compares events' times. Before the first call, max_ahead has no
 * effect. */
void counters_reader_set_now(struct counters_reader *r, int64_t now);
/* The event time (Unix seconds) that was last refused by max_ahead; 0: none. */
int64_t counters_reader_beyond(const struct counters_reader *r);
enum counters_verdict counters_extract(
    struct counters_reader *r, struct bytes line, struct counters_event *out);

/* Returns the i-th configured field that is missing from all of the first COUNTERS_SAMPLE counted events; NULL: no
 * more. While there is such a field, each further COUNTERS_SAMPLE events decide again. */
#define COUNTERS_SAMPLE 1000
const char *counters_reader_absent(const struct counters_reader *r, size_t i);

#endif
