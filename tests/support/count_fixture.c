#include "support/count_fixture.h"

#include "counts/records.h"

#include <assert.h>
#include <stdio.h>

#define FIRST_HOUR INT64_C(1330560000) /* 2012-03-01T00 */

void count_fixture_begin(struct count_fixture *f)
{
    struct config *config = NULL;
    struct error e;
    struct bytes text = BYTES_LITERAL("[input]\ntime = t\n[total u]\nkey = l\n[subtotal c.u]\nkey = c\n");
    *f = (struct count_fixture){.texts = interner_new(7), .table = count_table_new(7, 0)};
    int failed =
        config_parse("test.conf", text, &config, &e) != 0 || counters_read(config, &f->counters, &e) != 0;
    assert(!failed);
    (void)failed;
    config_free(&config);
}

void count_fixture_end(struct count_fixture *f)
{
    counters_free(&f->counters);
    interner_free(&f->texts);
    count_table_free(&f->table);
}

static uint32_t intern(struct count_fixture *f, const char *text)
{
    uint32_t id = interner_add(f->texts, bytes_str(text));
    struct interned *t = interner_get(f->texts, id);
    if (interned_is_hash(t) && t->lookup_mark == 0) {
        t->lookup_mark = 1;
        f->lookups[f->n_lookups++] = id;
    }
    return id;
}

static void add(struct count_fixture *f, struct count_slot key)
{
    count_table_add(f->table, &key, 1);
}

void count_fixture_add(
    struct count_fixture *f, const char *user, const char *country, int hours, uint32_t count)
{
    int64_t hour = FIRST_HOUR + hours * INT64_C(3600);
    uint32_t key = intern(f, user);
    add(f, (struct count_slot){count_tag(f->table, 0, hour), key, COUNT_NO_SUB, count});
    if (country)
        add(f, (struct count_slot){count_tag(f->table, 1, hour), key, intern(f, country), count});
}

void count_fixture_sources(
    const struct count_fixture *f, const struct count_range *range, struct count_source *out[2])
{
    out[0] = count_table_source(f->table, f->texts, f->counters, range);
    out[1] = count_lookup_source(f->texts, f->lookups, f->n_lookups, range);
}

int count_fixture_print(struct count_source **sources, size_t n, struct buf *out, struct error *error)
{
    struct count_merge *m = count_merge_new(sources, n);
    enum count_next r;
    while ((r = count_merge_next_record(m)) == COUNT_FOUND)
        if ((r = count_merge_print(m, out)) == COUNT_FAILED)
            break;
    *error = r == COUNT_FAILED ? *count_merge_error(m) : (struct error){0};
    count_merge_free(&m);
    for (size_t i = 0; i < n; i++)
        count_source_close(&sources[i]);
    return r == COUNT_FAILED ? -1 : 0;
}
