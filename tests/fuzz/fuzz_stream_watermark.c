/* Any bytes as pubsub's list of producers: refused, or the least time is one that can be, with the name of its producer. */
#include "stream/stream_watermark.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream_watermark w;
    struct producer_times *times = producer_times_new();
    bool ok = stream_watermark_read(bytes_of(data, size), 1000 * USEC_PER_SEC, times, &w);
    assert(stream_watermark_read(bytes_of(data, size), 1000 * USEC_PER_SEC, times, &w) == ok);
    producer_times_free(&times);
    if (!ok)
        return 0;
    assert(w.until >= 0 && w.id[0] && strlen(w.id) < sizeof w.id);
    assert((w.until == STREAM_WATERMARK_NONE) == !w.producer[0]);
    assert(!w.producer[0] || bytes_is_name(bytes_str(w.producer)));
    return 0;
}
