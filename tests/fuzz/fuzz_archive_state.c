/* Any bytes as the state file of ps_to_file: refused with a reason, or written again and read back unchanged. */
#include "streams/archive/archive_state.h"
#include "support/fuzz_file.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct archive_state *a, const struct archive_state *b)
{
    assert(strcmp(a->stream, b->stream) == 0 && strcmp(a->cursor.id, b->cursor.id) == 0);
    assert(a->cursor.offset == b->cursor.offset && a->n_files == b->n_files);
    assert(strcmp(a->cursor.opening, b->cursor.opening) == 0 && (a->cursor.id[0] || !a->cursor.opening[0]));
    for (size_t i = 0; i < a->n_files; i++) {
        const struct archive_file_state *f = &a->files[i], *g = &b->files[i];
        assert(strcmp(f->name, g->name) == 0 && strcmp(f->staged, g->staged) == 0);
        assert(strcmp(f->opening, g->opening) == 0 &&
               strspn(f->opening, "0123456789abcdef") == strlen(f->opening));
        assert(f->length == g->length && f->lines == g->lines && f->finishing == g->finishing);
        assert(f->first == g->first && f->end == g->end && f->lines <= f->length);
        assert(f->length == 0 || f->end <= a->cursor.offset);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct archive_state state, again;
    struct error error = {0};
    const char *path = fuzz_file(bytes_of(data, size));
    int found = archive_state_read(path, &state, &error);
    if (found != 1) {
        assert(found == -1 && error.text[0]);
        return 0;
    }
    if (archive_state_write(path, &state) != 0 || archive_state_read(path, &again, &error) != 1)
        abort();
    check_same(&state, &again);
    archive_state_free(&again);
    archive_state_free(&state);
    return 0;
}
