#include "metricdb/store/block_file.h"

#include "base/byte_order.h"
#include "base/io.h"
#include "base/lower_bound.h"
#include "base/xxh3.h"
#include "metricdb/store/block_layout.h"
#include "metricdb/store/bucket_code.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct block {
    atomic_uint references;
    struct block_info info;
    char *name;
    struct mapping *mapping; /* NULL: bytes in memory */
    struct bytes bytes;
    struct bytes parts[BLOCK_PARTS];
    uint64_t n_texts, n_labels, n_postings;
    atomic_bool is_verified;
};

void block_path(const char *dir, const struct block_info *info, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%lld-%010llu-%010llu" BLOCK_ENDING, dir, (long long)info->width,
        (unsigned long long)info->from, (unsigned long long)info->to);
}

int block_damaged(const struct block *b, const char *part, struct error *error)
{
    return error_set(error, -1, "%s: damaged: %s; restore the file from a backup", b->name, part);
}

/* Sets the parts from their lengths. */
static bool find_parts(struct block *b)
{
    uint64_t at = HEAD_SIZE, size = b->bytes.len;
    for (int i = 0; i < BLOCK_PARTS; i++) {
        uint64_t length = get_le64(b->bytes.ptr + HEAD_LENGTHS + i * 8);
        if (length > size - at || (at + length + 7) / 8 * 8 > size)
            return false;
        b->parts[i] = bytes_of(b->bytes.ptr + at, length);
        at = (at + length + 7) / 8 * 8;
    }
    b->n_texts = b->parts[PART_ENDS].len / 4;
    b->n_labels = b->parts[PART_LABELS].len / 8;
    b->n_postings = b->parts[PART_POSTINGS].len / POSTING_SIZE;
    b->info.n_series = b->parts[PART_SERIES].len / SERIES_SIZE;
    uint64_t states = b->parts[PART_STATES].len;
    return at == size && b->n_texts * 4 == b->parts[PART_ENDS].len &&
           b->n_labels * 8 == b->parts[PART_LABELS].len &&
           b->n_postings * POSTING_SIZE == b->parts[PART_POSTINGS].len && b->info.n_series < UINT32_MAX &&
           b->info.n_series * SERIES_SIZE == b->parts[PART_SERIES].len &&
           states == (b->info.level == 0 ? b->info.n_series * STATE_SIZE : 0);
}

static int read_header(struct block *b, struct error *error)
{
    const char *p = b->bytes.ptr;
    struct block_info *info = &b->info;
    if (b->bytes.len < HEAD_SIZE)
        return block_damaged(b, "the file is too short", error);
    if (memcmp(p, BLOCK_MAGIC, sizeof BLOCK_MAGIC - 1) != 0)
        return error_set(error, -1, "%s: not a block of metrics, or of another format version", b->name);
    if (XXH3_64bits(p, HEAD_SUM) != get_le64(p + HEAD_SUM))
        return block_damaged(b, "the header", error);
    *info = (struct block_info){.width = (int64_t)get_le64(p + HEAD_WIDTH),
        .level = get_le32(p + HEAD_LEVEL),
        .from = get_le64(p + HEAD_FROM),
        .to = get_le64(p + HEAD_TO),
        .min_at = (int64_t)get_le64(p + HEAD_MIN_AT),
        .max_at = (int64_t)get_le64(p + HEAD_MAX_AT),
        .n_buckets = get_le64(p + HEAD_BUCKETS),
        .cut_at = (int64_t)get_le64(p + HEAD_CUT_AT),
        .horizon = (int64_t)get_le64(p + HEAD_HORIZON),
        .cursor.offset = get_le64(p + HEAD_OFFSET)};
    memcpy(info->cursor.id, p + HEAD_ID, STREAM_ID_TEXT - 1);
    memcpy(info->cursor.opening, p + HEAD_OPENING, STREAM_OPENING_TEXT - 1);
    if (info->width <= 0 || info->width > UINT32_MAX || info->from >= info->to)
        return block_damaged(b, "the header", error);
    return find_parts(b) ? 0 : block_damaged(b, "its length, as if it was truncated", error);
}

struct block *block_open_bytes(struct bytes bytes, const char *name, struct error *error)
{
    struct block *b = mem_zalloc(sizeof *b);
    atomic_init(&b->references, 1);
    b->name = mem_strdup(name);
    b->bytes = bytes;
    if (read_header(b, error) != 0)
        block_unref(&b);
    return b;
}

struct block *block_open(const char *path, struct error *error)
{
    struct mapping *mapping;
    struct error why;
    if (mapping_open(path, false, &mapping, &why) != 0) {
        error_set(error, -1, "%s: %s", path, why.text);
        return NULL;
    }
    struct block *b = block_open_bytes(mapping_bytes(mapping), path, error);
    if (b)
        b->mapping = mapping;
    else
        mapping_close(&mapping);
    return b;
}

struct block *block_ref(struct block *b)
{
    atomic_fetch_add(&b->references, 1);
    return b;
}

void block_unref(struct block **bp)
{
    struct block *b = *bp;
    *bp = NULL;
    if (!b || atomic_fetch_sub(&b->references, 1) > 1)
        return;
    mapping_close(&b->mapping);
    free(b->name);
    free(b);
}

const struct block_info *block_info(const struct block *b)
{
    return &b->info;
}

const char *block_name(const struct block *b)
{
    return b->name;
}

size_t block_size(const struct block *b)
{
    return b->bytes.len;
}

int block_verify(struct block *b, struct error *error)
{
    const char *index = b->parts[PART_TEXTS].ptr;
    if (atomic_load_explicit(&b->is_verified, memory_order_acquire))
        return 0;
    size_t length = (size_t)(b->bytes.ptr + b->bytes.len - index);
    if (XXH3_64bits(index, length) != get_le64(b->bytes.ptr + HEAD_INDEX_SUM))
        return block_damaged(b, "the index", error);
    atomic_store_explicit(&b->is_verified, true, memory_order_release);
    return 0;
}

int block_check_whole(struct block *b, struct error *error)
{
    if (!b->mapping || mapping_is_whole(b->mapping))
        return 0;
    return block_damaged(b, "the file was truncated", error);
}

int block_get_series(const struct block *b, uint64_t i, struct block_series *out, struct error *error)
{
    assert(i < b->info.n_series);
    const char *p = b->parts[PART_SERIES].ptr + i * SERIES_SIZE;
    uint64_t at = get_le64(p + SERIES_PIECES), length = get_le32(p + SERIES_PIECES_LEN);
    *out = (struct block_series){.min_at = (int64_t)get_le64(p + SERIES_MIN_AT),
        .max_at = (int64_t)get_le64(p + SERIES_MAX_AT),
        .n_buckets = get_le32(p + SERIES_N_BUCKETS),
        .n_labels = get_le32(p + SERIES_N_LABELS),
        .labels_at = get_le32(p + SERIES_LABELS)};
    if (at > b->parts[PART_PIECES].len || length > b->parts[PART_PIECES].len - at || out->n_labels == 0 ||
        out->n_labels > BLOCK_LABELS_MAX || (uint64_t)out->labels_at + out->n_labels > b->n_labels)
        return block_damaged(b, "a series of the index", error);
    out->pieces = bytes_of(b->parts[PART_PIECES].ptr + at, length);
    return 0;
}

static bool get_text(const struct block *b, uint32_t i, struct bytes *out)
{
    const char *ends = b->parts[PART_ENDS].ptr;
    if (i >= b->n_texts)
        return false;
    uint32_t from = i > 0 ? get_le32(ends + (i - 1) * 4UL) : 0, to = get_le32(ends + i * 4UL);
    if (from > to || to > b->parts[PART_TEXTS].len)
        return false;
    *out = bytes_of(b->parts[PART_TEXTS].ptr + from, to - from);
    return true;
}

int block_get_labels(const struct block *b, const struct block_series *series,
    struct metric_label labels[BLOCK_LABELS_MAX], struct error *error)
{
    const char *p = b->parts[PART_LABELS].ptr + series->labels_at * 8UL;
    for (uint32_t i = 0; i < series->n_labels; i++, p += 8)
        if (!get_text(b, get_le32(p), &labels[i].name) || !get_text(b, get_le32(p + 4), &labels[i].value))
            return block_damaged(b, "a label of the index", error);
    return 0;
}

int block_get_state(const struct block *b, uint64_t i, struct block_state *out, struct error *error)
{
    if (i >= b->parts[PART_STATES].len / STATE_SIZE)
        return block_damaged(b, "it has no last samples", error);
    const char *p = b->parts[PART_STATES].ptr + i * STATE_SIZE;
    uint64_t bits = get_le64(p + STATE_NUMBER);
    *out = (struct block_state){.last_at = (int64_t)get_le64(p + STATE_LAST_AT),
        .has_number = get_le32(p + STATE_HAS_NUMBER) != 0,
        .idle = get_le32(p + STATE_IDLE)};
    memcpy(&out->number, &bits, sizeof bits);
    if (out->last_at <= 0 || out->last_at > BUCKET_TIME_MAX)
        return block_damaged(b, "a last sample", error);
    return 0;
}

/* Finds the number of a text; false: absent. */
static bool find_text(const struct block *b, struct bytes text, uint32_t *out)
{
    struct bytes t;
    *out =
        (uint32_t)LOWER_BOUND(i, 0, b->n_texts, get_text(b, (uint32_t)i, &t) && bytes_compare(t, text) < 0);
    return get_text(b, *out, &t) && bytes_equal(t, text);
}

/* The two texts of a posting, as one number. */
static uint64_t posting_key(const struct block *b, uint64_t i)
{
    const char *p = b->parts[PART_POSTINGS].ptr + i * POSTING_SIZE;
    return (uint64_t)get_le32(p + POSTING_NAME) << 32 | get_le32(p + POSTING_VALUE);
}

/* Sets the bits of a posting's series. */
static bool add_list(const struct block *b, uint64_t posting, uint64_t *bits)
{
    const char *p = b->parts[PART_POSTINGS].ptr + posting * POSTING_SIZE;
    uint64_t at = posting > 0 ? get_le64(p - POSTING_SIZE + POSTING_END) : 0, end = get_le64(p + POSTING_END),
             id = 0;
    const unsigned char *list = (const unsigned char *)b->parts[PART_LISTS].ptr;
    if (end > b->parts[PART_LISTS].len)
        return false;
    while (at < end) {
        uint64_t step = 0;
        unsigned shift = 0;
        while (at < end && list[at] >= 128 && shift < 28) {
            step |= (uint64_t)(list[at++] & 127) << shift;
            shift += 7;
        }
        if (at == end)
            return false;
        id += step | (uint64_t)list[at++] << shift;
        if (id >= b->info.n_series)
            return false;
        bits[id / 64] |= UINT64_C(1) << id % 64;
    }
    return true;
}

/* The series of the i-th matcher. If the matcher matches the empty text, first finds the series that do not
 * match. */
static bool match_one(const struct block *b, struct label_match *match, size_t i, uint64_t *bits)
{
    uint32_t name = 0, value = 0;
    bool matches_empty = label_match_value(match, i, BYTES_NONE), ok = true;
    struct bytes only = label_match_only(match, i), text;
    bool found = find_text(b, label_match_name(match, i), &name) && (!only.ptr || find_text(b, only, &value));
    uint64_t first = (uint64_t)name << 32 | value, last = only.ptr ? first : first | UINT32_MAX;
    for (uint64_t p = LOWER_BOUND(k, 0, b->n_postings, posting_key(b, k) < first);
         found && ok && p < b->n_postings && posting_key(b, p) <= last; p++) {
        ok = get_text(b, (uint32_t)posting_key(b, p), &text);
        if (ok && (only.ptr || label_match_value(match, i, text) != matches_empty))
            ok = add_list(b, p, bits);
    }
    for (uint64_t w = 0; matches_empty && w < b->info.n_series / 64 + 1; w++)
        bits[w] = ~bits[w];
    return ok;
}

int block_match(const struct block *b, struct label_match *match, uint64_t *bits, struct error *error)
{
    uint64_t n = b->info.n_series, words = n / 64 + 1;
    uint64_t *one = mem_alloc(words * sizeof *one);
    bool ok = true;
    memset(bits, 0xff, words * sizeof *bits);
    for (size_t i = 0; ok && i < label_match_count(match); i++) {
        memset(one, 0, words * sizeof *one);
        ok = match_one(b, match, i, one);
        for (uint64_t w = 0; w < words; w++)
            bits[w] &= one[w];
    }
    bits[words - 1] &= n % 64 > 0 ? UINT64_MAX >> (64 - n % 64) : 0;
    free(one);
    return ok ? 0 : block_damaged(b, "a list of the index", error);
}
