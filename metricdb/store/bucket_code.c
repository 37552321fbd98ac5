#include "metricdb/store/bucket_code.h"

#include "base/byte_order.h"
#include "base/xxh3.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <sys/param.h>

/* The head of a piece. */
enum {
    PIECE_SUM = 0, /* of the bits */
    PIECE_LENGTH = 4,
    PIECE_BUCKETS = 8,
    PIECE_FIRST = 12, /* start of the first bucket */
    PIECE_LAST = 20,  /* end of the last bucket */
    PIECE_HEAD_SUM = 28,
    HEAD = 32,
};
#define WINDOW_WASTE 11 /* bits: the cost of a new window */

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double value_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void bucket_fold(struct bucket *into, const struct bucket *later)
{
    struct sample_bucket *a = &into->b;
    const struct sample_bucket *b = &later->b;
    bool has_samples = b->count > 0 || b->n_nan > 0;
    if (b->count > 0) {
        a->min = a->count == 0 || b->min < a->min ? b->min : a->min;
        a->max = a->count == 0 || b->max > a->max ? b->max : a->max;
        a->sum = a->count == 0 ? b->sum : a->sum + b->sum;
        a->rise = a->count == 0 ? b->rise : a->rise + b->rise;
        into->number = later->number;
    }
    if (has_samples) {
        a->first = a->count == 0 && a->n_nan == 0 ? b->first : a->first;
        a->last_at = b->last_at;
        a->last = b->last;
    }
    if (has_samples || b->stale_at > 0)
        a->stale_at = b->stale_at;
    a->count += b->count;
    a->n_nan += b->n_nan;
}

/* Predictions, the same for writer and reader. */

static double expect_sum(const struct sample_bucket *b)
{
    return (double)b->count * ((b->min + b->max) / 2);
}

static double expect_rise(const struct bucket_code *c, double number)
{
    return c->has_number ? bucket_rise(c->number, number) : 0;
}

static void code_advance(struct bucket_code *c, const struct bucket *b)
{
    int64_t end = bucket_end(&b->b);
    c->delta = c->end > 0 ? end - c->end : 0;
    c->end = end;
    c->count = b->b.count;
    if (b->b.count > 0 || b->b.n_nan > 0) {
        c->span = b->b.last_at - b->b.first;
        c->last = b->b.last;
    }
    if (b->b.count > 0) {
        c->number = b->number;
        c->has_number = true;
    }
}

/* At the beginning of a piece, only the number before is known. */
static void code_begin(struct bucket_code *c)
{
    *c = (struct bucket_code){.number = c->number, .has_number = c->has_number};
    c->last = c->has_number ? c->number : 0;
}

/* Writing. */

static void put_few(struct bucket_writer *w, uint64_t bits, unsigned n)
{
    w->bits = w->bits << n | bits;
    for (w->n_bits += n; w->n_bits >= 8; w->n_bits -= 8)
        buf_append_char(&w->out, (char)(w->bits >> (w->n_bits - 8)));
}

static void put(struct bucket_writer *w, uint64_t bits, unsigned n)
{
    if (n > 32)
        put_few(w, bits >> 32 & (UINT64_MAX >> (96 - n)), n - 32);
    put_few(w, bits & (UINT64_MAX >> (64 - MIN(n, 32))), MIN(n, 32));
}

/* The lengths of integers, after a prefix of as many ones. */
static const uint8_t int_bits[] = {0, 7, 16, 28, 64};
#define INT_LENGTHS (sizeof int_bits / sizeof *int_bits)

static void put_int(struct bucket_writer *w, int64_t n)
{
    uint64_t bits = (uint64_t)n << 1 ^ (uint64_t)(n >> 63);
    unsigned i = 0;
    while (i < INT_LENGTHS - 1 && bits >> int_bits[i] != 0)
        i++;
    if (i < INT_LENGTHS - 1)
        put(w, (1U << (i + 1)) - 2, i + 1);
    else
        put(w, (1U << i) - 1, i);
    if (i > 0)
        put(w, bits, int_bits[i]);
}

static void put_double(struct bucket_writer *w, enum bucket_field field, double value, double expected)
{
    uint64_t x = bits_of(value) ^ bits_of(expected);
    if (x == 0) {
        put(w, 0, 1);
        return;
    }
    unsigned shift = (unsigned)__builtin_ctzll(x), length = 64 - shift - (unsigned)__builtin_clzll(x);
    unsigned old = w->code.windows[field].shift, kept = w->code.windows[field].length;
    if (old <= shift && old + kept >= shift + length && kept <= length + WINDOW_WASTE) {
        put(w, 2, 2);
        put(w, x >> old, kept);
        return;
    }
    put(w, 3, 2);
    put(w, shift, 6);
    put(w, length - 1, 6);
    put(w, x >> shift, length);
    w->code.windows[field].shift = (uint8_t)shift;
    w->code.windows[field].length = (uint8_t)length;
}

static bool is_single(const struct bucket_code *c, const struct bucket *b)
{
    const struct sample_bucket *s = &b->b;
    uint64_t value = bits_of(s->last);
    return s->count == 1 && s->n_nan == 0 && s->stale_at == 0 && s->first == s->last_at && !isnan(s->last) &&
           bits_of(s->sum) == value && bits_of(s->min) == value && bits_of(s->max) == value &&
           bits_of(s->rise) == bits_of(expect_rise(c, s->last));
}

static void put_full(struct bucket_writer *w, const struct bucket *b)
{
    const struct bucket_code *c = &w->code;
    const struct sample_bucket *s = &b->b;
    put_int(w, (int64_t)s->count - c->count);
    put_int(w, s->n_nan);
    put(w, s->stale_at > 0, 1);
    if (s->count == 0 && s->n_nan == 0)
        return;
    if (s->stale_at > 0)
        put_int(w, s->stale_at - s->last_at);
    put_int(w, s->last_at - s->first - c->span);
    put_double(w, BUCKET_LAST, s->last, c->last);
    if (s->count == 0)
        return;
    if (isnan(s->last))
        put(w, bits_of(b->number), 64);
    put_double(w, BUCKET_MAX, s->max, b->number);
    put_double(w, BUCKET_MIN, s->min, c->has_number ? c->number : b->number);
    put_double(w, BUCKET_SUM, s->sum, expect_sum(s));
    put_double(w, BUCKET_RISE, s->rise, expect_rise(c, b->number));
}

static void begin_piece(struct bucket_writer *w, const struct bucket *b)
{
    static const char zeros[HEAD];
    w->piece = w->out.len;
    w->first = b->b.start;
    buf_append(&w->out, zeros, HEAD);
    code_begin(&w->code);
    put(w, w->code.has_number, 1);
    if (w->code.has_number)
        put(w, bits_of(w->code.number), 64);
}

void bucket_writer_add(struct bucket_writer *w, const struct bucket *b)
{
    if (w->n == BUCKET_PIECE_MAX)
        bucket_writer_seal(w);
    if (w->n++ == 0)
        begin_piece(w, b);
    bool single = is_single(&w->code, b);
    put(w, !single, 1);
    put_int(w, bucket_end(&b->b) - w->code.end - w->code.delta);
    if (single)
        put_double(w, BUCKET_LAST, b->b.last, w->code.last);
    else
        put_full(w, b);
    code_advance(&w->code, b);
}

void bucket_writer_seal(struct bucket_writer *w)
{
    if (w->n == 0)
        return;
    if (w->n_bits > 0)
        put_few(w, 0, 8 - w->n_bits);
    char *head = w->out.ptr + w->piece;
    size_t length = w->out.len - w->piece;
    put_le32(head + PIECE_SUM, (uint32_t)XXH3_64bits(head + HEAD, length - HEAD));
    put_le32(head + PIECE_LENGTH, (uint32_t)(length - HEAD));
    put_le32(head + PIECE_BUCKETS, w->n);
    put_le64(head + PIECE_FIRST, (uint64_t)w->first);
    put_le64(head + PIECE_LAST, (uint64_t)w->code.end);
    put_le32(head + PIECE_HEAD_SUM, (uint32_t)XXH3_64bits(head, PIECE_HEAD_SUM));
    w->n = 0;
}

void bucket_writer_clear(struct bucket_writer *w)
{
    buf_clear(&w->out);
    w->n = w->n_bits = 0;
}

void bucket_writer_copy(const struct bucket_writer *w, const struct bucket *open, struct buf *out)
{
    struct bucket_writer copy = *w;
    size_t before = out->len;
    buf_append_bytes(out, buf_bytes(&w->out));
    copy.out = *out;
    copy.piece += before;
    if (open)
        bucket_writer_add(&copy, open);
    bucket_writer_seal(&copy);
    *out = copy.out;
}

void bucket_writer_free(struct bucket_writer *w)
{
    buf_free(&w->out);
}

/* Reading. */

static uint64_t take_few(struct bucket_reader *r, unsigned n)
{
    for (; r->n_bits < n; r->n_bits += 8) {
        if (r->at == r->end) {
            r->is_bad = true;
            return 0;
        }
        r->bits = r->bits << 8 | *r->at++;
    }
    r->n_bits -= n;
    return r->bits >> r->n_bits & (UINT64_MAX >> (64 - n));
}

static uint64_t take(struct bucket_reader *r, unsigned n)
{
    uint64_t high = n > 32 ? take_few(r, n - 32) : 0;
    return high << 32 | take_few(r, MIN(n, 32));
}

static int64_t take_int(struct bucket_reader *r)
{
    unsigned i = 0;
    while (i < INT_LENGTHS - 1 && take(r, 1) == 1)
        i++;
    uint64_t bits = i > 0 ? take(r, int_bits[i]) : 0;
    return (int64_t)(bits >> 1 ^ (0 - (bits & 1)));
}

/* A damaged piece may have any numbers: the caller checks the result. */
static int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t minus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static double take_double(struct bucket_reader *r, enum bucket_field field, double expected)
{
    if (take(r, 1) == 0)
        return expected;
    if (take(r, 1) == 1) {
        r->code.windows[field].shift = (uint8_t)take(r, 6);
        r->code.windows[field].length = (uint8_t)(take(r, 6) + 1);
    }
    unsigned shift = r->code.windows[field].shift, length = r->code.windows[field].length;
    if (length == 0 || shift + length > 64) {
        r->is_bad = true;
        return 0;
    }
    return value_of(bits_of(expected) ^ take(r, length) << shift);
}

static void take_single(struct bucket_reader *r, int64_t end, struct bucket *out)
{
    double value = take_double(r, BUCKET_LAST, r->code.last);
    r->is_bad = r->is_bad || isnan(value);
    out->number = value;
    out->b = (struct sample_bucket){.first = end,
        .last_at = end,
        .count = 1,
        .sum = value,
        .min = value,
        .max = value,
        .last = value,
        .rise = expect_rise(&r->code, value)};
}

static void take_full(struct bucket_reader *r, int64_t end, struct bucket *out)
{
    const struct bucket_code *c = &r->code;
    struct sample_bucket *s = &out->b;
    *out = (struct bucket){0};
    int64_t count = plus(take_int(r), c->count), n_nan = take_int(r);
    bool is_stale = take(r, 1) == 1;
    s->stale_at = is_stale ? end : 0;
    r->is_bad = r->is_bad || count < 0 || count > UINT32_MAX || n_nan < 0 || n_nan > UINT32_MAX ||
                (count == 0 && n_nan == 0 && !is_stale);
    if (r->is_bad || (count == 0 && n_nan == 0))
        return;
    s->count = (uint32_t)count;
    s->n_nan = (uint32_t)n_nan;
    s->last_at = is_stale ? minus(end, take_int(r)) : end;
    int64_t span = plus(take_int(r), c->span);
    s->first = minus(s->last_at, span);
    s->last = take_double(r, BUCKET_LAST, c->last);
    r->is_bad = r->is_bad || span < 0 || s->last_at > end || (is_stale && s->last_at == end) ||
                (s->n_nan == 0 && isnan(s->last)) || (s->count == 0 && !isnan(s->last));
    if (s->count == 0)
        return;
    out->number = isnan(s->last) ? value_of(take(r, 64)) : s->last;
    s->max = take_double(r, BUCKET_MAX, out->number);
    s->min = take_double(r, BUCKET_MIN, c->has_number ? c->number : out->number);
    s->sum = take_double(r, BUCKET_SUM, expect_sum(s));
    s->rise = take_double(r, BUCKET_RISE, expect_rise(c, out->number));
}

void bucket_reader_begin(
    struct bucket_reader *r, struct bytes pieces, int64_t width, int64_t from, int64_t to)
{
    *r = (struct bucket_reader){.pieces = pieces, .width = width, .from = from, .to = to};
}

/* Finds the next piece of the span and verifies its checksum. */
static enum bucket_status enter_piece(struct bucket_reader *r)
{
    while (r->pieces.len > 0) {
        const char *head = r->pieces.ptr;
        if (r->pieces.len < HEAD ||
            get_le32(head + PIECE_HEAD_SUM) != (uint32_t)XXH3_64bits(head, PIECE_HEAD_SUM))
            return BUCKET_DAMAGED;
        size_t length = (size_t)get_le32(head + PIECE_LENGTH) + HEAD;
        if (length > r->pieces.len)
            return BUCKET_DAMAGED;
        r->pieces = bytes_of(head + length, r->pieces.len - length);
        if ((int64_t)get_le64(head + PIECE_FIRST) > r->to || (int64_t)get_le64(head + PIECE_LAST) < r->from)
            continue;
        if (get_le32(head + PIECE_SUM) != (uint32_t)XXH3_64bits(head + HEAD, length - HEAD))
            return BUCKET_DAMAGED;
        r->at = (const unsigned char *)head + HEAD;
        r->end = (const unsigned char *)head + length;
        r->left = get_le32(head + PIECE_BUCKETS);
        r->n_bits = 0;
        r->start = -1;
        r->code.has_number = take(r, 1) == 1;
        r->code.number = r->code.has_number ? value_of(take(r, 64)) : 0;
        code_begin(&r->code);
        if (!r->has_entered)
            r->before = r->code;
        r->has_entered = true;
        return r->is_bad || r->left == 0 ? BUCKET_DAMAGED : BUCKET_NEXT;
    }
    return BUCKET_END;
}

enum bucket_status bucket_reader_next(struct bucket_reader *r, struct bucket *out)
{
    if (r->left == 0) {
        enum bucket_status status = enter_piece(r);
        if (status != BUCKET_NEXT)
            return status;
    }
    r->left--;
    bool is_full = take(r, 1) == 1;
    int64_t end = plus(plus(take_int(r), r->code.end), r->code.delta);
    if (end <= 0 || end > BUCKET_TIME_MAX)
        return BUCKET_DAMAGED;
    if (is_full)
        take_full(r, end, out);
    else
        take_single(r, end, out);
    struct sample_bucket *s = &out->b;
    int64_t next = r->start + r->width; /* mostly the bucket after the one before: no division */
    s->start = r->start >= 0 && end >= next && end - next < r->width ? next : bucket_start(end, r->width);
    s->width = (uint32_t)r->width;
    bool has_samples = s->count > 0 || s->n_nan > 0;
    if (r->is_bad || s->start <= r->start || (has_samples && s->first < s->start))
        return BUCKET_DAMAGED;
    r->start = s->start;
    code_advance(&r->code, out);
    return BUCKET_NEXT;
}
