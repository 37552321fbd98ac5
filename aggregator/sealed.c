#include "sealed.h"

#include "io.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>

static void forget(struct sealed_slice *slice)
{
    slice_snapshot_close(&slice->snapshot);
    slice_state_free(&slice->state);
    free(slice->path);
    *slice = (struct sealed_slice){0};
}

enum slice_result sealed_add(
    struct sealed *s, const char *path, uint64_t number, char error[SLICE_ERROR_TEXT])
{
    struct sealed_slice slice = {.path = mem_strdup(path)};
    if (s->n == SEALED_MAX) {
        snprintf(
            error, SLICE_ERROR_TEXT, "%d sealed slices wait to be cleared: run the compactor", SEALED_MAX);
        forget(&slice);
        return SLICE_FULL;
    }
    enum slice_result r = slice_settle(path, number, &slice.state, error);
    if (r == SLICE_OK)
        r = slice_snapshot_open(path, &slice.snapshot, error);
    if (r == SLICE_OK)
        s->slices[s->n++] = slice;
    else
        forget(&slice);
    return r;
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
}
