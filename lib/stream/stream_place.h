/* stream_place: identifies the stream that a reply came from, whatever address was asked.
 *
 * Every pubsub process makes a random name, and sends it with the stream's name (X-Millrace-Stream-Place: LIFE/STREAM). One
 * process owns its directory, so equal places mean the same stream; a copy elsewhere has the same id but another place. A
 * restart changes places: compare only the latest place of each side. */
#ifndef MILLRACE_STREAM_PLACE_H
#define MILLRACE_STREAM_PLACE_H

#include "base/bytes.h"
#include "base/random_id.h"

struct http_reply_view;

struct stream_place {
    char text[RANDOM_ID_SIZE + 1 + NAME_LEN_MAX]; /* "": not known */
};

/* Without the header *place is unknown. */
void stream_place_read(const struct http_reply_view *reply, struct stream_place *place);
/* Both are known and equal. */
bool stream_place_is_same(const struct stream_place *a, const struct stream_place *b);

#endif
