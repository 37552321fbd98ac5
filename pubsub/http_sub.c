#include "app.h"
#include "log.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* /sub: a subscriber whose sink is an HTTP response.
 *
 * While the response lives, subscriber and request go together: whichever ends first takes the other along. In a
 * drain the subscriber goes first; the response ends (with a chunked terminator) as soon as the client has taken what
 * was sent to it, and is broken off after DRAIN_PATIENCE otherwise: that client resumes from its own count. */
#define DRAIN_PATIENCE_SECONDS 2

struct http_subscriber {
    struct app *app;
    struct http_subscriber *previous, *next;
    struct http_request *req;
    struct subscriber *subscriber; /* NULL while draining */
    struct stream *stream;
};

static struct http_subscriber *link_subscriber(struct app *app, struct http_request *req, struct stream *s)
{
    struct http_subscriber *h = mem_zalloc(sizeof(*h));
    *h = (struct http_subscriber){.app = app, .req = req, .stream = s, .next = app->subscribers};
    if (h->next)
        h->next->previous = h;
    app->subscribers = h;
    return h;
}

static void forget(struct http_subscriber *h)
{
    struct app *app = h->app;
    if (h->next)
        h->next->previous = h->previous;
    if (h->previous)
        h->previous->next = h->next;
    else
        app->subscribers = h->next;
    subscriber_free(&h->subscriber);
    free(h);
    app_check_drained(app);
}

static void client_gone(struct http_request *req, void *arg)
{
    (void)req;
    forget(arg);
}

/* ---- the sink ---- */

static size_t sink_pending(void *arg)
{
    return http_stream_pending(((struct http_subscriber *)arg)->req);
}

static void answer_gone(struct http_request *req, const struct journal_edges *edges)
{
    char members[128];
    snprintf(members, sizeof(members), "\"before\":\"%" PRIu64 "\",\"after\":\"%" PRIu64 "\"", edges->before,
        edges->after);
    http_problem_with(req, 410, "cursor-gone", members,
        "the bytes behind this cursor are gone; the stream goes on at %" PRIu64, edges->after);
}

static void answer_beyond(struct http_request *req, struct stream *s)
{
    char members[64];
    uint64_t end = journal_committed_end(stream_journal(s));
    snprintf(members, sizeof(members), "\"end\":\"%" PRIu64 "\"", end);
    http_problem_with(req, 416, "cursor-beyond-end", members, "the stream ends at %" PRIu64, end);
}

static void sink_refuse(void *arg, enum subscriber_refusal why, const struct journal_edges *edges)
{
    struct http_subscriber *h = arg;
    struct http_request *req = h->req;
    switch (why) {
    case SUBSCRIBER_BEYOND:
        answer_beyond(req, h->stream);
        break;
    case SUBSCRIBER_INSIDE:
        http_problem(req, 416, "cursor-inside-line", "a cursor stands right behind an LF",
            "this offset is inside a line");
        break;
    case SUBSCRIBER_GONE:
        answer_gone(req, edges);
        break;
    case SUBSCRIBER_UNREADABLE: {
        const char *why_not = journal_failure(stream_journal(h->stream));
        http_problem(req, 503, "storage-failed", NULL, "cannot read the stream there: %s",
            why_not ? why_not : "try again");
        break;
    }
    }
    forget(h);
}

static void sink_start(void *arg, uint64_t offset, uint64_t end)
{
    struct http_subscriber *h = arg;
    http_add_header(h->req, "X-Millrace-Stream-Id", "%s", journal_id(stream_journal(h->stream)));
    http_add_header(h->req, "X-Millrace-Offset", "%" PRIu64, offset);
    http_add_header(h->req, "X-Millrace-End", "%" PRIu64, end);
    http_add_header(h->req, "Cache-Control", "no-store");
    http_stream_start(h->req, 200, "application/octet-stream", -1);
    http_stream_be_patient(h->req);
    stats_add(h->app->sent_streams, 1);
}

static void sink_write(void *arg, struct bytes piece)
{
    struct http_subscriber *h = arg;
    http_stream_write(h->req, piece);
    stats_add(h->app->sent_bytes, piece.len);
}

static void sink_end(void *arg, enum subscriber_end why)
{
    struct http_subscriber *h = arg;
    if (why == SUBSCRIBER_DAMAGED) {
        const char *failure = journal_failure(stream_journal(h->stream));
        log_error("a stream cannot be read on", LOG_S("stream", stream_name(h->stream)),
            LOG_U("offset", subscriber_offset(h->subscriber)), LOG_S("error", failure ? failure : "unknown"));
        http_stream_abort(h->req);
    } else {
        http_stream_end(h->req);
    }
    forget(h);
}

static void response_drained(struct http_request *req, void *arg)
{
    (void)req;
    subscriber_drained(((struct http_subscriber *)arg)->subscriber);
}

/* ---- the request ---- */

/* id= names the stream the cursor is of. False when it is another, which is answered. */
static bool right_stream(struct http_request *req, struct stream *s)
{
    struct bytes asked;
    const char *id = journal_id(stream_journal(s));
    if (!http_param(req, "id", &asked) || bytes_equal_str(asked, id))
        return true;
    char members[JOURNAL_ID_TEXT + 16];
    snprintf(members, sizeof(members), "\"id\":\"%s\"", id);
    http_problem_with(req, 409, "wrong-stream", members, "the stream of that name has another id");
    return false;
}

static bool read_from(struct http_request *req, struct stream_from *from)
{
    struct bytes text = BYTES_LITERAL("latest");
    (void)http_param(req, "from", &text);
    if (stream_from_parse(text, from))
        return true;
    http_problem(req, 400, "bad-parameter", "earliest, latest, an offset, or @UNIXTIME in whole seconds",
        "from is none of what it may be");
    return false;
}

void app_sub(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct subscriber_config config = {.start_only = http_is_head(req)};
    config.stream = app_request_stream(app, req, false);
    if (!config.stream || !http_param_bool(req, "follow", true, &config.follow) ||
        !read_from(req, &config.from) || !right_stream(req, config.stream))
        return;
    struct http_subscriber *h = link_subscriber(app, req, config.stream);
    config.sink = (struct subscriber_sink){
        .arg = h,
        .pending = sink_pending,
        .refuse = sink_refuse,
        .start = sink_start,
        .write = sink_write,
        .end = sink_end,
    };
    h->subscriber = subscriber_new(&config);
    http_on_gone(req, client_gone, h);
    http_on_drain(req, SUBSCRIBER_LOW, response_drained, h);
    subscriber_begin(h->subscriber);
}

/* ---- stopping ---- */

static void last_bytes_taken(struct http_request *req, void *arg)
{
    http_stream_end(req);
    forget(arg);
}

static void break_off(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct app *app = arg;
    while (app->subscribers) {
        struct http_subscriber *h = app->subscribers;
        http_stream_abort(h->req);
        forget(h);
    }
}

static void end_response(struct http_subscriber *h, bool started)
{
    subscriber_free(&h->subscriber);
    if (!started) {
        http_problem(h->req, 503, "not-ready", NULL, "stopping");
        forget(h);
    } else if (http_stream_pending(h->req) == 0) {
        last_bytes_taken(h->req, h);
    } else {
        http_on_drain(h->req, 0, last_bytes_taken, h);
    }
}

void app_end_subscribers(struct app *app)
{
    struct http_subscriber *next;
    for (struct http_subscriber *h = app->subscribers; h; h = next) {
        next = h->next;
        end_response(h, subscriber_started(h->subscriber));
    }
    if (!app->subscribers)
        return;
    struct timeval patience = {DRAIN_PATIENCE_SECONDS, 0};
    app->drain_limit = evtimer_new(daemon_base(app->daemon), break_off, app);
    evtimer_add(app->drain_limit, &patience);
}
