#include "api/etag.h"

#include "base/xxh3.h"
#include <stdio.h>

void etag_of(struct bytes body, char out[ETAG_TEXT])
{
    XXH128_hash_t hash = XXH3_128bits(body.ptr, body.len);
    snprintf(out, ETAG_TEXT, "\"%016llx%016llx\"", (unsigned long long)hash.high64,
        (unsigned long long)hash.low64);
}

bool etag_is_named(struct bytes if_none_match, const char *etag)
{
    size_t len = strlen(etag);
    struct bytes rest = if_none_match;
    if (bytes_equal_str(rest, "*"))
        return true;
    /* A tag is the bytes between two quotes. A tag contains no quote. */
    while (rest.len) {
        const char *open = memchr(rest.ptr, '"', rest.len);
        size_t before = open ? (size_t)(open - rest.ptr) + 1 : rest.len;
        const char *close = open ? memchr(open + 1, '"', rest.len - before) : NULL;
        if (!close)
            return false;
        if ((size_t)(close + 1 - open) == len && memcmp(open, etag, len) == 0)
            return true;
        rest = bytes_of(close + 1, rest.len - (size_t)(close + 1 - rest.ptr));
    }
    return false;
}

void etag_reply(struct http_request *req, const char *content_type, struct bytes body, int64_t max_age)
{
    char etag[ETAG_TEXT];
    etag_of(body, etag);
    http_add_header_text(req, "ETag", etag);
    if (max_age > 0)
        http_add_header(req, "Cache-Control", "private, max-age=%lld", (long long)max_age);
    else
        http_add_header_text(req, "Cache-Control", "private, no-cache");
    if (etag_is_named(http_header(req, "If-None-Match"), etag))
        http_reply(req, 304, NULL, BYTES_NONE);
    else
        http_reply(req, 200, content_type, body);
}

void etag_reply_file(
    struct http_request *req, const char *content_type, const char *cache_control, const struct etag_file *f)
{
    struct bytes accepted = http_header(req, "Accept-Encoding");
    bool is_packed = accepted.ptr && memmem(accepted.ptr, accepted.len, "gzip", 4);
    http_add_header_text(req, "X-Content-Type-Options", "nosniff");
    http_add_header_text(req, "Cache-Control", cache_control);
    http_add_header_text(req, "Vary", "Accept-Encoding");
    http_add_header_text(req, "ETag", f->tag);
    if (etag_is_named(http_header(req, "If-None-Match"), f->tag)) {
        http_reply(req, 304, content_type, BYTES_NONE);
        return;
    }
    if (is_packed)
        http_add_header_text(req, "Content-Encoding", "gzip");
    http_reply(req, 200, content_type, is_packed ? f->packed : f->text);
}
