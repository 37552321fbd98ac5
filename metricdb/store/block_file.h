/* block_file: an immutable file with the buckets of many series (docs/formats/metric-blocks.md).
 *
 * 1. A block covers the cuts `from` to `to` - 1, with buckets of one width. Its name is WIDTH-FROM-TO.block.
 * 2. Series are in the order of their labels (label_match.h), each once.
 * 3. block_open verifies the header and the lengths of all parts. The index is verified before its first use,
 *    and pieces of buckets when they are read (bucket_code.h). All positions are checked again, so also a block
 *    with right checksums is never read outside of its bytes.
 * 4. A block is used until its last reference is released, also after its file is deleted. Any thread may
 *    read. */
#ifndef MILLRACE_METRICDB_BLOCK_FILE_H
#define MILLRACE_METRICDB_BLOCK_FILE_H

#include "archive/mapping.h"
#include "base/io.h"
#include "metricdb/store/label_match.h"
#include "stream/stream_client.h"

#include <stdatomic.h>

#define BLOCK_ENDING ".block"
#define BLOCK_LABELS_MAX 256 /* labels of a series */

/* A block's header. */
struct block_info {
    int64_t width;          /* of its buckets (milliseconds) */
    uint32_t level;         /* 0: a cut; higher: merged of blocks of the level below */
    uint64_t from, to;      /* cuts */
    int64_t min_at, max_at; /* times of the first and last samples and markers; 0: none */
    int64_t cut_at;         /* time of the last cut (milliseconds); 0: not known */
    int64_t horizon;        /* a new series has no samples up to this time (milliseconds) */
    uint64_t n_series, n_buckets;
    struct stream_cursor cursor; /* after the last cut's lines */
};

/* Time of the last sample, or of the last cut if that is earlier: samples of the future do not count. */
static inline int64_t block_info_end(const struct block_info *info)
{
    return info->cut_at > 0 && info->cut_at < info->max_at ? info->cut_at : info->max_at;
}

/* The last sample of a series, in a block of level 0. */
struct block_state {
    int64_t last_at;
    double number; /* the last number */
    bool has_number;
    uint32_t idle; /* the number of cuts since its last sample */
};

/* A series without buckets has the last sample only. */
struct block_series {
    int64_t min_at, max_at;
    uint32_t n_buckets, n_labels, labels_at;
    struct bytes pieces;
};

struct block;

void block_path(const char *dir, const struct block_info *info, char path[PATH_MAX]);
/* Returns NULL with the error, which names the file. */
struct block *block_open(const char *path, struct error *error);
/* The same for a block in memory, which is borrowed. */
struct block *block_open_bytes(struct bytes bytes, const char *name, struct error *error);
struct block *block_ref(struct block *b);
void block_unref(struct block **b);

const struct block_info *block_info(const struct block *b);
const char *block_name(const struct block *b); /* its path */
size_t block_size(const struct block *b);      /* bytes */
/* Verifies the index if that was not done. Returns 0, or -1 with the error. Call before the functions below.
 */
int block_verify(struct block *b, struct error *error);
/* The following functions return 0, or -1 with the error if the block is damaged. */
int block_get_series(const struct block *b, uint64_t i, struct block_series *out, struct error *error);
/* Labels point into the block. */
int block_get_labels(const struct block *b, const struct block_series *series,
    struct metric_label labels[BLOCK_LABELS_MAX], struct error *error);
int block_get_state(const struct block *b, uint64_t i, struct block_state *out, struct error *error);
/* Sets the bits of the matching series in `bits`, which has a zeroed bit for each series, 64 in each number.
 */
int block_match(const struct block *b, struct label_match *match, uint64_t *bits, struct error *error);
/* Call after reads. Fails if the file was truncated in the meantime: the bytes read may then be zeros. */
int block_check_whole(struct block *b, struct error *error);
int block_damaged(const struct block *b, const char *part, struct error *error);

#endif
