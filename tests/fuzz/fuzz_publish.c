/* Any bytes as the body of a publish: refused by the number of a line, or lines that hold the body's bytes. */
#include "pubsub/stream/stream.h"
#include "support/fuzz_copy.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINE_BYTES_MAX 30

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lines l = {0};
    struct buf text = {0};
    char *body = fuzz_copy(bytes_of(data, size));
    enum lines_result r = lines_from_body(bytes_of(body, size), LINE_BYTES_MAX, &l);
    assert((r == LINES_EMPTY_BODY) == (size == 0));
    assert(r == LINES_OK || r == LINES_EMPTY_BODY || l.n > 0);
    for (size_t i = 0; r == LINES_OK && i < l.n_pieces; i++)
        buf_append_bytes(&text, l.pieces[i]);
    size_t at = 0, n = 0, begin = 0;
    for (size_t i = 0; i < text.len; i++, at++) {
        if (at < size && body[at] == '\r' && text.ptr[i] == '\n')
            at++; /* the dropped CR */
        assert(at < size ? text.ptr[i] == body[at] : text.ptr[i] == '\n');
        if (text.ptr[i] != '\n')
            continue;
        assert(i > begin && i - begin <= LINE_BYTES_MAX + 1);
        begin = i + 1;
        n++;
    }
    assert(r != LINES_OK || (n == l.n && begin == text.len && text.len <= size + 1));
    lines_free(&l);
    buf_free(&text);
    free(body);
    return 0;
}
