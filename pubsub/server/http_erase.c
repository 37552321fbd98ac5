#include "pubsub/server/pubsub_server.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

/* /erase. The client finds the lines, because pubsub does not know what an event is. */

static void reply_state(struct http_request *req, int status, struct stream *s)
{
    static const char *const states[] = {[STREAM_ERASE_NONE] = "none",
        [STREAM_ERASE_RUNS] = "running",
        [STREAM_ERASE_DONE] = "done",
        [STREAM_ERASE_FAILED] = "failed"};
    struct stream_erasure e = stream_erasure(s);
    struct buf out = {0};
    buf_printf(&out,
        "{\"stream\":\"%s\",\"id\":\"%s\",\"state\":\"%s\",\"lines\":%zu,\"examined_bytes\":%" PRIu64
        ",\"total_bytes\":%" PRIu64,
        stream_name(s), journal_id(stream_journal(s)), states[e.state], e.lines, e.examined, e.total);
    if (e.state == STREAM_ERASE_FAILED) {
        buf_append_str(&out, ",\"error\":");
        buf_append_json(&out,
            e.result == JOURNAL_CONFLICT
                ? BYTES_LITERAL("a range is not exactly one whole line of at least 4 bytes, including the LF")
                : bytes_str(e.error));
    }
    buf_append_str(&out, "}\n");
    http_reply(req, status, "application/json", buf_bytes(&out));
    buf_free(&out);
}

/* Checks id=, because the same offsets are other lines in another stream or another history. */
static bool is_of_this_history(struct http_request *req, struct stream *s, const struct stream_lines *lines)
{
    struct bytes id = BYTES_NONE;
    struct stream_from end = {
        .kind = STREAM_FROM_OFFSET, .offset = lines->n ? lines->ranges[lines->n - 1].end : 0};
    (void)http_param(req, "id", &id);
    if (id.len > 0)
        return server_check_stream_id(req, s, id, &end);
    http_problem(req, 400, "missing-parameter", "set id= to the stream's id, which /streams shows",
        "id= is missing from the request");
    return false;
}

static void start(struct http_request *req, struct stream *s)
{
    struct stream_lines lines;
    size_t wrong = stream_lines_read(http_body(req), &lines);
    if (!wrong && !is_of_this_history(req, s, &lines)) {
        free(lines.ranges);
        return;
    }
    enum journal_result r = wrong ? JOURNAL_CONFLICT : stream_erase(s, &lines);
    if (wrong)
        http_problem(req, 400, "bad-request",
            "send lines \"OFFSET LENGTH\" in ascending order; LENGTH includes the LF",
            "line %zu of the body is not \"OFFSET LENGTH\", or overlaps the previous range", wrong);
    else if (r == JOURNAL_CONFLICT)
        http_problem(req, 416, "cursor-beyond-end", NULL, "a range is after the end of the stream");
    else if (r == JOURNAL_BUSY)
        http_problem(req, 409, "erasure-running", "GET /erase?stream= shows the progress of the erasure",
            "another erasure of stream %s is in progress", stream_name(s));
    else if (r != JOURNAL_OK)
        http_problem(
            req, 503, r == JOURNAL_LATCHED ? "storage-failed" : "not-ready", NULL, "%s", journal_strerror(r));
    else
        reply_state(req, 202, s);
    free(lines.ranges);
    if (r == JOURNAL_OK)
        log_info("erasing lines", LOG_S("stream", stream_name(s)), LOG_U("lines", stream_erasure(s).lines));
}

void http_erase(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    if (server_refuse_if_down(server, req) || !http_require_local(req))
        return;
    struct stream *s = server_find_stream(server, req, NULL, false);
    if (!s)
        return;
    if (http_method(req) == HTTP_POST_)
        start(req, s);
    else
        reply_state(req, 200, s);
}
