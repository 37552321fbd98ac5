#include "counts/coarse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const units[] = {[COARSE_DAY] = "day", [COARSE_MONTH] = "month"};

const char *coarse_unit_name(enum coarse_unit unit)
{
    return units[unit];
}

static struct coarse_counter *find(const struct coarse *c, struct bytes ns)
{
    for (size_t i = 0; i < c->n; i++)
        if (bytes_equal_str(ns, c->list[i].ns))
            return &c->list[i].counter;
    return NULL;
}

static void join(struct coarse_span *s, const struct coarse_span *more)
{
    if (more->to == 0)
        return;
    if (s->to == 0) {
        *s = *more;
        return;
    }
    s->from = more->from < s->from ? more->from : s->from;
    s->to = more->to > s->to ? more->to : s->to;
    if (strcmp(s->zone, more->zone) != 0)
        memset(s->zone, 0, sizeof s->zone);
}

void coarse_add(struct coarse *c, struct bytes ns, enum coarse_unit unit, const struct coarse_span *span)
{
    struct coarse_counter *counter = find(c, ns);
    if (!counter) {
        c->list = mem_realloc(c->list, (c->n + 1) * sizeof *c->list);
        memset(&c->list[c->n], 0, sizeof c->list[c->n]);
        memcpy(c->list[c->n].ns, ns.ptr, ns.len);
        counter = &c->list[c->n++].counter;
    }
    join(&counter->of[unit], span);
}

void coarse_join(struct coarse *c, const struct coarse *more)
{
    for (size_t i = 0; i < more->n; i++)
        for (int u = 0; u < COARSE_UNITS; u++)
            if (more->list[i].counter.of[u].to != 0)
                coarse_add(c, bytes_str(more->list[i].ns), (enum coarse_unit)u, &more->list[i].counter.of[u]);
}

void coarse_counter_join(struct coarse_counter *counter, const struct coarse_counter *more)
{
    for (int u = 0; u < COARSE_UNITS; u++)
        join(&counter->of[u], &more->of[u]);
}

void coarse_drop_before(struct coarse_counter *counter, int64_t time)
{
    static const int64_t shortest[] = {[COARSE_DAY] = 23 * 3600, [COARSE_MONTH] = 28 * 86400};
    for (int u = 0; u < COARSE_UNITS; u++) {
        struct coarse_span *s = &counter->of[u];
        if (s->from >= time)
            continue;
        s->from = time;
        if (s->to < time + shortest[u])
            memset(s, 0, sizeof *s);
    }
}

struct coarse_counter coarse_of(const struct coarse *c, struct bytes ns)
{
    const struct coarse_counter *counter = find(c, ns);
    return counter ? *counter : (struct coarse_counter){0};
}

void coarse_free(struct coarse *c)
{
    free(c->list);
    *c = (struct coarse){.n = 0};
}

void coarse_print(const struct coarse_counter *counter, struct buf *out)
{
    const char *before = "";
    for (int u = 0; u < COARSE_UNITS; u++) {
        const struct coarse_span *s = &counter->of[u];
        if (s->to == 0)
            continue;
        buf_printf(out, "%s%s %" PRId64 " %" PRId64 " %s", before, units[u], s->from, s->to,
            s->zone[0] ? s->zone : "-");
        before = " ";
    }
}

static bool read_unit(struct bytes word, enum coarse_unit *unit)
{
    for (int u = 0; u < COARSE_UNITS; u++)
        if (bytes_equal_str(word, units[u])) {
            *unit = (enum coarse_unit)u;
            return true;
        }
    return false;
}

bool coarse_read(struct bytes text, struct coarse_counter *out)
{
    char *copy = bytes_dup(text);
    const char *rest = copy;
    struct bytes unit_text, from, to, zone;
    enum coarse_unit unit;
    bool is_valid = true;
    *out = (struct coarse_counter){0};
    while (is_valid && bytes_next_word(&rest, " ", &unit_text)) {
        struct coarse_span s = {0};
        is_valid = read_unit(unit_text, &unit) && bytes_next_word(&rest, " ", &from) &&
                   bytes_next_word(&rest, " ", &to) && bytes_next_word(&rest, " ", &zone) &&
                   bytes_to_i64(from, &s.from) && bytes_to_i64(to, &s.to) && s.from < s.to && s.to > 0 &&
                   zone.len < sizeof s.zone;
        if (!is_valid)
            break;
        if (!bytes_equal_str(zone, "-"))
            memcpy(s.zone, zone.ptr, zone.len);
        out->of[unit] = s;
    }
    free(copy);
    return is_valid;
}
