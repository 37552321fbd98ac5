#include "aggregator/tally.h"

#include "counts/records.h"

#include <stdlib.h>

struct stored {
    struct bytes text;
    char space[COMPONENT_HASH + 1];
};

struct tally {
    const struct counters *counters;
    struct counters_reader *reader;
    struct stored *totals; /* the stored keys of the event at hand */
    struct buf key;
    uint64_t collisions;
};

struct tally *tally_new(const struct counters *counters)
{
    struct tally *t = mem_zalloc(sizeof(*t));
    t->counters = counters;
    t->reader = counters_reader_new(counters);
    t->totals = mem_zalloc((counters->n_totals + 1) * sizeof(*t->totals));
    return t;
}

void tally_free(struct tally **t)
{
    if (!*t)
        return;
    counters_reader_free(&(*t)->reader);
    free((*t)->totals);
    buf_free(&(*t)->key);
    free(*t);
    *t = NULL;
}

static void store(struct tally *t, struct bytes full, struct stored *out, struct count_map *rows)
{
    out->text = component_store(full, out->space);
    if (!component_is_hash(out->text))
        return;
    buf_clear(&t->key);
    buf_append_str(&t->key, "lookup|");
    buf_append_bytes(&t->key, out->text);
    buf_append_char(&t->key, RECORD_SEPARATOR);
    if (!count_map_put_text(rows, buf_bytes(&t->key), full))
        t->collisions++;
}

static void start_key(struct tally *t, const char *ns, struct bytes key)
{
    buf_clear(&t->key);
    buf_append_str(&t->key, ns);
    buf_append_char(&t->key, '|');
    buf_append_bytes(&t->key, key);
}

static void count_total(
    struct tally *t, size_t i, struct bytes full, struct bytes hour, struct count_map *rows)
{
    store(t, full, &t->totals[i], rows);
    start_key(t, t->counters->totals[i].ns, t->totals[i].text);
    buf_append_char(&t->key, RECORD_SEPARATOR);
    buf_append_bytes(&t->key, hour);
    count_map_add(rows, buf_bytes(&t->key), 1);
}

static void count_sub(struct tally *t, size_t i, struct bytes full, struct bytes hour, struct count_map *rows)
{
    const struct counter *c = &t->counters->subtotals[i];
    struct stored sub;
    store(t, full, &sub, rows);
    start_key(t, c->ns, t->totals[c->total].text);
    buf_append_char(&t->key, '.');
    buf_append_bytes(&t->key, hour);
    buf_append_char(&t->key, RECORD_SEPARATOR);
    buf_append_bytes(&t->key, sub.text);
    count_map_add(rows, buf_bytes(&t->key), 1);
}

enum counters_verdict tally_line(
    struct tally *t, struct bytes line, struct count_map *rows, const char **reason)
{
    struct counters_event event;
    char text[HOUR_TEXT_MAX + 1];
    enum counters_verdict verdict = counters_extract(t->reader, line, &event);
    *reason = verdict == COUNTERS_REJECTED ? event.reason : NULL;
    if (verdict != COUNTERS_EVENT)
        return verdict;
    struct bytes hour = bytes_of(text, hour_encode(event.hour, text));
    if (hour.len == 0) {
        *reason = "its year is not 2000 to 2159";
        return COUNTERS_REJECTED;
    }
    for (size_t i = 0; i < t->counters->n_totals; i++)
        count_total(t, i, event.total_keys[i], hour, rows);
    for (size_t i = 0; i < t->counters->n_subtotals; i++)
        count_sub(t, i, event.sub_keys[i], hour, rows);
    return COUNTERS_EVENT;
}

uint64_t tally_collisions(const struct tally *t)
{
    return t->collisions;
}
