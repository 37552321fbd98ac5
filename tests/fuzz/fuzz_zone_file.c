/* Any bytes as a time zone's file: refused, or a table of ascending changes. */
#include "api/zone_file.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zone_table t;
    if (!zone_file_parse(bytes_of(data, size), &t)) {
        assert(!t.changes);
        return 0;
    }
    for (size_t i = 0; i < t.n; i++) {
        int32_t before = i ? t.changes[i - 1].offset : t.first;
        assert(t.changes[i].at >= ZONE_TABLE_FIRST && t.changes[i].at < ZONE_TABLE_END);
        assert((i == 0 || t.changes[i].at > t.changes[i - 1].at) && t.changes[i].offset != before);
        assert(zone_table_span(&t, t.changes[i].at).offset == t.changes[i].offset);
        assert(zone_table_span(&t, t.changes[i].at - 1).offset == before);
    }
    free(t.changes);
    return 0;
}
