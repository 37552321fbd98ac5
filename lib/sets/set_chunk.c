#include "sets/set_chunk.h"

#include "sets/set_bits.h"
#include "sets/set_code.h"

#include <assert.h>
#include <stdlib.h>

#define LOW_BITS 16
#define HASH_SHIFT 48
#define LIST_MAX 4095 /* codes of a list of numbers */

static_assert(SET_CHUNK_BITMAP == SET_BITS_BYTES, "a chunk is a bitmap of 65,536 bits");

void set_chunk_id(uint64_t code, char id[SET_CHUNK_ID])
{
    bool is_hash = code >= SET_NUMBER_END;
    uint64_t high = code >> (is_hash ? HASH_SHIFT : LOW_BITS);
    id[0] = (char)is_hash;
    id[1] = (char)(high >> 8);
    id[2] = (char)high;
}

static uint64_t high_of(struct bytes id)
{
    return (uint64_t)(unsigned char)id.ptr[1] << 8 | (unsigned char)id.ptr[2];
}

/* Chunks lie anywhere in a buffer, so numbers in them are not aligned. */
static uint16_t number_at(struct bytes chunk, size_t i)
{
    uint16_t low;
    memcpy(&low, chunk.ptr + i * sizeof low, sizeof low);
    return low;
}

uint64_t set_chunk_hash(struct bytes chunk, size_t i)
{
    uint64_t code;
    memcpy(&code, chunk.ptr + i * sizeof code, sizeof code);
    return code;
}

static size_t width_of(struct bytes id)
{
    return set_chunk_is_hashes(id) ? sizeof(uint64_t) : sizeof(uint16_t);
}

static bool is_bitmap(struct bytes id, struct bytes chunk)
{
    return !set_chunk_is_hashes(id) && chunk.len == SET_CHUNK_BITMAP;
}

static uint64_t item_at(struct bytes id, struct bytes chunk, size_t i)
{
    return set_chunk_is_hashes(id) ? set_chunk_hash(chunk, i) : number_at(chunk, i);
}

static uint64_t count_bitmap(struct bytes chunk)
{
    uint64_t bits[SET_BITS_WORDS];
    memcpy(bits, chunk.ptr, sizeof bits);
    return set_bits_count(bits);
}

bool set_chunk_check(struct bytes id, struct bytes chunk)
{
    if (id.len != SET_CHUNK_ID || (unsigned char)id.ptr[0] > 1)
        return false;
    if (is_bitmap(id, chunk))
        return count_bitmap(chunk) > LIST_MAX;
    size_t width = width_of(id), most = set_chunk_is_hashes(id) ? SET_CHUNK_HASHES * width : SET_CHUNK_BITMAP;
    if (chunk.len == 0 || chunk.len > most || chunk.len % width != 0)
        return false;
    for (size_t i = 1; i < chunk.len / width; i++)
        if (item_at(id, chunk, i) <= item_at(id, chunk, i - 1))
            return false;
    if (!set_chunk_is_hashes(id))
        return true;
    uint64_t last = set_chunk_hash(chunk, chunk.len / width - 1);
    return set_chunk_hash(chunk, 0) >= SET_NUMBER_END &&
           set_chunk_hash(chunk, 0) >> HASH_SHIFT == high_of(id) && last >> HASH_SHIFT == high_of(id);
}

bool set_chunk_is_before(struct bytes id, struct bytes chunk, uint64_t code)
{
    char other[SET_CHUNK_ID];
    set_chunk_id(code, other);
    int order = memcmp(id.ptr, other, sizeof other);
    return order < 0 || (order == 0 && set_chunk_is_hashes(id) &&
                            set_chunk_hash(chunk, chunk.len / sizeof code - 1) < code);
}

void set_chunk_append_bits(const uint64_t *bits, struct buf *out)
{
    uint16_t list[LIST_MAX + 1];
    size_t n = set_bits_list(bits, list, LIST_MAX + 1);
    if (n > LIST_MAX)
        buf_append(out, bits, SET_CHUNK_BITMAP);
    else
        buf_append(out, list, n * sizeof *list);
}

void set_chunk_append(const uint64_t *codes, size_t n, struct buf *out)
{
    if (codes[0] >= SET_NUMBER_END) {
        buf_append(out, codes, n * sizeof *codes);
        return;
    }
    if (n <= LIST_MAX) {
        buf_reserve(out, n * sizeof(uint16_t));
        for (size_t i = 0; i < n; i++) {
            uint16_t low = (uint16_t)codes[i];
            buf_append(out, &low, sizeof low);
        }
        return;
    }
    uint64_t bits[SET_BITS_WORDS] = {0};
    for (size_t i = 0; i < n; i++)
        set_bits_add_range(bits, (uint16_t)codes[i], (uint16_t)codes[i]);
    set_chunk_append_bits(bits, out);
}

static void add_bits(struct bytes id, struct bytes chunk, uint64_t *bits)
{
    if (is_bitmap(id, chunk)) {
        uint64_t from[SET_BITS_WORDS];
        memcpy(from, chunk.ptr, sizeof from);
        set_bits_or(bits, from);
        return;
    }
    for (size_t i = 0; i < chunk.len / sizeof(uint16_t); i++)
        set_bits_add_range(bits, number_at(chunk, i), number_at(chunk, i));
}

/* Appends the union of two lists. */
static void append_merged(struct bytes id, struct bytes a, struct bytes b, struct buf *out)
{
    size_t width = width_of(id), i = 0, j = 0, n = a.len / width, m = b.len / width;
    buf_reserve(out, a.len + b.len);
    while (i < n || j < m) {
        bool takes_a = j == m || (i < n && item_at(id, a, i) <= item_at(id, b, j));
        bool takes_b = i == n || (j < m && item_at(id, b, j) <= item_at(id, a, i));
        buf_append(out, takes_a ? a.ptr + i * width : b.ptr + j * width, width);
        i += takes_a;
        j += takes_b;
    }
}

void set_chunk_append_union(struct bytes id, struct bytes a, struct bytes b, struct buf *out)
{
    if (set_chunk_is_hashes(id) || (a.len + b.len) / sizeof(uint16_t) <= LIST_MAX) {
        append_merged(id, a, b, out);
        return;
    }
    uint64_t bits[SET_BITS_WORDS] = {0};
    add_bits(id, a, bits);
    add_bits(id, b, bits);
    set_chunk_append_bits(bits, out);
}

uint64_t set_chunk_size(struct bytes id, struct bytes chunk)
{
    return is_bitmap(id, chunk) ? count_bitmap(chunk) : chunk.len / width_of(id);
}

size_t set_chunk_codes(struct bytes id, struct bytes chunk, uint64_t *out, size_t most)
{
    if (is_bitmap(id, chunk)) {
        uint64_t bits[SET_BITS_WORDS];
        memcpy(bits, chunk.ptr, sizeof bits);
        size_t n = 0;
        for (size_t i = 0; i < SET_BITS_WORDS; i++)
            for (uint64_t left = bits[i]; left != 0 && n < most; left &= left - 1)
                out[n++] = high_of(id) << LOW_BITS | (i * 64 + (size_t)__builtin_ctzll(left));
        return n;
    }
    size_t n = chunk.len / width_of(id);
    for (size_t i = 0; i < n && i < most; i++)
        out[i] = set_chunk_is_hashes(id) ? set_chunk_hash(chunk, i)
                                         : high_of(id) << LOW_BITS | number_at(chunk, i);
    return n < most ? n : most;
}

bool set_chunk_has(struct bytes id, struct bytes chunk, uint64_t code)
{
    uint16_t low = (uint16_t)code;
    if (is_bitmap(id, chunk))
        return (unsigned char)chunk.ptr[low / 8] >> low % 8 & 1;
    uint64_t wanted = set_chunk_is_hashes(id) ? code : low;
    size_t from = 0, to = chunk.len / width_of(id);
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (item_at(id, chunk, middle) < wanted)
            from = middle + 1;
        else
            to = middle;
    }
    return from < chunk.len / width_of(id) && item_at(id, chunk, from) == wanted;
}

void set_chunk_append_without(struct bytes id, struct bytes chunk, uint64_t code, struct buf *out)
{
    uint64_t n = set_chunk_size(id, chunk), *codes = mem_alloc(n * sizeof *codes), kept = 0;
    set_chunk_codes(id, chunk, codes, n);
    for (uint64_t i = 0; i < n; i++)
        if (codes[i] != code)
            codes[kept++] = codes[i];
    if (kept > 0)
        set_chunk_append(codes, kept, out);
    free(codes);
}
