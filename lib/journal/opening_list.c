#include "journal/opening_list.h"

#include <inttypes.h>
#include <stdlib.h>

/* "FIRST:ID" */
static bool read_word(struct bytes word, struct opening *out)
{
    const char *colon = memchr(word.ptr, ':', word.len);
    size_t digits = colon ? (size_t)(colon - word.ptr) : 0;
    if (word.len != digits + OPENING_ID_TEXT || !bytes_to_u64(bytes_of(word.ptr, digits), &out->first))
        return false;
    memcpy(out->id, colon + 1, OPENING_ID_TEXT - 1);
    return strspn(out->id, "0123456789abcdef") == OPENING_ID_TEXT - 1;
}

struct openings *openings_from_text(struct bytes text)
{
    struct openings *o = mem_zalloc(sizeof *o);
    char *copy = bytes_dup(text);
    const char *list = copy;
    struct bytes word;
    while (o && bytes_next_word(&list, ", ", &word))
        if (o->n == OPENINGS_MAX || !read_word(word, &o->list[o->n++]))
            openings_free(&o);
    free(copy);
    return o;
}

void openings_append_text(const struct openings *o, size_t i, struct buf *out)
{
    for (const char *between = ""; i < o->n; i++, between = ", ")
        buf_printf(out, "%s%" PRIu64 ":%s", between, o->list[i].first, o->list[i].id);
}

void openings_free(struct openings **o)
{
    free(*o);
    *o = NULL;
}

/* One above the index of the opening that gave out the number; 0: unknown. */
static size_t end_of(const struct openings *o, uint64_t number)
{
    size_t i = o->n;
    while (i > 0 && o->list[i - 1].first > number)
        i--;
    return i;
}

const char *openings_id_of(const struct openings *o, uint64_t number)
{
    size_t i = end_of(o, number);
    return i > 0 ? o->list[i - 1].id : "";
}

void openings_lineage(const struct openings *o, uint64_t number, char *out, size_t size)
{
    size_t len = 0;
    for (size_t i = end_of(o, number); i > 0 && len + LINEAGE_DIGITS < size; i--, len += LINEAGE_DIGITS)
        memcpy(out + len, o->list[i - 1].id, LINEAGE_DIGITS);
    out[len] = '\0';
}

void lineage_cut_to_tag(char *lineage, size_t producer)
{
    size_t room = producer < LINEAGE_TAG_ROOM ? LINEAGE_TAG_ROOM - producer : 0;
    if (strlen(lineage) > room)
        lineage[room - room % LINEAGE_DIGITS] = '\0';
}

bool openings_agree(const struct openings *o, uint64_t number, struct bytes lineage, uint64_t *differs_from)
{
    size_t end = end_of(o, number);
    *differs_from = 0;
    for (size_t at = 0; end > 0 && at + LINEAGE_DIGITS <= lineage.len; at += LINEAGE_DIGITS)
        for (size_t i = end; i > 0; i--) {
            if (memcmp(o->list[i - 1].id, lineage.ptr + at, LINEAGE_DIGITS) != 0)
                continue;
            if (i == end && at == 0)
                return true;
            *differs_from = i < end ? o->list[i].first : 0;
            return false;
        }
    return end == 0 || lineage.len == 0;
}

size_t openings_count(const struct openings *o)
{
    return o->n;
}

const struct opening *openings_at(const struct openings *o, size_t i)
{
    return &o->list[i];
}
