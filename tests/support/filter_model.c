#include "support/filter_model.h"

#include "support/cm.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

struct text {
    char bytes[48];
};

static struct bytes text_of(uint32_t number, struct text *t)
{
    return bytes_of(
        t->bytes, (size_t)snprintf(t->bytes, sizeof t->bytes, "site-%u.example/path/%u", number * 7, number));
}

struct filter_model filter_model_new(unsigned seed, uint64_t n, uint32_t texts, unsigned same)
{
    struct filter_model m = {mem_alloc(n * sizeof *m.updates), n, texts};
    uint32_t *live = mem_alloc(n * sizeof *live), n_live = 0;
    uint32_t id = 1;
    for (uint64_t i = 0; i < n; i++) {
        if (n_live > 0 && rand_r(&seed) % 11 == 0) {
            uint64_t victim = ((uint64_t)rand_r(&seed) << 20 ^ (uint64_t)rand_r(&seed)) % n_live;
            m.updates[i] = m.updates[live[victim]];
            m.updates[i].is_remove = true;
            live[victim] = live[--n_live];
        } else {
            id += rand_r(&seed) % same == 0;
            uint32_t text = (uint32_t)(((uint64_t)rand_r(&seed) << 20 ^ (uint64_t)rand_r(&seed)) % texts);
            m.updates[i] = (struct filter_update){text, id, false};
            live[n_live++] = (uint32_t)i;
        }
    }
    free(live);
    return m;
}

void filter_model_free(struct filter_model *m)
{
    free(m->updates);
    m->updates = NULL;
}

static enum filter_result apply(
    const struct filter_update *u, struct filter *f, uint64_t sequence, struct error *error)
{
    struct text t;
    struct bytes text = text_of(u->text, &t);
    if (u->is_remove)
        return filter_remove(f, text, u->id, sequence, error);
    enum filter_result r = filter_add(f, text, u->id, sequence, error);
    assert_true(r != FILTER_OK || filter_check(f, text));
    return r;
}

enum filter_result filter_model_apply(const struct filter_model *m, struct filter *f, uint64_t from,
    uint64_t to, uint64_t every, uint64_t *synced, struct error *error)
{
    for (uint64_t s = from; s <= to; s++) {
        enum filter_result r = apply(&m->updates[s - 1], f, s, error);
        if (r == FILTER_OK && s % every == 0)
            r = filter_sync(f, error);
        if (r != FILTER_OK)
            return r;
        *synced = s % every == 0 ? s : *synced;
    }
    return FILTER_OK;
}

/* For each update: an add whose member is not removed by update `to`. */
static bool *living(const struct filter_model *m, uint64_t to)
{
    bool *is_live = mem_zalloc(to + 1);
    uint32_t *newest = mem_zalloc(m->texts * sizeof *newest), *older = mem_zalloc((to + 1) * sizeof *older);
    for (uint64_t i = 0; i < to; i++) {
        const struct filter_update *u = &m->updates[i];
        uint32_t *at = &newest[u->text];
        if (!u->is_remove) {
            is_live[i] = true;
            older[i] = *at;
            *at = (uint32_t)i + 1;
            continue;
        }
        uint32_t k = *at;
        while (m->updates[k - 1].id != u->id || !is_live[k - 1])
            k = older[k - 1];
        is_live[k - 1] = false;
    }
    free(newest);
    free(older);
    return is_live;
}

uint64_t filter_model_check(const struct filter_model *m, const struct filter *f, uint64_t to)
{
    bool *is_live = living(m, to);
    uint64_t n = 0;
    for (uint64_t i = 0; i < to; i++) {
        struct text t;
        n += is_live[i];
        if (is_live[i] && !filter_check(f, text_of(m->updates[i].text, &t)))
            fail_msg("the member %s is not in the filter", t.bytes);
    }
    free(is_live);
    assert_int_equal(filter_stats(f).members, n);
    return n;
}

void filter_model_empty(const struct filter_model *m, struct filter *f, uint64_t to)
{
    bool *is_live = living(m, to);
    struct error error;
    for (uint64_t i = to; i-- > 0;)
        if (is_live[i]) {
            struct text t;
            struct bytes text = text_of(m->updates[i].text, &t);
            assert_int_equal(
                filter_remove(f, text, m->updates[i].id, filter_sequence(f) + 1, &error), FILTER_OK);
        }
    free(is_live);
    assert_int_equal(filter_stats(f).members, 0);
}

uint64_t filter_model_false(const struct filter *f, uint64_t n)
{
    uint64_t found = 0;
    for (uint64_t i = 0; i < n; i++) {
        char text[48];
        found += filter_check(f,
            bytes_of(text, (size_t)snprintf(text, sizeof text, "other-%llu.example", (unsigned long long)i)));
    }
    return found;
}

void assert_no_counters(const char *path)
{
    static unsigned char page[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;
    for (off_t at = sizeof page; (got = pread(fd, page, sizeof page, at)) > 0; at += got)
        for (ssize_t i = 0; i < got; i++)
            if (page[i] != 0)
                fail_msg("a counter at %lld is not 0", (long long)at + i);
    assert_int_equal(got, 0);
    close(fd);
}
