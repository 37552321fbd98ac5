#include "pubsub/stream/limits.h"

#include <stdio.h>
#include <stdlib.h>

#define SEGMENTS_MIN 3 /* the one being written, the one ready for what follows, and one with lines to read */

struct limits_section {
    struct bytes name; /* without its `*` */
    bool is_prefix;
    struct stream_limits limits;
};
struct limits {
    struct stream_limits all;
    struct limits_section *sections;
    size_t n;
};

static const char *const names[] = {"retain_bytes", "retain_age", "disk_limit"};
enum { RETAIN_BYTES, RETAIN_AGE, DISK_LIMIT, N_NAMES };

static void set(struct stream_limits *l, size_t which, int64_t number)
{
    if (which == RETAIN_BYTES)
        l->retain_bytes = (uint64_t)number;
    else if (which == RETAIN_AGE)
        l->retain_age = number * USEC_PER_MSEC;
    else
        l->disk_limit = (uint64_t)number;
}

/* NULL, or why the three do not fit together. */
static const char *check(const struct stream_limits *l, uint64_t segment_bytes)
{
    if (l->disk_limit && l->disk_limit < SEGMENTS_MIN * segment_bytes)
        return "disk_limit must be at least three times segment_bytes";
    if (l->disk_limit && l->retain_bytes > l->disk_limit)
        return "retain_bytes must not exceed disk_limit, or the kept lines would stop all publishes";
    return NULL;
}

static int read_entry(const struct config *c, const struct config_entry *e, const struct option_row *rows,
    struct stream_limits *l, struct config_error *error)
{
    char why[300];
    int64_t number;
    size_t which = 0;
    while (which < N_NAMES && strcmp(names[which], e->key) != 0)
        which++;
    if (which == N_NAMES)
        return config_fail(error, c, e->line,
            "unknown setting %s; a stream has retain_bytes, retain_age and disk_limit", e->key);
    while (strcmp(rows->name, e->key) != 0)
        rows++;
    if (option_value_read(rows, e->value, &number, why, sizeof(why)) != 0)
        return config_fail(error, c, e->line, "%s = %s %s", e->key, e->value, why);
    set(l, which, number);
    return 0;
}

static int read_section(struct limits *l, const struct config *c, const struct config_section *s,
    const struct option_row *rows, uint64_t segment_bytes, struct config_error *error)
{
    struct limits_section out = {.name = bytes_str(s->name), .limits = l->all};
    if (out.name.len && out.name.ptr[out.name.len - 1] == '*') {
        out.is_prefix = true;
        out.name.len--;
    }
    if (!bytes_is_name(out.name) && !(out.is_prefix && out.name.len == 0))
        return config_fail(error, c, s->line, "[stream %s]: invalid stream name", s->name);
    for (size_t i = 0; i < s->n_entries; i++)
        if (read_entry(c, &s->entries[i], rows, &out.limits, error) != 0)
            return -1;
    const char *why = check(&out.limits, segment_bytes);
    if (why)
        return config_fail(error, c, s->line, "%s", why);
    l->sections = mem_realloc(l->sections, (l->n + 1) * sizeof(*l->sections));
    l->sections[l->n++] = out;
    return 0;
}

static int read_all(
    struct limits *l, const struct options *o, const struct option_row *rows, struct config_error *error)
{
    const struct config *c = options_config(o);
    uint64_t segment_bytes = (uint64_t)options_int(o, "segment_bytes");
    for (size_t i = 0; i < N_NAMES; i++)
        set(&l->all, i, options_int(o, names[i]));
    const char *why = check(&l->all, segment_bytes);
    if (why)
        return options_refuse(o, "disk_limit", error, "%s", why);
    for (size_t i = 0; c && i < c->n_sections; i++)
        if (strcmp(c->sections[i].kind, "stream") == 0 &&
            read_section(l, c, &c->sections[i], rows, segment_bytes, error) != 0)
            return -1;
    return 0;
}

int limits_read(
    const struct options *o, const struct option_row *rows, struct limits **out, struct config_error *error)
{
    struct limits *l = mem_zalloc(sizeof(*l));
    if (read_all(l, o, rows, error) != 0) {
        limits_free(&l);
        return -1;
    }
    *out = l;
    return 0;
}

void limits_free(struct limits **l)
{
    if (!*l)
        return;
    free((*l)->sections);
    free(*l);
    *l = NULL;
}

struct stream_limits limits_of(void *limits, const char *stream)
{
    const struct limits *l = limits;
    const struct limits_section *best = NULL;
    struct bytes name = bytes_str(stream);
    for (size_t i = 0; i < l->n; i++) {
        const struct limits_section *s = &l->sections[i];
        bool fits = s->is_prefix ? bytes_starts_with(name, s->name) : bytes_equal(name, s->name);
        bool better = !best || (best->is_prefix && (!s->is_prefix || s->name.len > best->name.len));
        if (fits && better)
            best = s;
    }
    return best ? best->limits : l->all;
}
