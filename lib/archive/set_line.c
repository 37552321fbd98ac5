#include "archive/set_line.h"

#include "counts/records.h"
#include "counts/set_text.h"

static enum set_line_result append_chunks(
    struct set_chunks *chunks, size_t most, struct buf *out, struct buf *next)
{
    struct bytes id, chunk;
    for (bool is_first = true; set_chunks_next(chunks, &id, &chunk); is_first = false) {
        if (!is_first && out->len > most) {
            set_text_append_place(id, chunk, next);
            return SET_LINE_CUT;
        }
        set_text_append_chunk(is_first, id, chunk, out);
    }
    return SET_LINE_WHOLE;
}

enum set_line_result set_line_append(const struct generation *g, uint32_t shard, struct bytes line,
    struct bytes start, size_t most, struct buf *out, struct buf *next, struct error *error)
{
    struct record r;
    struct set_opened set;
    uint64_t code;
    line.len -= line.len > 0 && line.ptr[line.len - 1] == '\n';
    if (!record_split(line, RECORD_SEPARATOR, &r) || r.value.len == 0 || r.value.ptr[0] != '#') {
        buf_append_bytes(out, line); /* all members are in the line */
        buf_append_char(out, '\n');
        return SET_LINE_WHOLE;
    }
    if (generation_set(g, shard, r.key, &set, error) != 0)
        return SET_LINE_FAILED;
    struct set_chunks chunks = {.view = &set.view};
    if (set_text_parse_place(start, &code))
        set_chunks_seek(&chunks, code);
    size_t begin = out->len;
    buf_append(out, line.ptr, r.key.len + 1);
    enum set_line_result result = append_chunks(&chunks, most, out, next);
    if (out->len == begin + r.key.len + 1)
        out->len = begin; /* no chunk from `start` on */
    else
        buf_append_char(out, '\n');
    set_chunks_free(&chunks);
    set_opened_close(&set);
    bool is_valid = generation_is_whole(g, shard, error) && generation_is_untouched(g, error);
    return is_valid ? result : SET_LINE_FAILED;
}
