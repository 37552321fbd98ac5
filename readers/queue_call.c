#include "readers/queue_call.h"

#include "base/url.h"

#include <stdio.h>

struct queuereader_config queue_call_config(const struct queuereader_config *config)
{
    struct queuereader_config c = *config;
    c.wait = c.wait ? c.wait : 20 * USEC_PER_SEC;
    c.timeout = c.timeout ? c.timeout : 10 * USEC_PER_SEC;
    c.backoff_min = c.backoff_min ? c.backoff_min : 50 * USEC_PER_MSEC;
    c.backoff_max = c.backoff_max ? c.backoff_max : 2 * USEC_PER_SEC;
    return c;
}

char *queue_call_encode(const char *text)
{
    struct buf out = {0};
    url_encode(bytes_str(text), &out);
    buf_append_char(&out, '\0');
    return out.ptr;
}

struct http_call *queue_call_send(struct http_client *c, const char *method, struct buf *target,
    struct bytes body, usec_t timeout, queue_call_fn *done, void *arg)
{
    buf_append_char(target, '\0');
    struct http_call_spec spec = {.method = method,
        .target = target->ptr,
        .content_type = body.len ? "text/plain" : NULL,
        .body = body,
        .timeout = timeout,
        .arg = arg,
        .on_done = done};
    struct http_call *call = http_client_request(c, &spec);
    buf_free(target);
    return call;
}

struct bytes queuereader_reply_member(struct bytes json, const char *name)
{
    char key[64];
    int len = snprintf(key, sizeof key, "\"%s\":\"", name);
    const char *at = json.len ? memmem(json.ptr, json.len, key, (size_t)len) : NULL;
    if (!at)
        return BYTES_NONE;
    at += len;
    const char *end = memchr(at, '"', json.len - (size_t)(at - json.ptr));
    return end ? bytes_of(at, (size_t)(end - at)) : BYTES_NONE;
}

static int printable_len(struct bytes text)
{
    return (int)(text.len < 64 ? text.len : 64);
}

bool queue_call_succeeded(
    enum http_client_result result, const struct http_reply_view *reply, char why[QUEUE_CALL_REASON_MAX])
{
    if (result != HTTP_CLIENT_OK) {
        snprintf(why, QUEUE_CALL_REASON_MAX, "%s", http_client_strerror(result));
        return false;
    }
    if (reply->status == 200) /* not searched: the body may be a whole batch */
        return true;
    struct bytes code = queuereader_reply_member(reply->body, "code");
    snprintf(why, QUEUE_CALL_REASON_MAX, "answered %d %.*s", reply->status, printable_len(code),
        code.len ? code.ptr : "");
    return reply->status == 409;
}

bool queue_call_is_refused(enum http_client_result result, const struct http_reply_view *reply)
{
    int status = result == HTTP_CLIENT_OK ? reply->status : 0;
    return status >= 400 && status < 500 && status != 408 && status != 409 && status != 429;
}

void queue_call_describe_holder(const struct http_reply_view *reply, char why[QUEUE_CALL_REASON_MAX])
{
    struct bytes holder = queuereader_reply_member(reply->body, "reader");
    bool follows = bytes_equal_str(queuereader_reply_member(reply->body, "code"), "followed");
    snprintf(why, QUEUE_CALL_REASON_MAX, "%s%.*s %s", holder.len ? "the reader " : "a reader without a name",
        printable_len(holder), holder.len ? holder.ptr : "",
        follows ? "follows this queue; if this reader will not return, POST /unfollow"
                : "has leases on this queue");
}

bool queue_call_parse_batch(const struct http_reply_view *reply, struct batch *out, struct bytes *id)
{
    uint64_t lease = 0;
    *id = bytes_str(http_reply_header(reply, "X-Millrace-Queue-Id"));
    if (!bytes_is_name(*id))
        *id = BYTES_NONE;
    bool leased = bytes_to_u64(bytes_str(http_reply_header(reply, "X-Millrace-Lease")), &lease);
    return (reply->body.len == 0 || (leased && id->len > 0)) && batch_parse(reply->body, lease, out);
}
