/* Any bytes as a statement of pubsub: refused, or printed and read again without a difference. */
#include "stream/watermark.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream_statement s, again;
    struct buf text = {0};
    if (stream_statement_read(bytes_of(data, size), &s)) {
        stream_statement_append(&s, &text);
        assert(stream_statement_read(buf_bytes(&text), &again));
        assert(s.until == again.until && s.now == again.now && s.end == again.end);
        assert(strcmp(s.producer, again.producer) == 0 && s.is_restored == again.is_restored);
    }
    buf_free(&text);
    return 0;
}
