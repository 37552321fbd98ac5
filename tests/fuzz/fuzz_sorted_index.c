/* An index whose words are replaced, with the right checksum: searches stay within the text. An index of sorted lines, not replaced:
 * every line is found. Input: a count, so many places and bytes to replace, then the text, in which byte 0xfe repeats the byte
 * before it. */
#include "archive/sorted_index_format.h"

#include "base/byte_order.h"
#include "base/xxh3.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PATCH 4
#define REPEATS 700

static void expand(const uint8_t *data, size_t size, struct buf *text)
{
    for (size_t i = 0; i < size && text->len < 1 << 20; i++)
        for (int n = i > 0 && data[i] == 0xfe ? REPEATS : 1; n > 0; n--)
            buf_append_char(text, (char)data[n > 1 ? i - 1 : i]);
}

/* Lines without a byte less than LF: their order does not depend on a separator. */
static bool is_sorted(struct bytes text)
{
    struct bytes before = BYTES_NONE;
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < '\n')
            return false;
    while (text.len > 0) {
        const char *lf = memchr(text.ptr, '\n', text.len);
        struct bytes line = bytes_of(text.ptr, lf ? (size_t)(lf - text.ptr) : text.len);
        if (bytes_compare(before, line) > 0)
            return false;
        before = line;
        text = bytes_of(text.ptr + line.len + (lf != NULL), text.len - line.len - (lf != NULL));
    }
    return true;
}

/* Seeks the beginning of each line. */
static void search(const struct sorted_index *index, struct bytes text, bool is_right)
{
    for (size_t at = 0, end; at < text.len; at = end) {
        end = sorted_index_line_end(index, at);
        assert(end > at && end <= text.len);
        size_t n = end - at - (text.ptr[end - 1] == '\n');
        struct sorted_target target = {bytes_of(text.ptr + at, n < 40 ? n : 40), SORTED_NO_END, false};
        size_t first = sorted_index_seek(index, &target);
        target.is_past = true;
        size_t behind = sorted_index_seek(index, &target);
        target.end = ',';
        assert(sorted_index_seek(index, &target) <= text.len);
        assert(first <= text.len && behind <= text.len);
        assert(!is_right || (first <= at && behind >= end));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[SORTED_INDEX_ERROR_TEXT];
    size_t patches = size ? data[0] % 16 : 0;
    if (size < 1 + patches * PATCH)
        return 0;
    struct buf expanded = {0}, file = {0};
    expand(data + 1 + patches * PATCH, size - 1 - patches * PATCH, &expanded);
    char *own = malloc(expanded.len ? expanded.len : 1); /* its own, so that a read past it is seen */
    assert(own);
    if (expanded.len)
        memcpy(own, expanded.ptr, expanded.len);
    struct bytes text = bytes_of(own, expanded.len);
    struct sorted_index_writer *w = sorted_index_writer_new();
    sorted_index_writer_feed(w, text, &file);
    sorted_index_writer_finish(w, 0, &file);
    sorted_index_writer_free(&w);
    for (size_t i = 0; i < patches; i++) {
        const uint8_t *patch = data + 1 + i * PATCH;
        size_t at = ((size_t)patch[0] << 16 | (size_t)patch[1] << 8 | patch[2]) % file.len;
        file.ptr[at] = (char)patch[3];
    }
    put_le64(file.ptr + file.len - 8, XXH3_64bits(file.ptr, file.len - 8));
    struct sorted_index *index = sorted_index_open(buf_bytes(&file), text, 0, error);
    assert(index || patches);
    if (index)
        search(index, text, patches == 0 && is_sorted(text));
    sorted_index_free(&index);
    buf_free(&expanded);
    buf_free(&file);
    free(own);
    return 0;
}
