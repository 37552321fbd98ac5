#include "aggregator/sealed.h"

#include "counts/slice_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void sealed_add(struct sealed *s, const char *path, struct slice_reader *reader)
{
    *ARRAY_ADD(s->slices, s->n, s->room) =
        (struct sealed_slice){mem_strdup(path), slice_state_copy(slice_reader_state(reader)), reader};
}

const struct sealed_slice *sealed_find(const struct sealed *s, uint64_t number)
{
    uint64_t oldest = s->n > 0 ? s->slices[0].state.number : 0;
    return s->n > 0 && number >= oldest && number - oldest < s->n ? &s->slices[number - oldest] : NULL;
}

enum slice_result sealed_unlink(
    const struct sealed *s, uint64_t through, size_t *removed, struct error *error)
{
    for (*removed = 0; *removed < s->n && s->slices[*removed].state.number <= through; ++*removed) {
        const char *path = s->slices[*removed].path;
        if (slice_unlink(path) != 0)
            return error_set(error, SLICE_FAILED, "cannot remove %.400s: %s", path, strerror(errno));
    }
    return SLICE_OK;
}

struct slice_reader **sealed_forget(struct sealed *s, size_t n)
{
    struct slice_reader **readers = mem_zalloc((n + 1) * sizeof(struct slice_reader *));
    for (size_t i = 0; i < n; i++) {
        readers[i] = s->slices[i].reader;
        slice_state_free(&s->slices[i].state);
        free(s->slices[i].path);
    }
    s->n -= n;
    if (n > 0)
        memmove(&s->slices[0], &s->slices[n], s->n * sizeof s->slices[0]);
    return readers;
}

void sealed_close_readers(struct slice_reader **readers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        slice_reader_close(&readers[i]);
    free(readers);
}

void sealed_free(struct sealed *s)
{
    size_t n = s->n;
    sealed_close_readers(sealed_forget(s, n), n);
    free(s->slices);
    *s = (struct sealed){0};
}
