#include "compactor/external_sort.h"

#include "base/io.h"
#include "base/xxh3.h"
#include "compactor/line_sort.h"
#include "compactor/record_source.h"
#include "compactor/record_sum.h"
#include "compactor/text_record.h"
#include "counts/records.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define KEY_SHOWN ((size_t)80) /* maximal number of a key's bytes in an error */
#define WRITE_BYTES ((size_t)1 << 20)
#define READ_BYTES_MIN ((size_t)16 << 10)
#define READ_BYTES_MAX ((size_t)1 << 20)
#define PREFETCH 16 /* number of lines that are prefetched */
/* A block is 1/8 of the memory. Larger blocks make runs longer, but save less time than zeroing new pages takes. */
#define BLOCK_PARTS 8
#define BLOCK_MAX ((size_t)2 << 30) /* a reference has 32 bits for an offset in the block */

/* Text grows from the front of the block, and references from its end towards the front. */
struct block {
    char *text;
    size_t size, used;
    struct line_ref *refs; /* the last added reference comes first */
    size_t n;
    /* State of a reader of the sorted block: the next line, and the sum of lines with the same key. */
    size_t at;
    struct record_sum sum;
};

struct external_sort {
    char *directory;
    size_t memory, block_size;
    struct block blocks[2];
    int filling; /* the block that external_sort_add fills; while `writing`, the thread owns the other block */
    bool writing;
    pthread_t thread;
    struct error written; /* the thread's result; code COMPACT_OK: no error */
    int *runs;            /* the runs' file descriptors */
    struct manifest_file *facts;
    size_t n_runs;
    struct count_sources sources;
    struct record_sum first; /* collisions of the block that external_sort_finish frees */
};

static void block_free(struct block *b)
{
    free(b->text);
    record_sum_free(&b->sum);
    *b = (struct block){0};
}

static void block_clear(struct block *b)
{
    b->used = b->n = b->at = 0;
    b->refs = (struct line_ref *)(void *)(b->text + b->size);
}

/* Allocates the block's text, with the padding that line_sort needs. */
static void block_init(struct block *b, size_t size)
{
    b->size = size;
    b->text = aligned_alloc(HUGE_PAGE, (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (!b->text)
        abort();
    madvise(b->text, size, MADV_HUGEPAGE); /* the sort reads lines anywhere in the block */
    block_clear(b);
}

static size_t bytes_for(size_t len)
{
    return len + 1 + LINE_SORT_PADDING + sizeof(struct line_ref);
}

static bool block_has_room(const struct block *b, size_t len)
{
    return b->size - b->used - b->n * sizeof *b->refs >= bytes_for(len);
}

static void block_add(struct block *b, struct bytes line)
{
    struct line_ref *r = --b->refs;
    memcpy(b->text + b->used, line.ptr, line.len);
    b->text[b->used + line.len] = '\n';
    *r = (struct line_ref){.at = (uint32_t)b->used, .len = (uint32_t)line.len};
    line_sort_prepare(b->text, r);
    b->used += line.len + 1;
    b->n++;
}

static struct bytes block_line(const struct block *b, size_t i)
{
    return bytes_of(b->text + b->refs[i].at, b->refs[i].len);
}

/* Sets *line to the next record of the sorted block: a line, or the sum of all lines with the same key.
 * COUNT_FAILED: the lines cannot be added (record_sum.h); *line is the key. */
static enum count_next block_next(struct block *b, struct bytes *line)
{
    if (b->at == b->n)
        return COUNT_END;
    /* Lines in sorted order are not adjacent in the block, so prefetch them. */
    if (b->at + PREFETCH < b->n) {
        struct bytes ahead = block_line(b, b->at + PREFETCH);
        __builtin_prefetch(ahead.ptr);
        __builtin_prefetch(ahead.ptr + ahead.len); /* the line may cross a cache line */
    }
    *line = block_line(b, b->at++);
    const char *separator = memchr(line->ptr, RECORD_SEPARATOR, line->len);
    struct bytes key = bytes_of(line->ptr, (size_t)(separator + 1 - line->ptr)), next;
    bool is_group = false;
    for (; b->at < b->n && bytes_starts_with(next = block_line(b, b->at), key); b->at++) {
        if (!is_group)
            record_sum_begin(&b->sum, *line);
        record_sum_add(&b->sum, next);
        is_group = true;
    }
    if (!is_group)
        return COUNT_FOUND;
    *line = record_sum_line(&b->sum);
    if (!line->ptr)
        *line = bytes_of(key.ptr, key.len - 1);
    return b->sum.wrong ? COUNT_FAILED : COUNT_FOUND;
}

static enum compact_result flush(const struct external_sort *s, struct buf *data, int fd, XXH3_state_t *hash,
    struct manifest_file *f, struct error *error)
{
    if (io_write_all(fd, data->ptr, data->len, (off_t)f->bytes) != 0)
        return error_set(
            error, COMPACT_FAILED, "%.300s: cannot write the sorted text: %s", s->directory, strerror(errno));
    XXH3_64bits_update(hash, data->ptr, data->len);
    f->bytes += data->len;
    buf_clear(data);
    return COMPACT_OK;
}

static enum compact_result write_block(
    const struct external_sort *s, struct block *b, int fd, struct manifest_file *f, struct error *error)
{
    struct buf data = {0};
    struct bytes line;
    XXH3_state_t *hash = XXH3_createState();
    enum compact_result r = COMPACT_OK;
    enum count_next next;
    XXH3_64bits_reset(hash);
    buf_reserve(&data, WRITE_BYTES);
    while (r == COMPACT_OK && (next = block_next(b, &line)) != COUNT_END) {
        if (next == COUNT_FAILED) {
            r = error_set(error, COMPACT_REFUSED, "%s at \"%.*s\"", b->sum.wrong,
                (int)(line.len < KEY_SHOWN ? line.len : KEY_SHOWN), line.ptr);
            break;
        }
        buf_append_bytes(&data, line);
        buf_append_char(&data, '\n');
        f->records++;
        if (data.len >= WRITE_BYTES)
            r = flush(s, &data, fd, hash, f, error);
    }
    if (r == COMPACT_OK && data.len > 0)
        r = flush(s, &data, fd, hash, f, error);
    f->xxh3 = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    buf_free(&data);
    return r;
}

/* The thread's work. No other thread uses the block, the new run or `written` before the thread is joined. */
static void *sort_and_write(void *arg)
{
    struct external_sort *s = arg;
    struct block *b = &s->blocks[1 - s->filling];
    size_t run = s->n_runs - 1;
    line_sort(b->text, b->refs, b->n);
    s->written.code = write_block(s, b, s->runs[run], &s->facts[run], &s->written);
    return NULL;
}

static enum compact_result join(struct external_sort *s, struct error *error)
{
    if (!s->writing)
        return COMPACT_OK;
    pthread_join(s->thread, NULL);
    s->writing = false;
    return s->written.code == COMPACT_OK ? COMPACT_OK
                                         : error_set(error, s->written.code, "%s", s->written.text);
}

/* Passes the full block to the thread, and continues with the other block. */
static enum compact_result spill(struct external_sort *s, struct error *error)
{
    int fd;
    enum compact_result r = join(s, error);
    if (r == COMPACT_OK)
        r = compact_open_temporary(s->directory, &fd, error);
    if (r != COMPACT_OK)
        return r;
    s->runs = mem_realloc(s->runs, (s->n_runs + 1) * sizeof *s->runs);
    s->facts = mem_realloc(s->facts, (s->n_runs + 1) * sizeof *s->facts);
    s->runs[s->n_runs] = fd;
    s->facts[s->n_runs++] = (struct manifest_file){.name = "sorted text"};
    s->filling = 1 - s->filling;
    struct block *next = &s->blocks[s->filling];
    if (!next->text)
        block_init(next, s->block_size);
    else
        block_clear(next);
    s->writing = pthread_create(&s->thread, NULL, sort_and_write, s) == 0;
    if (s->writing)
        return COMPACT_OK;
    sort_and_write(s);
    return s->written.code == COMPACT_OK ? COMPACT_OK
                                         : error_set(error, s->written.code, "%s", s->written.text);
}

struct external_sort *external_sort_new(const char *directory, size_t memory)
{
    struct external_sort *s = mem_zalloc(sizeof *s);
    s->directory = mem_strdup(directory);
    s->memory = memory < EXTERNAL_SORT_MEMORY_MIN ? EXTERNAL_SORT_MEMORY_MIN : memory;
    s->block_size = s->memory / BLOCK_PARTS < BLOCK_MAX ? s->memory / BLOCK_PARTS : BLOCK_MAX;
    s->block_size -= s->block_size % sizeof(struct line_ref);
    block_init(&s->blocks[0], s->block_size);
    return s;
}

void external_sort_free(struct external_sort **sp)
{
    struct external_sort *s = *sp;
    if (!s)
        return;
    join(s, NULL);
    count_sources_free(&s->sources);
    for (size_t i = 0; i < s->n_runs; i++)
        if (s->runs[i] >= 0)
            io->close(s->runs[i]);
    block_free(&s->blocks[0]);
    block_free(&s->blocks[1]);
    record_sum_free(&s->first);
    free(s->runs);
    free(s->facts);
    free(s->directory);
    free(s);
    *sp = NULL;
}

enum compact_result external_sort_add(struct external_sort *s, struct bytes line, struct error *error)
{
    struct block *b = &s->blocks[s->filling];
    if (!block_has_room(b, line.len) && b->n > 0) {
        enum compact_result r = spill(s, error);
        if (r != COMPACT_OK)
            return r;
        b = &s->blocks[s->filling];
    }
    if (!block_has_room(b, line.len)) {
        size_t size = bytes_for(line.len) + sizeof(struct line_ref);
        if (size > BLOCK_MAX)
            return error_set(
                error, COMPACT_REFUSED, "the line has %zu bytes, too many to be sorted", line.len);
        free(b->text);
        block_init(b, size - size % sizeof(struct line_ref));
    }
    block_add(b, line);
    return COMPACT_OK;
}

struct block_source {
    struct text_record record; /* first */
    struct block *block;
};

static enum count_next block_next_record(struct count_source *base)
{
    struct block_source *s = (struct block_source *)base;
    struct bytes line;
    enum count_next r = block_next(s->block, &line);
    if (r == COUNT_FAILED) {
        error_set(&base->error, COUNT_TOO_LARGE, "%s: %s at \"%.*s\"", base->container, s->block->sum.wrong,
            (int)(line.len < KEY_SHOWN ? line.len : KEY_SHOWN), line.ptr);
        return COUNT_FAILED;
    }
    return r == COUNT_FOUND ? text_record_set(&s->record, line) : r;
}

static void block_close(struct count_source *base)
{
    text_record_end(&((struct block_source *)base)->record);
    free(base);
}

static struct count_source *block_source(struct block *b)
{
    static const struct count_source_kind kind = {
        block_next_record, text_record_next_value, block_close, NULL};
    struct block_source *s = mem_zalloc(sizeof *s);
    line_sort(b->text, b->refs, b->n);
    s->record.base.kind = &kind;
    s->record.base.container = "the sorted text";
    s->block = b;
    return &s->record.base;
}

enum compact_result external_sort_finish(struct external_sort *s, struct error *error)
{
    enum compact_result r = join(s, error);
    size_t read = s->memory / 2 / (s->n_runs + 1);
    read = read < READ_BYTES_MIN ? READ_BYTES_MIN : read > READ_BYTES_MAX ? READ_BYTES_MAX : read;
    s->first = s->blocks[1 - s->filling].sum;
    s->blocks[1 - s->filling].sum = (struct record_sum){0};
    block_free(&s->blocks[1 - s->filling]);
    if (r == COMPACT_OK)
        count_sources_add(&s->sources, block_source(&s->blocks[s->filling]));
    for (size_t i = 0; i < s->n_runs && r == COMPACT_OK; i++) {
        count_sources_add(&s->sources, record_source_of_file(s->runs[i], s->directory, &s->facts[i], read));
        s->runs[i] = -1;
    }
    return r;
}

const struct count_sources *external_sort_sources(const struct external_sort *s)
{
    return &s->sources;
}

uint64_t external_sort_collisions(const struct external_sort *s, const char **key)
{
    const struct record_sum *last = &s->blocks[s->filling].sum;
    *key = last->collisions ? last->collision : s->first.collision;
    return s->first.collisions + last->collisions;
}
