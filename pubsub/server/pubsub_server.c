#include "pubsub/server/pubsub_server.h"

#include "base/amount.h"
#include "base/log.h"
#include "base/rfc3339.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OPENINGS_SHOWN ((size_t)16)

bool server_is_up(const struct pubsub_server *server)
{
    return server->recovered && !server->draining;
}

bool server_refuse_if_down(struct pubsub_server *server, struct http_request *req)
{
    if (server_is_up(server))
        return false;
    http_problem(req, 503, "not-ready", NULL, "%s", server->draining ? "stopping" : "recovering the streams");
    return true;
}

bool server_wants_events(const struct http_request *req)
{
    static const struct bytes type = BYTES_LITERAL("text/event-stream");
    struct bytes accept = http_header(req, "Accept");
    if (strcmp(http_path(req), "/sub") != 0 && strcmp(http_path(req), "/rate") != 0)
        return false;
    for (size_t i = 0; i + type.len <= accept.len; i++)
        if (strncasecmp(accept.ptr + i, type.ptr, type.len) == 0)
            return true;
    return false;
}

void server_retry_events(struct http_request *req)
{
    http_add_header_text(req, "Cache-Control", "no-store");
    http_add_header_text(req, "Access-Control-Allow-Origin", "*");
    http_reply(req, 200, "text/event-stream", SERVER_RETRY);
}

/* Creates a stream. On failure, replies with the error and returns NULL; the next publish tries again. */
static struct stream *make_stream(struct pubsub_server *server, struct http_request *req, const char *name)
{
    struct error error;
    struct stream *s = NULL;
    enum streams_result r = streams_make(server->streams, name, &s, &error);
    if (r == STREAMS_OK) {
        http_stats_add_stream(server, s);
        return s;
    }
    if (r == STREAMS_TOO_MANY) {
        http_problem(req, 409, "too-many-streams", "raise max_streams", "max_streams is reached: %zu %s",
            streams_count(server->streams),
            plural(streams_count(server->streams), "stream exists", "streams exist"));
        return NULL;
    }
    log_error("cannot create a stream", LOG_S("stream", name), LOG_S("error", error.text));
    if (r == STREAMS_OUT_OF_DESCRIPTORS && server_wants_events(req))
        server_retry_events(req);
    else if (r == STREAMS_OUT_OF_DESCRIPTORS)
        http_problem(req, 503, "out-of-descriptors", "try again; raise the limit of open files (LimitNOFILE)",
            "out of file descriptors: cannot create the stream: %s", error.text);
    else
        http_problem(req, 503, r == STREAMS_NO_SPACE ? "storage-full" : "storage-failed",
            r == STREAMS_NO_SPACE ? "free disk space; the next publish tries again"
                                  : "check the disk; the next publish tries again",
            "cannot create the stream: %s", error.text);
    return NULL;
}

void server_era(const struct pubsub_server *server, char out[SERVER_ERA_TEXT])
{
    snprintf(out, SERVER_ERA_TEXT, "%s-%" PRIu64, server->life, daemon_clock_jumps(server->daemon));
}

/* Adds the trusted time, which a producer may state (docs/guide/protocol.md, "until"). */
static void add_time(const struct pubsub_server *server, struct http_request *req)
{
    char era[SERVER_ERA_TEXT];
    usec_t now = daemon_trusted_time(server->daemon);
    server_era(server, era);
    http_add_header_text(req, "X-Millrace-Era", era);
    http_add_header(req, "X-Millrace-Time", "%" PRId64 ".%06" PRId64, now / USEC_PER_SEC, now % USEC_PER_SEC);
}

struct stream *server_find_stream(
    struct pubsub_server *server, struct http_request *req, const char *fallback, bool make)
{
    char name[NAME_LEN_MAX + 1];
    if (server_refuse_if_down(server, req) || !http_param_name(req, "stream", fallback, name))
        return NULL;
    struct stream *s = streams_find(server->streams, name);
    if (s)
        return s;
    if (make && server->auto_create)
        return make_stream(server, req, name);
    add_time(server, req);
    http_problem(req, 404, "unknown-stream", "publish to the stream, or add its name to the setting streams",
        "stream %s does not exist", name);
    return NULL;
}

void server_add_place(const struct pubsub_server *server, struct http_request *req, const struct stream *s)
{
    http_add_header(req, "X-Millrace-Stream-Place", "%s/%s", server->life, stream_name(s));
    add_time(server, req);
}

void server_check_drained(struct pubsub_server *server)
{
    if (!server->draining || server->drained || server->in_flight || !LIST_EMPTY(&server->subscribers))
        return;
    server->drained = true;
    daemon_drained(server->daemon);
}

void server_refuse_cursor(struct pubsub_server *server, struct http_request *req, struct stream *s,
    enum subscriber_refusal why, const struct journal_edges *edges)
{
    const char *failure = journal_failure(stream_journal(s));
    uint64_t end = journal_committed_end(stream_journal(s));
    char members[200];
    switch (why) {
    case SUBSCRIBER_BEYOND:
        snprintf(members, sizeof members, "\"end\":\"%" PRIu64 "\"", end);
        http_problem_with(req, 416, "cursor-beyond-end", members, "the stream ends at %" PRIu64, end);
        break;
    case SUBSCRIBER_INSIDE:
        http_problem(req, 416, "cursor-inside-line", "a cursor is the offset directly after an LF",
            "the offset of the cursor is inside a line");
        break;
    case SUBSCRIBER_GONE:
        stats_add(server->cursors_gone, 1);
        snprintf(members, sizeof members,
            "\"before\":\"%" PRIu64 "\",\"after\":\"%" PRIu64 "\",\"earliest\":\"%" PRIu64
            "\",\"opening_before\":\"%s\"",
            edges->before, edges->after, journal_earliest(stream_journal(s)),
            journal_opening_before(stream_journal(s), edges->after));
        http_problem_with(req, 410, "cursor-gone", members,
            "the bytes at the cursor are deleted or lost; the stream continues at %" PRIu64, edges->after);
        break;
    case SUBSCRIBER_UNREADABLE:
        http_problem(req, 503, "storage-failed", NULL, "cannot read the stream at the cursor: %s",
            failure ? failure : "try again");
        break;
    }
}

static void append_opening(struct buf *members, const char *between, const struct journal_opening *o)
{
    char time[RFC3339_TEXT];
    buf_printf(members, "%s{\"first\":\"%" PRIu64 "\",\"opening\":\"%s\",\"began\":\"%s\"}", between,
        o->first, o->opening, rfc3339_write(o->began / USEC_PER_SEC, time));
}

/* Appends the latest openings, including the present opening even if no byte was stored in it yet. Returns the start
 * time of the opening that begins at `place`, or -1. */
static usec_t append_openings(struct buf *members, const struct journal *j, uint64_t place)
{
    struct journal_opening *list;
    struct journal_opening present = {
        journal_committed_end(j), opening_time(journal_opening(j)), journal_opening(j)};
    size_t n = journal_openings(j, &list);
    bool has_appended = n > 0 && strcmp(list[n - 1].opening, present.opening) == 0;
    size_t all = n + !has_appended, from = all > OPENINGS_SHOWN ? all - OPENINGS_SHOWN : 0;
    usec_t began = -1;
    buf_append_str(members, ",\"openings\":[");
    for (size_t i = 0; i < all; i++) {
        const struct journal_opening *o = i < n ? &list[i] : &present;
        began = o->first == place ? o->began : began;
        if (i >= from)
            append_opening(members, i > from ? "," : "", o);
    }
    buf_append_char(members, ']');
    free(list);
    return began;
}

/* `differs_from` and `is_certain` are results of journal_is_past. */
static void refuse_history(struct http_request *req, const struct journal *j, uint64_t offset,
    uint64_t differs_from, bool is_certain)
{
    struct buf members = {0};
    char time[RFC3339_TEXT], opened[80] = "";
    buf_printf(&members, "\"differs_from\":\"%" PRIu64 "\",\"is_certain\":%s,\"opening_before\":\"%s\"",
        differs_from, is_certain ? "true" : "false", journal_opening_before(j, differs_from));
    usec_t began = append_openings(&members, j, differs_from);
    buf_append_char(&members, '\0');
    if (began >= 0)
        snprintf(opened, sizeof opened, "; the copy was opened there at %s",
            rfc3339_write(began / USEC_PER_SEC, time));
    http_problem_with(req, 409, "other-history", members.ptr,
        "the stream is a restored copy: from offset %" PRIu64
        " on it differs from the lines read, which end at %" PRIu64 "%s%s",
        differs_from, offset, opened,
        is_certain ? "" : " (found by the clocks: compare with the time of the restore)");
    buf_free(&members);
}

bool server_check_stream_id(
    struct http_request *req, struct stream *s, struct bytes asked, const struct stream_from *from)
{
    const char *id = journal_id(stream_journal(s)),
               *dot = asked.len ? memchr(asked.ptr, '.', asked.len) : NULL;
    char members[120];
    if (!asked.len)
        return true;
    if (!bytes_equal_str(bytes_of(asked.ptr, dot ? (size_t)(dot - asked.ptr) : asked.len), id)) {
        snprintf(members, sizeof members, "\"id\":\"%s\"", id);
        http_problem_with(
            req, 409, "wrong-stream", members, "the stream with this name has another id than the request");
        return false;
    }
    if (!dot || !from || from->kind != STREAM_FROM_OFFSET || from->offset == 0)
        return true;
    uint64_t differs_from;
    bool is_certain;
    struct bytes opening = bytes_of(dot + 1, (size_t)(asked.ptr + asked.len - dot - 1));
    if (journal_is_past(stream_journal(s), from->offset, opening, &differs_from, &is_certain))
        return true;
    refuse_history(req, stream_journal(s), from->offset, differs_from, is_certain);
    return false;
}

void server_add_openings(struct http_request *req, struct stream *s, uint64_t offset)
{
    const struct journal *j = stream_journal(s);
    const char *before = journal_opening_before(j, offset);
    http_add_header_text(req, "X-Millrace-Opening", journal_opening_at(j, offset));
    if (before[0])
        http_add_header_text(req, "X-Millrace-Opening-Before", before);
}

bool server_read_from(struct http_request *req, const char *fallback, struct stream_from *from)
{
    struct bytes text = bytes_str(fallback);
    (void)http_param(req, "from", &text);
    if (stream_from_parse(text, from))
        return true;
    http_problem(req, 400, "bad-parameter",
        "earliest, latest, an offset, @UNIXTIME in whole seconds, or -N: the last N lines", "invalid from");
    return false;
}
