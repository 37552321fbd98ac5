/* make_generation: an archive of one generation, in a directory of its own. */
#ifndef MILLRACE_TEST_MAKE_GENERATION_H
#define MILLRACE_TEST_MAKE_GENERATION_H

#include "archive/generation.h"

#include <sys/types.h>

#define MAKE_SHARDS_MAX 4

struct made_generation {
    char archive[64];
    unsigned shards;
};

/* Creates the directory. Each shard has a file of records and one of texts, all with LF after each line. */
void make_generation(
    struct made_generation *m, unsigned shards, const struct buf *records, const struct buf *texts);
struct generation *open_made(const struct made_generation *m);
/* Overwrites bytes of one of its files. */
void write_made(const struct made_generation *m, const char *name, struct bytes content, off_t at);
void remove_made(const struct made_generation *m);

#endif
