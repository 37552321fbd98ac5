/* Any bytes as a record of a queue's journal: refused with a reason, or all of its items lie within it. */
#include "simplequeue/queue/queue_log.h"
#include "support/fuzz_copy.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_within(struct bytes part, struct bytes whole)
{
    assert(part.len == 0 || (part.ptr >= whole.ptr && part.ptr + part.len <= whole.ptr + whole.len));
}

static void check_record(struct bytes payload)
{
    struct queue_record record;
    struct queue_record_item item;
    const char *reason = NULL;
    size_t items = 0, bytes = 0;
    if (!queue_log_decode(payload, &record, &reason)) {
        assert(reason && *reason);
        return;
    }
    size_t measured = queue_log_measure(payload);
    assert(measured == payload.len || measured == 0);
    uint32_t n = record.n;
    check_within(record.reason, payload);
    while (queue_record_next(&record, &item)) {
        items++;
        bytes += item.message.len;
        check_within(item.message, payload);
        check_within(item.reason, payload);
        check_within(item.opening, payload);
        assert(item.ids.first <= item.ids.last);
    }
    assert(items == n && bytes <= payload.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(bytes_of(data, size));
    queue_log_measure(bytes_of(copy, size));
    check_record(bytes_of(copy, size));
    free(copy);
    return 0;
}
