#include "counts/count_run.h"

#include "base/lower_bound.h"
#include "base/xxh3.h"
#include "sets/set_chunk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A block is a sequence of records. Each record is:
 *
 *     varint shared: length of the prefix that the key shares with the previous key (0 for the first key of a block)
 *     varint rest, key bytes
 *     varint length of the values, then the values: counts { byte length, name, varint count }, where a negative count is
 *         its two's complement in 64 bits, chunks { zero byte, id,
 *         varint length, chunk }, or a zero byte and the text of a lookup
 *
 * A record with the same key as the previous record continues the previous record. An index is: varint counts, varint
 * blocks, for each block { varint length, first key, varint bytes, 8 bytes checksum }, then 8 bytes checksum of the
 * index. Numbers of 8 bytes are little endian. */

#define CHECKSUM_BYTES 8
#define VARINT_MAX 10

#define BLOCK_SEARCH 500 /* number of counts that can be read in the time of a search in a block */
#define BLOCK_READ                                                                                           \
    100 /* number of counts that can be read in the time of reading a block of few large chunks */
#define INDEX_BLOCK                                                                                          \
    UINT32_MAX /* seeds the checksum of the index, where a block's number seeds that of a block */

static uint64_t checksum(uint64_t run, uint32_t block, struct bytes data)
{
    return XXH3_64bits_withSeed(data.ptr, data.len, run << 32 ^ run >> 32 ^ block);
}

static void append_varint(struct buf *b, uint64_t n)
{
    buf_reserve(b, VARINT_MAX);
    for (; n >= 0x80; n >>= 7)
        b->ptr[b->len++] = (char)(n | 0x80);
    b->ptr[b->len++] = (char)n;
}

static void append_checksum(struct buf *b, uint64_t sum)
{
    for (int i = 0; i < CHECKSUM_BYTES; i++)
        buf_append_char(b, (char)(sum >> 8 * i));
}

/* The unread part of a span. */
struct reader {
    const unsigned char *at, *end;
};

static bool read_varint(struct reader *r, uint64_t *out)
{
    uint64_t n = 0;
    for (unsigned shift = 0; r->at < r->end && shift < 64; shift += 7) {
        unsigned char c = *r->at++;
        n |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80) {
            *out = n;
            return shift < 63 || c <= 1;
        }
    }
    return false;
}

static bool read_span(struct reader *r, uint64_t len, struct bytes *out)
{
    if (len > (size_t)(r->end - r->at))
        return false;
    *out = bytes_of(r->at, len);
    r->at += len;
    return true;
}

static bool read_checksum(struct reader *r, uint64_t *out)
{
    struct bytes b;
    if (!read_span(r, CHECKSUM_BYTES, &b))
        return false;
    *out = 0;
    for (int i = CHECKSUM_BYTES; i-- > 0;)
        *out = *out << 8 | (unsigned char)b.ptr[i];
    return true;
}

struct count_run_writer {
    uint64_t run, counts, bytes;
    uint32_t blocks;
    count_block_write *write;
    void *arg;
    struct buf block, values, last_key, entries;
    bool in_record; /* the current record of the merge is only partly stored */
};

struct count_run_writer *count_run_writer_new(uint64_t run, count_block_write *write, void *arg)
{
    struct count_run_writer *w = mem_zalloc(sizeof *w);
    *w = (struct count_run_writer){.run = run, .write = write, .arg = arg};
    return w;
}

void count_run_writer_free(struct count_run_writer **wp)
{
    struct count_run_writer *w = *wp;
    if (!w)
        return;
    buf_free(&w->block);
    buf_free(&w->values);
    buf_free(&w->last_key);
    buf_free(&w->entries);
    free(w);
    *wp = NULL;
}

static int store_block(struct count_run_writer *w)
{
    struct bytes data = buf_bytes(&w->block);
    append_varint(&w->entries, data.len);
    append_checksum(&w->entries, checksum(w->run, w->blocks, data));
    int failed = w->write(w->arg, w->blocks, data);
    w->blocks++;
    w->bytes += data.len;
    buf_clear(&w->block);
    buf_clear(&w->last_key);
    return failed;
}

static int end_record(struct count_run_writer *w, struct bytes key)
{
    if (w->values.len == 0)
        return 0;
    size_t shared = 0, most = key.len < w->last_key.len ? key.len : w->last_key.len;
    if (w->block.len == 0) {
        append_varint(&w->entries, key.len);
        buf_append_bytes(&w->entries, key);
    }
    while (shared < most && key.ptr[shared] == w->last_key.ptr[shared])
        shared++;
    append_varint(&w->block, shared);
    append_varint(&w->block, key.len - shared);
    buf_append(&w->block, key.ptr + shared, key.len - shared);
    w->last_key.len = shared;
    buf_append(&w->last_key, key.ptr + shared, key.len - shared);
    append_varint(&w->block, w->values.len);
    buf_append_bytes(&w->block, buf_bytes(&w->values));
    buf_clear(&w->values);
    return w->block.len >= COUNT_BLOCK_BYTES ? store_block(w) : 0;
}

/* Appends a chunk of a set, or a count. */
static void append_value(struct buf *values, const struct count_value *v)
{
    buf_append_char(values, v->text.ptr ? 0 : (char)v->name.len);
    buf_append_bytes(values, v->name);
    append_varint(values, v->text.ptr ? v->text.len : (uint64_t)v->count);
    if (v->text.ptr)
        buf_append_bytes(values, v->text);
}

static enum count_next copy_record(struct count_run_writer *w, struct count_merge *m, bool *write_failed)
{
    struct bytes key = count_merge_key(m);
    bool is_lookup = count_key_is_lookup(key);
    struct count_value value;
    enum count_next r;
    w->in_record = true;
    while ((r = count_merge_next_value(m, &value)) == COUNT_FOUND) {
        w->counts++;
        if (is_lookup) {
            /* A NUL precedes the text, so that an empty text differs from a record without a value. */
            buf_append_char(&w->values, 0);
            buf_append_bytes(&w->values, value.text);
            continue;
        }
        if (value.name.len > COUNT_NAME_MAX || value.name.len == 0)
            return count_merge_fail(m, value.name.len > 0 ? "a name is too long" : "a name is empty");
        append_value(&w->values, &value);
        if (w->values.len + w->block.len >= COUNT_BLOCK_BYTES) {
            *write_failed = end_record(w, key) != 0;
            return *write_failed ? COUNT_FAILED : COUNT_FOUND;
        }
    }
    w->in_record = false;
    if (r == COUNT_END && end_record(w, key) != 0) {
        *write_failed = true;
        return COUNT_FAILED;
    }
    return r == COUNT_END ? COUNT_FOUND : r;
}

enum count_next count_run_writer_copy(
    struct count_run_writer *w, struct count_merge *m, uint64_t max_bytes, bool *write_failed)
{
    uint64_t until = w->bytes + max_bytes;
    enum count_next r = COUNT_FOUND;
    *write_failed = false;
    while (r == COUNT_FOUND && w->bytes < until) {
        if (!w->in_record)
            r = count_merge_next_record(m);
        if (r == COUNT_FOUND)
            r = copy_record(w, m, write_failed);
    }
    return r;
}

int count_run_writer_finish(struct count_run_writer *w, struct buf *index)
{
    if (w->block.len > 0 && store_block(w) != 0)
        return -1;
    size_t start = index->len;
    append_varint(index, w->counts);
    append_varint(index, w->blocks);
    buf_append_bytes(index, buf_bytes(&w->entries));
    append_checksum(index, checksum(w->run, INDEX_BLOCK, bytes_of(index->ptr + start, index->len - start)));
    return 0;
}

uint64_t count_run_writer_counts(const struct count_run_writer *w)
{
    return w->counts;
}

uint64_t count_run_writer_bytes(const struct count_run_writer *w)
{
    return w->bytes;
}

struct block {
    struct bytes first;
    uint64_t bytes, checksum;
};

struct count_run_index {
    uint64_t run, checksum, counts;
    uint32_t n;
    char *data; /* copy of the index; the keys of `blocks` point into it */
    struct block *blocks;
};

void count_run_index_free(struct count_run_index **i)
{
    if (!*i)
        return;
    free((*i)->data);
    free((*i)->blocks);
    free(*i);
    *i = NULL;
}

struct count_run_index *count_run_index_parse(uint64_t run, struct bytes data)
{
    if (data.len < CHECKSUM_BYTES)
        return NULL;
    struct count_run_index *i = mem_zalloc(sizeof *i);
    i->run = run;
    i->data = bytes_dup(data);
    struct bytes body = bytes_of(i->data, data.len - CHECKSUM_BYTES);
    const unsigned char *at = (const unsigned char *)i->data;
    struct reader sum = {at + body.len, at + data.len}, r = {at, at + body.len};
    uint64_t n = 0, len;
    /* The index has more than 9 bytes for each block. With this bound, a damaged block count cannot cause a large
     * allocation. */
    bool ok = read_checksum(&sum, &i->checksum) && i->checksum == checksum(run, INDEX_BLOCK, body) &&
              read_varint(&r, &i->counts) && read_varint(&r, &n) && n <= (uint64_t)(r.end - r.at) / 9;
    if (ok) {
        i->n = (uint32_t)n;
        i->blocks = mem_zalloc((n + 1) * sizeof *i->blocks);
    }
    for (uint32_t k = 0; ok && k < n; k++) {
        struct block *b = &i->blocks[k];
        ok = read_varint(&r, &len) && read_span(&r, len, &b->first) && read_varint(&r, &b->bytes) &&
             read_checksum(&r, &b->checksum);
    }
    if (!ok || r.at != r.end)
        count_run_index_free(&i);
    return i;
}

/* Returns the first block whose first key is not below `key`. */
static uint32_t find_block(const struct count_run_index *index, struct bytes key)
{
    return (uint32_t)LOWER_BOUND(i, 0, index->n, bytes_compare(index->blocks[i].first, key) < 0);
}

/* Returns the last block whose first key is below `from`. All records at or above `from` begin in this block or
 * later. */
static uint32_t first_block(const struct count_run_index *index, struct bytes from)
{
    uint32_t next = find_block(index, from);
    return next > 0 ? next - 1 : 0;
}

/* Returns the first block whose first key is above `key`. */
static uint32_t find_after(const struct count_run_index *index, struct bytes key)
{
    return (uint32_t)LOWER_BOUND(i, 0, index->n, bytes_compare(index->blocks[i].first, key) <= 0);
}

static size_t blocks_from(const struct count_run_index *i, uint32_t first, struct bytes last)
{
    uint32_t end = last.len > 0 ? find_after(i, last) : i->n;
    return end > first ? end - first : 0;
}

size_t count_run_index_counts(const struct count_run_index *i, struct bytes from, struct bytes last)
{
    size_t blocks = blocks_from(i, first_block(i, from), last), ends = blocks < 2 ? blocks : 2;
    size_t average = i->n > 0 ? (size_t)(i->counts / i->n) : 0;
    average = average < BLOCK_READ ? BLOCK_READ : average;
    return ends * BLOCK_SEARCH + (blocks - ends) * average;
}

size_t count_run_index_records(const struct count_run_index *i, struct bytes from, struct bytes last)
{
    uint32_t first = first_block(i, from);
    size_t blocks = blocks_from(i, first, last), n = 0;
    for (size_t k = first; k < first + blocks; k++)
        n += k == first || !bytes_equal(i->blocks[k].first, i->blocks[k - 1].first);
    return n;
}

uint64_t count_run_index_checksum(const struct count_run_index *i)
{
    return i->checksum;
}

struct run_source {
    struct count_source base; /* first */
    const struct count_run_index *index;
    count_block_read *read;
    void *arg;
    uint32_t next; /* next block to read */
    uint32_t at_block;
    struct buf data, key;
    struct reader records, values;
    struct buf from;
    bool is_lookup;
    bool ahead; /* `values` holds the first piece of the next record */
};

static enum count_next damaged(struct run_source *s, const char *what)
{
    error_set(&s->base.error, COUNT_DAMAGED, "%.300s: run %" PRIu64 ", block %" PRIu32 ": %s",
        s->base.container, s->index->run, s->at_block, what);
    return COUNT_FAILED;
}

/* Fetches and verifies a block into the empty `data`. */
static enum count_next read_block(struct run_source *s, uint32_t block, struct buf *data)
{
    const struct block *b = &s->index->blocks[block];
    s->at_block = block;
    if (s->read(s->arg, s->index->run, block, data, &s->base.error) != 0)
        return COUNT_FAILED;
    if (data->len != b->bytes || checksum(s->index->run, block, buf_bytes(data)) != b->checksum)
        return damaged(s, "its checksum does not match");
    return COUNT_FOUND;
}

/* Reads the next piece of a record into `values`. Sets *same if the piece continues the current record. */
static enum count_next next_piece(struct run_source *s, bool *same)
{
    uint64_t shared, rest, len;
    struct bytes key, values;
    bool is_first = s->records.at == s->records.end;
    if (is_first) {
        if (s->next == s->index->n)
            return COUNT_END;
        buf_clear(&s->data);
        if (read_block(s, s->next++, &s->data) == COUNT_FAILED)
            return COUNT_FAILED;
        const unsigned char *at = (const unsigned char *)s->data.ptr;
        s->records = (struct reader){at, at + s->data.len};
    }
    if (!read_varint(&s->records, &shared) || !read_varint(&s->records, &rest) ||
        !read_span(&s->records, rest, &key) || !read_varint(&s->records, &len) ||
        !read_span(&s->records, len, &values) || (is_first ? shared > 0 : shared > s->key.len))
        return damaged(s, "a malformed record");
    *same = is_first ? bytes_equal(key, buf_bytes(&s->key)) : rest == 0 && shared == s->key.len;
    if (!*same) {
        s->key.len = shared;
        buf_append_bytes(&s->key, key);
    }
    s->values =
        (struct reader){(const unsigned char *)values.ptr, (const unsigned char *)values.ptr + values.len};
    return COUNT_FOUND;
}

static void go_to(struct run_source *s, uint32_t block)
{
    s->next = block;
    s->records.at = s->records.end;
    s->values.at = s->values.end;
}

static enum count_next run_next_record(struct count_source *base)
{
    struct run_source *s = (struct run_source *)base;
    bool same = false;
    if (!s->ahead) {
        uint32_t after = s->key.len > 0 && s->next < s->index->n &&
                                 bytes_equal(s->index->blocks[s->next].first, buf_bytes(&s->key))
                             ? find_after(s->index, buf_bytes(&s->key))
                             : 0;
        if (after > s->next) /* skip to the last block of the record */
            go_to(s, after - 1);
        do {
            enum count_next r = next_piece(s, &same);
            if (r != COUNT_FOUND)
                return r;
        } while (same || (s->from.len > 0 && bytes_compare(buf_bytes(&s->key), buf_bytes(&s->from)) < 0));
    }
    s->ahead = false;
    buf_clear(&s->from);
    base->key = buf_bytes(&s->key);
    base->text = BYTES_NONE;
    s->is_lookup = count_key_is_lookup(base->key);
    base->is_set = !s->is_lookup && s->values.at < s->values.end && *s->values.at == 0;
    return COUNT_FOUND;
}

/* Reads a chunk after its zero byte. */
static bool read_chunk(struct reader *r, struct bytes *id, struct bytes *chunk)
{
    uint64_t len;
    return read_span(r, SET_CHUNK_ID, id) && read_varint(r, &len) && read_span(r, len, chunk);
}

static enum count_next run_next_value(struct count_source *base)
{
    struct run_source *s = (struct run_source *)base;
    while (s->values.at == s->values.end) {
        /* The record may continue in the next block, but most records end within one block. */
        bool same;
        if (s->ahead)
            return COUNT_END;
        enum count_next r = next_piece(s, &same);
        if (r != COUNT_FOUND)
            return r;
        s->ahead = !same;
        if (s->ahead)
            return COUNT_END;
    }
    if (s->ahead)
        return COUNT_END;
    if (s->is_lookup) {
        base->text = bytes_of(s->values.at + 1, (size_t)(s->values.end - s->values.at) - 1);
        s->values.at = s->values.end;
        return COUNT_FOUND;
    }
    unsigned char len = *s->values.at++;
    if (len == 0) {
        bool is_chunk =
            read_chunk(&s->values, &base->name, &base->text) && set_chunk_check(base->name, base->text);
        return is_chunk ? COUNT_FOUND : damaged(s, "a malformed chunk");
    }
    uint64_t count;
    bool ok = !base->text.ptr && read_span(&s->values, len, &base->name) && read_varint(&s->values, &count);
    base->count = ok ? (int64_t)count : 0;
    return ok ? COUNT_FOUND : damaged(s, "a malformed count");
}

/* Skips values in the current piece of the record. Returns true if the piece has a value at or after `name`. */
static bool skip_in_piece(struct run_source *s, struct bytes name)
{
    struct reader r = s->values;
    struct bytes found, chunk;
    uint64_t count;
    while (r.at < r.end) {
        s->values = r;
        unsigned char len = *r.at++;
        bool ok =
            len == 0 ? read_chunk(&r, &found, &chunk) : read_span(&r, len, &found) && read_varint(&r, &count);
        if (!ok)
            return true; /* next_value reports the damage */
        if (bytes_compare(found, name) >= 0)
            return true;
    }
    s->values = r;
    return false;
}

/* Compares the first name of a block that continues the record with `name`. */
static enum count_next compare_first(struct run_source *s, uint32_t block, struct bytes name, int *order)
{
    struct buf data = {0};
    struct bytes key, first;
    uint64_t shared, len;
    enum count_next r = read_block(s, block, &data);
    const unsigned char *at = (const unsigned char *)data.ptr;
    struct reader in = {at, at + data.len};
    if (r == COUNT_FOUND && !(read_varint(&in, &shared) && read_varint(&in, &len) &&
                                read_span(&in, len, &key) && read_varint(&in, &len) && in.at < in.end &&
                                read_span(&in, 1 + (uint64_t)(*in.at ? *in.at : SET_CHUNK_ID), &first)))
        r = damaged(s, "a malformed record");
    if (r == COUNT_FOUND)
        *order = bytes_compare(bytes_of(first.ptr + 1, first.len - 1), name);
    buf_free(&data);
    return r;
}

/* Finds the last block that continues the record and begins before `name`. Reading goes on in this block. Several blocks
 * may begin with chunks of the same name. */
static enum count_next run_skip_values(struct count_source *base, struct bytes name)
{
    struct run_source *s = (struct run_source *)base;
    bool same = true;
    int order = 0;
    if (s->is_lookup || s->ahead || skip_in_piece(s, name))
        return COUNT_FOUND;
    if (s->records.at < s->records.end) /* another record follows in this block */
        return COUNT_FOUND;
    uint32_t first = s->next, low = first, high = find_after(s->index, buf_bytes(&s->key));
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare_first(s, middle, name, &order) == COUNT_FAILED)
            return COUNT_FAILED;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low <= first)
        return COUNT_FOUND;
    go_to(s, low - 1);
    enum count_next r = next_piece(s, &same);
    if (r != COUNT_FOUND || !same)
        return r == COUNT_FAILED ? r : damaged(s, "a record does not continue in its next block");
    skip_in_piece(s, name);
    return COUNT_FOUND;
}

static void run_close(struct count_source *base)
{
    struct run_source *s = (struct run_source *)base;
    buf_free(&s->data);
    buf_free(&s->key);
    buf_free(&s->from);
    free(s);
}

struct count_source *count_run_source(const struct count_run_index *index, struct bytes from,
    const char *name, count_block_read *read, void *arg)
{
    static const struct count_source_kind kind = {
        run_next_record, run_next_value, run_close, run_skip_values};
    struct run_source *s = mem_zalloc(sizeof *s);
    *s = (struct run_source){.base = {.kind = &kind, .container = name},
        .index = index,
        .read = read,
        .arg = arg,
        .next = first_block(index, from)};
    buf_append_bytes(&s->from, from);
    return &s->base;
}
