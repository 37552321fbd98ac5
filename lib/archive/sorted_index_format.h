/* sorted_index_format: the numbers of an index file (docs/formats/index.md), for its writer and its reader. */
#ifndef MILLRACE_SORTED_INDEX_FORMAT_H
#define MILLRACE_SORTED_INDEX_FORMAT_H

#include "archive/sorted_index.h"

#define INDEX_MAGIC UINT64_C(0x3178646965636172) /* "raceidx1" */
#define INDEX_FANOUT 16
#define INDEX_KEYS (INDEX_FANOUT - 1)
#define INDEX_NODE_WORDS 16 /* the keys, then the number of shared bytes */
#define INDEX_NODE_BYTES ((size_t)INDEX_NODE_WORDS * 8)
#define INDEX_KEY_BYTES 8
#define INDEX_SHARED_MAX 120 /* bytes of a sample before its key */
#define INDEX_LEVELS_MAX 16
#define INDEX_LONG_BYTES 16 /* a listed line: its first byte, the byte after it */

/* Offsets in the footer. */
enum {
    FOOTER_MAGIC = 0,
    FOOTER_BYTES = 8,
    FOOTER_XXH3 = 16,
    FOOTER_LAST = 24,
    FOOTER_LONG = 32,
    FOOTER_CHECKSUM = 56
};

static inline uint64_t index_blocks(uint64_t text_bytes)
{
    return text_bytes / SORTED_INDEX_BLOCK + (text_bytes % SORTED_INDEX_BLOCK != 0);
}

/* The levels of a tree over `blocks` samples. Level k holds the samples whose number is divisible by 16^k, but not by 16^(k+1). */
static inline unsigned index_levels(uint64_t blocks)
{
    unsigned levels = 0;
    for (uint64_t above = blocks; above > 1; above = above / INDEX_FANOUT + (above % INDEX_FANOUT != 0))
        levels++;
    return levels;
}

/* The nodes of a level. */
static inline uint64_t index_nodes(uint64_t blocks, unsigned level)
{
    for (unsigned k = 0; k <= level; k++)
        blocks = blocks / INDEX_FANOUT + (blocks % INDEX_FANOUT != 0);
    return blocks;
}

#endif
