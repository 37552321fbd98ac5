/* block_list: the blocks of a directory, as chains: the adjacent blocks of one width, in the order of their
 * cuts.
 *
 * 1. Blocks of a chain do not overlap. A block that another block of its chain covers was merged into it, and
 *    is deleted at loading.
 * 2. A chain has no gaps. If the operator accepts a loss, an empty block takes the place of the lost ones. Retention
 *    deletes from its beginning.
 * 3. The chains of wider buckets are made from the chains of finer buckets, and their boundaries are
 *    boundaries of the finer, as long as the finer exist. So a walk over the cuts can change between chains at any
 *    boundary of the chain of wider buckets.
 *
 * The caller locks. */
#ifndef MILLRACE_METRICDB_BLOCK_LIST_H
#define MILLRACE_METRICDB_BLOCK_LIST_H

#include "metricdb/store/block_file.h"

#define BLOCK_LEVEL_DAY 2 /* of the largest blocks of the finest buckets, from which wider buckets are made */

struct block_list {
    struct block **all; /* a reference each; by width, then by cuts */
    size_t n, cap;
};

struct block_chain {
    struct block *const *blocks;
    size_t n;
};

/* Opens all blocks, and deletes temporary files and replaced blocks. Returns 0, or -1 with the error. */
int block_list_load(struct block_list *l, const char *dir, bool accepts_loss, struct error *error);
/* Adds an empty block for the lost cuts `from` to `to` - 1. It has the width, the cursor and the horizon of `like`. */
int block_list_bridge(struct block_list *l, const char *dir, const struct block_info *like, uint64_t from,
    uint64_t to, struct error *error);
void block_list_free(struct block_list *l);
/* Takes the reference. */
void block_list_add(struct block_list *l, struct block *b);
/* Removes the block, deletes its file and releases the reference. */
void block_list_delete(struct block_list *l, struct block *b);
struct block_chain block_list_chain(const struct block_list *l, int64_t width);
/* The cut after the last block of the chain, or 0. */
uint64_t block_chain_end(struct block_chain c);
/* Stores in `out`, which has room for all blocks, those that cover each cut once: for each cut the block with the
 * widest buckets up to max_width, otherwise with the finest buckets. Returns their number. */
size_t block_list_choose(const struct block_list *l, int64_t max_width, struct block **out);

#endif
