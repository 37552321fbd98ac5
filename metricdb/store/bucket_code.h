/* bucket_code: the buckets of one series as compressed bits.
 *
 * 1. The bits are in pieces of at most BUCKET_PIECE_MAX buckets. The head of a piece has its length and
 *    times, and checksums of itself and of the bits. A reader verifies each head, skips the pieces of other
 *    times, and verifies the bits that it reads.
 * 2. A bucket with one sample is stored as the differences of its time and value from predictions: some 2 bytes. Its
 *    rise is derived from the previous number, which each piece stores for its first bucket.
 * 3. A reader gives exactly the buckets written, bit by bit. It never reads beyond its bytes, and gives no
 *    bucket that breaks an invariant of metric_source.h, also if a damaged piece has a right checksum. */
#ifndef MILLRACE_METRICDB_BUCKET_CODE_H
#define MILLRACE_METRICDB_BUCKET_CODE_H

#include "metrics/metric_source.h"

#define BUCKET_PIECE_MAX 480
#define BUCKET_TIME_MAX INT64_C(253402300799999) /* the end of the year 9999 (milliseconds) */

struct bucket {
    struct sample_bucket b;
    double number; /* the last sample that is a number, if b.count > 0 */
};

static inline int64_t bucket_start(int64_t at, int64_t width)
{
    return at - at % width;
}
/* Time of the last sample or stale marker. */
static inline int64_t bucket_end(const struct sample_bucket *b)
{
    return b->stale_at > 0 ? b->stale_at : b->last_at;
}
/* The increase from the number `before` to the next sample. */
static inline double bucket_rise(double before, double value)
{
    return value >= before ? value - before : value;
}
/* Adds a bucket or part that is later than all samples of *into, and starts in the span of *into. */
void bucket_fold(struct bucket *into, const struct bucket *later);

enum bucket_field { BUCKET_LAST, BUCKET_SUM, BUCKET_MIN, BUCKET_MAX, BUCKET_RISE, BUCKET_FIELDS };

/* The state from which the next bucket is predicted. */
struct bucket_code {
    int64_t end, delta;
    int64_t span;
    uint32_t count;
    bool has_number;
    double number, last;
    struct {
        uint8_t shift, length;
    } windows[BUCKET_FIELDS];
};

/* Zeroed: no buckets. */
struct bucket_writer {
    struct buf out;
    struct bucket_code code;
    uint64_t bits;
    uint32_t n_bits; /* of `bits`, below 8 */
    uint32_t n;      /* buckets of the piece */
    size_t piece;    /* where the piece begins in `out` */
    int64_t first;
};

/* Appends a bucket that is later than the buckets before. Before the first bucket, code.number may be set. */
void bucket_writer_add(struct bucket_writer *w, const struct bucket *b);
/* Ends the piece. The next bucket begins a new piece. */
void bucket_writer_seal(struct bucket_writer *w);
/* Forgets all pieces, but keeps the number before, and the memory. */
void bucket_writer_clear(struct bucket_writer *w);
/* Appends a sealed copy of the pieces, with the bucket `open` at its end if that is not NULL, to `out`. */
void bucket_writer_copy(const struct bucket_writer *w, const struct bucket *open, struct buf *out);
void bucket_writer_free(struct bucket_writer *w);

enum bucket_status { BUCKET_NEXT, BUCKET_END, BUCKET_DAMAGED };

struct bucket_reader {
    struct bytes pieces; /* the pieces that follow */
    int64_t width, from, to;
    const unsigned char *at, *end; /* of the piece */
    uint64_t bits;
    uint32_t n_bits;
    uint32_t left; /* buckets of the piece */
    bool is_bad, has_entered;
    int64_t start; /* of the bucket before, in the piece */
    struct bucket_code code,
        before; /* `before`: of the first piece that was read, with the number before it */
};

/* Gives the buckets of all pieces that may have samples at `from` <= time <= `to`. The bytes are borrowed. */
void bucket_reader_begin(
    struct bucket_reader *r, struct bytes pieces, int64_t width, int64_t from, int64_t to);
enum bucket_status bucket_reader_next(struct bucket_reader *r, struct bucket *out);

#endif
