#include "api/events.h"

size_t events_clean(struct bytes body, struct buf *out)
{
    const char *at = body.ptr, *end = body.len ? body.ptr + body.len : at;
    size_t n = 0;
    while (at != end) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        const char *stop = lf ? lf : end;
        size_t len = (size_t)(stop - at);
        if (len && at[len - 1] == '\r')
            len--;
        if (len) {
            buf_append(out, at, len);
            buf_append_char(out, '\n');
            n++;
        }
        at = lf ? lf + 1 : end;
    }
    return n;
}
