#include "compactor/slice_audit.h"

#include "counts/counters.h"

#include <inttypes.h>
#include <stdlib.h>

struct counter_sum {
    struct bytes ns; /* part of the audit's text */
    uint64_t sum;    /* modulo 2^64, like every sum of the two's complements of counts */
};

struct slice_audit {
    char *path, *text;
    uint64_t events;
    struct value_sums values;
    struct counter_sum *sums;
    size_t n, room;
};

struct audited {
    struct count_source base; /* first */
    struct count_source *run;
    struct slice_audit *audit;
    uint64_t *sum; /* sum of the current record's counter; NULL for a lookup */
};

struct slice_audit *slice_audit_new(const char *path, const struct slice_state *state)
{
    struct slice_audit *a = mem_zalloc(sizeof *a);
    struct bytes kind, ns, line;
    a->path = mem_strdup(path);
    a->text = mem_strdup(state->counters);
    a->events = state->tally.events;
    a->values = value_sums_copy(&state->sums);
    for (const char *lines = a->text; bytes_next_word(&lines, "\n", &line);) {
        char *words = bytes_dup(line);
        const char *rest = words;
        if (bytes_next_word(&rest, " ", &kind) && bytes_next_word(&rest, " ", &ns) &&
            (bytes_equal_str(kind, "total") || bytes_equal_str(kind, "subtotal"))) {
            ns.ptr = line.ptr + (ns.ptr - words); /* the same bytes in a->text, which outlives `words` */
            if (a->n == 0 || !bytes_equal(a->sums[a->n - 1].ns, ns))
                *ARRAY_ADD(a->sums, a->n, a->room) = (struct counter_sum){ns, 0};
        }
        free(words);
    }
    return a;
}

void slice_audit_free(struct slice_audit **a)
{
    if (!*a)
        return;
    free((*a)->path);
    free((*a)->text);
    free((*a)->sums);
    value_sums_free(&(*a)->values);
    free(*a);
    *a = NULL;
}

static enum count_next next_value(struct count_source *base)
{
    struct audited *s = (struct audited *)base;
    enum count_next r = count_source_follow(base, s->run, s->run->kind->next_value(s->run));
    if (r == COUNT_FOUND && s->sum)
        *s->sum += (uint64_t)base->count;
    return r;
}

static enum count_next next_record(struct count_source *base)
{
    struct audited *s = (struct audited *)base;
    enum count_next r = COUNT_END;
    while (base->key.len > 0 && (r = next_value(base)) == COUNT_FOUND)
        ;
    if (r == COUNT_FAILED)
        return r;
    r = count_source_follow(base, s->run, s->run->kind->next_record(s->run));
    if (r != COUNT_FOUND)
        return r;
    struct slice_audit *a = s->audit;
    const char *bar = memchr(base->key.ptr, '|', base->key.len);
    struct bytes ns = bytes_of(base->key.ptr, bar ? (size_t)(bar - base->key.ptr) : 0);
    s->sum = NULL;
    for (size_t i = 0; i < a->n && !s->sum; i++)
        s->sum = bytes_equal(a->sums[i].ns, ns) ? &a->sums[i].sum : NULL;
    return r;
}

static void close_source(struct count_source *base)
{
    count_source_close(&((struct audited *)base)->run);
    free(base);
}

struct count_source *slice_audit_source(struct slice_audit *a, struct count_source *run)
{
    static const struct count_source_kind kind = {next_record, next_value, close_source, NULL};
    struct audited *s = mem_zalloc(sizeof *s);
    s->base.kind = &kind;
    s->base.container = run->container;
    s->run = run;
    s->audit = a;
    return &s->base;
}

void slice_audit_add(struct slice_audit *a, const struct slice_audit *part)
{
    for (size_t i = 0; i < a->n; i++)
        a->sums[i].sum += part->sums[i].sum;
}

/* Returns the sum of a counter's total, or NULL. */
static const struct counter_sum *total_of(const struct slice_audit *a, struct bytes ns)
{
    const char *dot = memchr(ns.ptr, '.', ns.len);
    struct bytes total = dot ? bytes_of(dot + 1, ns.len - (size_t)(dot + 1 - ns.ptr)) : ns;
    for (size_t i = 0; i < a->n; i++)
        if (bytes_equal(a->sums[i].ns, total))
            return &a->sums[i];
    return NULL;
}

enum compact_result slice_audit_check(const struct slice_audit *a, struct error *error)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct counter_sum *s = &a->sums[i], *total = total_of(a, s->ns);
        const struct value_sum *value = value_sums_find(&a->values, s->ns);
        if (!total || s->sum != total->sum)
            return error_set(error, COMPACT_DAMAGED,
                "%.300s: the counts of %.*s add up to %" PRId64 ", but those of its total to %" PRId64,
                a->path, (int)s->ns.len, s->ns.ptr, (int64_t)s->sum, (int64_t)(total ? total->sum : 0));
        if (value
                ? value_magnitude((int64_t)s->sum) <= value->sum
                : s->sum == a->events || (counters_text_has_having(a->text, total->ns) && s->sum < a->events))
            continue;
        return error_set(error, COMPACT_DAMAGED,
            "%.300s: the counts of %.*s add up to %" PRId64 ", but the slice has %" PRIu64 " %s", a->path,
            (int)s->ns.len, s->ns.ptr, (int64_t)s->sum, value ? value->sum : a->events,
            value ? "as the sum of absolute values" : "events");
    }
    return COMPACT_OK;
}
