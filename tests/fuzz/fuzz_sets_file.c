/* Any bytes as a file of sets, also with a right checksum of the index: each set is refused by name, or is made of chunks that
 * add up to its size. */
#include "base/xxh3.h"
#include "sets/set_chunk.h"
#include "sets/sets_file.h"

#include <assert.h>
#include <stdlib.h>

#define PAGE 4096
#define FOOTER 32
#define PLACE_SUM 24 /* of the checksum in the footer */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Makes the checksum of the index right, if the footer's index lies in the file. */
static void repair(char *bytes, size_t size)
{
    uint64_t index, n, sum;
    if (size < 2 * FOOTER)
        return;
    char *footer = bytes + size - FOOTER;
    memcpy(&index, footer + 8, sizeof index);
    memcpy(&n, footer + 16, sizeof n);
    if (index > size - FOOTER || n != (size - FOOTER - index) / 8)
        return;
    sum = XXH3_64bits_withSeed(footer, PLACE_SUM, 0);
    sum = n > 0 ? XXH3_64bits_withSeed(bytes + index, n * 8, sum) : sum;
    memcpy(footer + PLACE_SUM, &sum, sizeof sum);
}

static void check_set(const struct set_opened *o)
{
    struct set_chunks chunks = {.view = &o->view};
    struct bytes id, chunk;
    char last[SET_CHUNK_ID] = {0};
    uint64_t size = 0;
    for (bool is_first = true; set_chunks_next(&chunks, &id, &chunk); is_first = false) {
        assert(set_chunk_check(id, chunk));
        assert(is_first || memcmp(last, id.ptr, SET_CHUNK_ID) < 0);
        memcpy(last, id.ptr, SET_CHUNK_ID);
        size += set_chunk_size(id, chunk);
    }
    assert(size == set_view_size(&o->view));
    set_chunks_free(&chunks);
}

static void check_file(struct bytes bytes)
{
    struct sets_file *f;
    struct error error = {0};
    if (sets_file_open(bytes, "name", &f, &error) != SETS_OK) {
        assert(!f && bytes_starts_with(bytes_str(error.text), BYTES_LITERAL("name: ")));
        return;
    }
    for (uint64_t i = 0; i < sets_file_count(f) && i < 100; i++) {
        struct set_opened set, same;
        error.text[0] = '\0';
        if (sets_file_view(f, i, &set, &error) != SETS_OK) {
            assert(bytes_starts_with(bytes_str(error.text), BYTES_LITERAL("name: ")));
            continue;
        }
        check_set(&set);
        if (sets_file_find(f, set.key, &same, &error) == SETS_OK)
            set_opened_close(&same);
        set_opened_close(&set);
    }
    uint64_t next = 0;
    do
        sets_file_scrub(f, &next, 1 << 20, &error);
    while (next > 0);
    sets_file_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = aligned_alloc(PAGE, (size / PAGE + 1) * PAGE);
    if (!bytes)
        return 0;
    if (size > 0)
        memcpy(bytes, data, size);
    check_file(bytes_of(bytes, size));
    repair(bytes, size);
    check_file(bytes_of(bytes, size));
    free(bytes);
    return 0;
}
