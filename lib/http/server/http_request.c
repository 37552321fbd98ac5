/* The functions with which handlers use a request. */
#include "http/server/http_internal.h"

#include <stdlib.h>
#include <strings.h>

void http_request_reset(struct http_request *req)
{
    http_head_clear(&req->head);
    http_shed(&req->head.text);
    http_shed(&req->path);
    http_shed(&req->body);
    http_shed(&req->extra);
    if (req->query.memory)
        url_query_free(&req->query);
    free(req->marks.at);
    http_tokens_unref(&req->tokens);
    req->token = NULL;
    http_inflate_free(&req->inflate);
    req->marks = (struct http_marks){0};
    memset(&req->live, 0, sizeof *req - offsetof(struct http_request, live));
}

enum http_method http_method(const struct http_request *req)
{
    return req->head.method;
}

bool http_is_head(const struct http_request *req)
{
    return req->head.is_head;
}

const char *http_path(const struct http_request *req)
{
    return req->path.ptr;
}

struct bytes http_body(struct http_request *req)
{
    return buf_bytes(&req->body);
}

struct buf http_take_body(struct http_request *req)
{
    struct buf body = req->body;
    req->body = (struct buf){0};
    return body;
}

const struct url_query *http_query(const struct http_request *req)
{
    return &req->query;
}

bool http_param(const struct http_request *req, const char *name, struct bytes *value)
{
    return url_query_get(&req->query, name, value);
}

bool http_take_form(struct http_request *req)
{
    struct bytes form = BYTES_LITERAL("application/x-www-form-urlencoded");
    struct bytes type = http_header(req, "Content-Type"), target = http_head_target(&req->head);
    const char *mark = target.len ? memchr(target.ptr, '?', target.len) : NULL;
    if (type.len < form.len || strncasecmp(type.ptr, form.ptr, form.len) != 0)
        return true;
    struct url_query both;
    struct buf text = {0};
    buf_append_bytes(&text, buf_bytes(&req->body));
    if (mark) {
        buf_append_char(&text, '&');
        buf_append(&text, mark + 1, target.len - (size_t)(mark + 1 - target.ptr));
    }
    bool ok = url_query_parse(buf_bytes(&text), &both) == 0;
    buf_free(&text);
    if (!ok) {
        http_problem(req, 400, "bad-parameter", "write a percent sign as %25",
            "the form has an invalid %%-escape or too many parameters");
        return false;
    }
    url_query_free(&req->query);
    req->query = both;
    return true;
}

struct bytes http_header(const struct http_request *req, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < req->head.n_headers; i++) {
        const struct http_header_span *h = &req->head.headers[i];
        if (h->name_len == len && strncasecmp(req->head.text.ptr + h->name, name, len) == 0)
            return bytes_of(req->head.text.ptr + h->value, h->value_len);
    }
    return BYTES_NONE;
}

void http_append_header(const struct http_request *req, const char *name, struct buf *out)
{
    size_t len = strlen(name), begin = out->len;
    for (size_t i = 0; i < req->head.n_headers; i++) {
        const struct http_header_span *h = &req->head.headers[i];
        if (h->name_len != len || strncasecmp(req->head.text.ptr + h->name, name, len) != 0)
            continue;
        buf_append_str(out, out->len > begin ? "," : "");
        buf_append(out, req->head.text.ptr + h->value, h->value_len);
    }
}

const char *http_peer(const struct http_request *req)
{
    return req->conn->peer;
}

void http_set_long_poll(struct http_request *req)
{
    req->long_poll = true;
    if (req->conn->eof)
        http_output_schedule(req->conn);
}

void http_set_held_bytes(struct http_request *req, size_t bytes)
{
    req->held_bytes = bytes;
    http_output_account(req->conn);
}

bool http_has_memory(const struct http_request *req)
{
    return http_memory_available(req->conn->server);
}

enum http_hold http_hold(struct http_request *req, size_t bytes)
{
    size_t before = req->held_bytes, most = req->conn->server->config.max_buffered;
    if (most > 0 && bytes > most / 2)
        return HTTP_HOLD_TOO_LARGE;
    http_set_held_bytes(req, bytes);
    if (bytes <= before || http_has_memory(req))
        return HTTP_HOLD_OK;
    http_set_held_bytes(req, before);
    return HTTP_HOLD_OVERLOADED;
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
    req->above_low = http_output_pending(req->conn) > low;
}

void http_stream_disable_timeout(struct http_request *req)
{
    req->no_timeout = true;
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
    http_problem(req, 400, "bad-parameter", NULL, "%s must be a whole number from %llu to %llu", name,
        (unsigned long long)min, (unsigned long long)max);
    return false;
}

bool http_param_name(
    struct http_request *req, const char *name, const char *fallback, char out[NAME_LEN_MAX + 1])
{
    struct bytes text = bytes_str(fallback);
    if (!http_param(req, name, &text) && !fallback) {
        http_problem(req, 400, "missing-parameter", NULL, "%s is required", name);
        return false;
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
