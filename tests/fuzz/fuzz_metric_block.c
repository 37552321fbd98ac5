/* Any bytes as a block of metrics, and patches of a valid block, also with right checksums: the block is
 * refused by name, or gives series and buckets that keep the rules of metric_source.h. */
#include "base/byte_order.h"
#include "base/xxh3.h"
#include "metricdb/store/block_layout.h"
#include "metricdb/store/block_writer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SERIES_TRIED 200
#define BUCKETS_TRIED 100000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Makes the checksums of all pieces that follow each other from the beginning right. */
static void repair_pieces(char *p, uint64_t length)
{
    while (length >= 32) {
        uint64_t bits = get_le32(p + 4);
        bits = bits > length - 32 ? length - 32 : bits;
        put_le32(p + 4, (uint32_t)bits);
        put_le32(p, (uint32_t)XXH3_64bits(p + 32, bits));
        put_le32(p + 28, (uint32_t)XXH3_64bits(p, 28));
        p += 32 + bits;
        length -= 32 + bits;
    }
}

static void repair(char *bytes, size_t size)
{
    if (size < HEAD_SIZE)
        return;
    uint64_t pieces = get_le64(bytes + HEAD_LENGTHS);
    if (pieces < size - HEAD_SIZE) {
        uint64_t index = HEAD_SIZE + (pieces + 7) / 8 * 8;
        repair_pieces(bytes + HEAD_SIZE, pieces);
        if (index <= size)
            put_le64(bytes + HEAD_INDEX_SUM, XXH3_64bits(bytes + index, size - index));
    }
    put_le64(bytes + HEAD_SUM, XXH3_64bits(bytes, HEAD_SUM));
}

static void read_buckets(struct bytes pieces, int64_t width)
{
    struct bucket_reader r;
    struct bucket b;
    bucket_reader_begin(&r, pieces, width, 0, BUCKET_TIME_MAX);
    for (int n = 0; n < BUCKETS_TRIED && bucket_reader_next(&r, &b) == BUCKET_NEXT; n++) {
        const struct sample_bucket *s = &b.b;
        assert(s->start >= 0 && s->start % width == 0 && bucket_end(s) < s->start + width);
        assert(s->count > 0 || s->n_nan > 0 || s->stale_at > 0);
        assert((s->count == 0 && s->n_nan == 0) || (s->first >= s->start && s->first <= s->last_at));
        assert(s->stale_at == 0 || s->stale_at > s->last_at);
    }
}

static void match(const struct block *b)
{
    static const struct label_matcher matchers[] = {{MATCH_REGEX, {"job", 3}, {"a.*|", 4}},
        {MATCH_NOT_EQUAL, {"x", 1}, {"y", 1}}, {MATCH_EQUAL, {"__name__", 8}, {"up", 2}}};
    uint64_t *bits = calloc(block_info(b)->n_series / 64 + 1, sizeof *bits);
    struct error error;
    for (size_t n = 0; bits && n < 3; n++) {
        struct label_match *m = label_match_new(matchers + n, 1 + n % 2, &error);
        assert(m);
        block_match(b, m, bits, &error);
        label_match_free(&m);
    }
    free(bits);
}

static void check(struct bytes bytes)
{
    struct error error = {0};
    struct metric_label labels[BLOCK_LABELS_MAX];
    struct block_series series;
    struct block_state state;
    struct block *b = block_open_bytes(bytes, "name", &error);
    if (!b || block_verify(b, &error) != 0) {
        assert(bytes_starts_with(bytes_str(error.text), BYTES_LITERAL("name: ")));
        block_unref(&b);
        return;
    }
    for (uint64_t i = 0; i < block_info(b)->n_series && i < SERIES_TRIED; i++) {
        if (block_get_series(b, i, &series, &error) == 0) {
            block_get_labels(b, &series, labels, &error);
            read_buckets(series.pieces, block_info(b)->width);
        }
        block_get_state(b, i, &state, &error);
    }
    match(b);
    block_unref(&b);
}

/* A valid block of three series. */
static struct buf make_valid(void)
{
    struct metric_label labels[] = {{{"__name__", 8}, {"up", 2}}, {{"job", 3}, {"a0", 2}}};
    char dir[] = "/tmp/fuzz-block-XXXXXX", path[PATH_MAX];
    struct block_info info = {.width = 10000, .to = 1};
    struct block_state state = {.last_at = 2000000, .number = 5, .has_number = true};
    struct bucket_writer pieces = {0};
    struct buf result = {0};
    struct error error;
    struct block_writer *w = mkdtemp(dir) ? block_writer_new(dir, &info, &error) : NULL;
    assert(w);
    for (int i = 0; i < 600; i++) {
        int64_t at = 1000000 + i * INT64_C(10000);
        double v = i / 7 * 1.5;
        struct bucket b = {{.start = at,
                               .width = 10000,
                               .first = at,
                               .last_at = at + i % 9,
                               .count = 1 + i % 3 / 2,
                               .sum = v,
                               .min = v,
                               .max = v,
                               .last = v,
                               .stale_at = i % 50 == 7 ? at + 99 : 0},
            v};
        bucket_writer_add(&pieces, &b);
    }
    bucket_writer_seal(&pieces);
    for (int i = 0; i < 3; i++) {
        static const char *const jobs[] = {"a0", "a1", "a2"};
        labels[1].value.ptr = jobs[i];
        block_writer_add(w, labels, 2,
            &(struct block_series){1000000, 2000000, 600, 2, 0, buf_bytes(&pieces.out)}, &state);
    }
    struct block *b = block_writer_finish(w, &error);
    assert(b && io_read_file(block_name(b), SIZE_MAX, &result) == 0);
    block_path(dir, &info, path);
    unlink(path);
    rmdir(dir);
    block_unref(&b);
    block_writer_free(&w);
    bucket_writer_free(&pieces);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct buf valid;
    if (size == 0)
        return 0;
    if (!valid.ptr)
        valid = make_valid();
    bool is_patch = data[0] % 2 == 1;
    size_t length = is_patch ? valid.len : size - 1;
    char *bytes = malloc(length + 1);
    assert(bytes);
    memcpy(bytes, is_patch ? valid.ptr : (const char *)data + 1, length);
    for (size_t i = 1; is_patch && i + 2 < size; i += 3)
        bytes[(data[i] << 8 | data[i + 1]) % length] = (char)data[i + 2];
    check(bytes_of(bytes, length));
    repair(bytes, length);
    check(bytes_of(bytes, length));
    free(bytes);
    return 0;
}
