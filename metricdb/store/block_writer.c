#include "metricdb/store/block_writer.h"

#include "base/byte_order.h"
#include "base/io.h"
#include "base/text_hash.h"
#include "base/xxh3.h"
#include "metricdb/store/block_layout.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>
#include <uthash.h>

#define BUFFER ((size_t)256 << 10)

struct writer_text {
    struct bytes text;
    uint32_t id, rank; /* the order of the first use, and the order of the texts */
    UT_hash_handle hh;
};

struct writer_posting {
    uint64_t label; /* ranks of name and value */
    uint32_t series;
};

struct block_writer {
    struct block_info info;
    char *dir, path[PATH_MAX], temporary[PATH_MAX];
    int fd;      /* -1: the file is published */
    int failure; /* errno of the first failed call */
    struct buf buffer;
    uint64_t written; /* bytes before `buffer` */
    uint64_t lengths[BLOCK_PARTS];
    struct writer_text *texts;
    struct buf labels, series, states; /* parts; labels with the texts' ids until finish */
};

struct block_writer *block_writer_new(const char *dir, const struct block_info *info, struct error *error)
{
    static const char zeros[HEAD_SIZE];
    struct block_writer *w = mem_zalloc(sizeof *w);
    w->info = *info;
    w->info.min_at = w->info.max_at = 0;
    w->info.n_series = w->info.n_buckets = 0;
    w->dir = mem_strdup(dir);
    block_path(dir, info, w->path);
    snprintf(w->temporary, sizeof w->temporary, "%.*s" BLOCK_TEMPORARY, PATH_MAX - 8, w->path);
    w->fd = io->open(w->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, IO_PRIVATE_MODE);
    if (w->fd < 0) {
        error_errno(error, -1, w->temporary);
        block_writer_free(&w);
        return NULL;
    }
    buf_append(&w->buffer, zeros, HEAD_SIZE);
    return w;
}

static void flush(struct block_writer *w)
{
    if (w->failure == 0 && io_write_all(w->fd, w->buffer.ptr, w->buffer.len, (off_t)w->written) != 0)
        w->failure = errno;
    w->written += w->buffer.len;
    buf_clear(&w->buffer);
}

static void put_bytes(struct block_writer *w, enum block_part part, struct bytes bytes)
{
    buf_append_bytes(&w->buffer, bytes);
    w->lengths[part] += bytes.len;
    if (w->buffer.len >= BUFFER)
        flush(w);
}

static uint32_t add_text(struct block_writer *w, struct bytes text)
{
    struct writer_text *t;
    const char *key = text.len > 0 ? text.ptr : "";
    HASH_FIND(hh, w->texts, key, text.len, t);
    if (t)
        return t->id;
    t = mem_zalloc(sizeof *t);
    t->text = bytes_of(key, text.len);
    t->id = HASH_COUNT(w->texts);
    HASH_ADD_KEYPTR(hh, w->texts, key, text.len, t);
    return t->id;
}

static char *append_zeros(struct buf *b, size_t n)
{
    if (n == 0)
        return b->ptr;
    buf_reserve(b, n);
    memset(b->ptr + b->len, 0, n);
    b->len += n;
    return b->ptr + b->len - n;
}

static void note_times(struct block_info *info, const struct block_series *s)
{
    if (s->n_buckets == 0)
        return;
    info->min_at = info->min_at == 0 ? s->min_at : MIN(info->min_at, s->min_at);
    info->max_at = MAX(info->max_at, s->max_at);
    info->n_buckets += s->n_buckets;
}

void block_writer_add(struct block_writer *w, const struct metric_label *labels, size_t n_labels,
    const struct block_series *series, const struct block_state *state)
{
    assert(n_labels > 0 && n_labels <= BLOCK_LABELS_MAX && (state != NULL) == (w->info.level == 0));
    char *p = append_zeros(&w->series, SERIES_SIZE);
    put_le64(p + SERIES_PIECES, w->lengths[PART_PIECES]);
    put_le64(p + SERIES_MIN_AT, (uint64_t)series->min_at);
    put_le64(p + SERIES_MAX_AT, (uint64_t)series->max_at);
    put_le32(p + SERIES_PIECES_LEN, (uint32_t)series->pieces.len);
    put_le32(p + SERIES_LABELS, (uint32_t)(w->labels.len / 8));
    put_le32(p + SERIES_N_LABELS, (uint32_t)n_labels);
    put_le32(p + SERIES_N_BUCKETS, series->n_buckets);
    for (size_t i = 0; i < n_labels; i++) {
        uint32_t name = add_text(w, labels[i].name), value = add_text(w, labels[i].value);
        p = append_zeros(&w->labels, 8);
        put_le32(p, name);
        put_le32(p + 4, value);
    }
    if (state) {
        uint64_t bits;
        memcpy(&bits, &state->number, sizeof bits);
        p = append_zeros(&w->states, STATE_SIZE);
        put_le64(p + STATE_LAST_AT, (uint64_t)state->last_at);
        put_le64(p + STATE_NUMBER, bits);
        put_le32(p + STATE_HAS_NUMBER, state->has_number);
        put_le32(p + STATE_IDLE, state->idle);
    }
    note_times(&w->info, series);
    w->info.n_series++;
    put_bytes(w, PART_PIECES, series->pieces);
}

static int by_text(const void *a, const void *b)
{
    return bytes_compare((*(struct writer_text *const *)a)->text, (*(struct writer_text *const *)b)->text);
}

static int by_label(const void *a, const void *b)
{
    const struct writer_posting *x = a, *y = b;
    return x->label != y->label ? (x->label > y->label) - (x->label < y->label)
                                : (x->series > y->series) - (x->series < y->series);
}

/* Builds the texts in their order, and replaces the ids in the labels. */
static void build_texts(struct block_writer *w, struct buf parts[BLOCK_PARTS])
{
    uint32_t n = HASH_COUNT(w->texts);
    struct writer_text **sorted = mem_alloc((n + 1) * sizeof *sorted), *t;
    uint32_t *ranks = mem_alloc((n + 1) * sizeof *ranks);
    for (t = w->texts; t; t = t->hh.next)
        sorted[t->id] = t;
    qsort(sorted, n, sizeof *sorted, by_text);
    for (uint32_t i = 0; i < n; i++) {
        ranks[sorted[i]->id] = i;
        buf_append_bytes(&parts[PART_TEXTS], sorted[i]->text);
        put_le32(append_zeros(&parts[PART_ENDS], 4), (uint32_t)parts[PART_TEXTS].len);
    }
    if (parts[PART_TEXTS].len > UINT32_MAX || w->labels.len / 8 > UINT32_MAX)
        w->failure = EFBIG;
    for (size_t at = 0; at < w->labels.len; at += 4)
        put_le32(w->labels.ptr + at, ranks[get_le32(w->labels.ptr + at)]);
    free(ranks);
    free(sorted);
}

static void append_number(struct buf *b, uint32_t n)
{
    for (; n >= 128; n >>= 7)
        buf_append_char(b, (char)(n | 128));
    buf_append_char(b, (char)n);
}

static void build_postings(struct block_writer *w, struct buf parts[BLOCK_PARTS])
{
    size_t n = w->labels.len / 8, i = 0;
    struct writer_posting *all = mem_alloc((n + 1) * sizeof *all);
    for (uint64_t s = 0; s < w->info.n_series; s++) {
        uint32_t more = get_le32(w->series.ptr + s * SERIES_SIZE + SERIES_N_LABELS);
        for (; more > 0; more--, i++)
            all[i] = (struct writer_posting){
                (uint64_t)get_le32(w->labels.ptr + i * 8) << 32 | get_le32(w->labels.ptr + i * 8 + 4),
                (uint32_t)s};
    }
    qsort(all, n, sizeof *all, by_label);
    for (i = 0; i < n; i++) {
        bool is_first = i == 0 || all[i - 1].label != all[i].label;
        append_number(&parts[PART_LISTS], all[i].series - (is_first ? 0 : all[i - 1].series));
        if (i + 1 < n && all[i + 1].label == all[i].label)
            continue;
        char *p = append_zeros(&parts[PART_POSTINGS], POSTING_SIZE);
        put_le32(p + POSTING_NAME, (uint32_t)(all[i].label >> 32));
        put_le32(p + POSTING_VALUE, (uint32_t)all[i].label);
        put_le64(p + POSTING_END, parts[PART_LISTS].len);
    }
    free(all);
}

static void pad(struct block_writer *w)
{
    append_zeros(&w->buffer, (8 - (w->written + w->buffer.len) % 8) % 8);
}

/* Writes the parts after the pieces, and returns their checksum. */
static uint64_t write_index(struct block_writer *w)
{
    struct buf parts[BLOCK_PARTS] = {0};
    XXH3_state_t *sum = XXH3_createState();
    if (!sum)
        abort();
    XXH3_64bits_reset(sum);
    pad(w);
    build_texts(w, parts);
    build_postings(w, parts);
    parts[PART_LABELS] = w->labels;
    parts[PART_SERIES] = w->series;
    parts[PART_STATES] = w->states;
    w->labels = w->series = w->states = (struct buf){0};
    for (int i = PART_TEXTS; i < BLOCK_PARTS; i++) {
        flush(w);
        put_bytes(w, (enum block_part)i, buf_bytes(&parts[i]));
        size_t padding = (8 - parts[i].len % 8) % 8;
        append_zeros(&parts[i], padding);
        XXH3_64bits_update(sum, parts[i].ptr, parts[i].len);
        append_zeros(&w->buffer, padding);
        buf_free(&parts[i]);
    }
    flush(w);
    uint64_t digest = XXH3_64bits_digest(sum);
    XXH3_freeState(sum);
    return digest;
}

static void write_header(struct block_writer *w, uint64_t index_sum)
{
    const struct block_info *info = &w->info;
    char p[HEAD_SIZE] = BLOCK_MAGIC;
    put_le32(p + HEAD_LEVEL, info->level);
    put_le64(p + HEAD_WIDTH, (uint64_t)info->width);
    put_le64(p + HEAD_FROM, info->from);
    put_le64(p + HEAD_TO, info->to);
    put_le64(p + HEAD_MIN_AT, (uint64_t)info->min_at);
    put_le64(p + HEAD_MAX_AT, (uint64_t)info->max_at);
    put_le64(p + HEAD_BUCKETS, info->n_buckets);
    put_le64(p + HEAD_CUT_AT, (uint64_t)info->cut_at);
    put_le64(p + HEAD_HORIZON, (uint64_t)info->horizon);
    for (int i = 0; i < BLOCK_PARTS; i++)
        put_le64(p + HEAD_LENGTHS + i * 8, w->lengths[i]);
    put_le64(p + HEAD_OFFSET, info->cursor.offset);
    memcpy(p + HEAD_ID, info->cursor.id, strlen(info->cursor.id));
    memcpy(p + HEAD_OPENING, info->cursor.opening, strlen(info->cursor.opening));
    put_le64(p + HEAD_INDEX_SUM, index_sum);
    put_le64(p + HEAD_SUM, XXH3_64bits(p, HEAD_SUM));
    if (w->failure == 0 && io_write_all(w->fd, p, HEAD_SIZE, 0) != 0)
        w->failure = errno;
}

struct block *block_writer_finish(struct block_writer *w, struct error *error)
{
    write_header(w, write_index(w));
    if (w->failure == 0 && io->fsync(w->fd) != 0)
        w->failure = errno;
    io->close(w->fd);
    w->fd = -1;
    if (w->failure == 0 && io->rename(w->temporary, w->path) != 0)
        w->failure = errno;
    if (w->failure == 0 && io_sync_dir(w->dir) != 0)
        w->failure = errno;
    if (w->failure == 0)
        return block_open(w->path, error);
    errno = w->failure;
    error_errno(error, -1, w->path);
    io->unlink(w->temporary);
    return NULL;
}

void block_writer_free(struct block_writer **wp)
{
    struct block_writer *w = *wp;
    struct writer_text *t, *next;
    if (!w)
        return;
    if (w->fd >= 0) {
        io->close(w->fd);
        io->unlink(w->temporary);
    }
    HASH_ITER(hh, w->texts, t, next)
    {
        HASH_DEL(w->texts, t);
        free(t);
    }
    buf_free(&w->buffer);
    buf_free(&w->labels);
    buf_free(&w->series);
    buf_free(&w->states);
    free(w->dir);
    free(w);
    *wp = NULL;
}
