/* filter_header: the first page of a filter's file, as it is in the file and in memory (docs/formats/filter.md). */
#ifndef MILLRACE_FILTER_HEADER_H
#define MILLRACE_FILTER_HEADER_H

#include "filter/filter.h"
#include "filter/filter_layer.h"

#define FILTER_RATE_UNIT 1e9
#define FILTER_LAYER_MAX (UINT64_C(1) << 36) /* capacity of the largest layer */

struct filter_range { /* the members of a layer */
    uint64_t first_id, members, capacity;
    struct filter_shape shape;
};

struct filter_header {
    struct filter_identity {
        char magic[8];
        uint32_t version, zeros;
        uint64_t seed; /* of the hashes; random, so the seed also identifies the file */
    } identity;        /* never changes */
    uint64_t sequence, last_id, capacity;
    uint32_t rate; /* in units of 1 / FILTER_RATE_UNIT */
    uint32_t n_layers;
    struct filter_range layers[FILTER_LAYERS];
    char zeros[3008];
    uint64_t checksum; /* XXH3 of the bytes before */
};

/* The number of members up to which the error rate holds. Beyond `capacity`, a layer accepts only ids that belong to
 * no newer layer. */
static inline uint64_t filter_range_limit(uint64_t capacity)
{
    return capacity + capacity / 64;
}

struct filter_identity filter_identity_new(void);
void filter_header_seal(struct filter_header *h);           /* sets the checksum */
bool filter_header_is_whole(const struct filter_header *h); /* the checksum is valid */
/* FILTER_OK: the checksum is valid, and all numbers are inside their limits. `path` appears in errors. */
enum filter_result filter_header_check(const struct filter_header *h, const char *path, struct error *error);
/* Place of layer i in the file. With i = n_layers: the end of the last layer. */
uint64_t filter_header_place(const struct filter_header *h, size_t i);

#endif
