#include "archive/sorted_index_format.h"

#include "base/byte_order.h"
#include "base/xxh3.h"

#include <stdlib.h>

#define SAMPLE_BYTES (INDEX_SHARED_MAX + INDEX_KEY_BYTES)
#define NEEDED                                                                                               \
    (SORTED_INDEX_BLOCK + SAMPLE_BYTES) /* a block, and the bytes that its last line may continue with */

/* The beginning of a line without LF, padded with zeros. */
struct sample {
    char text[SAMPLE_BYTES];
};

/* The node of a level that is being filled. */
struct level {
    struct sample before; /* the sample before the node's first one */
    struct sample samples[INDEX_KEYS];
    unsigned n;
    struct buf nodes; /* finished; not used for level 0 */
};

struct sorted_index_writer {
    XXH3_state_t *hash;            /* of all bytes of the index so far */
    uint64_t bytes, blocks;        /* taken so far */
    uint64_t line;                 /* the start of the line that contains the next byte */
    uint64_t last;                 /* the start of the last line */
    bool is_line_start;            /* the next byte begins a line */
    struct sample first, covering; /* of the first line and the last line */
    struct buf carry;              /* bytes that are not yet in a block */
    struct buf long_lines;
    struct level *levels[INDEX_LEVELS_MAX];
};

struct sorted_index_writer *sorted_index_writer_new(void)
{
    struct sorted_index_writer *w = mem_zalloc(sizeof *w);
    w->hash = XXH3_createState();
    XXH3_64bits_reset(w->hash);
    w->is_line_start = true;
    return w;
}

void sorted_index_writer_free(struct sorted_index_writer **wp)
{
    struct sorted_index_writer *w = *wp;
    *wp = NULL;
    if (!w)
        return;
    for (unsigned k = 0; k < INDEX_LEVELS_MAX; k++)
        if (w->levels[k]) {
            buf_free(&w->levels[k]->nodes);
            free(w->levels[k]);
        }
    XXH3_freeState(w->hash);
    buf_free(&w->carry);
    buf_free(&w->long_lines);
    free(w);
}

static void emit(struct sorted_index_writer *w, struct bytes data, struct buf *out)
{
    if (data.len == 0)
        return;
    XXH3_64bits_update(w->hash, data.ptr, data.len);
    buf_append_bytes(out, data);
}

static struct sample take_sample(const char *line, size_t available)
{
    struct sample s = {{0}};
    size_t n = available < SAMPLE_BYTES ? available : SAMPLE_BYTES;
    const char *lf = memchr(line, '\n', n);
    memcpy(s.text, line, lf ? (size_t)(lf - line) : n);
    return s;
}

/* Completes the node of level k. All samples of the node are between l->before and `after`. */
static void close_node(struct sorted_index_writer *w, unsigned k, const struct sample *after, struct buf *out)
{
    struct level *l = w->levels[k];
    char node[INDEX_NODE_BYTES];
    size_t shared = 0;
    while (shared < INDEX_SHARED_MAX && l->before.text[shared] == after->text[shared])
        shared++;
    memset(node, 0xff, sizeof node);
    for (unsigned i = 0; i < l->n; i++) {
        uint64_t key;
        memcpy(&key, l->samples[i].text + shared, sizeof key);
        put_le64(node + (size_t)i * INDEX_KEY_BYTES, be64toh(key));
    }
    put_le64(node + (size_t)INDEX_KEYS * INDEX_KEY_BYTES, shared);
    if (k == 0)
        emit(w, bytes_of(node, sizeof node), out);
    else
        buf_append(&l->nodes, node, sizeof node);
    l->n = 0;
}

static void add_sample(struct sorted_index_writer *w, const struct sample *s, struct buf *out)
{
    uint64_t rank = w->blocks++;
    if (rank == 0)
        w->first = *s;
    for (unsigned k = 0; rank > 0; k++, rank /= INDEX_FANOUT) {
        struct level *l = w->levels[k];
        if (!l) {
            l = w->levels[k] = mem_zalloc(sizeof *l);
            l->before = w->first;
        }
        if (rank % INDEX_FANOUT != 0) {
            l->samples[l->n++] = *s;
            return;
        }
        close_node(w, k, s, out);
        l->before = *s;
    }
}

static void list_if_long(struct sorted_index_writer *w, uint64_t end)
{
    char entry[INDEX_LONG_BYTES];
    if (end - w->line <= SORTED_INDEX_LONG_LINE)
        return;
    put_le64(entry, w->line);
    put_le64(entry + 8, end);
    buf_append(&w->long_lines, entry, sizeof entry);
}

/* Takes a block of n bytes. `available` bytes of the text are at `p`. */
static void add_block(
    struct sorted_index_writer *w, const char *p, size_t n, size_t available, struct buf *out)
{
    const char *first_lf = memchr(p, '\n', n), *before_last = memrchr(p, '\n', n - 1);
    size_t first = w->is_line_start ? 0 : first_lf ? (size_t)(first_lf - p) + 1 : n;
    size_t last = before_last ? (size_t)(before_last - p) + 1 : first;
    struct sample sample = w->covering;
    if (first < n) {
        sample = take_sample(p + first, available - first);
        w->covering = last == first ? sample : take_sample(p + last, available - last);
        w->last = w->bytes + last;
    }
    if (first_lf) {
        list_if_long(w, w->bytes + (uint64_t)(first_lf - p) + 1);
        w->line = p[n - 1] == '\n' ? w->bytes + n : w->last;
    }
    w->is_line_start = p[n - 1] == '\n';
    w->bytes += n;
    add_sample(w, &sample, out);
}

/* Completes the block that began in an earlier piece. */
static struct bytes feed_carry(struct sorted_index_writer *w, struct bytes text, struct buf *out)
{
    while (w->carry.len > 0 && text.len > 0) {
        size_t missing = NEEDED - w->carry.len, n = text.len < missing ? text.len : missing;
        buf_append(&w->carry, text.ptr, n);
        text = bytes_of(text.ptr + n, text.len - n);
        if (w->carry.len < NEEDED)
            break;
        add_block(w, w->carry.ptr, SORTED_INDEX_BLOCK, NEEDED, out);
        w->carry.len -= SORTED_INDEX_BLOCK;
        if (n >= w->carry.len) { /* the rest is in `text` as well */
            text = bytes_of(text.ptr - w->carry.len, text.len + w->carry.len);
            w->carry.len = 0;
        } else {
            memmove(w->carry.ptr, w->carry.ptr + SORTED_INDEX_BLOCK, w->carry.len);
        }
    }
    return text;
}

void sorted_index_writer_feed(struct sorted_index_writer *w, struct bytes text, struct buf *out)
{
    text = feed_carry(w, text, out);
    for (; text.len >= NEEDED; text = bytes_of(text.ptr + SORTED_INDEX_BLOCK, text.len - SORTED_INDEX_BLOCK))
        add_block(w, text.ptr, SORTED_INDEX_BLOCK, text.len, out);
    buf_append_bytes(&w->carry, text);
}

void sorted_index_writer_finish(struct sorted_index_writer *w, uint64_t xxh3, struct buf *out)
{
    char footer[SORTED_INDEX_FOOTER] = {0};
    const char *rest = w->carry.ptr;
    for (size_t left = w->carry.len, n; left > 0; left -= n, rest += n) {
        n = left < SORTED_INDEX_BLOCK ? left : SORTED_INDEX_BLOCK;
        add_block(w, rest, n, left, out);
    }
    if (!w->is_line_start)
        list_if_long(w, w->bytes);
    for (unsigned k = 0; k < INDEX_LEVELS_MAX && w->levels[k]; k++) {
        close_node(w, k, &w->covering, out);
        emit(w, buf_bytes(&w->levels[k]->nodes), out);
    }
    emit(w, buf_bytes(&w->long_lines), out);
    put_le64(footer + FOOTER_MAGIC, INDEX_MAGIC);
    put_le64(footer + FOOTER_BYTES, w->bytes);
    put_le64(footer + FOOTER_XXH3, xxh3);
    put_le64(footer + FOOTER_LAST, w->last);
    put_le64(footer + FOOTER_LONG, w->long_lines.len / INDEX_LONG_BYTES);
    emit(w, bytes_of(footer, FOOTER_CHECKSUM), out);
    put_le64(footer + FOOTER_CHECKSUM, XXH3_64bits_digest(w->hash));
    buf_append(out, footer + FOOTER_CHECKSUM, sizeof footer - FOOTER_CHECKSUM);
}
