#include "tools/rejects_dir.h"

#include "tools/tool.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sysexits.h>

int rejects_dir_ends(
    const char *dir, struct rejects_place *from, struct rejects_place *end, struct error *error)
{
    struct buf path = {0};
    uint64_t newest = 0, number;
    char name[SLICE_NAME_TEXT];
    struct slice_reader *reader;
    buf_printf(&path, "%s/slices", dir);
    DIR *d = opendir(path.ptr);
    if (!d) {
        error_set(error, EX_NOINPUT, "%s: %s", path.ptr, strerror(errno));
        buf_free(&path);
        return EX_NOINPUT;
    }
    for (struct dirent *e; (e = readdir(d));)
        newest = slice_file_number(e->d_name, &number) && number > newest ? number : newest;
    closedir(d);
    *from = *end = (struct rejects_place){0};
    slice_file_name(newest, name);
    buf_printf(&path, "/%s", name);
    enum slice_result r = newest > 0 ? slice_reader_open(path.ptr, &reader, error) : SLICE_OK;
    if (r == SLICE_OK && newest > 0) {
        const struct slice_state *state = slice_reader_state(reader);
        *from = rejects_front(state->cursors, state->n_cursors);
        *end = (struct rejects_place){newest, state->rejects_length};
        slice_reader_close(&reader);
    }
    buf_free(&path);
    return r == SLICE_OK ? 0 : EX_CONFIG;
}
