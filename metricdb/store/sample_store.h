/* sample_store: the samples of metrics on disk, as buckets of several widths, and the source that queries
 * read.
 *
 * The stream of samples is the store's write-ahead log. The store collects the samples of lines in memory
 * (the open buckets). A cut writes them as one block: an immutable file that also has the cursor after these
 * lines and the last sample of each series. A start reads the newest block, and the caller follows the stream
 * from its cursor. No other state exists.
 *
 * 1. Each sample of the stream is in the store exactly once, after a kill at any point: it is in a block
 *    whose cursor is after its line, or its line is read again.
 * 2. A sample that is not later than the last sample of its series is dropped. Therefore the blocks, in the
 *    order of the cuts, have the buckets of a series in the order of time.
 * 3. A cut may divide a bucket. Its parts are in different blocks and add up when they are read or merged.
 * 4. A series without samples in SAMPLE_STORE_IDLE_CUTS cuts and in SAMPLE_STORE_IDLE_TIME is forgotten: its next sample
 *    counts as its first (rise 0). A new series gets only samples that are later than those of all forgotten series, which
 *    keeps rule 2.
 * 5. A thread of the store merges small blocks into larger ones and adds buckets up to 1 min, 10 min, 1 h and
 *    1 day. A merged block replaces its parts in one step (rename). Retention deletes whole blocks.
 * 6. A damaged block is refused by name: at opening if its header is damaged, otherwise by the query or merge
 *    that reads the damaged part.
 *
 * The ingesting thread calls begin, add, end, is_cut_due and cut. The caller may run a cut in another thread,
 * but nothing else of the ingesting thread runs meanwhile. Any thread may call the functions of the source,
 * and stats. */
#ifndef MILLRACE_METRICDB_SAMPLE_STORE_H
#define MILLRACE_METRICDB_SAMPLE_STORE_H

#include "base/clock.h"
#include "metrics/metric_source.h"
#include "stream/stream_client.h"

/* A sample that is older than the newest of the store by this time (milliseconds) is late: it changes closed time. */
#define SAMPLE_STORE_LATE 60000
#define SAMPLE_STORE_IDLE_CUTS 24
#define SAMPLE_STORE_IDLE_TIME INT64_C(14400000) /* 4 h (milliseconds) */
/* The resolution, 1 min, 10 min, 1 h and 1 day, without those that are not above the resolution. */
#define SAMPLE_STORE_WIDTHS 5
#define SAMPLE_LABELS_MAX 256
#define SAMPLE_LABEL_BYTES_MAX ((size_t)64 << 10) /* of names and values of a series together */

struct sample_store;

struct sample_store_config {
    const char *dir; /* exists; copied */
    /* Width of the finest buckets (milliseconds). It divides 1 day. Open refuses another one than that of the blocks. */
    int64_t resolution;
    usec_t block_every; /* the time between two cuts */
    size_t open_bytes;  /* memory since the last cut that makes a cut due earlier */
    size_t series_max;  /* series in memory; samples of more series are dropped */
    /* The time for which buckets of the resolution, 1 min, and all wider buckets are kept (milliseconds); 0:
     * always. Ascending. Blocks are deleted as a whole, so samples stay up to a block's span longer. */
    int64_t keep, keep_minutes, keep_wide;
    bool accepts_loss; /* open although blocks are missing, because an operator accepts the loss */
    unsigned fan_in;   /* number of blocks that are merged into one; 0: 12 */
    /* Called by the thread of the store after each merge or failure; may be NULL. */
    void (*notify)(void *arg);
    void *notify_arg;
};

/* Opens the store and creates missing state. Blocks until all headers are verified. Returns NULL with the
 * error: another process uses the directory, a block is damaged or missing, or the resolution differs. */
struct sample_store *sample_store_open(const struct sample_store_config *config, struct error *error);
/* Does not cut: a start reads the lines since the last cut again. Stops the current merge. *s may be NULL. */
void sample_store_close(struct sample_store **s);

/* After open, the cursor of the newest block; later, the cursor of the latest `end`. id "": none. */
const struct stream_cursor *sample_store_cursor(const struct sample_store *s);

enum sample_result {
    SAMPLE_STORED,
    /* Dropped: not later than the last sample of its series, or in a new series, not later than the samples of
     * forgotten series (invariant 4). */
    SAMPLE_NOT_LATER,
    SAMPLE_TOO_MANY, /* dropped: a new series beyond series_max */
    /* Dropped: a name is empty or occurs twice, no label has a value, or a limit of labels is exceeded. */
    SAMPLE_BAD_LABELS,
    SAMPLE_BAD_TIME, /* dropped: before 1970 or after the year 9999 */
};

struct sample {
    /* Any order; labels with an empty value are ignored. */
    const struct metric_label *labels;
    size_t n_labels;
    int64_t at; /* milliseconds since 1970 */
    double value;
    bool is_stale; /* the series has no value from `at` on; `value` is ignored */
};

/* Between begin and end, queries wait. So pass the lines of one call of on_lines, and nothing else. */
void sample_store_begin(struct sample_store *s);
enum sample_result sample_store_add(struct sample_store *s, const struct sample *sample);
/* All lines before the cursor were added. */
void sample_store_end(struct sample_store *s, const struct stream_cursor *cursor);

/* True if lines were added since the last cut, and `block_every` has passed or the open buckets need too much
 * memory. `now` is monotonic. */
bool sample_store_is_cut_due(struct sample_store *s, usec_t now);
/* Writes the open buckets and the cursor as a block, and wakes the thread that merges. Returns 0, or -1 with
 * the error: the samples stay in memory, and a later cut, due after 10 s, writes all of them. `now` is monotonic; `wall` is
 * the trusted time for retention, or 0 if it is not known. */
int sample_store_cut(struct sample_store *s, usec_t now, usec_t wall, struct error *error);

/* The source for queries; valid until close. Time is closed until SAMPLE_STORE_LATE before the newest sample. A late sample, and a block
 * that retention deletes, begins a new epoch. max_series and max_buckets bound the memory of a query.
 * Buckets have the coarsest width <= max_width, or a coarser one where retention has deleted the finer. */
struct metric_source sample_store_source(struct sample_store *s);

struct sample_store_stats {
    uint64_t results[SAMPLE_BAD_TIME + 1]; /* samples since the start, by enum sample_result */
    uint64_t series;                       /* in memory */
    uint64_t open_bytes;                   /* memory of open buckets and series */
    uint64_t cuts, merges, deleted; /* blocks written, merged and deleted by retention since the start */
    struct {
        int64_t width;
        uint64_t blocks, bytes, buckets;
    } widths[SAMPLE_STORE_WIDTHS]; /* width 0: unused */
};
void sample_store_stats(struct sample_store *s, struct sample_store_stats *out);
/* The reason why the latest merge failed, which is tried again at each cut; or false. */
bool sample_store_trouble(struct sample_store *s, struct error *error);
/* Waits until the thread has nothing to merge, for tests and tools. */
void sample_store_settle(struct sample_store *s);

#endif
