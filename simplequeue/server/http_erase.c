/* ERASE begins an erasure of the bytes of deleted messages, and returns the state of the erasure. */
#include "simplequeue/server/http_common.h"

static void reply_erasure(struct http_request *req, int status, const struct named_queue *q)
{
    static const char *const states[] = {"none", "running", "done", "failed"};
    struct queue_erasure e = named_queue_erasure(q);
    struct buf out = {0};
    buf_printf(&out, "{\"queue\":\"%s\",\"queue_id\":\"%s\",\"state\":\"%s\",\"remaining_bytes\":%llu",
        named_queue_name(q), named_queue_id(q), states[e.state], (unsigned long long)e.remaining);
    if (e.error) {
        buf_append_str(&out, ",\"error\":");
        buf_append_json(&out, bytes_str(e.error));
    }
    buf_append_str(&out, "}\n");
    add_queue_id(req, q);
    http_reply_buf(req, status, "application/json", &out);
    buf_free(&out);
}

void http_erase(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct named_queue *q;
    if (!http_require_local(req) || !may_inspect(server, req) || !param_existing_queue(server, req, &q))
        return;
    if (!q) {
        http_problem(req, 404, "unknown-queue", NULL, "the queue does not exist");
    } else if (http_method(req) == HTTP_GET_) {
        reply_erasure(req, 200, q);
    } else if (named_queue_erasure(q).state == QUEUE_ERASE_RUNNING) {
        add_queue_id(req, q);
        http_problem(req, 409, "erasure-running", NULL, "an erasure of the queue is running");
    } else {
        enum queue_result r = named_queue_erase(q);
        if (r == QUEUE_OK)
            reply_erasure(req, 202, q);
        else
            reply_refused(server, req, r, 0);
    }
}
