/* Any bytes as the file of visitor keys, also with the right checksum. An accepted file must be printed as it was. */
#include "enrich/visitor_key.h"
#include "base/xxh3.h"

#include <inttypes.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct bytes text)
{
    struct visitor_key_set set;
    struct error error;
    struct buf again = {0};
    if (visitor_key_set_parse(text, &set, &error) != 0)
        return;
    visitor_key_set_print(&set, &again);
    if (!bytes_equal(buf_bytes(&again), text) || set.n > VISITOR_KEYS_MAX || set.deleted < 0)
        abort();
    for (size_t i = 0; i < set.n; i++)
        if (set.keys[i].number <= (i > 0 ? set.keys[i - 1].number : set.deleted))
            abort();
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf text = {0};
    check(bytes_of(data, size));
    buf_append(&text, data, size);
    buf_printf(&text, "checksum %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text.ptr, size));
    check(buf_bytes(&text));
    buf_free(&text);
    return 0;
}
