#include "counts/mean.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

__extension__ typedef unsigned __int128 wide;

static bool divides(const struct counter *total, const struct counter *value)
{
    return value->value && total->having && strcmp(total->having, value->value) == 0 &&
           counter_has_key_of(total, value);
}

static bool is_fit(const struct counter *divisor, const struct counter *of)
{
    return counter_has_key_of(divisor, of) && divisor->max_keys == of->max_keys;
}

static bool is_subtotal(const struct counters *c, const struct counter *of)
{
    return of >= c->subtotals && of < c->subtotals + c->n_subtotals;
}

static const struct counter *find_total(const struct counters *c, const struct counter *value)
{
    for (size_t i = 0; i < c->n_totals; i++)
        if (divides(&c->totals[i], value) && c->totals[i].max_keys == value->max_keys)
            return &c->totals[i];
    return NULL;
}

const struct counter *mean_divisor(const struct counters *c, const struct counter *of)
{
    if (!is_subtotal(c, of))
        return find_total(c, of);
    const struct counter *total = find_total(c, &c->totals[of->total]);
    for (size_t i = 0; total && i < c->n_subtotals; i++)
        if (&c->totals[c->subtotals[i].total] == total && is_fit(&c->subtotals[i], of))
            return &c->subtotals[i];
    return NULL;
}

/* True if `divisor` is meant for means of `of`, and the rules do not allow this. */
static bool is_unfit(const struct counters *c, const struct counter *divisor, const struct counter *of)
{
    bool is_sub = is_subtotal(c, of);
    if (is_sub != is_subtotal(c, divisor) || is_fit(divisor, of))
        return false;
    if (!is_sub)
        return divides(divisor, of) && !find_total(c, of);
    return divides(&c->totals[divisor->total], &c->totals[of->total]) &&
           strcmp(divisor->label, of->label) == 0;
}

const struct counter *mean_find_unfit(const struct counters *c, const struct counter **of)
{
    size_t n = c->n_totals + c->n_subtotals;
    for (size_t i = 0; i < n; i++) {
        *of = counters_at(c, i);
        for (size_t j = 0; (*of)->value && j < n; j++)
            if (is_unfit(c, counters_at(c, j), *of))
                return counters_at(c, j);
    }
    return NULL;
}

static void append_key(const struct counter *of, struct buf *out)
{
    buf_printf(out, "key = %s\n", of->key_text);
    if (of->max_keys > 0)
        buf_printf(out, "max_keys = %" PRIu64 "\n", of->max_keys);
}

/* Appends a free namespace for the divisor of a total: `revenue_n`, or `revenue_n2`. */
static void append_namespace(const struct counters *c, const struct counter *total, struct buf *ns)
{
    struct buf end = {0};
    for (unsigned i = 1;; i++) {
        buf_clear(ns);
        buf_clear(&end);
        buf_printf(&end, i > 1 ? "_n%u" : "_n", i);
        buf_printf(ns, "%.*s%.*s", (int)(NAMESPACE_MAX - end.len), total->ns, (int)end.len, end.ptr);
        if (!counters_find(c, buf_bytes(ns)) && !counters_find_total_label(c, buf_bytes(ns)))
            break;
    }
    buf_free(&end);
}

void mean_append_sections(const struct counters *c, const struct counter *of, struct buf *out)
{
    const struct counter *total = is_subtotal(c, of) ? &c->totals[of->total] : of,
                         *divisor = find_total(c, total);
    struct buf ns = {0};
    if (divisor) {
        buf_append_str(&ns, divisor->ns);
    } else {
        append_namespace(c, total, &ns);
        buf_printf(out, "[total %.*s]\n", (int)ns.len, ns.ptr);
        append_key(total, out);
        buf_printf(out, "having = %s\n", total->value);
    }
    if (of != total) {
        buf_printf(out, "[subtotal %.*s.%.*s]\n", (int)strcspn(of->ns, "."), of->ns, (int)ns.len, ns.ptr);
        append_key(of, out);
        buf_printf(out, "label = %s\n", of->label);
    }
    buf_free(&ns);
}

size_t mean_print(int64_t sum, int64_t events, unsigned scale, char out[MEAN_TEXT_MAX])
{
    assert(events > 0 && scale <= DECIMAL_SCALE_MAX);
    wide magnitude = sum < 0 ? 0 - (uint64_t)sum : (uint64_t)sum, by = (uint64_t)events;
    uint64_t unit = 1;
    for (unsigned i = 0; i < MEAN_MORE_DIGITS; i++)
        magnitude *= 10;
    for (unsigned i = 0; i < scale + MEAN_MORE_DIGITS; i++)
        unit *= 10;
    wide mean = magnitude / by, twice = magnitude % by * 2;
    mean += twice > by || (twice == by && mean % 2 == 1);
    return (size_t)snprintf(out, MEAN_TEXT_MAX, "%s%" PRIu64 ".%0*" PRIu64, sum < 0 && mean > 0 ? "-" : "",
        (uint64_t)(mean / unit), (int)(scale + MEAN_MORE_DIGITS), (uint64_t)(mean % unit));
}
