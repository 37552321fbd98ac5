/* Any bytes as the index and the blocks of a run of counts: read to the end or refused with a reason.
 *
 * An input is a byte of flags, then the index and the blocks, each behind a length (2 bytes, little-endian). Flag 1: the checksums
 * are put right first, so that what lies behind them is reached. */
#include "counts/count_run.h"
#include "base/xxh3.h"
#include "support/fuzz_copy.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RUN 7
#define BLOCKS_MAX 16
#define FLAG_REPAIR 1

static struct bytes blocks[BLOCKS_MAX];
static size_t n_blocks;

static struct bytes take(struct bytes *rest)
{
    if (rest->len < 2)
        return bytes_of(rest->ptr, 0);
    size_t n = (unsigned char)rest->ptr[0] | (size_t)(unsigned char)rest->ptr[1] << 8;
    n = n < rest->len - 2 ? n : rest->len - 2;
    struct bytes out = bytes_of(rest->ptr + 2, n);
    *rest = bytes_of(rest->ptr + 2 + n, rest->len - 2 - n);
    return out;
}

static uint64_t checksum(uint32_t block, struct bytes b)
{
    return XXH3_64bits_withSeed(b.ptr, b.len, (uint64_t)RUN << 32 ^ block);
}

static size_t varint(const struct buf *b, size_t at, uint64_t *n)
{
    *n = 0;
    for (unsigned shift = 0; at < b->len && shift < 64; shift += 7) {
        *n |= (uint64_t)(b->ptr[at] & 0x7f) << shift;
        if (!(b->ptr[at++] & 0x80))
            return at;
    }
    return b->len;
}

/* The layout is at the beginning of count_run.c. */
static void put_right(struct buf *index)
{
    uint64_t counts, n, length, bytes;
    if (index->len < 8)
        return;
    index->len -= 8;
    size_t at = varint(index, varint(index, 0, &counts), &n);
    for (size_t k = 0; k < n_blocks && k < n; k++) {
        at = varint(index, at, &length);
        if (length > index->len - at)
            break;
        at = varint(index, at + length, &bytes);
        if (index->len - at < 8)
            break;
        uint64_t sum = checksum((uint32_t)k, blocks[k]);
        memcpy(index->ptr + at, &sum, 8);
        at += 8;
    }
    uint64_t sum = checksum(UINT32_MAX, buf_bytes(index));
    buf_append(index, &sum, 8);
}

static int read_block(void *arg, uint64_t run, uint32_t block, struct buf *out, struct error *error)
{
    (void)arg;
    assert(run == RUN);
    if (block >= n_blocks) {
        error_set(error, COUNT_DAMAGED, "no such block");
        return -1;
    }
    buf_free(out);
    *out = (struct buf){fuzz_copy(blocks[block]), blocks[block].len, blocks[block].len};
    return 0;
}

static void read_through(const struct count_run_index *index, struct bytes from, struct bytes name)
{
    struct count_source *s = count_run_source(index, from, "fuzz", read_block, NULL);
    struct count_merge *m = count_merge_new(&s, 1);
    struct buf out = {0};
    enum count_next r;
    while ((r = count_merge_next_record(m)) == COUNT_FOUND) {
        assert(bytes_compare(count_merge_key(m), from) >= 0);
        if (name.len > 0 && !count_key_is_lookup(count_merge_key(m)) &&
            (r = count_merge_skip_values(m, name)) == COUNT_FAILED)
            break;
        if ((r = count_merge_print(m, &out)) == COUNT_FAILED)
            break;
        assert(out.len > 0 && out.ptr[out.len - 1] == '\n');
        buf_clear(&out);
    }
    assert(r != COUNT_FAILED || count_merge_error(m)->text[0]);
    buf_free(&out);
    count_merge_free(&m);
    count_source_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf index = {0};
    if (size == 0)
        return 0;
    struct bytes rest = bytes_of(data + 1, size - 1);
    buf_append_bytes(&index, take(&rest));
    for (n_blocks = 0; n_blocks < BLOCKS_MAX && rest.len > 2; n_blocks++)
        blocks[n_blocks] = take(&rest);
    if (data[0] & FLAG_REPAIR)
        put_right(&index);
    struct count_run_index *i = count_run_index_parse(RUN, buf_bytes(&index));
    if (i) {
        read_through(i, BYTES_NONE, BYTES_NONE);
        read_through(i, BYTES_LITERAL("u|b"), BYTES_NONE);
        read_through(i, BYTES_NONE, BYTES_LITERAL("US"));
        read_through(i, BYTES_NONE, BYTES_LITERAL("\0\0\1"));
    }
    count_run_index_free(&i);
    buf_free(&index);
    return 0;
}
