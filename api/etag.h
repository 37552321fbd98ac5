/* etag: conditional replies (ETag, If-None-Match, Cache-Control).
 *
 * The tag of a reply is a hash of its body.
 *
 * 1. Two bodies have the same tag only if they have the same bytes. Therefore a 304
 *    reply, which is sent if the request names the tag of the body, never replaces a changed answer.
 * 2. The tag is computed from the finished body, because a late event can change any answer. The sources are therefore
 *    asked for every request. */
#ifndef MILLRACE_ETAG_H
#define MILLRACE_ETAG_H

#include "http/server/http_server.h"

#define ETAG_TEXT 35 /* size of a tag, with quotes and NUL */

void etag_of(struct bytes body, char out[ETAG_TEXT]);
/* True if the value of If-None-Match names the tag or is `*`. The comparison is weak, so `W/"x"` names `"x"`. */
bool etag_is_named(struct bytes if_none_match, const char *etag);
/* A file that does not change while the process runs. */
struct etag_file {
    struct bytes text, packed; /* content, and the content compressed with gzip */
    char tag[ETAG_TEXT];       /* tag of `text` */
};

/* Replies 200 with the file, compressed if the client accepts gzip, or 304. */
void etag_reply_file(
    struct http_request *req, const char *content_type, const char *cache_control, const struct etag_file *f);
/* Replies 200 with the body, or 304. Caches may repeat the reply for `max_age` seconds; 0: caches must revalidate. */
void etag_reply(struct http_request *req, const char *content_type, struct bytes body, int64_t max_age);

#endif
