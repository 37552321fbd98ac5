/* What handlers ask a request. */
#include "http/server/http_internal.h"

#include <assert.h>
#include <strings.h>

void http_request_init(struct http_request *req, struct http_conn *c)
{
    req->magic = HTTP_REQUEST_MAGIC;
    req->conn = c;
}

static void clear_answer(struct http_request *req)
{
    req->on_gone = NULL;
    req->on_drain = NULL;
    req->above_low = false;
    req->held_bytes = 0;
    if (req->marks.at)
        http_marks_free(&req->marks);
}

static void forget_head(struct http_request *req)
{
    if (req->query.memory)
        url_query_free(&req->query);
    req->known_endpoint = NULL;
    req->known_head = 0;
}

void http_request_clear(struct http_request *req)
{
    clear_answer(req);
    forget_head(req);
}

static void shed(struct buf *b)
{
    if (b->cap > HTTP_KEPT_BUFFER_MAX)
        buf_free(b);
    else
        buf_clear(b);
}

void http_request_end(struct http_request *req)
{
    clear_answer(req);
    shed(&req->extra);
    if (!req->known_endpoint || req->text.cap > HTTP_KEPT_BUFFER_MAX ||
        req->path.cap > HTTP_KEPT_BUFFER_MAX) {
        forget_head(req);
        shed(&req->text);
        shed(&req->path);
    }
}

void http_request_begin_again(struct http_request *req)
{
    clear_answer(req);
    buf_clear(&req->body);
    buf_clear(&req->extra);
    req->live = false;
    req->has_retry_after = req->chunked = req->body_withheld = req->has_length = req->long_poll =
        req->patient = false;
    req->refusal = HTTP_REFUSED_NOT;
    req->reply = HTTP_REPLY_NONE;
    req->body_bytes = req->length_left = req->written = 0;
    req->began = req->conn->server->now;
    req->data = NULL;
}

/* Everything but the buffers, whose memory is kept. */
void http_request_begin(struct http_request *req)
{
    http_request_begin_again(req);
    forget_head(req);
    buf_clear(&req->text);
    buf_clear(&req->path);
    req->is_head = req->http10 = req->keep_alive = req->has_body = false;
    req->has_host = req->has_content_length = req->is_chunked = req->asks_close = false;
    req->expects_continue = req->expects_other = req->is_encoded = false;
    req->endpoint = NULL;
    req->method = 0;
    req->allowed = 0;
    req->target = req->target_len = req->n_headers = req->header_bytes = 0;
}

struct bytes http_request_target(const struct http_request *req)
{
    return bytes_of(req->text.ptr + req->target, req->target_len);
}

enum http_method http_method(const struct http_request *req)
{
    return req->method;
}

bool http_is_head(const struct http_request *req)
{
    return req->is_head;
}

bool http_is_http10(const struct http_request *req)
{
    return req->http10;
}

const char *http_path(const struct http_request *req)
{
    return req->path.ptr;
}

const char *http_path_rest(const struct http_request *req)
{
    return req->path.ptr + req->endpoint->path_len;
}

struct bytes http_body(struct http_request *req)
{
    return buf_bytes(&req->body);
}

const struct url_query *http_query(const struct http_request *req)
{
    return &req->query;
}

bool http_param(const struct http_request *req, const char *name, struct bytes *value)
{
    return url_query_get(&req->query, name, value);
}

struct bytes http_header(const struct http_request *req, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < req->n_headers; i++) {
        const struct http_header_span *h = &req->headers[i];
        if (h->name_len == len && strncasecmp(req->text.ptr + h->name, name, len) == 0)
            return bytes_of(req->text.ptr + h->value, h->value_len);
    }
    return BYTES_NONE;
}

usec_t http_now(const struct http_request *req)
{
    const struct http_conn *c = req->conn;
    return c->in_turn ? c->server->now : clock_monotonic();
}

const char *http_peer(const struct http_request *req)
{
    return req->conn->peer;
}

void *http_request_ctx(struct http_request *req)
{
    return req->conn->server->config.ctx;
}

void http_set_data(struct http_request *req, void *data)
{
    assert(req->magic == HTTP_REQUEST_MAGIC);
    req->data = data;
}

void *http_data(const struct http_request *req)
{
    assert(req->magic == HTTP_REQUEST_MAGIC);
    return req->data;
}

void http_set_long_poll(struct http_request *req)
{
    req->long_poll = true;
    if (req->conn->eof)
        http_conn_schedule(req->conn);
}

void http_set_held_bytes(struct http_request *req, size_t bytes)
{
    req->held_bytes = bytes;
    http_memory_update(req->conn);
}

bool http_has_memory(const struct http_request *req)
{
    return http_memory_available(req->conn->server);
}

void http_on_gone(struct http_request *req, void (*fn)(struct http_request *, void *), void *arg)
{
    req->on_gone = fn;
    req->on_gone_arg = arg;
}

void http_on_drain(struct http_request *req, size_t low, void (*fn)(struct http_request *, void *), void *arg)
{
    req->on_drain = fn;
    req->on_drain_arg = arg;
    req->drain_low = low;
    req->above_low = http_conn_pending(req->conn) > low;
}

void http_stream_disable_timeout(struct http_request *req)
{
    req->patient = true;
}

bool http_param_u64(
    struct http_request *req, const char *name, uint64_t fallback, uint64_t min, uint64_t max, uint64_t *out)
{
    struct bytes text;
    *out = fallback;
    if (!http_param(req, name, &text))
        return true;
    if (bytes_to_u64(text, out) && *out >= min && *out <= max)
        return true;
    http_problem(req, 400, "bad-parameter", NULL, "%s must be a number from %llu to %llu", name,
        (unsigned long long)min, (unsigned long long)max);
    return false;
}

bool http_param_i64(
    struct http_request *req, const char *name, int64_t fallback, int64_t min, int64_t max, int64_t *out)
{
    struct bytes text;
    *out = fallback;
    if (!http_param(req, name, &text))
        return true;
    if (bytes_to_i64(text, out) && *out >= min && *out <= max)
        return true;
    http_problem(req, 400, "bad-parameter", NULL, "%s must be a number from %lld to %lld", name,
        (long long)min, (long long)max);
    return false;
}

bool http_param_name(
    struct http_request *req, const char *name, const char *fallback, char out[NAME_LEN_MAX + 1])
{
    struct bytes text;
    if (!http_param(req, name, &text) && !fallback) {
        http_problem(req, 400, "missing-parameter", NULL, "%s is required", name);
        return false;
    }
    if (!http_param(req, name, &text)) { /* the fallback is a name */
        size_t n = strlen(fallback);
        assert(n <= NAME_LEN_MAX);
        memcpy(out, fallback, n + 1);
        return true;
    }
    if (!bytes_is_name(text)) {
        http_problem(req, 400, "bad-parameter",
            "a name is 1 to 64 of A-Z a-z 0-9 _ . -, and neither . nor ..", "%s is not a name", name);
        return false;
    }
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return true;
}

bool http_param_bool(struct http_request *req, const char *name, bool fallback, bool *out)
{
    struct bytes text;
    *out = fallback;
    if (!http_param(req, name, &text))
        return true;
    *out = bytes_equal_str(text, "1") || bytes_equal_str(text, "true");
    if (*out || bytes_equal_str(text, "0") || bytes_equal_str(text, "false"))
        return true;
    http_problem(req, 400, "bad-parameter", NULL, "%s must be 0 or 1", name);
    return false;
}
