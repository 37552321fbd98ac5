/* Any bytes as the list of openings in a queue's reply, and as the lineage of a mark. A list that is accepted is appended as the
 * same list, and a lineage that the list itself makes agrees with the list. */
#include "journal/opening_list.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t list = nul ? (size_t)(nul - data) : size;
    struct openings *o = openings_from_text(bytes_of(data, list));
    if (!o)
        return 0;
    struct buf text = {0};
    openings_append_text(o, 0, &text);
    struct openings *same = openings_from_text(buf_bytes(&text));
    if (!same || openings_count(same) != openings_count(o))
        abort();
    for (size_t i = 0; i < openings_count(o); i++) {
        const struct opening *a = openings_at(o, i), *b = openings_at(same, i);
        char lineage[LINEAGE_TEXT];
        uint64_t from;
        if (a->first != b->first || strcmp(a->id, b->id) != 0)
            abort();
        openings_lineage(o, a->first, lineage, sizeof lineage);
        if (strlen(lineage) % LINEAGE_DIGITS || !openings_agree(o, a->first, bytes_str(lineage), &from))
            abort();
        (void)openings_agree(o, a->first, bytes_of(data + list, size - list), &from);
    }
    openings_free(&same);
    openings_free(&o);
    buf_free(&text);
    return 0;
}
