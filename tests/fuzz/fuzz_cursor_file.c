/* Any bytes as pubsub's cursor file: refused with a reason, or every slot holds a cursor that is stored and read again.
 *
 * The first byte: 1 puts the checksums right, so that what lies behind them is reached. */
#include "base/xxh3.h"
#include "pubsub/stream/cursor_file.h"
#include "support/fuzz_file.h"
#include <assert.h>
#include <poll.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define UNIT ((size_t)512)

static void notify(void *arg)
{
    (void)arg;
}

static int done;

static void stored(struct cursor_put *put, bool ok)
{
    (void)put;
    assert(ok);
    done++;
}

static void put_right(struct buf *file)
{
    for (size_t i = 0; i < file->len / UNIT; i++) {
        uint64_t sum = XXH3_64bits_withSeed(file->ptr + i * UNIT, UNIT - 8, i);
        memcpy(file->ptr + (i + 1) * UNIT - 8, &sum, 8);
    }
}

static struct cursor_file *open_file(const char *path)
{
    struct cursor_file *f = NULL;
    struct error error = {0};
    enum cursor_file_result r = cursor_file_open(path, 1, notify, NULL, &f, &error);
    assert(r == CURSOR_FILE_OK || error.text[0]);
    return r == CURSOR_FILE_OK ? f : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf file = {0};
    struct cursor_record fresh = {
        .stream = "s", .name = "n", .id = "0123456789abcdef0123456789abcdef", .offset = 7};
    if (size == 0)
        return 0;
    buf_append(&file, data + 1, size - 1);
    if (data[0] & 1)
        put_right(&file);
    const char *path = fuzz_file(buf_bytes(&file));
    buf_free(&file);
    struct cursor_file *f = open_file(path);
    if (!f)
        return 0;
    size_t n = cursor_file_slots(f), last = n - 1;
    struct cursor_record *before = calloc(n, sizeof *before);
    for (size_t i = 0; i < n; i++) {
        before[i] = *cursor_file_at(f, i);
        assert(!before[i].name[0] || bytes_is_name(bytes_str(before[i].name)));
        assert(!before[i].name[0] || bytes_is_name(bytes_str(before[i].stream)));
    }
    struct cursor_put put = {.done = stored};
    done = 0;
    cursor_file_put(f, last, &fresh, &put);
    while (!done) {
        poll(NULL, 0, 0);
        cursor_file_poll(f);
    }
    cursor_file_close(&f);
    before[last] = fresh;
    f = open_file(path);
    assert(f && cursor_file_slots(f) == n);
    for (size_t i = 0; i < n; i++) {
        const struct cursor_record *r = cursor_file_at(f, i);
        assert(strcmp(r->name, before[i].name) == 0 && strcmp(r->stream, before[i].stream) == 0);
        assert(strcmp(r->id, before[i].id) == 0 && r->offset == before[i].offset);
    }
    cursor_file_close(&f);
    free(before);
    return 0;
}
