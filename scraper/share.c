#include "scraper/share.h"

#include "base/xxh3.h"

#include <stdlib.h>

static int compare_seeds(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

void share_set_shard(struct share *s, unsigned shard, unsigned n_shards)
{
    share_free(s);
    s->seeds = mem_alloc(n_shards * sizeof *s->seeds);
    for (s->n = 0; s->n < n_shards; s->n++)
        s->seeds[s->n] = s->n + 1;
    s->own = shard - 1;
    s->until = INT64_MAX;
}

bool share_set_members(struct share *s, const char *const *names, size_t n, const char *own)
{
    uint64_t *seeds = mem_alloc((n + 1) * sizeof *seeds), own_seed = 0;
    for (size_t i = 0; i < n; i++)
        seeds[i] = XXH3_64bits(names[i], strlen(names[i]));
    qsort(seeds, n, sizeof *seeds, compare_seeds);
    if (own)
        own_seed = XXH3_64bits(own, strlen(own));
    size_t place = 0;
    while (place < n && (!own || seeds[place] != own_seed))
        place++;
    bool is_changed =
        n != s->n || place != s->own || (n > 0 && memcmp(seeds, s->seeds, n * sizeof *seeds) != 0);
    free(s->seeds);
    s->seeds = seeds;
    s->n = n;
    s->own = place;
    return is_changed;
}

void share_renew(struct share *s, usec_t sent, usec_t timeout)
{
    usec_t until = sent + timeout / 3 * 2;
    s->until = until > s->until ? until : s->until;
}

void share_lose(struct share *s)
{
    s->until = 0;
}

bool share_is_certain(const struct share *s, usec_t now)
{
    return now < s->until;
}

bool share_has(const struct share *s, uint64_t target)
{
    size_t best = s->n;
    uint64_t highest = 0;
    for (size_t i = 0; i < s->n; i++) {
        uint64_t hash = XXH3_64bits_withSeed(&target, sizeof target, s->seeds[i]);
        if (best == s->n || hash > highest) {
            highest = hash;
            best = i;
        }
    }
    return s->n > 0 && best == s->own;
}

void share_free(struct share *s)
{
    free(s->seeds);
    *s = (struct share){0};
}
