#include "stream/stream_place.h"

#include "http/client/http_client.h"

#include <string.h>

void stream_place_read(const struct http_reply_view *reply, struct stream_place *place)
{
    const char *text = http_reply_header(reply, "X-Millrace-Stream-Place");
    size_t length = strlen(text);
    if (length >= sizeof place->text)
        length = 0;
    memcpy(place->text, text, length);
    place->text[length] = '\0';
}

bool stream_place_is_same(const struct stream_place *a, const struct stream_place *b)
{
    return a->text[0] != '\0' && strcmp(a->text, b->text) == 0;
}
