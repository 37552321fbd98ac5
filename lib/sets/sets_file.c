#include "sets/sets_file.h"

#include "base/xxh3.h"

#include <assert.h>
#include <roaring/roaring.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MAGIC "MRSETS1\n"
#define INDEX_MAGIC "MRSETIX\n"
#define SET_ALIGN 32
#define KEY_SHOWN 200
#define SEPARATOR ','

struct header {
    char magic[8];
    uint64_t zeros[3];
};

struct head {
    uint64_t size, bitmap_bytes, n_hashes, key_len;
    uint64_t checksum;
};

struct footer {
    char magic[8];
    uint64_t index, n, checksum;
};

static_assert(sizeof(struct header) == 32 && sizeof(struct footer) == 32, "the layout has no holes");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little endian, and used in place");

struct sets_writer {
    sets_write *write;
    void *arg;
    uint64_t written;
    uint64_t *index;
    size_t n, room;
    char *bitmap; /* aligned */
    size_t bitmap_room;
    bool has_failed;
};

static void put(struct sets_writer *w, const void *bytes, size_t n)
{
    w->has_failed = w->has_failed || (n > 0 && w->write(w->arg, bytes_of(bytes, n)) != 0);
    w->written += n;
}

static uint64_t aligned(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static void pad(struct sets_writer *w, uint64_t to)
{
    static const char zeros[SET_ALIGN];
    put(w, zeros, (size_t)(aligned(w->written, to) - w->written));
}

struct sets_writer *sets_writer_new(sets_write *write, void *arg)
{
    struct sets_writer *w = mem_zalloc(sizeof *w);
    w->write = write;
    w->arg = arg;
    put(w, &(struct header){.magic = MAGIC}, sizeof(struct header));
    return w;
}

void sets_writer_free(struct sets_writer **wp)
{
    struct sets_writer *w = *wp;
    if (!w)
        return;
    free(w->index);
    free(w->bitmap);
    free(w);
    *wp = NULL;
}

/* Returns the frozen form of the numbers. A frozen bitmap must begin at a multiple of 32 bytes. */
static struct bytes freeze(struct sets_writer *w, const struct set_view *v)
{
    if (!v->numbers || roaring_bitmap_is_empty(v->numbers))
        return BYTES_NONE;
    size_t n = roaring_bitmap_frozen_size_in_bytes(v->numbers), room = aligned(n, SET_ALIGN);
    if (room > w->bitmap_room) {
        free(w->bitmap);
        w->bitmap = aligned_alloc(SET_ALIGN, room);
        w->bitmap_room = room;
        if (!w->bitmap)
            abort();
    }
    roaring_bitmap_frozen_serialize(v->numbers, w->bitmap);
    return bytes_of(w->bitmap, n);
}

/* Continues a checksum with further bytes. */
static uint64_t extend(uint64_t sum, const void *bytes, size_t n)
{
    return n > 0 ? XXH3_64bits_withSeed(bytes, n, sum) : sum;
}

static uint64_t checksum_of(const struct head *h, const char *key, const char *bitmap, const char *hashes)
{
    uint64_t sum = extend(0, h, offsetof(struct head, checksum));
    sum = extend(sum, key, h->key_len);
    sum = extend(sum, bitmap, h->bitmap_bytes);
    return extend(sum, hashes, h->n_hashes * sizeof(uint64_t));
}

int sets_writer_add(struct sets_writer *w, struct bytes key, const struct set_view *v, uint64_t *position)
{
    struct bytes bitmap = freeze(w, v);
    struct head head = {set_view_size(v), bitmap.len, v->n_hashes, key.len, 0};
    assert(head.size > 0);
    head.checksum = checksum_of(&head, key.ptr, bitmap.ptr, (const char *)v->hashes);
    pad(w, SET_ALIGN);
    *position = w->written;
    put(w, &head, sizeof head);
    put(w, key.ptr, key.len);
    pad(w, SET_ALIGN);
    put(w, bitmap.ptr, bitmap.len);
    pad(w, sizeof(uint64_t));
    put(w, v->hashes, v->n_hashes * sizeof *v->hashes);
    return w->has_failed ? -1 : 0;
}

void sets_writer_index(struct sets_writer *w, uint64_t position)
{
    *ARRAY_ADD(w->index, w->n, w->room) = position;
}

uint64_t sets_writer_count(const struct sets_writer *w)
{
    return w->n;
}

static uint64_t index_checksum(const struct footer *f, const char *index)
{
    return extend(extend(0, f, offsetof(struct footer, checksum)), index, f->n * sizeof(uint64_t));
}

int sets_writer_finish(struct sets_writer *w)
{
    pad(w, sizeof(uint64_t));
    struct footer f = {INDEX_MAGIC, w->written, w->n, 0};
    f.checksum = index_checksum(&f, (const char *)w->index);
    put(w, w->index, w->n * sizeof *w->index);
    put(w, &f, sizeof f);
    return w->has_failed ? -1 : 0;
}

struct sets_file {
    struct bytes bytes;
    char *name;
    const char *index;
    uint64_t n;
    atomic_uchar *is_verified; /* a bit for each set */
};

static enum sets_file_result damaged(const struct sets_file *f, struct error *error, const char *what)
{
    return (enum sets_file_result)error_set(error, SETS_DAMAGED, "%.500s: damaged: %s", f->name, what);
}

static enum sets_file_result open_index(struct sets_file *f, struct error *error)
{
    struct footer foot;
    struct header header;
    size_t len = f->bytes.len;
    if (len < sizeof header + sizeof foot)
        return damaged(f, error, "the file is too short");
    memcpy(&header, f->bytes.ptr, sizeof header);
    memcpy(&foot, f->bytes.ptr + len - sizeof foot, sizeof foot);
    if (memcmp(header.magic, MAGIC, sizeof header.magic) != 0)
        return (enum sets_file_result)error_set(
            error, SETS_DAMAGED, "%.500s: not a file of sets, or of another format version", f->name);
    if (memcmp(foot.magic, INDEX_MAGIC, sizeof foot.magic) != 0)
        return damaged(f, error, "the file has no index at its end, as if it was truncated");
    uint64_t end = len - sizeof foot;
    if (foot.index > end || foot.index % sizeof(uint64_t) != 0 ||
        (end - foot.index) / sizeof(uint64_t) != foot.n || (end - foot.index) % sizeof(uint64_t) != 0)
        return damaged(f, error, "the index");
    f->index = f->bytes.ptr + foot.index;
    f->n = foot.n;
    return index_checksum(&foot, f->index) == foot.checksum ? SETS_OK : damaged(f, error, "the index");
}

enum sets_file_result sets_file_open(
    struct bytes bytes, const char *name, struct sets_file **out, struct error *error)
{
    struct sets_file *f = mem_zalloc(sizeof *f);
    f->bytes = bytes;
    f->name = mem_strdup(name);
    enum sets_file_result r = open_index(f, error);
    if (r == SETS_OK)
        f->is_verified = mem_zalloc(f->n / 8 + 1);
    else
        sets_file_free(&f);
    *out = f;
    return r;
}

void sets_file_free(struct sets_file **fp)
{
    struct sets_file *f = *fp;
    if (!f)
        return;
    free(f->is_verified);
    free(f->name);
    free(f);
    *fp = NULL;
}

uint64_t sets_file_count(const struct sets_file *f)
{
    return f->n;
}

/* A set before its verification. All parts are inside the file. */
struct place {
    struct head head;
    const char *key, *bitmap, *hashes;
};

static bool find_parts(const struct sets_file *f, uint64_t i, struct place *out)
{
    uint64_t at, end = (uint64_t)(f->index - f->bytes.ptr);
    memcpy(&at, f->index + i * sizeof at, sizeof at);
    if (at % SET_ALIGN != 0 || at < sizeof(struct header) || at > end || end - at < sizeof out->head)
        return false;
    memcpy(&out->head, f->bytes.ptr + at, sizeof out->head);
    const struct head *h = &out->head;
    at += sizeof *h;
    if (h->key_len > end - at)
        return false;
    out->key = f->bytes.ptr + at;
    at = aligned(at + h->key_len, SET_ALIGN);
    if (at > end || h->bitmap_bytes > end - at)
        return false;
    out->bitmap = f->bytes.ptr + at;
    at = aligned(at + h->bitmap_bytes, sizeof(uint64_t));
    out->hashes = f->bytes.ptr + at;
    return at <= end && h->n_hashes <= (end - at) / sizeof(uint64_t);
}

static enum sets_file_result damaged_set(
    const struct sets_file *f, uint64_t i, const struct place *p, struct error *error)
{
    size_t shown = p && p->head.key_len < KEY_SHOWN ? (size_t)p->head.key_len : p ? KEY_SHOWN : 0;
    return (enum sets_file_result)error_set(error, SETS_DAMAGED, "%.500s: damaged: set %llu of %llu \"%.*s\"",
        f->name, (unsigned long long)i + 1, (unsigned long long)f->n, (int)shown, p ? p->key : "");
}

static bool is_verified(struct sets_file *f, uint64_t i, const struct place *p)
{
    unsigned char bit = (unsigned char)(1U << i % 8);
    if (atomic_load_explicit(&f->is_verified[i / 8], memory_order_acquire) & bit)
        return true;
    if (checksum_of(&p->head, p->key, p->bitmap, p->hashes) != p->head.checksum)
        return false;
    atomic_fetch_or_explicit(&f->is_verified[i / 8], bit, memory_order_release);
    return true;
}

enum sets_file_result sets_file_view(
    struct sets_file *f, uint64_t i, struct set_opened *out, struct error *error)
{
    struct place p;
    *out = (struct set_opened){0};
    if (!find_parts(f, i, &p))
        return damaged_set(f, i, NULL, error);
    if (!is_verified(f, i, &p))
        return damaged_set(f, i, &p, error);
    if (p.head.bitmap_bytes > 0) {
        out->frozen = (struct roaring_bitmap_s *)(uintptr_t)roaring_bitmap_frozen_view(
            p.bitmap, (size_t)p.head.bitmap_bytes);
        if (!out->frozen)
            return damaged_set(f, i, &p, error);
    }
    out->key = bytes_of(p.key, (size_t)p.head.key_len);
    out->view = (struct set_view){out->frozen,
        p.head.n_hashes ? (const uint64_t *)(const void *)p.hashes : NULL, (size_t)p.head.n_hashes};
    return SETS_OK;
}

void set_opened_close(struct set_opened *o)
{
    if (o->frozen)
        roaring_bitmap_free(o->frozen);
    *o = (struct set_opened){0};
}

enum sets_file_result sets_file_find(
    struct sets_file *f, struct bytes key, struct set_opened *out, struct error *error)
{
    uint64_t low = 0, high = f->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct place p;
        if (!find_parts(f, middle, &p))
            return damaged_set(f, middle, NULL, error);
        int order = bytes_compare_ended(bytes_of(p.key, (size_t)p.head.key_len), key, SEPARATOR);
        if (order == 0)
            return sets_file_view(f, middle, out, error);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *out = (struct set_opened){0};
    return SETS_ABSENT;
}

enum sets_file_result sets_file_scrub(struct sets_file *f, uint64_t *i, size_t bytes, struct error *error)
{
    enum sets_file_result r = SETS_OK;
    for (uint64_t done = 0; r == SETS_OK && *i < f->n && done < bytes; ++*i) {
        struct place p;
        bool is_inside = find_parts(f, *i, &p);
        atomic_fetch_and(&f->is_verified[*i / 8], (unsigned char)~(1U << *i % 8));
        if (!is_inside || !is_verified(f, *i, &p))
            r = damaged_set(f, *i, is_inside ? &p : NULL, error);
        else
            done += p.head.bitmap_bytes + p.head.n_hashes * sizeof(uint64_t) + p.head.key_len + sizeof p.head;
    }
    *i = *i < f->n ? *i : 0;
    return r;
}
