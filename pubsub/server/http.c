#include "pubsub/server/pubsub_app.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* A publish whose commit is awaited. */
struct pub {
    struct app *app;
    struct http_request *req; /* NULL: the client has gone */
    struct stream *stream;
    bool is_bitlys; /* named no stream: is answered in bitly's words */
};

bool app_is_up(const struct app *app)
{
    return app->recovered && !app->draining;
}

bool app_is_not_up(struct app *app, struct http_request *req)
{
    if (app_is_up(app))
        return false;
    http_problem(req, 503, "not-ready", NULL, "%s", app->draining ? "stopping" : "recovering the streams");
    return true;
}

bool app_wants_events(const struct http_request *req)
{
    static const struct bytes type = BYTES_LITERAL("text/event-stream");
    struct bytes accept = http_header(req, "Accept");
    if (strcmp(http_path(req), "/sub") != 0)
        return false;
    for (size_t i = 0; i + type.len <= accept.len; i++)
        if (strncasecmp(accept.ptr + i, type.ptr, type.len) == 0)
            return true;
    return false;
}

void app_retry_events(struct http_request *req)
{
    http_add_header_text(req, "Cache-Control", "no-store");
    http_add_header_text(req, "Access-Control-Allow-Origin", "*");
    http_reply(req, 200, "text/event-stream", BYTES_LITERAL("retry: 1000\n\n"));
}

static bool retry_events_if_wanted(struct http_request *req, void *ctx)
{
    (void)ctx;
    if (!app_wants_events(req))
        return false;
    app_retry_events(req);
    return true;
}

static void answer_unknown_stream(struct http_request *req, const char *name)
{
    http_problem(req, 404, "unknown-stream", "publish to it first, or name it in the setting streams",
        "there is no stream %s", name);
}

/* Each is tried again by the next publish. */
static void answer_not_made(
    struct http_request *req, const char *name, enum streams_result why, const char *error)
{
    log_error("cannot make a stream", LOG_S("stream", name), LOG_S("error", error));
    if (why == STREAMS_LACK && app_wants_events(req))
        app_retry_events(req);
    else if (why == STREAMS_LACK)
        http_problem(req, 503, "out-of-descriptors", "try again; raise the limit of open files (LimitNOFILE)",
            "out of file descriptors: cannot make the stream: %s", error);
    else if (why == STREAMS_NO_SPACE)
        http_problem(req, 503, "storage-full", "make room on the disk; the next publish tries again",
            "cannot make the stream: %s", error);
    else
        http_problem(req, 503, "storage-failed", "look at the disk; the next publish tries again",
            "cannot make the stream: %s", error);
}

static struct stream *make_stream(struct app *app, struct http_request *req, const char *name)
{
    char error[256];
    struct stream *s = NULL;
    enum streams_result r = streams_obtain(app->streams, name, &s, error, sizeof(error));
    switch (r) {
    case STREAMS_OK:
        app_stream_came(app, s);
        break;
    case STREAMS_UNKNOWN:
        answer_unknown_stream(req, name);
        break;
    case STREAMS_TOO_MANY:
        http_problem(req, 409, "too-many-streams", "raise max_streams", "there are %zu streams already",
            streams_count(app->streams));
        break;
    case STREAMS_NO_SPACE:
    case STREAMS_LACK:
    case STREAMS_STORAGE:
        answer_not_made(req, name, r, error);
        break;
    }
    return s;
}

struct stream *app_request_stream(struct app *app, struct http_request *req, const char *fallback, bool make)
{
    char name[NAME_LEN_MAX + 1];
    if (app_is_not_up(app, req) || !http_param_name(req, "stream", fallback, name))
        return NULL;
    struct stream *s = streams_find(app->streams, name);
    if (s)
        return s;
    if (make)
        return make_stream(app, req, name);
    answer_unknown_stream(req, name);
    return NULL;
}

void app_add_place(const struct app *app, struct http_request *req, const struct stream *s)
{
    http_add_header(req, "X-Millrace-Stream-Place", "%s/%s", app->life, stream_name(s));
}

static void answer_conflict(struct http_request *req, uint64_t mark)
{
    char members[64];
    snprintf(members, sizeof(members), "\"mark\":\"%" PRIu64 "\"", mark);
    http_problem_with(req, 409, "mark-conflict", members, "the producer's mark is %" PRIu64, mark);
}

static const struct {
    int status;
    const char *code, *hint, *detail;
} refusals[] = {
    [JOURNAL_TOO_MANY_PRODUCERS] = {409, "too-many-producers",
        "marks are never forgotten: reuse producer names", "the stream knows as many producers as it may"},
    [JOURNAL_TOO_LARGE] = {413, "too-large", "publish less at a time", "more than one publish may hold"},
    [JOURNAL_BUSY] = {503, "overloaded", "try again", "too much is waiting to be committed"},
    [JOURNAL_LATCHED] = {503, "storage-failed",
        "look at the disk, then restart the daemon; what was refused may be there then or not: with marks a "
        "retry is stored once",
        "a write or a sync failed; nothing more is written"},
    [JOURNAL_CLOSED] = {503, "not-ready", "try again", "stopping"},
};

/* Said when it begins and when it is over, not for each publish. */
static void note_room(struct stream *s, bool is_there, const char *why)
{
    if (!stream_set_refusing(s, !is_there))
        return;
    if (is_there)
        log_info("publishes are taken again", LOG_S("stream", stream_name(s)));
    else
        log_error("publishes are refused", LOG_S("stream", stream_name(s)), LOG_S("why", why));
}

/* Likewise, though it is never over: /health says so from here on, reads go on. */
static void note_failure(struct app *app, struct stream *s)
{
    const char *why = journal_failure(stream_journal(s));
    if (!stream_set_failed(s))
        return;
    log_error("storage failed", LOG_S("stream", stream_name(s)), LOG_S("error", why));
    daemon_set_not_ready(app->daemon, "storage failed: %s", why);
}

/* What a named cursor keeps that would go otherwise. */
struct held {
    const char *cursor; /* NULL: none keeps anything */
    struct stream *stream;
    uint64_t bytes, from;
};

static struct held held_in(struct app *app, struct stream *s)
{
    struct held h = {.stream = s};
    h.from = cursors_hold(app->cursors, s, &h.cursor);
    h.bytes = h.cursor ? stream_held_back(s, h.from, clock_wall()) : 0;
    h.cursor = h.bytes ? h.cursor : NULL;
    return h;
}

/* Of any stream: they share the disk. */
static struct held most_held(struct app *app)
{
    struct held most = {0};
    for (size_t i = 0; i < streams_count(app->streams); i++) {
        struct held h = held_in(app, streams_at(app->streams, i));
        if (h.bytes > most.bytes)
            most = h;
    }
    return most;
}

static void answer_disk_full(struct app *app, struct http_request *req, struct stream *s)
{
    struct held h = most_held(app);
    char why[2 * NAME_LEN_MAX + 160] = "the disk is full";
    if (h.cursor)
        snprintf(why, sizeof(why),
            "the disk is full, and cursor %s of stream %s holds %" PRIu64
            " bytes of files that would go otherwise",
            h.cursor, stream_name(h.stream), h.bytes);
    note_room(s, false, why);
    if (req)
        http_problem(req, 503, "storage-full",
            h.cursor ? "make room on the disk, or move or delete the cursor; then try again"
                     : "make room on the disk and try again",
            "no space left: %s", why);
}

static void answer_refused(struct app *app, struct http_request *req, struct stream *s, enum journal_result r)
{
    stats_add(app->refused, 1);
    if (r == JOURNAL_NO_SPACE) {
        answer_disk_full(app, req, s);
        return;
    }
    if (r == JOURNAL_LATCHED)
        note_failure(app, s);
    if (!req)
        return;
    if ((size_t)r < sizeof(refusals) / sizeof(refusals[0]) && refusals[r].status)
        http_problem(req, refusals[r].status, refusals[r].code, refusals[r].hint, "%s", refusals[r].detail);
    else
        http_problem(req, 500, "internal", NULL, "%s", journal_strerror(r));
}

static void answer_published(const struct pub *pub, const struct stream_published *p)
{
    struct http_request *req = pub->req;
    struct stream *s = pub->stream;
    const char *id = journal_id(stream_journal(s));
    app_add_place(pub->app, req, s);
    if (pub->is_bitlys)
        http_replyf(req, 200, NULL, "Published %" PRIu64 " messages to %zu clients.\n", p->lines,
            stream_numbers(s).subscribers);
    else if (p->commit.duplicate)
        http_replyf(req, 200, "application/json",
            "{\"stream\":\"%s\",\"id\":\"%s\",\"start\":null,\"end\":null,\"lines\":0,\"duplicate\":true}\n",
            stream_name(s), id);
    else
        http_replyf(req, 200, "application/json",
            "{\"stream\":\"%s\",\"id\":\"%s\",\"start\":\"%" PRIu64 "\",\"end\":\"%" PRIu64
            "\",\"lines\":%" PRIu64 ",\"duplicate\":false}\n",
            stream_name(s), id, p->commit.start, p->commit.end, p->lines);
}

static void pub_done(const struct stream_published *p, void *arg)
{
    struct pub *pub = arg;
    struct app *app = pub->app;
    if (p->commit.result != JOURNAL_OK) {
        answer_refused(app, pub->req, pub->stream, p->commit.result);
    } else {
        if (p->lines)
            note_room(pub->stream, true, NULL);
        stats_add(app->lines, p->lines);
        stats_add(app->bytes, p->commit.end - p->commit.start);
        stats_add(app->duplicates, p->commit.duplicate);
        if (pub->req)
            answer_published(pub, p);
    }
    free(pub);
    app->in_flight--;
    app_check_drained(app);
}

static void pub_gone(struct http_request *req, void *arg)
{
    (void)req;
    ((struct pub *)arg)->req = NULL;
}

/* producer, mark and next: all three or none. False when that was answered. */
static bool read_marks(struct http_request *req, struct stream_marks *marks)
{
    char name[NAME_LEN_MAX + 1];
    struct bytes value;
    *marks = (struct stream_marks){0};
    int given = http_param(req, "producer", &marks->producer) + http_param(req, "mark", &value) +
                http_param(req, "next", &value);
    if (given == 0)
        return true;
    if (given != 3) {
        http_problem(req, 400, "bad-parameter", "producer=NAME&mark=A&next=B, all three or none",
            "producer, mark and next do not go together");
        return false;
    }
    if (!http_param_name(req, "producer", NULL, name) ||
        !http_param_u64(req, "mark", 0, 0, UINT64_MAX, &marks->mark) ||
        !http_param_u64(req, "next", 0, 0, UINT64_MAX, &marks->next))
        return false;
    if (marks->mark < marks->next)
        return true;
    http_problem(req, 400, "bad-parameter", NULL, "next must be greater than mark");
    return false;
}

/* Brings the body to lines. False when that was answered. */
static bool read_lines(struct app *app, struct http_request *req, bool may_be_empty, struct lines *lines)
{
    enum lines_result r = lines_from_body(http_body(req), app->max_line, lines);
    switch (r) {
    case LINES_OK:
        return true;
    case LINES_EMPTY_BODY:
        if (may_be_empty)
            return true;
        http_problem(req, 400, "empty-body", "send lines in the body of a POST", "%s", lines_strerror(r));
        break;
    case LINES_EMPTY_LINE:
        http_problem(
            req, 400, "empty-line", "nothing of the body was stored", "line %" PRIu64 " is empty", lines->n);
        break;
    case LINES_TOO_LARGE:
        http_problem(req, 413, "line-too-large", "nothing of the body was stored; see max_line",
            "line %" PRIu64 " is longer than %zu bytes", lines->n, app->max_line);
        break;
    }
    stats_add(app->refused, 1);
    lines_free(lines);
    return false;
}

/* A stream at its disk limit takes no lines; a retry of what is there is answered as ever. True when it was refused. */
static bool refuse_when_full(struct app *app, struct http_request *req, struct stream *s,
    const struct lines *lines, const struct stream_marks *marks)
{
    uint64_t hold = cursors_hold(app->cursors, s, NULL);
    bool is_retry =
        marks->producer.len && journal_mark(stream_journal(s), marks->producer, NULL) >= marks->next;
    if (!lines->n_pieces || is_retry || !stream_is_full(s, hold, clock_wall()))
        return false;
    struct held h = held_in(app, s);
    char why[2 * NAME_LEN_MAX + 128];
    if (h.cursor)
        snprintf(why, sizeof(why),
            "stream %s is at its disk_limit, and cursor %s holds what it has from %" PRIu64 " on",
            stream_name(s), h.cursor, h.from);
    else
        snprintf(why, sizeof(why), "stream %s is at its disk_limit", stream_name(s));
    stats_add(app->refused, 1);
    note_room(s, false, why);
    http_problem(req, 503, "storage-full",
        h.cursor ? "move or delete the cursor, or raise disk_limit"
                 : "set retain_bytes or retain_age, or raise disk_limit",
        "%s", why);
    return true;
}

static void publish(struct app *app, struct http_request *req, struct stream *s, const struct lines *lines,
    const struct stream_marks *marks)
{
    struct bytes name;
    if (refuse_when_full(app, req, s, lines, marks))
        return;
    struct pub *pub = mem_alloc(sizeof(*pub));
    *pub = (struct pub){.app = app, .req = req, .stream = s, .is_bitlys = !http_param(req, "stream", &name)};
    uint64_t mark = 0;
    enum journal_result r = stream_publish(s, lines, marks, clock_wall(), pub_done, pub, &mark);
    if (r == JOURNAL_OK) {
        app->in_flight++;
        http_on_gone(req, pub_gone, pub);
        return;
    }
    free(pub);
    if (r == JOURNAL_CONFLICT)
        answer_conflict(req, mark);
    else
        answer_refused(app, req, s, r);
}

/* What is wrong with the request is said before the stream it names is made. */
static void handle_pub(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct stream_marks marks;
    struct lines lines;
    if (app_is_not_up(app, req) || !read_marks(req, &marks) ||
        !read_lines(app, req, marks.producer.len > 0, &lines))
        return;
    struct stream *s = app_request_stream(app, req, APP_DEFAULT_STREAM, true);
    if (s)
        publish(app, req, s, &lines, &marks);
    lines_free(&lines);
}

static void handle_producer(struct http_request *req, void *ctx)
{
    char producer[NAME_LEN_MAX + 1];
    struct app *app = ctx;
    struct stream *s = app_request_stream(app, req, NULL, false);
    if (!s || !http_param_name(req, "producer", NULL, producer))
        return;
    app_add_place(app, req, s);
    bool known;
    uint64_t mark = journal_mark(stream_journal(s), bytes_str(producer), &known);
    http_replyf(req, 200, "application/json",
        "{\"stream\":\"%s\",\"id\":\"%s\",\"producer\":\"%s\",\"mark\":\"%" PRIu64 "\",\"known\":%s}\n",
        stream_name(s), journal_id(stream_journal(s)), producer, mark, known ? "true" : "false");
}

static void handle_streams(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    if (app_is_not_up(app, req))
        return;
    struct buf out = {0};
    buf_append_str(&out, "{\"streams\":[");
    for (size_t i = 0; i < streams_count(app->streams); i++) {
        struct stream *s = streams_at(app->streams, i);
        buf_printf(&out, "%s\n{\"name\":\"%s\",", i ? "," : "", stream_name(s));
        app_append_stream(&out, s);
        buf_append_char(&out, '}');
    }
    buf_append_str(&out, "]}\n");
    http_reply(req, 200, "application/json", buf_bytes(&out));
    buf_free(&out);
}

void app_retain(struct app *app)
{
    usec_t now = clock_wall();
    for (size_t i = 0; i < streams_count(app->streams); i++) {
        struct stream *s = streams_at(app->streams, i);
        stream_retain(s, cursors_hold(app->cursors, s, NULL), now);
        stream_tidy(s, clock_monotonic());
    }
}

void app_check_drained(struct app *app)
{
    if (!app->draining || app->drained || app->in_flight || app->subscribers)
        return;
    app->drained = true;
    daemon_drained(app->daemon);
}

const struct http_route app_routes[] = {
    {.path = "/pub",
        .methods = HTTP_POST_,
        .flags = HTTP_ROUTE_IDENTITY_BODY,
        .handler = handle_pub,
        .params = "stream producer mark next",
        .help = "POST lines to stream= (default); producer=, mark=, next="},
    {.path = "/sub",
        .methods = HTTP_GET_,
        .on_overload = retry_events_if_wanted,
        .handler = app_sub,
        .params = "stream from id follow multipart",
        .help = "the bytes of stream= from=earliest|latest|OFFSET|@UNIXTIME; id=, follow=0, multipart=; "
                "Accept: text/event-stream"},
    {.path = "/cursors",
        .methods = HTTP_GET_ | HTTP_POST_ | HTTP_DELETE_,
        .handler = app_cursors,
        .params = "stream name from id backwards",
        .help = "named cursors; POST stream=, name=, from= makes or moves one (backwards=1), DELETE"},
    {.path = "/clients",
        .methods = HTTP_GET_,
        .handler = app_clients,
        .params = "format",
        .help = "who reads; ?format=json"},
    {.path = "/producer",
        .methods = HTTP_GET_,
        .handler = handle_producer,
        .params = "stream producer",
        .help = "the mark of producer= in stream="},
    {.path = "/streams",
        .methods = HTTP_GET_,
        .handler = handle_streams,
        .params = "",
        .help = "every stream, as JSON"},
    {.path = NULL},
};
