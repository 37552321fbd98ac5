#include "aggregator/sealed.h"

#include "base/io.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>

static void forget(struct sealed_slice *slice)
{
    slice_reader_close(&slice->reader);
    slice_state_free(&slice->state);
    free(slice->path);
    *slice = (struct sealed_slice){0};
}

void sealed_add(struct sealed *s, const char *path, struct slice_reader *reader)
{
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 16;
        s->slices = mem_realloc(s->slices, s->room * sizeof *s->slices);
    }
    s->slices[s->n++] =
        (struct sealed_slice){mem_strdup(path), slice_state_copy(slice_reader_state(reader)), reader};
}

const struct sealed_slice *sealed_find(const struct sealed *s, uint64_t number)
{
    uint64_t oldest = s->n > 0 ? s->slices[0].state.number : 0;
    return s->n > 0 && number >= oldest && number - oldest < s->n ? &s->slices[number - oldest] : NULL;
}

static enum slice_result remove_file(const char *path, char *error)
{
    char *copy = mem_strdup(path);
    int rc = io->unlink(path) == 0 || errno == ENOENT ? io_sync_dir(dirname(copy)) : -1;
    if (rc != 0)
        snprintf(error, SLICE_ERROR_TEXT, "cannot remove %s: %s", path, strerror(errno));
    free(copy);
    return rc == 0 ? SLICE_OK : SLICE_FAILED;
}

enum slice_result sealed_clear(struct sealed *s, uint64_t through, char error[SLICE_ERROR_TEXT])
{
    while (s->n > 0 && s->slices[0].state.number <= through) {
        enum slice_result r = remove_file(s->slices[0].path, error);
        if (r != SLICE_OK)
            return r;
        forget(&s->slices[0]);
        s->n--;
        memmove(&s->slices[0], &s->slices[1], s->n * sizeof s->slices[0]);
    }
    return SLICE_OK;
}

void sealed_free(struct sealed *s)
{
    while (s->n > 0)
        forget(&s->slices[--s->n]);
    free(s->slices);
    *s = (struct sealed){0};
}
