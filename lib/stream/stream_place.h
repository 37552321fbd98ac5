/* stream_place: which stream an answer of a pubsub is from, whatever address the pubsub was asked by.
 *
 * Every start of a pubsub makes a name for its life, and says it with the stream's (X-Millrace-Stream-Place: LIFE/STREAM). One life
 * holds its directory alone, so what has one place is one stream; a copy of it elsewhere, which has its id too, has another. After a
 * restart a stream has another place: whoever compares two has the newest of each. */
#ifndef MILLRACE_STREAM_PLACE_H
#define MILLRACE_STREAM_PLACE_H

#include "base/bytes.h"
#include "base/random_id.h"

struct http_reply_view;

struct stream_place {
    char text[RANDOM_ID_SIZE + 1 + NAME_LEN_MAX]; /* "": not known */
};

/* An answer that does not say leaves *place unknown. */
void stream_place_read(const struct http_reply_view *reply, struct stream_place *place);
/* Both are known, and one. */
bool stream_place_is_same(const struct stream_place *a, const struct stream_place *b);

#endif
