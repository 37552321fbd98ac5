/* Any bytes as the body of an erasure: refused by the number of a line, or ranges that print the same numbers again. */
#include "pubsub/stream/stream.h"
#include "support/fuzz_copy.h"
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream_lines lines, same;
    struct buf text = {0};
    char *body = fuzz_copy(bytes_of(data, size));
    size_t wrong = stream_lines_read(bytes_of(body, size), &lines);
    assert(wrong == 0 || wrong == lines.n + 1);
    assert(wrong || (lines.n == 0) == (size == 0));
    for (size_t i = 0; i < lines.n; i++) {
        const struct journal_range *r = &lines.ranges[i];
        assert(r->offset < r->end && (i == 0 || lines.ranges[i - 1].end <= r->offset));
        buf_printf(&text, "%" PRIu64 " %" PRIu64 "\n", r->offset, r->end - r->offset);
    }
    assert(stream_lines_read(buf_bytes(&text), &same) == 0 && same.n == lines.n);
    free(same.ranges);
    free(lines.ranges);
    buf_free(&text);
    free(body);
    return 0;
}
