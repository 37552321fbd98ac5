#include "pubsub/server/http_subscriber.h"

#include <assert.h>
#include <string.h>

void http_framing_take(struct http_subscriber *h, struct bytes piece, struct window *window)
{
    assert(!h->rest.len);
    h->rest = piece;
    h->window = window_hold(window);
    http_framing_go_on(h);
}

bool http_framing_go_on(struct http_subscriber *h)
{
    struct buf text = {0};
    while (h->rest.len && http_stream_pending(h->req) <= SUBSCRIBER_LOW) {
        framing_take(&h->framing, &h->rest, &text);
        http_stream_write(h->req, buf_bytes(&text));
        buf_clear(&text);
        h->wrote = clock_monotonic();
    }
    buf_free(&text);
    if (h->rest.len)
        return false;
    http_framing_free(h);
    return true;
}

void http_framing_free(struct http_subscriber *h)
{
    if (h->window)
        window_release(h->window);
    h->window = NULL;
    h->rest = BYTES_NONE;
}

bool http_framing_cut_back(struct http_subscriber *h)
{
    const char *lf = h->rest.len ? memrchr(h->rest.ptr, '\n', h->rest.len) : NULL;
    if (!lf && h->framing.in_line)
        return false;
    h->rest.len = lf ? (size_t)(lf + 1 - h->rest.ptr) : 0;
    return true;
}
