#include "api/set_pieces.h"

#include "base/lower_bound.h"

#include <roaring/roaring.h>
#include <stdlib.h>

#define CONTAINER_BYTES                                                                                      \
    40 /* bytes for each container of an opened bitmap, including 16 bytes for set_algebra.h */

void set_pieces_init(struct set_pieces *p, const struct query_set *of)
{
    *p = (struct set_pieces){.of = of};
}

void set_pieces_reset(struct set_pieces *p)
{
    const struct query_set *of = p->of;
    set_pieces_close(p);
    for (size_t l = 0; l < PIECES_LISTS; l++) {
        for (size_t i = 0; i < p->lists[l].n; i++)
            set_free(&p->lists[l].pieces[i].set);
        free(p->lists[l].pieces);
    }
    set_text_free(&p->text);
    if (p->g)
        generation_unref(&p->g);
    set_pieces_init(p, of);
}

size_t set_pieces_bytes(const struct set_pieces *p)
{
    size_t bytes = p->bytes + p->text.chunk.cap;
    for (size_t l = 0; l < PIECES_LISTS; l++)
        bytes += p->lists[l].cap * sizeof *p->lists[l].pieces;
    return bytes;
}

void set_pieces_map(struct set_pieces *p, struct generation *g)
{
    p->g = generation_ref(g);
}

/* Compares periods: a longer period comes before its parts. */
static bool is_before(const struct set_piece *a, const struct set_piece *b)
{
    return a->start < b->start || (a->start == b->start && a->unit > b->unit);
}

static void keep_few(struct set_piece *piece, struct bytes id, struct bytes chunk)
{
    piece->n += set_chunk_codes(id, chunk, piece->few + piece->n, SET_TEXT_MEMBERS - (size_t)piece->n);
}

/* A set grows to at most twice its size. */
static void add_chunk(struct set_pieces *p, struct set_piece *piece, struct bytes id, struct bytes chunk)
{
    enum { SET_BYTES = 256, CHUNK_BYTES = 32 };
    if (!piece->set) {
        piece->set = set_new();
        p->bytes += SET_BYTES;
    }
    set_add_chunk(piece->set, id, chunk);
    p->bytes += CHUNK_BYTES + 2 * chunk.len;
}

/* Adds the chunks or the members of a value, which may be a part of a set's text. */
static bool add_members(struct set_pieces *p, struct set_piece *piece, struct bytes value)
{
    struct bytes id, chunk;
    const char *why;
    while (set_text_next(&p->text, &value, &id, &chunk, &why)) {
        if (p->text.form == '=')
            keep_few(piece, id, chunk);
        else
            add_chunk(p, piece, id, chunk);
    }
    return !why;
}

bool set_pieces_add(struct set_pieces *p, int list, bool takes_sizes, const struct record *r)
{
    struct set_list *l = &p->lists[list];
    struct record_key key;
    if (!record_key_parse(r->key, &key) || !key.is_subtotal || !bytes_equal_str(key.ns, p->of->unique->ns) ||
        !bytes_equal_str(key.key, p->of->stored) || r->value.len == 0)
        return false;
    struct set_piece piece = {.start = key.start, .end = period_end(key.unit, key.start), .unit = key.unit};
    struct set_piece *last = l->n > 0 ? &l->pieces[l->n - 1] : NULL;
    bool continues = last && last->start == piece.start && last->unit == piece.unit;
    if (!set_text_is(r->value) || (continues && last->set)) {
        /* The rest of a set, or its next page, which begins like a set. */
        if (!continues || !last->set)
            return false;
        if (r->value.ptr[0] == '@')
            set_text_begin(&p->text);
        return add_members(p, last, r->value);
    }
    if (last && !is_before(last, &piece))
        return false;
    ARRAY_ROOM(l->pieces, l->cap, l->n + 1);
    last = &l->pieces[l->n];
    *last = piece;
    l->n++;
    if (r->value.ptr[0] == '#')
        return takes_sizes && bytes_to_u64(bytes_of(r->value.ptr + 1, r->value.len - 1), &last->n) &&
               last->n > SET_TEXT_MEMBERS;
    set_text_begin(&p->text);
    return add_members(p, last, r->value);
}

/* Returns the index of the first piece that starts at `t` or later. */
static size_t first_from(const struct set_list *l, size_t low, int64_t t)
{
    return LOWER_BOUND(i, low, l->n, l->pieces[i].start < t);
}

static bool has_parts(const struct set_list *l, size_t i)
{
    return i + 1 < l->n && l->pieces[i + 1].start < l->pieces[i].end;
}

/* True if the piece has no parts and is only partly in the time, so its members in the time are not known. */
static bool is_cut(const struct set_list *l, size_t i, int64_t from, int64_t to)
{
    const struct set_piece *p = &l->pieces[i];
    return p->unit > PERIOD_HOUR && !has_parts(l, i) && p->end > from && p->start < to;
}

void set_pieces_cover(struct set_pieces *p, int64_t from, int64_t to, struct set_cover *out)
{
    for (size_t k = 0; k < PIECES_LISTS; k++) {
        struct set_list *l = &p->lists[k];
        size_t i = first_from(l, 0, from);
        out->is_cut |= i > 0 && is_cut(l, i - 1, from, to);
        while (i < l->n && l->pieces[i].start < to) {
            struct set_piece *piece = &l->pieces[i];
            if (piece->end > to && (piece->unit > PERIOD_HOUR || has_parts(l, i))) {
                out->is_cut |= is_cut(l, i++, from, to);
                continue;
            }
            *ARRAY_ADD(out->parts, out->n, out->cap) = (struct set_cover_part){p, piece};
            i = first_from(l, i + 1, piece->end);
        }
    }
}

uint64_t set_piece_size(struct set_piece *piece)
{
    if (!piece->set)
        return piece->n;
    struct set_view view = set_view_of(piece->set);
    return set_view_size(&view);
}

int set_pieces_open(struct set_pieces *p, struct set_piece *piece, size_t *bytes, struct error *error)
{
    char period[PERIOD_TEXT_MAX + 1];
    struct buf key = {0};
    if (piece->is_open)
        return 0;
    buf_printf(&key, "%s|%s.", p->of->unique->ns, p->of->stored);
    buf_append(&key, period, period_encode(piece->unit, piece->start, period));
    uint32_t shard = generation_shard(p->g, buf_bytes(&key));
    piece->is_open = generation_set(p->g, shard, buf_bytes(&key), &piece->opened, error) == 0;
    buf_free(&key);
    if (piece->is_open && piece->opened.frozen)
        *bytes += (size_t)piece->opened.frozen->high_low_container.size * CONTAINER_BYTES;
    return piece->is_open ? 0 : -1;
}

void set_pieces_close(struct set_pieces *p)
{
    struct set_list *l = &p->lists[PIECES_ARCHIVE];
    for (size_t i = 0; i < l->n; i++) {
        if (l->pieces[i].is_open)
            set_opened_close(&l->pieces[i].opened);
        l->pieces[i].is_open = false;
    }
}

int set_pieces_check(const struct set_pieces *p, struct error *error)
{
    struct buf key = {0};
    if (!p->g)
        return 0;
    buf_printf(&key, "%s|%s.0110", p->of->unique->ns, p->of->stored);
    bool is_whole = generation_is_whole(p->g, generation_shard(p->g, buf_bytes(&key)), error) &&
                    generation_is_untouched(p->g, error);
    buf_free(&key);
    return is_whole ? 0 : -1;
}
