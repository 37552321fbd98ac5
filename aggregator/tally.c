#include "aggregator/tally.h"

#include "base/text_hash.h"
#include "sets/set_code.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define REASON_MAX 64
#define TABLE_SHARE                                                                                          \
    8 /* a batch is large once its counts and members, or its rejects, exceed 1/8 of max_memory */
#define TEXTS_SHARE 4 /* a batch is large once the interner exceeds 1/4 of max_memory */
#define PICKED_FIRST 16
#define SORT_BYTES 32 /* bytes of memory to sort one count for the flush */

/* The state for totals with a value or `having`. */
struct amounts {
    struct value_sums sums; /* of the slice */
    struct value_sums earlier;
    struct value_sum **sum_of; /* of each total, in `sums`; NULL: the total has no value */
    struct count_slot *slots;  /* the event's counts with sums, and their amounts */
    int64_t *n;
    bool *is_needed; /* for each text: an event's count or set uses the text */
    /* The values of a row of the minute ring: the amounts of each total with a value or `having` in the latest event. */
    int64_t *row;
    size_t *value_of; /* index in `row` for each counter, or MINUTE_COUNTS */
    size_t n_row;
    char reason[REASON_MAX];
};

struct tally {
    const struct counters *counters;
    struct counters_reader *reader;
    size_t max_memory, n_counters;
    int64_t quarters_since,
        quarters_from; /* both the start of the quarter hours; without quarter hours, 0 and HOUR_END */
    uint32_t slice;    /* current lookup mark, which changes with the slice and with the interner */
    struct batch batch;
    uint32_t *ids;
    struct count_slot *counts;  /* the counts of the event, one for each counter */
    struct count_slot *members; /* the members of the event, at most one for each unique counter */
    uint64_t *codes;            /* code of each of the event's member texts */
    struct amounts *amounts;    /* NULL: each total counts each event by 1 */
    /* limit of each text (NULL: unlimited); the array is NULL if no counter is limited */
    struct key_limit **limits;
    struct minute_ring *ring;              /* NULL: nothing is counted by minute */
    struct counters_reader *refill_reader; /* reader of the lines that were counted before the start */
};

static void begin_batch(struct tally *t, struct interner *texts)
{
    t->batch = (struct batch){.table = count_table_new(text_hash_seed(), t->quarters_since),
        .members = count_table_new_members(text_hash_seed(), t->quarters_since),
        .texts = texts,
        .lookup_mark = t->slice};
}

static void begin_texts(struct tally *t)
{
    struct interner *texts = interner_new(text_hash_seed());
    if (t->ring)
        minute_ring_set_texts(t->ring, texts);
    begin_batch(t, texts);
}

/* The number of texts of each event. */
static size_t count_texts(const struct tally *t)
{
    const size_t *text_of = counters_reader_text_of(t->reader);
    size_t n = 0;
    for (size_t i = 0; i < t->n_counters; i++)
        n = text_of[i] >= n ? text_of[i] + 1 : n;
    return n;
}

static bool has_amount(const struct counter *total)
{
    return total->value || total->having;
}

static struct amounts *amounts_new(const struct counters *c)
{
    bool is_needed = false;
    size_t n = c->n_totals + c->n_subtotals;
    for (size_t i = 0; i < c->n_totals; i++)
        is_needed = is_needed || has_amount(&c->totals[i]);
    if (!is_needed)
        return NULL;
    struct amounts *a = mem_zalloc(sizeof *a);
    value_sums_note(&a->sums, c->text);
    a->sum_of = mem_zalloc(c->n_totals * sizeof *a->sum_of);
    for (size_t i = 0; i < c->n_totals; i++)
        a->sum_of[i] = value_sums_find(&a->sums, bytes_str(c->totals[i].ns));
    a->slots = mem_zalloc(n * sizeof *a->slots);
    a->n = mem_zalloc(n * sizeof *a->n);
    a->is_needed = mem_zalloc(n * sizeof *a->is_needed);
    a->row = mem_zalloc(c->n_totals * sizeof *a->row);
    a->value_of = mem_zalloc(n * sizeof *a->value_of);
    for (size_t i = 0; i < c->n_totals; i++)
        a->value_of[i] = has_amount(&c->totals[i]) ? a->n_row++ : MINUTE_COUNTS;
    for (size_t i = c->n_totals; i < n; i++)
        a->value_of[i] = a->value_of[c->subtotals[i - c->n_totals].total];
    return a;
}

static void amounts_free(struct amounts **ap)
{
    struct amounts *a = *ap;
    if (!a)
        return;
    value_sums_free(&a->sums);
    value_sums_free(&a->earlier);
    free(a->sum_of);
    free(a->slots);
    free(a->n);
    free(a->is_needed);
    free(a->row);
    free(a->value_of);
    free(a);
    *ap = NULL;
}

struct tally *tally_new(
    const struct counters *counters, size_t max_memory, struct minute_ring *ring, int64_t quarters_since)
{
    struct tally *t = mem_zalloc(sizeof *t);
    size_t n = counters->n_totals + counters->n_subtotals;
    *t = (struct tally){.counters = counters,
        .reader = counters_reader_new(counters),
        .ring = ring,
        .refill_reader = ring ? counters_reader_new(counters) : NULL,
        .max_memory = max_memory,
        .n_counters = n,
        .quarters_since = quarters_since,
        .quarters_from = quarters_since > 0 ? quarters_since : HOUR_END,
        .slice = 1,
        .ids = mem_zalloc((n + 1) * sizeof(uint32_t)),
        .counts = mem_zalloc((n + 1) * sizeof(struct count_slot)),
        .members = mem_zalloc((counters->n_uniques + 1) * sizeof(struct count_slot)),
        .codes = mem_zalloc((counters->n_uniques + 1) * sizeof(uint64_t)),
        .amounts = amounts_new(counters)};
    const size_t *text_of = counters_reader_text_of(t->reader);
    for (size_t i = 0; i < n; i++) {
        const struct counter *c = counters_at(counters, i);
        if (c->max_keys == 0)
            continue;
        if (!t->limits)
            t->limits = mem_zalloc(n * sizeof *t->limits);
        t->limits[text_of[i]] = key_limit_new(c);
    }
    if (ring)
        minute_ring_set_row(ring, count_texts(t), t->amounts ? t->amounts->n_row : 0);
    begin_texts(t);
    return t;
}

void tally_free(struct tally **tp)
{
    struct tally *t = *tp;
    if (!t)
        return;
    t->batch.owns_texts = true;
    batch_free(&t->batch);
    counters_reader_free(&t->reader);
    if (t->refill_reader)
        counters_reader_free(&t->refill_reader);
    for (size_t i = 0; t->limits && i < t->n_counters; i++)
        key_limit_free(&t->limits[i]);
    free(t->limits);
    free(t->ids);
    free(t->counts);
    free(t->members);
    free(t->codes);
    amounts_free(&t->amounts);
    free(t);
    *tp = NULL;
}

enum slice_result tally_load_keys(struct tally *t, struct slice_reader *slice, struct error *error)
{
    enum slice_result r = SLICE_OK;
    assert(count_table_counts(t->batch.table) == 0); /* tally_load_keys is called before the first line */
    for (size_t i = 0; t->limits && i < t->n_counters && r == SLICE_OK; i++)
        if (t->limits[i])
            r = key_limit_load(t->limits[i], counters_at(t->counters, i)->ns, slice, error);
    /* An event without a value has sets, but no count. */
    for (size_t i = 0; t->amounts && t->limits && i < t->counters->n_uniques && r == SLICE_OK; i++) {
        struct key_limit *limit =
            t->limits[counters_reader_text_of(t->reader)[t->counters->uniques[i].total]];
        if (limit)
            r = key_limit_load(limit, t->counters->uniques[i].ns, slice, error);
    }
    return r;
}

const struct key_limit *tally_limit(const struct tally *t, size_t counter)
{
    return t->limits ? t->limits[counters_reader_text_of(t->reader)[counter]] : NULL;
}

void batch_free(struct batch *b)
{
    count_table_free(&b->table);
    count_table_free(&b->members);
    if (b->owns_texts)
        interner_free(&b->texts);
    free(b->lookups);
    buf_free(&b->rejects);
    *b = (struct batch){0};
}

size_t batch_bytes(const struct batch *b)
{
    size_t bytes = b->rejects.cap + b->room_lookups * sizeof *b->lookups;
    const struct count_table *tables[] = {b->table, b->members};
    for (int i = 0; i < 2; i++)
        if (tables[i])
            bytes += count_table_bytes(tables[i]) + count_table_counts(tables[i]) * SORT_BYTES;
    return bytes;
}

static void add_lookup(struct batch *b, uint32_t id)
{
    *ARRAY_ADD(b->lookups, b->n_lookups, b->room_lookups) = id;
}

void tally_set_now(struct tally *t, int64_t now)
{
    counters_reader_set_now(t->reader, now);
    if (t->refill_reader)
        counters_reader_set_now(t->refill_reader, now);
}

struct counters_reader *tally_reader(const struct tally *t)
{
    return t->reader;
}

/* Adds the event's members to the sets of its keys. `ids` are the ids of the event's texts, so that a key over max_keys
 * is `(other)` here, too. `period` is the first second of the event's hour or quarter hour. */
static void add_members(struct tally *t, const struct counters_event *event, int64_t period)
{
    const struct counters *c = t->counters;
    size_t n = 0;
    for (size_t i = 0; i < event->n_members; i++)
        t->codes[i] = event->members[i].len > 0 ? set_code(event->members[i]) : 0;
    for (size_t i = 0; i < c->n_uniques; i++) {
        const struct counter *unique = &c->uniques[i];
        int64_t start = unique->by == PERIOD_DAY       ? event->time - event->time % SECONDS_PER_DAY
                        : unique->by == PERIOD_QUARTER ? period
                                                       : event->hour;
        size_t member = event->member_of[i];
        if (event->members[member].len > 0)
            t->members[n++] = count_member(
                t->batch.members, i, start, t->ids[event->text_of[unique->total]], t->codes[member]);
    }
    count_table_add(t->batch.members, t->members, n);
}

/* Returns the reason if the event's values would bring a sum over VALUE_SUM_MAX. */
static const char *find_full_sum(struct tally *t, const struct counters_event *event)
{
    struct amounts *a = t->amounts;
    const struct counters *c = t->counters;
    for (size_t i = 0; i < c->n_totals; i++) {
        const struct counter_amount *amount = &event->amounts[i];
        if (!a->sum_of[i] || !amount->is_counted)
            continue;
        const struct value_sum *earlier = value_sums_find(&a->earlier, bytes_str(c->totals[i].ns));
        struct value_sum after = *a->sum_of[i];
        if (value_sum_add(&after, earlier ? earlier->sum : 0) &&
            value_sum_add(&after, value_magnitude(amount->n)))
            continue;
        snprintf(a->reason, sizeof a->reason, "%s would exceed 64 bits", c->totals[i].ns);
        return a->reason;
    }
    return NULL;
}

static void add_to_sums(struct tally *t, const struct counters_event *event)
{
    for (size_t i = 0; i < t->counters->n_totals; i++)
        if (t->amounts->sum_of[i] && event->amounts[i].is_counted)
            value_sum_add(t->amounts->sum_of[i], value_magnitude(event->amounts[i].n));
}

/* Notes which texts the event's counts and sets use, so that a limited counter has only keys with counts or sets. An
 * unlimited total has the lookups of all its keys, also of events that it does not count. */
static void note_needed(struct tally *t, const struct counters_event *event)
{
    const struct counters *c = t->counters;
    bool *is_needed = t->amounts->is_needed;
    memset(is_needed, 0, event->n_texts * sizeof *is_needed);
    for (size_t i = 0; i < t->n_counters; i++) {
        size_t text = event->text_of[i];
        bool is_free = i < c->n_totals && !(t->limits && t->limits[text]);
        if (is_free || event->amounts[i < c->n_totals ? i : c->subtotals[i - c->n_totals].total].is_counted)
            is_needed[text] = true;
    }
    for (size_t i = 0; i < c->n_uniques; i++)
        if (event->members[event->member_of[i]].len > 0)
            is_needed[event->text_of[c->uniques[i].total]] = true;
}

/* Interns the event's texts, and adds the lookups of new texts. */
static void take_texts(struct tally *t, const struct counters_event *event)
{
    struct interner *texts = t->batch.texts;
    interner_add_all(texts, event->texts, event->n_texts, t->ids);
    for (size_t i = 0; i < event->n_texts; i++) {
        struct interned *text = interner_get(texts, t->ids[i]);
        if (t->amounts && !t->amounts->is_needed[i])
            continue;
        if (t->limits && t->limits[i] && !key_limit_admits(t->limits[i], text->stored)) {
            t->ids[i] = interner_add(texts, BYTES_LITERAL(COMPONENT_OTHER));
            continue;
        }
        if (interned_is_hash(text) && text->lookup_mark != t->slice) {
            text->lookup_mark = t->slice;
            add_lookup(&t->batch, t->ids[i]);
        }
    }
}

/* Adds only the counts of totals, and their subtotals, that count the event. */
static void add_amounts(struct tally *t, const struct counters_event *event)
{
    struct amounts *a = t->amounts;
    const struct counters *c = t->counters;
    size_t n_counts = 0, n_sums = 0;
    for (size_t i = 0; i < t->n_counters; i++) {
        size_t total = i < c->n_totals ? i : c->subtotals[i - c->n_totals].total;
        if (!event->amounts[total].is_counted)
            continue;
        if (!a->sum_of[total]) {
            t->counts[n_counts++] = t->counts[i];
            continue;
        }
        a->n[n_sums] = event->amounts[total].n;
        a->slots[n_sums++] = t->counts[i];
    }
    count_table_add(t->batch.table, t->counts, n_counts);
    count_table_add_sums(t->batch.table, a->slots, a->n, n_sums);
}

/* Keeps the event's amounts for the minute ring. */
static void keep_row(struct tally *t, const struct counters_event *event)
{
    const struct amounts *a = t->amounts;
    for (size_t i = 0; a && t->ring && i < t->counters->n_totals; i++)
        if (a->value_of[i] != MINUTE_COUNTS)
            a->row[a->value_of[i]] = event->amounts[i].is_counted ? event->amounts[i].n : MINUTE_NO_VALUE;
}

enum counters_verdict tally_line(struct tally *t, struct bytes line, const char **reason, int64_t *time)
{
    struct counters_event event;
    enum counters_verdict verdict = counters_extract(t->reader, line, &event);
    *reason = verdict == COUNTERS_REJECTED ? event.reason : NULL;
    *time = event.time;
    if (verdict != COUNTERS_EVENT)
        return verdict;
    if (t->amounts && (*reason = find_full_sum(t, &event)))
        return COUNTERS_REJECTED;
    if (t->amounts) {
        add_to_sums(t, &event);
        note_needed(t, &event);
    }
    t->batch.events++;
    take_texts(t, &event);
    size_t n_totals = t->counters->n_totals;
    int64_t period = event.hour;
    if (event.time >= t->quarters_from)
        period = event.time - event.time % SECONDS_PER_QUARTER;
    else if (event.hour > t->batch.newest_hour)
        t->batch.newest_hour = event.hour;
    uint32_t tag = count_tag(t->batch.table, 0, period), next = count_tag(t->batch.table, 1, period) - tag;
    for (size_t i = 0; i < t->n_counters; i++, tag += next) {
        struct count_slot *c = &t->counts[i];
        bool is_total = i < n_totals;
        size_t total = is_total ? i : t->counters->subtotals[i - n_totals].total;
        *c = (struct count_slot){
            tag, t->ids[event.text_of[total]], is_total ? COUNT_NO_SUB : t->ids[event.text_of[i]], 1};
    }
    if (t->amounts)
        add_amounts(t, &event);
    else
        count_table_add(t->batch.table, t->counts, t->n_counters);
    if (t->counters->n_uniques > 0)
        add_members(t, &event, period);
    keep_row(t, &event);
    return COUNTERS_EVENT;
}

void tally_count_minute(struct tally *t, int64_t time)
{
    if (t->ring)
        minute_ring_add(t->ring, time, t->ids, t->amounts ? t->amounts->row : NULL);
}

void tally_refill_line(struct tally *t, struct bytes line)
{
    struct counters_event event;
    struct interner *texts = t->batch.texts;
    if (counters_extract(t->refill_reader, line, &event) != COUNTERS_EVENT ||
        (t->amounts && find_full_sum(t, &event)))
        return;
    interner_add_all(texts, event.texts, event.n_texts, t->ids);
    for (size_t i = 0; t->limits && i < event.n_texts; i++)
        if (t->limits[i] && !key_limit_would_admit(t->limits[i], interner_get(texts, t->ids[i])->stored))
            t->ids[i] = interner_add(texts, BYTES_LITERAL(COMPONENT_OTHER));
    keep_row(t, &event);
    tally_count_minute(t, event.time);
}

struct minute_columns tally_minute_columns(const struct tally *t)
{
    return (struct minute_columns){.counters = t->counters,
        .text_of = counters_reader_text_of(t->reader),
        .value_of = t->amounts ? t->amounts->value_of : NULL,
        .n_values = t->amounts ? t->amounts->n_row : 0};
}

const struct value_sums *tally_sums(const struct tally *t)
{
    static const struct value_sums none;
    return t->amounts ? &t->amounts->sums : &none;
}

void tally_begin_sums(struct tally *t, const struct value_sums *slice)
{
    for (size_t i = 0; t->amounts && i < slice->n; i++) {
        struct value_sum *sum = value_sums_find(&t->amounts->sums, bytes_str(slice->list[i].ns));
        if (sum)
            value_sum_add(sum, slice->list[i].sum);
    }
}

void tally_set_earlier_sums(struct tally *t, const struct value_sums *earlier)
{
    if (!t->amounts)
        return;
    value_sums_free(&t->amounts->earlier);
    t->amounts->earlier = value_sums_copy(earlier);
}

struct batch *tally_batch(struct tally *t)
{
    return &t->batch;
}

static bool texts_are_large(const struct tally *t)
{
    return interner_bytes(t->batch.texts) > t->max_memory / TEXTS_SHARE ||
           interner_count(t->batch.texts) > INTERNER_IDS_MAX / 2;
}

bool tally_is_large(const struct tally *t)
{
    const struct batch *b = &t->batch;
    return count_table_bytes(b->table) + count_table_bytes(b->members) > t->max_memory / TABLE_SHARE ||
           b->events >= TALLY_EVENTS_MAX || b->rejects.cap > t->max_memory / TABLE_SHARE ||
           texts_are_large(t);
}

size_t tally_bytes(const struct tally *t)
{
    return batch_bytes(&t->batch) + interner_bytes(t->batch.texts);
}

struct batch tally_take(struct tally *t, bool ends_slice)
{
    struct batch taken = t->batch;
    taken.owns_texts = texts_are_large(t);
    t->slice += ends_slice || taken.owns_texts;
    for (size_t i = 0; ends_slice && t->limits && i < t->n_counters; i++)
        if (t->limits[i])
            key_limit_clear(t->limits[i]);
    for (size_t i = 0; ends_slice && t->amounts && i < t->amounts->sums.n; i++)
        t->amounts->sums.list[i].sum = 0;
    if (taken.owns_texts)
        begin_texts(t);
    else
        begin_batch(t, taken.texts);
    return taken;
}

struct picked {
    uint32_t *ids;
    size_t n, room;
};

static void add_picked(void *arg, uint32_t id)
{
    struct picked *p = arg;
    *ARRAY_ADD(p->ids, p->n, p->room) = id;
}

struct batch batch_copy(const struct batch *b)
{
    struct batch out = {
        .texts = b->texts, .table = count_table_copy(b->table), .members = count_table_copy(b->members)};
    for (size_t i = 0; i < b->n_lookups; i++)
        add_lookup(&out, b->lookups[i]);
    return out;
}

static struct picked pick_ids(const struct batch *b, const struct bytes *stored, size_t n)
{
    struct picked p = {.ids = mem_alloc(PICKED_FIRST * sizeof *p.ids), .room = PICKED_FIRST};
    for (size_t i = 0; i < n; i++)
        interner_find_stored(b->texts, stored[i], add_picked, &p);
    return p;
}

struct batch batch_pick(const struct batch *b, const struct batch_choice *c)
{
    struct picked keys = pick_ids(b, c->components, c->n_components),
                  subs = pick_ids(b, c->names, c->n_names);
    struct batch out = {.texts = b->texts};
    struct count_choice choice = {.wanted = c->wanted + c->n_counters,
        .keys = keys.ids,
        .n_keys = keys.n,
        .n_ids = interner_count(b->texts),
        .most = c->most};
    out.members = count_table_pick(b->members, &choice);
    choice.wanted = c->wanted;
    choice.subs = c->n_names > 0 ? subs.ids : NULL;
    choice.n_subs = subs.n;
    out.table = out.members ? count_table_pick(b->table, &choice) : NULL;
    for (size_t i = 0; i < keys.n; i++) {
        const struct interned *t = interner_get(b->texts, keys.ids[i]);
        if (interned_is_hash(t) && t->lookup_mark >= b->lookup_mark)
            add_lookup(&out, keys.ids[i]);
    }
    free(keys.ids);
    free(subs.ids);
    return out;
}

size_t batch_sources(const struct batch *b, const struct counters *counters, const struct count_range *range,
    struct count_source **out)
{
    out[0] = count_table_source(b->table, b->texts, counters, range);
    out[1] = count_lookup_source(b->texts, b->lookups, b->n_lookups, range);
    out[2] = count_table_source(b->members, b->texts, counters, range);
    return BATCH_SOURCES;
}
