/* counters_find: finds counters by namespace and label, compares them, and prints the settings of similar ones. */
#include "counts/counters.h"

const struct counter *counters_find_in(const struct counter *list, size_t n, struct bytes ns)
{
    for (size_t i = 0; i < n; i++)
        if (bytes_equal_str(ns, list[i].ns))
            return &list[i];
    return NULL;
}

static bool is_same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

bool counter_has_key_of(const struct counter *a, const struct counter *b)
{
    return a->kind == b->kind && a->function == b->function && strcmp(a->field, b->field) == 0 &&
           is_same_text(a->argument, b->argument);
}

bool counter_adds_as(const struct counter *a, const struct counter *b)
{
    return is_same_text(a->value, b->value) && is_same_text(a->having, b->having) &&
           a->decimal.scale == b->decimal.scale && a->decimal.rounds == b->decimal.rounds;
}

void counter_append_adding(const struct counter *c, struct buf *out)
{
    if (c->value)
        buf_printf(out, "value = %s\nscale = %u\n%s", c->value, c->decimal.scale,
            c->decimal.rounds ? "round = half_even\n" : "");
    if (c->having)
        buf_printf(out, "having = %s\n", c->having);
}

const struct counter *counters_find(const struct counters *c, struct bytes ns)
{
    const struct counter *found = counters_find_in(c->totals, c->n_totals, ns);
    return found ? found : counters_find_in(c->subtotals, c->n_subtotals, ns);
}

const struct counter *counters_find_unique(const struct counters *c, struct bytes ns)
{
    return counters_find_in(c->uniques, c->n_uniques, ns);
}

const struct counter *counters_find_total_label(const struct counters *c, struct bytes label)
{
    for (size_t i = 0; i < c->n_totals; i++)
        if (bytes_equal_str(label, c->totals[i].label))
            return &c->totals[i];
    return NULL;
}

static const struct counter *find_label(const struct counters *c, const struct counter *list, size_t n,
    const struct counter *total, struct bytes label)
{
    for (size_t i = 0; i < n; i++)
        if (&c->totals[list[i].total] == total && bytes_equal_str(label, list[i].label))
            return &list[i];
    return NULL;
}

const struct counter *counters_find_sub_label(
    const struct counters *c, const struct counter *total, struct bytes label)
{
    return find_label(c, c->subtotals, c->n_subtotals, total, label);
}

const struct counter *counters_find_unique_label(
    const struct counters *c, const struct counter *total, struct bytes label)
{
    return find_label(c, c->uniques, c->n_uniques, total, label);
}
