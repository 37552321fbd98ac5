/* store_parts: the store's own state, for its files: sample_store.c (series, cuts), store_select.c (queries)
 * and store_merger.c (the thread that merges). */
#ifndef MILLRACE_METRICDB_STORE_PARTS_H
#define MILLRACE_METRICDB_STORE_PARTS_H

#include "metricdb/store/block_list.h"
#include "metricdb/store/block_writer.h"
#include "metricdb/store/open_series.h"

#include <pthread.h>

struct store_merger;

struct sample_store {
    struct sample_store_config config;
    char *dir;
    int lock_fd;
    int64_t widths[SAMPLE_STORE_WIDTHS], keep[SAMPLE_STORE_WIDTHS];
    size_t n_widths;
    /* Written between begin and end and at the end of a cut; by the merger for `blocks`. Queries read. */
    pthread_rwlock_t lock;
    struct open_series *series;
    struct block_list blocks;
    size_t open_bytes, cut_bytes;    /* now, and after the last cut */
    struct sample_store_stats stats; /* without what sample_store_stats computes */
    /* The ingesting thread's. */
    struct stream_cursor cursor, cut_cursor;
    usec_t last_cut;
    bool has_failed; /* the last cut */
    uint64_t next_cut;
    int64_t horizon; /* the latest sample of all forgotten series */
    /* Changed under the lock, too. */
    int64_t newest; /* the time of the latest sample */
    uint64_t late;  /* samples stored at least SAMPLE_STORE_LATE before the newest */
    struct buf key;
    struct store_merger *merger;
};

/* Returns NULL with the error. */
struct store_merger *store_merger_new(struct sample_store *s, struct error *error);
void store_merger_free(struct store_merger **m);
/* Merges the blocks that can be merged, and deletes the blocks that are older than their retention at the time `wall`. */
void store_merger_wake(struct store_merger *m, usec_t wall);
void store_merger_settle(struct store_merger *m);
bool store_merger_trouble(struct store_merger *m, struct error *error);

#endif
