/* counters: reads the configuration's sections [input], [counters], [total NS], [subtotal S.NS] and [unique V.NS], and
 * extracts the keys and the members of events.
 *
 *     [input]                  [total u]          [subtotal c.u]        [unique v.u]
 *     time = t                 key = l            key = c               member = visitor
 *     skip_if = _heartbeat_    label = user       label = country       by = day
 *     resolution = 1h
 *
 * A key is a field, a function of a field (key_function.h), or a "constant". Paths (json_path.h) name fields.
 * docs/guide/counting.md has the rules for values. A missing, null or empty value counts as `None`. An integer counts
 * as its digits. An event is rejected if the value is an array, an object or a number that is not an integer.
 *
 * A total adds 1 for each event, or the value of a field:
 *
 *     [total revenue]          [total buys]
 *     key = product            key = product
 *     value = price            having = price
 *     scale = 2
 *
 * A value is a decimal (decimal.h), and counts as the integer value * 10^scale, which may be negative. An event whose
 * value is missing or null adds nothing to the total. A total with `having` adds 1 for each event that has the field, with
 * a value other than null. Subtotals have the settings of their total. An event is rejected if a value is not a decimal,
 * has more digits than the scale and `round` is not set, or exceeds max_value.
 *
 * With `resolution = 15m`, events are counted by quarter hour instead of by hour.
 *
 * A unique counter has a set of members for each key of its total and each UTC day, hour or quarter hour
 * (docs/internals/sets.md). A
 * member is a field or a function of a field, and follows the same rules, except that a missing, null or empty value is
 * not a member, and that max_text does not shorten a member. The sets have the members of all events of the key, even
 * of events that the total does not count.
 *
 * 1. The namespaces of totals are unique, and so are those of subtotals and unique counters together. The second part
 *    of such a namespace is the namespace of a total.
 * 2. Counters keep the configuration's order. The default label of a total is its namespace. The default label of a
 *    subtotal or a unique counter is the first part of its namespace. Labels are unique among the totals, and among the
 *    subtotals and the unique counters of each total.
 * 3. The conditions skip_if and keep_if (condition.h) decide whether a line is an event. If a condition takes too
 *    many steps, the line is rejected.
 * 4. counters_extract either returns every key of an event or rejects the event. An event is counted under all counters
 *    or under none.
 */
#ifndef MILLRACE_COUNTERS_H
#define MILLRACE_COUNTERS_H

#include "base/bytes.h"
#include "config/config.h"
#include "counts/decimal.h"
#include "counts/records.h"

#define COUNTERS_MAX 2046         /* totals and subtotals together */
#define COUNTERS_QUARTERS_MAX 510 /* the same with resolution = 15m */
#define UNIQUES_MAX 255
/* The line of a canonical text with resolution = 15m. */
#define COUNTERS_QUARTERS_LINE "input resolution = 15m"

enum counter_key_kind { COUNTER_FIELD, COUNTER_FUNCTION, COUNTER_CONSTANT };
struct key_function;

struct counter {
    const char *ns;       /* "u", "c.u", or "v.u" */
    const char *label;    /* "user", "country" */
    const char *key_text; /* key or member as configured: `l`, `host(u)`, `"all"` */
    enum counter_key_kind kind;
    const char *field; /* path of the field, or the constant's text */
    const struct key_function *function;
    const char *argument; /* second argument of the function; NULL: the function has one argument */
    size_t total;         /* index in `totals` of the total of a subtotal or a unique counter */
    enum period_unit by;  /* period of a unique counter's sets: PERIOD_DAY, PERIOD_HOUR or PERIOD_QUARTER */
    /* limit of different keys in a slice; 0: unlimited. A limited counter has texts of its own. */
    uint64_t max_keys;
    /* The settings of values. A subtotal has those of its total. Unique counters have none. */
    const char *value;  /* path of the field whose value is added; NULL: each event adds 1 */
    const char *having; /* path of the field that counted events have; NULL: all events */
    const char *unit;   /* text after a value for people ("EUR"); NULL: none */
    struct decimal_rule decimal;
    int64_t max_value; /* limit of one event's absolute value, scaled; INT64_MAX: unlimited */
};

struct counters {
    const char *time_field;
    const char *time_unit; /* s, ms, us or ns */
    bool time_is_lenient;  /* event_seconds_read_lenient */
    bool time_default_now; /* the API adds the current time to an event without the time field */
    bool has_quarters;     /* resolution = 15m */
    int64_t units_a_second;
    /* Conditions (condition.h). A line is an event if skip_if is false and keep_if is true. NULL: no condition. */
    const char *skip_if, *keep_if;
    const char
        *optional; /* fields that may be absent from all events, separated by blanks or commas; NULL: none */
    size_t max_text;   /* limit of bytes in a key; component_bound shortens longer keys */
    int64_t max_ahead; /* seconds by which an event's time may exceed the clock; 0: unlimited */
    size_t n_totals, n_subtotals, n_uniques;
    const struct counter *totals, *subtotals, *uniques;
    /* The canonical text: sorted lines such as `total u key = l`, one for each setting that affects counts. Labels do
     * not affect counts. Configurations with equal texts produce equal counts. */
    const char *text;
};

/* Returns 0, or -1 with an error that names file and line. Unknown settings are errors. At least one total is
 * required. */
int counters_read(const struct config *config, struct counters **out, struct error *error);
void counters_free(struct counters **c);

/* Returns the hash of the canonical text. */
uint64_t counters_hash(const struct counters *c);
/* Returns the first line of canonical text `a` that `b` does not have, borrowed, or BYTES_NONE. */
struct bytes counters_text_difference(const char *a, const char *b);
/* Compares two canonical texts. A counter of both texts is a conflict if its key, value, scale, `having`, member or
 * period differs. Returns a line of the first such counter in `before`, borrowed, or BYTES_NONE. A counter that only
 * one text contains is not a conflict. */
struct bytes counters_conflict(const char *before, const char *now);
/* Returns true if the canonical text has the namespace for the other kind of counter: with `is_set`, for a total or
 * subtotal, otherwise for a unique counter. */
bool counters_text_is_other(const char *text, struct bytes ns, bool is_set);
/* The period of a unique counter in a canonical text. PERIOD_DAY if the text does not have the counter. */
enum period_unit counters_text_period(const char *text, struct bytes ns);
/* Sets *scale to the scale of a value counter in a canonical text. Returns false if the counter is not a value counter.
 * `ns` is the namespace of a total or a subtotal. */
bool counters_text_scale(const char *text, struct bytes ns, unsigned *scale);
/* Returns true if the total counts only events that have a field (`having`). */
bool counters_text_has_having(const char *text, struct bytes total);
/* Appends the lines that define the total or subtotal, and its total, unless `out` has them. */
void counters_append_lines(const char *text, struct bytes ns, struct buf *out);
/* Sets *ns and *scale to those of the next total with a value, and moves *text after its line. Returns false at the end
 * of the text. */
bool counters_text_next_value(const char **text, struct bytes *ns, unsigned *scale);
/* True if a canonical text has resolution = 15m. */
bool counters_text_has_quarters(const char *text);
/* Appends the lines of `before` whose counter is not in `now`. The archive keeps the lines, so that a later counter
 * with the same name and another key is refused. */
void counters_append_missing(const char *before, const char *now, struct buf *out);

/* The i-th counter: totals first, then subtotals. Unique counters are not included. */
static inline const struct counter *counters_at(const struct counters *c, size_t i)
{
    return i < c->n_totals ? &c->totals[i] : &c->subtotals[i - c->n_totals];
}
/* True if both counters have the same key, even if it is written differently. */
bool counter_has_key_of(const struct counter *a, const struct counter *b);
/* True if each event adds the same to both totals. */
bool counter_adds_as(const struct counter *a, const struct counter *b);
/* Appends the settings of a total that adds as `c`: value, scale and round, or having; nothing if `c` counts each event
 * by 1. */
void counter_append_adding(const struct counter *c, struct buf *out);
/* Finds a namespace in a list of counters, or returns NULL. */
const struct counter *counters_find_in(const struct counter *list, size_t n, struct bytes ns);
/* Finds a total or a subtotal by namespace ("u" or "c.u"), or returns NULL. */
const struct counter *counters_find(const struct counters *c, struct bytes ns);
/* Finds a unique counter by namespace, or returns NULL. */
const struct counter *counters_find_unique(const struct counters *c, struct bytes ns);
/* Find a total by label, or a subtotal or a unique counter of `total` by label. */
const struct counter *counters_find_total_label(const struct counters *c, struct bytes label);
const struct counter *counters_find_sub_label(
    const struct counters *c, const struct counter *total, struct bytes label);
const struct counter *counters_find_unique_label(
    const struct counters *c, const struct counter *total, struct bytes label);

/* The amount that an event adds to a total and to its subtotals. */
struct counter_amount {
    bool is_counted; /* false: the event has no value, or not the field of `having` */
    int64_t n;       /* 1 for a counter without value */
};

enum counters_verdict { COUNTERS_EVENT, COUNTERS_SKIPPED, COUNTERS_REJECTED };

struct counters_event {
    int64_t time;                /* Unix seconds */
    int64_t hour;                /* first second of the event's hour */
    const struct bytes *texts;   /* one text for each distinct key setting, bounded to max_text */
    size_t n_texts;              /* the same for every event */
    const size_t *text_of;       /* index in `texts` of each counter's key, totals first, then subtotals */
    const struct bytes *members; /* one text for each distinct member setting; empty: no member */
    size_t n_members;            /* the same for every event */
    const size_t *member_of;     /* index in `members` of each unique counter's member */
    const struct counter_amount *amounts; /* for each total; NULL: each total counts each event by 1 */
    const char *reason; /* reason of COUNTERS_REJECTED: one line, valid until the next extraction */
};

/* A reader extracts the keys of one event after another. Each thread needs a reader of its own. The extracted event is
 * valid until the next extraction. */
struct counters_reader;
struct counters_reader *counters_reader_new(const struct counters *c); /* c must outlive the reader */
void counters_reader_free(struct counters_reader **r);
const size_t *counters_reader_text_of(
    const struct counters_reader *r); /* Returns the counters_event.text_of of every event. */
/* Sets the present time (Unix seconds). An event's time may exceed the present time by max_ahead. Until the first call
 * of counters_reader_set_now, max_ahead has no effect. */
void counters_reader_set_now(struct counters_reader *r, int64_t now);
/* The event time (Unix seconds) that max_ahead has refused most recently; 0: none. */
int64_t counters_reader_beyond(const struct counters_reader *r);
enum counters_verdict counters_extract(
    struct counters_reader *r, struct bytes line, struct counters_event *out);

/* Returns the i-th configured field that is not optional and that no event of the sample has, or NULL if there are fewer such fields. A
 * field of several counters counts once. The sample is the first COUNTERS_SAMPLE counted events. While the sample has no event with some field, each COUNTERS_SAMPLE
 * further events become the new sample. */
#define COUNTERS_SAMPLE 1000
const char *counters_reader_absent(const struct counters_reader *r, size_t i);
/* Ends the sample, because no events follow. Returns the number of its events: COUNTERS_SAMPLE, or if no sample was
 * complete, the number of all counted events. */
size_t counters_reader_end_sample(struct counters_reader *r);

#endif
