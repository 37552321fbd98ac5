#include "tools/rejects_dir.h"

#include "counts/slice_files.h"

#include <stdlib.h>
#include <sysexits.h>

int rejects_dir_ends(
    const char *dir, struct rejects_place *from, struct rejects_place *end, struct error *error)
{
    char *slices = mem_printf("%s/slices", dir), *path = NULL;
    struct slice_range found;
    struct slice_reader *reader = NULL;
    enum slice_result r = SLICE_OK;
    *from = *end = (struct rejects_place){0};
    if (slice_files_find(slices, 0, &found) != 0)
        r = error_errno(error, SLICE_FAILED, slices);
    else if (found.last > 0)
        r = slice_reader_open(path = slice_path(slices, found.last), &reader, error);
    if (r == SLICE_OK && found.last > 0) {
        const struct slice_state *state = slice_reader_state(reader);
        *from = rejects_front(state->cursors, state->n_cursors);
        *end = (struct rejects_place){found.last, state->rejects_length};
        slice_reader_close(&reader);
    }
    int status = r == SLICE_OK ? 0 : path ? EX_CONFIG : EX_NOINPUT;
    free(slices);
    free(path);
    return status;
}
