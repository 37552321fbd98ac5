#include "filter/filter.h"

#include "base/xxh3.h"
#include "filter/filter_file.h"
#include "filter/filter_log.h"

#include <assert.h>
#include <stdlib.h>

/* Layer i has the error rate `rate` * (1 - TIGHTENING) * TIGHTENING^i. The sum over any number of layers is at most `rate`. */
#define TIGHTENING 0.8

static struct filter *new_filter(const char *path)
{
    struct filter *f = mem_zalloc(sizeof *f);
    f->path = mem_strdup(path);
    f->fd = f->log = -1;
    return f;
}

static enum filter_result opened(enum filter_result r, struct filter *f, struct filter **out)
{
    if (r != FILTER_OK)
        filter_close(&f);
    *out = f;
    return r;
}

enum filter_result filter_open(const struct filter_config *config, struct filter **out, struct error *error)
{
    *out = NULL;
    if (config->capacity == 0 || config->capacity > FILTER_CAPACITY_MAX ||
        !(config->rate >= FILTER_RATE_MIN && config->rate <= FILTER_RATE_MAX))
        return (enum filter_result)error_set(error, FILTER_INVALID,
            "%.500s: the capacity must be 1 to %llu, and the rate %g to %g", config->path,
            (unsigned long long)FILTER_CAPACITY_MAX, FILTER_RATE_MIN, FILTER_RATE_MAX);
    struct filter *f = new_filter(config->path);
    f->h.identity = filter_identity_new();
    f->h.capacity = config->capacity;
    f->h.rate = (uint32_t)(config->rate * FILTER_RATE_UNIT + 0.5);
    return opened(filter_file_open(f, error), f, out);
}

enum filter_result filter_open_reader(const char *path, struct filter **out, struct error *error)
{
    struct filter *f = new_filter(path);
    return opened(filter_file_open_reader(f, error), f, out);
}

void filter_close(struct filter **fp)
{
    struct filter *f = *fp;
    if (!f)
        return;
    filter_file_close(f);
    free(f->path);
    free(f);
    *fp = NULL;
}

static struct filter_place place_of(const struct filter *f, struct bytes text)
{
    return filter_place_of(XXH3_64bits_withSeed(text.ptr ? text.ptr : "", text.len, f->h.identity.seed));
}

/* The layer of an id. An empty filter has layer 0 for all ids, and opens it with the first add. */
static size_t layer_of(const struct filter *f, uint64_t id)
{
    size_t i = f->h.n_layers;
    while (i > 0 && f->h.layers[i - 1].first_id > id)
        i--;
    return i > 0 ? i - 1 : 0;
}

static enum filter_result check_writable(const struct filter *f, struct error *error)
{
    if (f->log < 0)
        return (enum filter_result)error_set(
            error, FILTER_FAILED, "%.500s: the filter is open for reads only", f->path);
    if (f->has_failed)
        return (enum filter_result)error_set(error, FILTER_FAILED,
            "%.500s: a sync has failed; open the filter again, and repeat the updates since the last sync",
            f->path);
    return FILTER_OK;
}

static enum filter_result check_update(const struct filter *f, uint64_t sequence, struct error *error)
{
    if (sequence > f->h.sequence || f->log < 0)
        return check_writable(f, error);
    return (enum filter_result)error_set(error, FILTER_REPEATED,
        "%.500s: update %llu is not above %llu, the last update", f->path, (unsigned long long)sequence,
        (unsigned long long)f->h.sequence);
}

static enum filter_result full(const struct filter *f, uint64_t id, struct error *error)
{
    return (enum filter_result)error_set(error, FILTER_FULL,
        "%.500s: the layer of id %llu is full; use an id above %llu", f->path, (unsigned long long)id,
        (unsigned long long)f->h.last_id);
}

/* Layer n, before it opens. */
static struct filter_range future_layer(const struct filter *f, uint32_t n)
{
    double rate = f->h.rate / FILTER_RATE_UNIT * (1 - TIGHTENING);
    uint64_t capacity = f->h.capacity;
    for (uint32_t i = 0; i < n; i++) {
        rate *= TIGHTENING;
        capacity = capacity < FILTER_LAYER_MAX ? capacity * 2 : capacity;
    }
    return (struct filter_range){
        .capacity = capacity, .shape = filter_shape_for(filter_range_limit(capacity), rate)};
}

/* Opens the layer of an id above all others, or the first layer. */
static enum filter_result open_layer(struct filter *f, uint64_t id, struct error *error)
{
    uint32_t n = f->h.n_layers;
    if (n == FILTER_LAYERS)
        return full(f, id, error);
    struct filter_range range = future_layer(f, n);
    range.first_id = n > 0 ? f->h.last_id + 1 : 0;
    return filter_file_add_layer(f, &range, error);
}

enum filter_result filter_reserve(struct filter *f, uint64_t adds, struct error *error)
{
    uint32_t n = f->h.n_layers;
    const struct filter_range *newest = &f->h.layers[n > 0 ? n - 1 : 0];
    uint64_t room = newest->capacity > newest->members ? newest->capacity - newest->members : 0;
    uint64_t end = filter_header_place(&f->h, n);
    if (room >= adds)
        return FILTER_OK;
    for (; room < adds && n < FILTER_LAYERS; n++) {
        struct filter_range next = future_layer(f, n);
        room += next.capacity;
        end += filter_shape_bytes(next.shape);
    }
    return filter_file_reserve(f, end, error);
}

uint64_t filter_sync_bytes(const struct filter *f, uint64_t updates)
{
    uint64_t end = filter_header_place(&f->h, f->h.n_layers), most = f->reserved > end ? f->reserved : end;
    return filter_log_bytes(updates < most / FILTER_BLOCK ? updates : most / FILTER_BLOCK);
}

enum filter_result filter_add(
    struct filter *f, struct bytes text, uint64_t id, uint64_t sequence, struct error *error)
{
    struct filter_place place = place_of(f, text);
    size_t i = layer_of(f, id);
    const struct filter_range *r = &f->h.layers[i];
    enum filter_result result = check_update(f, sequence, error);
    if (result == FILTER_OK && (f->h.n_layers == 0 || (r->members >= r->capacity && id > f->h.last_id)))
        result = open_layer(f, id, error);
    if (result != FILTER_OK)
        return result;
    i = layer_of(f, id);
    if (f->h.layers[i].members >= filter_range_limit(f->h.layers[i].capacity))
        return full(f, id, error);
    filter_layer_change(&f->layers[i], &place, 1);
    f->h.layers[i].members++;
    f->h.last_id = id > f->h.last_id ? id : f->h.last_id;
    f->h.sequence = sequence;
    return FILTER_OK;
}

enum filter_result filter_remove(
    struct filter *f, struct bytes text, uint64_t id, uint64_t sequence, struct error *error)
{
    struct filter_place place = place_of(f, text);
    size_t i = layer_of(f, id);
    enum filter_result result = check_update(f, sequence, error);
    if (result != FILTER_OK)
        return result;
    if (i >= f->h.n_layers || f->h.layers[i].members == 0 || !filter_layer_has(&f->layers[i], &place))
        return (enum filter_result)error_set(error, FILTER_ABSENT,
            "%.500s: no such text in the layer of id %llu", f->path, (unsigned long long)id);
    filter_layer_change(&f->layers[i], &place, -1);
    f->h.layers[i].members--;
    f->h.sequence = sequence;
    return FILTER_OK;
}

void filter_number(struct filter *f, uint64_t sequence)
{
    assert(f->log >= 0 && sequence != f->synced);
    f->h.sequence = sequence;
}

bool filter_check(const struct filter *f, struct bytes text)
{
    struct filter_place place = place_of(f, text);
    for (size_t i = 0; i < f->h.n_layers; i++)
        __builtin_prefetch(filter_layer_line(&f->layers[i], &place, 0));
    for (size_t i = f->h.n_layers; i-- > 0;)
        if (filter_layer_has(&f->layers[i], &place))
            return true;
    return false;
}

enum filter_result filter_sync(struct filter *f, struct error *error)
{
    enum filter_result r = check_writable(f, error);
    return r == FILTER_OK && f->h.sequence != f->synced ? filter_file_sync(f, error) : r;
}

enum filter_result filter_refresh(struct filter *f, struct error *error)
{
    assert(f->log < 0);
    if (!filter_file_is_replaced(f))
        return filter_file_refresh(f, error);
    struct filter *other;
    enum filter_result r = filter_open_reader(f->path, &other, error);
    if (r == FILTER_OK) {
        struct filter old = *f;
        *f = *other;
        *other = old;
        filter_close(&other);
    }
    return r;
}

uint64_t filter_sequence(const struct filter *f)
{
    return f->h.sequence;
}

uint64_t filter_last_id(const struct filter *f)
{
    return f->h.last_id;
}

struct filter_layer_stats filter_layer_stats(const struct filter *f, size_t i)
{
    assert(i < f->h.n_layers);
    const struct filter_range *r = &f->h.layers[i];
    return (struct filter_layer_stats){r->first_id, r->members, r->capacity, filter_shape_bytes(r->shape),
        filter_shape_rate(r->shape, r->members)};
}

struct filter_stats filter_stats(const struct filter *f)
{
    struct filter_stats s = {.bytes = filter_header_place(&f->h, f->h.n_layers),
        .layers = f->h.n_layers,
        .was_recovered = f->was_recovered};
    double misses = 1;
    for (size_t i = 0; i < s.layers; i++) {
        struct filter_layer_stats l = filter_layer_stats(f, i);
        s.members += l.members;
        misses *= 1 - l.rate;
    }
    s.rate = 1 - misses;
    return s;
}
