/* Any bytes as a reply of /reserve: what is read as a batch has rising ids and lies within what came. */
#include "readers/batch.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct batch b;
    if (!batch_parse(bytes_of(data, size), 7, &b))
        return 0;
    for (size_t i = 0; i < b.n; i++) {
        const struct message *m = &b.messages[i];
        if ((i && m->id <= m[-1].id) || m->text.ptr < b.memory.ptr ||
            m->text.ptr + m->text.len >= b.memory.ptr + b.memory.len)
            abort();
        b.messages[i].state = i % 3 ? MESSAGE_DONE : MESSAGE_BURIED;
    }
    if (batch_unsettled(&b) != b.n)
        abort();
    batch_free(&b);
    return 0;
}
