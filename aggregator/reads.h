/* reads: record lines made of rows that come from several places, as one archive would hold them.
 *
 * A layer is a slice's snapshot or a map in memory. The rows of all layers are merged in key order; counts of one
 * key are added, of lookups the smaller text is kept; what belongs to one record's key becomes one line. So it
 * does not matter in how many layers a count lies, as long as it lies in exactly one.
 *
 * 1. An answer is whole records, in order; cut only between records, and then `next` is the key to go on with.
 * 2. It has at least one record when there is one, whatever the bounds.
 * 3. When a layer cannot be read there is no answer, rather than a part of one.
 * Keys are ordered as key plus separator (row.h): range bounds too.
 */
#ifndef MILLRACE_READS_H
#define MILLRACE_READS_H

#include "aggregator/count_map.h"
#include "aggregator/slice_snapshot.h"

#define READS_MAPS 2

struct reads_layers {
    size_t n_snapshots, n_maps;
    struct slice_snapshot *const *snapshots; /* borrowed */
    const struct count_map *maps[READS_MAPS];
};

struct reads_bounds {
    uint64_t max_records; /* 0: no bound */
    size_t max_bytes;     /* no record begins at or past it; 0: no bound */
};

struct reads_answer {
    struct buf lines;
    uint64_t records;
    bool more;
    struct buf next; /* when more: the key of the first record left out */
    char error[SLICE_ERROR_TEXT];
};
void reads_answer_free(struct reads_answer *a);

/* Each appends to the answer (a zeroed one is empty). 0, or -1 with answer->error. */
int reads_get(struct reads_layers *l, struct bytes key, struct reads_answer *answer);
/* Keys that begin with `prefix`; with `start` (may be empty) only from that key on. */
int reads_prefix(struct reads_layers *l, struct bytes prefix, struct bytes start, struct reads_bounds bounds,
    struct reads_answer *answer);
/* start <= key <= end. */
int reads_range(struct reads_layers *l, struct bytes start, struct bytes end, struct reads_bounds bounds,
    struct reads_answer *answer);

#endif
