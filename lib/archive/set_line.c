#include "archive/set_line.h"

#include "counts/records.h"
#include "counts/set_text.h"

int set_line_append(
    const struct generation *g, uint32_t shard, struct bytes line, struct buf *out, struct error *error)
{
    struct record r;
    struct set_opened set;
    struct bytes id, chunk;
    line.len -= line.len > 0 && line.ptr[line.len - 1] == '\n';
    if (!record_split(line, RECORD_SEPARATOR, &r) || r.value.len == 0 || r.value.ptr[0] != '#') {
        buf_append_bytes(out, line); /* all members are in the line */
        buf_append_char(out, '\n');
        return 0;
    }
    if (generation_set(g, shard, r.key, &set, error) != 0)
        return -1;
    struct set_chunks chunks = {.view = &set.view};
    buf_append(out, line.ptr, r.key.len + 1);
    for (bool is_first = true; set_chunks_next(&chunks, &id, &chunk); is_first = false)
        set_text_append_chunk(is_first, id, chunk, out);
    buf_append_char(out, '\n');
    set_chunks_free(&chunks);
    set_opened_close(&set);
    return generation_is_whole(g, shard, error) ? 0 : -1;
}
