#include "filter/filter_header.h"

#include "base/xxh3.h"

#include <assert.h>
#include <sys/random.h>

#define MAGIC "MRFILTER"
#define VERSION 1
#define FIRST_PLACE UINT64_C(65536)

static_assert(sizeof(struct filter_header) == FILTER_BLOCK, "the layout has no holes");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little endian, and used in place");

static uint64_t checksum_of(const struct filter_header *h)
{
    return XXH3_64bits(h, offsetof(struct filter_header, checksum));
}

struct filter_identity filter_identity_new(void)
{
    struct filter_identity i = {.version = VERSION};
    memcpy(i.magic, MAGIC, sizeof i.magic);
    ssize_t got = getrandom(&i.seed, sizeof i.seed, 0);
    assert(got == (ssize_t)sizeof i.seed);
    (void)got;
    return i;
}

void filter_header_seal(struct filter_header *h)
{
    h->checksum = checksum_of(h);
}

bool filter_header_is_whole(const struct filter_header *h)
{
    return h->checksum == checksum_of(h);
}

uint64_t filter_header_place(const struct filter_header *h, size_t i)
{
    uint64_t place = FIRST_PLACE;
    while (i-- > 0)
        place += filter_shape_bytes(h->layers[i].shape);
    return place;
}

static bool is_valid(const struct filter_header *h)
{
    double rate = h->rate / FILTER_RATE_UNIT;
    if (h->n_layers > FILTER_LAYERS || h->capacity == 0 || h->capacity > FILTER_CAPACITY_MAX ||
        rate < FILTER_RATE_MIN || rate > FILTER_RATE_MAX)
        return false;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const struct filter_range *r = &h->layers[i];
        if (r->capacity > FILTER_LAYER_MAX || r->members > filter_range_limit(r->capacity) ||
            r->shape.blocks == 0 || r->shape.blocks > FILTER_BLOCKS_MAX || r->shape.half == 0 ||
            r->shape.half > FILTER_HALF_MAX || (i == 0 ? r->first_id > 0 : r->first_id <= r[-1].first_id))
            return false;
    }
    return true;
}

enum filter_result filter_header_check(const struct filter_header *h, const char *path, struct error *error)
{
    const char *why = NULL;
    if (memcmp(h->identity.magic, MAGIC, sizeof h->identity.magic) != 0)
        why = "not a filter";
    else if (h->identity.version != VERSION)
        why = "unknown format version";
    else if (!filter_header_is_whole(h) || !is_valid(h))
        why = "the header is damaged; if a writer cannot open the filter, either, delete the file and its "
              "log, and add the "
              "members again";
    return why ? (enum filter_result)error_set(error, FILTER_DAMAGED, "%.500s: %s", path, why) : FILTER_OK;
}
