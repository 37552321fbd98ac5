#include "archive/sub_filter.h"

#include "archive/sorted_text.h"
#include "counts/records.h"

void sub_filter_append(
    struct bytes line, char separator, const struct bytes *subs, size_t n_subs, struct buf *out)
{
    struct record record;
    line.len -= line.len > 0 && line.ptr[line.len - 1] == '\n';
    if (!record_split(line, separator, &record))
        return;
    char before = separator;
    for (size_t i = 0; i < n_subs; i++) {
        size_t place = sorted_line_seek(line, separator, subs[i]);
        if (!bytes_equal(sorted_line_name(line, place), subs[i]))
            continue;
        const char *end = memchr(line.ptr + place, ' ', line.len - place);
        if (before == separator)
            buf_append_bytes(out, record.key);
        buf_append_char(out, before);
        buf_append(out, line.ptr + place, (end ? (size_t)(end - line.ptr) : line.len) - place);
        before = ' ';
    }
    if (before != separator)
        buf_append_char(out, '\n');
}
