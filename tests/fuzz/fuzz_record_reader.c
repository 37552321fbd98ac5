/* Any bytes as sorted records: refused, or merged with themselves into twice the counts, and searched without harm. */
#include "compactor/record_reader.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int add_piece(void *arg, struct bytes piece)
{
    size_t *n = arg;
    *n += piece.len;
    return 0;
}

/* The pieces before a key, and the rest, are the whole text. */
static void search(struct bytes text, struct bytes key)
{
    struct record_reader r;
    size_t n = 0;
    record_reader_of_memory(&r, "memory", text);
    if (record_reader_copy_before(&r, key, add_piece, &n) != READER_FAILED &&
        record_reader_copy_before(&r, BYTES_NONE, add_piece, &n) == READER_ENDED)
        assert(n == text.len);
    record_reader_end(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A reader of memory needs complete lines, as held_records has them. */
    char *copy = malloc(size + 1);
    memcpy(copy, data, size);
    copy[size] = '\n';
    struct bytes text = bytes_of(copy, size + 1);
    struct record_reader readers[2];
    struct count_source *sources[] = {&readers[0].base, &readers[1].base};
    struct buf out = {0};
    enum count_next next;
    for (int i = 0; i < 2; i++)
        record_reader_of_memory(&readers[i], "memory", text);
    struct count_merge *m = count_merge_new(sources, 2);
    while ((next = count_merge_next_record(m)) == COUNT_FOUND && count_merge_print(m, &out) == COUNT_END)
        ;
    assert(next != COUNT_END || out.len > 0);
    const char *separator = memchr(text.ptr, ',', text.len);
    if (separator)
        search(text, bytes_of(text.ptr, (size_t)(separator + 1 - text.ptr)));
    search(text, BYTES_LITERAL("c.u|jehiah.c41,"));
    count_merge_free(&m);
    for (int i = 0; i < 2; i++)
        record_reader_end(&readers[i]);
    buf_free(&out);
    free(copy);
    return 0;
}
