/* Finds the openings of a journal's bytes in the headers of its segments. */
#include "journal/journal_internal.h"

#include "base/lower_bound.h"

#include <assert.h>
#include <stdlib.h>

const char *journal_opening(const struct journal *j)
{
    return j->opening;
}

/* Returns the number of untrimmed segments that begin before `offset`. */
static size_t begun_below(const struct journal *j, uint64_t offset)
{
    assert(j->magic == JOURNAL_MAGIC && j->openings_begin_segments);
    return LOWER_BOUND(i, j->n_trimmed, j->n_segments, j->segments[i]->base < offset) - j->n_trimmed;
}

const char *journal_opening_before(const struct journal *j, uint64_t offset)
{
    size_t n = begun_below(j, offset);
    if (n > 0)
        return j->segments[j->n_trimmed + n - 1]->opening;
    return offset == journal_earliest(j) ? j->segments[j->n_trimmed]->before : "";
}

const char *journal_opening_at(const struct journal *j, uint64_t offset)
{
    return offset < j->committed_end ? journal_opening_before(j, offset + 1) : j->opening;
}

uint64_t journal_opening_end(const struct journal *j, uint64_t offset)
{
    const char *opening = journal_opening_at(j, offset);
    if (strcmp(opening, j->opening) == 0)
        return UINT64_MAX;
    for (size_t i = j->n_trimmed + begun_below(j, offset + 1); i < j->n_segments; i++)
        if (strcmp(j->segments[i]->opening, opening) != 0)
            return j->segments[i]->base;
    return j->committed_end;
}

size_t journal_openings(const struct journal *j, struct journal_opening **out)
{
    struct journal_opening *list = mem_alloc((j->n_segments - j->n_trimmed) * sizeof *list);
    size_t n = 0;
    for (size_t i = j->n_trimmed; i < j->n_segments; i++) {
        const struct segment *s = j->segments[i];
        if (s->end > s->base && (n == 0 || strcmp(list[n - 1].opening, s->opening) != 0))
            list[n++] = (struct journal_opening){s->base, s->created, s->opening};
    }
    *out = list;
    return n;
}

/* True if the byte at `offset` is in a hole, so that the byte is lost. */
static bool is_lost(const struct journal *j, uint64_t offset)
{
    size_t n = begun_below(j, offset + 1);
    return n > 0 && j->n_trimmed + n < j->n_segments && offset >= j->segments[j->n_trimmed + n - 1]->end;
}

bool journal_is_past(
    const struct journal *j, uint64_t offset, struct bytes opening, uint64_t *differs_from, bool *is_certain)
{
    if (offset < journal_earliest(j) || offset == 0 ||
        (offset <= j->committed_end && bytes_equal_str(opening, journal_opening_before(j, offset))))
        return true;
    if (offset < j->committed_end && is_lost(j, offset - 1) && is_lost(j, offset))
        return true; /* a read at `offset` reports the hole */
    struct journal_opening *list;
    size_t n = journal_openings(j, &list);
    uint64_t later = offset < j->committed_end ? offset : j->committed_end;
    *is_certain = false;
    for (size_t i = n; i-- > 0;) {
        uint64_t end = i + 1 < n ? list[i + 1].first : j->committed_end;
        if (bytes_equal_str(opening, list[i].opening)) {
            *is_certain = true;
            later = end < offset ? end : offset;
            break;
        }
        if (list[i].first < offset && offset <= end && later > list[i].first)
            later = list[i].first; /* at the latest */
        if (opening_is_after(list[i].opening, opening))
            later = list[i].first;
    }
    free(list);
    if (!*is_certain && bytes_equal_str(opening, j->segments[j->n_trimmed]->before)) {
        *is_certain = true;
        later = journal_earliest(j); /* all bytes of the cursor's opening are trimmed */
    }
    *differs_from = later;
    return false;
}
