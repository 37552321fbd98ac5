#include "pubsub/server/http_endpoints.h"
#include "pubsub/server/http_subscriber.h"

#include "pubsub/stream/block_cache.h"
#include "base/log.h"

#include <assert.h>
#include <event2/buffer.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* /sub: a subscriber whose sink is an HTTP response. */

#define SHARE_MIN                                                                                            \
    ((size_t)16 * 1024 + 1) /* smaller pieces are copied, so that they leave together with their neighbours */
#define FORMED_WINDOW ((size_t)16 * 1024) /* short lines grow thirtyfold in events or parts */

static void report_gap(struct http_subscriber *h);

static struct http_subscriber *link_subscriber(
    struct pubsub_server *server, struct http_request *req, struct stream *s)
{
    struct http_subscriber *h = mem_zalloc(sizeof(*h));
    *h = (struct http_subscriber){.server = server, .req = req, .stream = s, .next = server->subscribers};
    h->framing.id = journal_id(stream_journal(s));
    h->connected = clock_wall();
    h->wrote = clock_monotonic();
    if (h->next)
        h->next->previous = h;
    server->subscribers = h;
    server->n_subscribers++;
    return h;
}

void http_subscriber_forget(struct http_subscriber *h)
{
    struct pubsub_server *server = h->server;
    if (h->next)
        h->next->previous = h->previous;
    if (h->previous)
        h->previous->next = h->next;
    else
        server->subscribers = h->next;
    server->n_subscribers--;
    subscriber_free(&h->subscriber);
    http_framing_free(h);
    framing_free(&h->framing);
    free(h);
    server_check_drained(server);
}

static void client_gone(struct http_request *req, void *arg)
{
    (void)req;
    http_subscriber_forget(arg);
}

/* A client of follow=0 would take a normal end for the end of the stream. */
static void last_bytes_taken(struct http_request *req, void *arg)
{
    const struct http_subscriber *h = arg;
    if (!h->follow && h->sent < h->end && !http_is_head(req))
        http_stream_truncate(req);
    else
        http_stream_end(req);
    http_subscriber_forget(arg);
}

static void end_when_taken(struct http_subscriber *h)
{
    if (http_stream_pending(h->req) == 0)
        last_bytes_taken(h->req, h);
    else
        http_on_drain(h->req, 0, last_bytes_taken, h);
}

void http_subscriber_end(struct http_subscriber *h)
{
    subscriber_free(&h->subscriber);
    h->gap_waits = false;
    h->ending = true;
    if (http_framing_go_on(h))
        end_when_taken(h);
}

static void write_formed(struct http_subscriber *h, struct buf *text)
{
    http_stream_write(h->req, buf_bytes(text));
    h->wrote = clock_monotonic();
    buf_free(text);
}

/* An event stream begins with the id of `cursor`: a client that is cut off before the gap up to `offset` is reported asks from
 * there again. */
static void begin_response(struct http_subscriber *h, uint64_t cursor, uint64_t offset, uint64_t end)
{
    static const char *const types[] = {
        [SUB_RAW] = "application/octet-stream",
        [SUB_LINES] = "application/octet-stream",
        [SUB_EVENTS] = "text/event-stream",
        [SUB_PARTS] = FRAMING_MULTIPART_TYPE,
    };
    struct buf text = {0};
    http_add_header(h->req, "X-Millrace-Stream-Id", "%s", h->framing.id);
    server_add_place(h->server, h->req, h->stream);
    server_add_openings(h->req, h->stream, offset);
    http_add_header(h->req, "X-Millrace-Offset", "%" PRIu64, offset);
    http_add_header(h->req, "X-Millrace-End", "%" PRIu64, end);
    http_add_header(h->req, "Cache-Control", "no-store");
    if (h->form == SUB_EVENTS)
        http_add_header(h->req, "Access-Control-Allow-Origin", "*");
    http_stream_start(h->req, 200, types[h->form], -1);
    http_stream_disable_timeout(h->req);
    stats_add(h->server->sent_streams, 1);
    h->begun = true;
    h->end = end;
    h->sent = offset;
    h->framing.offset = cursor;
    if (h->form != SUB_RAW)
        framing_begin(&h->framing, &text);
    write_formed(h, &text);
}

/* Full until the rest of the last piece is formed. */
static size_t sink_pending(void *arg)
{
    const struct http_subscriber *h = arg;
    return h->rest.len ? SIZE_MAX : http_stream_pending(h->req);
}

/* The next bytes are gone: once its client has taken what was sent, an event stream reports the gap and continues after
 * it. */
static void wait_to_report_gap(struct http_subscriber *h, uint64_t after)
{
    subscriber_free(&h->subscriber);
    h->gap.after = after;
    h->gap_waits = true;
    if (!h->rest.len && http_stream_pending(h->req) <= SUBSCRIBER_LOW)
        report_gap(h);
}

static void sink_refuse(void *arg, enum subscriber_refusal why, const struct journal_edges *edges)
{
    struct http_subscriber *h = arg;
    if (why == SUBSCRIBER_GONE && h->form == SUB_EVENTS && !http_is_head(h->req)) {
        stats_add(h->server->cursors_gone, 1);
        if (!h->begun)
            begin_response(h, edges->before, edges->after, journal_committed_end(stream_journal(h->stream)));
        wait_to_report_gap(h, edges->after);
        return;
    }
    if (h->begun)
        http_stream_abort(h->req);
    else
        server_refuse_cursor(h->server, h->req, h->stream, why, edges);
    http_subscriber_forget(h);
}

static void sink_start(void *arg, uint64_t offset, uint64_t end)
{
    struct http_subscriber *h = arg;
    if (!h->begun)
        begin_response(h, offset, offset, end);
}

static void sent(const void *data, size_t len, void *window)
{
    (void)data;
    (void)len;
    window_release(window);
}

/* Large pieces are sent from the window without a copy; in parts, so that most of them can be rewound. */
static void write_raw(struct http_subscriber *h, struct bytes piece, struct window *window)
{
    if (piece.len < SHARE_MIN) {
        http_stream_write(h->req, piece);
        return;
    }
    struct evbuffer *shared = evbuffer_new();
    for (size_t done = 0, len; done < piece.len; done += len) {
        len = piece.len - done < WINDOW_BYTES + SHARE_MIN ? piece.len - done : WINDOW_BYTES;
        evbuffer_add_reference(shared, piece.ptr + done, len, sent, window_hold(window));
        http_stream_write_evbuffer(h->req, shared);
    }
    evbuffer_free(shared);
    h->lends |= window_is_large(window) || http_stream_pending(h->req) > SUBSCRIBER_LOW + WINDOW_BLOCK;
}

static void count_sent(struct http_subscriber *h, struct bytes piece, struct window *window)
{
    if (h->sent >= h->counted) {
        stats_add(h->server->sent_lines, window_lines(window, piece));
    } else {
        size_t known = h->counted - h->sent < piece.len ? (size_t)(h->counted - h->sent) : piece.len;
        piece = bytes_of(piece.ptr + known, piece.len - known);
        stats_add(h->server->sent_lines, bytes_count_lines(piece));
    }
    stats_add(h->server->sent_bytes, piece.len);
}

static void sink_write(void *arg, struct bytes piece, struct window *window)
{
    struct http_subscriber *h = arg;
    count_sent(h, piece, window);
    h->sent += piece.len;
    if (h->form == SUB_RAW)
        write_raw(h, piece, window);
    else
        http_framing_take(h, piece, window);
}

void http_sub_rewind_slow(struct pubsub_server *server)
{
    struct http_subscriber *next;
    for (struct http_subscriber *h = server->subscribers; h; h = next) {
        uint64_t taken = http_stream_taken(h->req), before = h->taken;
        next = h->next;
        h->taken = taken;
        if (!h->lends || taken - before >= SUBSCRIBER_BURST)
            continue;
        h->lends = false;
        if (!h->subscriber) {
            http_stream_copy_pending(h->req);
            continue;
        }
        if (h->counted < h->sent)
            h->counted = h->sent;
        h->sent -= http_stream_rewind(h->req);
        subscriber_go_back(h->subscriber, h->sent);
    }
}

static void file_sent(void *file)
{
    journal_file_release(file);
}

static void sink_write_spans(void *arg, struct journal_file *file, const struct journal_span *spans, size_t n)
{
    struct http_subscriber *h = arg;
    struct http_span places[BLOCK_PIECE_SPANS_MAX];
    assert(n <= BLOCK_PIECE_SPANS_MAX);
    for (size_t i = 0; i < n; i++) {
        places[i] = (struct http_span){spans[i].position, spans[i].len};
        h->sent += spans[i].len;
        stats_add(h->server->sent_bytes, spans[i].len);
        stats_add(h->server->sent_lines, spans[i].count);
    }
    struct http_file from = {journal_file_fd(file), file_sent, journal_file_hold(file)};
    http_stream_write_file(h->req, &from, places, n);
}

/* The client gets the same edges. */
static void report_passed(struct http_subscriber *h, const char *what, const struct journal_edges *edges)
{
    log_warn(what, LOG_S("stream", stream_name(h->stream)), LOG_S("client", http_peer(h->req)),
        LOG_U("before", edges->before), LOG_U("after", edges->after));
    h->reported = edges->after;
}

/* Drops the beginning of a line that is not sent yet. False: some of it was sent. */
static bool cut_to_line(struct http_subscriber *h, struct journal_edges *edges)
{
    size_t rest = h->rest.len;
    if (!http_framing_cut_back(h))
        return false;
    edges->before = h->rest.len ? h->sent - (rest - h->rest.len) : h->framing.offset;
    return true;
}

/* Of parts and lines: the end of the last whole one. */
static uint64_t end_of_whole_lines(const struct http_subscriber *h)
{
    const char *lf = h->rest.len ? memrchr(h->rest.ptr, '\n', h->rest.len) : NULL;
    if (lf)
        return h->sent - (uint64_t)(h->rest.ptr + h->rest.len - (lf + 1));
    return h->sent - h->rest.len - h->framing.cut.len;
}

/* The client drops an event without an end, comes back, and gets the gap then. */
static void sink_end(void *arg, enum subscriber_end why, const struct journal_edges *edges)
{
    struct http_subscriber *h = arg;
    struct journal_edges missed = edges ? *edges : (struct journal_edges){0};
    if (edges && (h->form == SUB_PARTS || h->form == SUB_LINES))
        missed.before = end_of_whole_lines(h);
    bool goes_on = edges && h->form == SUB_EVENTS && cut_to_line(h, &missed);
    if (why == SUBSCRIBER_PASSED) {
        stats_add(h->server->passed, 1);
        report_passed(h, "retention passed a subscriber", &missed);
    }
    if (why == SUBSCRIBER_DAMAGED) {
        const char *failure = journal_failure(stream_journal(h->stream));
        log_error("cannot read a stream further", LOG_S("stream", stream_name(h->stream)),
            LOG_U("offset", h->sent), LOG_S("error", failure ? failure : "unknown"));
        http_stream_abort(h->req);
        http_subscriber_forget(h);
    } else if (goes_on) {
        wait_to_report_gap(h, missed.after);
    } else {
        http_subscriber_end(h);
    }
}

static void subscribe(struct http_subscriber *h, const struct stream_from *from)
{
    struct subscriber_config config = {
        .stream = h->stream,
        .from = *from,
        .follow = h->follow,
        .piece_max = h->form == SUB_RAW ? 0 : FORMED_WINDOW,
        .start_only = http_is_head(h->req),
        .sink = {h, sink_pending, sink_refuse, sink_start, sink_write, sink_end,
            h->form == SUB_RAW ? sink_write_spans : NULL},
    };
    h->subscriber = subscriber_new(&config);
    subscriber_begin(h->subscriber);
}

/* Retention may have gone on since: the gap ends where the stream begins now. */
static void report_gap(struct http_subscriber *h)
{
    struct buf text = {0};
    uint64_t earliest = journal_earliest(stream_journal(h->stream));
    if (h->gap.after < earliest)
        h->gap.after = earliest;
    h->gap.before = h->framing.offset; /* behind the last line that was sent */
    h->gap_waits = false;
    if (h->reported && h->reported < h->gap.after)
        report_passed(h, "retention went on before a passed subscriber took the bytes sent", &h->gap);
    h->reported = 0;
    framing_add_gap(&h->framing, &h->gap, &text);
    write_formed(h, &text);
    h->sent = h->gap.after;
    subscribe(h, &(struct stream_from){.kind = STREAM_FROM_OFFSET, .offset = h->gap.after});
}

static void response_drained(struct http_request *req, void *arg)
{
    struct http_subscriber *h = arg;
    (void)req;
    if (!http_framing_go_on(h))
        return;
    if (h->ending)
        end_when_taken(h);
    else if (h->gap_waits)
        report_gap(h);
    else if (h->subscriber)
        subscriber_drained(h->subscriber);
}

/* A request without stream= is bitly's: in parts unless multipart=0. */
static bool read_form(struct http_request *req, struct http_subscriber *h)
{
    static const enum framing_form forms[] = {
        [SUB_EVENTS] = FRAMING_EVENTS, [SUB_PARTS] = FRAMING_PARTS, [SUB_LINES] = FRAMING_LINES};
    struct bytes stream;
    bool events = server_wants_events(req), is_bitlys = !events && !http_param(req, "stream", &stream), parts;
    if (!http_param_bool(req, "multipart", is_bitlys, &parts))
        return false;
    h->form = parts ? SUB_PARTS : events ? SUB_EVENTS : is_bitlys ? SUB_LINES : SUB_RAW;
    h->framing.form = forms[h->form];
    return true;
}

/* A reconnecting browser repeats its first request; Last-Event-ID has its cursor. */
static bool read_cursor(struct http_request *req, const struct http_subscriber *h, struct stream_from *from)
{
    struct bytes last = h->form == SUB_EVENTS ? http_header(req, "Last-Event-ID") : BYTES_NONE;
    struct bytes id = BYTES_NONE;
    (void)http_param(req, "id", &id);
    if (!last.len)
        return server_read_from(req, "latest", from) && server_check_stream_id(req, h->stream, id, from);
    if (!server_check_stream_id(req, h->stream, id, NULL))
        return false;
    *from = (struct stream_from){.kind = STREAM_FROM_OFFSET};
    if (framing_parse_id(last, &from->offset, &id))
        return server_check_stream_id(req, h->stream, id, from);
    http_problem(req, 400, "bad-parameter", "send the id of the last event: OFFSET:STREAM_ID",
        "invalid Last-Event-ID");
    return false;
}

/* As server_refuse_if_down, but an EventSource is told to come back. */
static bool refuse_if_down(struct pubsub_server *server, struct http_request *req)
{
    bool parts;
    if (server_is_up(server))
        return false;
    if (!server_wants_events(req))
        return server_refuse_if_down(server, req);
    if (!http_param_bool(req, "multipart", false, &parts))
        return true;
    if (parts)
        return server_refuse_if_down(server, req);
    server_retry_events(req);
    return true;
}

void http_sub(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    struct bytes name;
    struct stream_from from;
    if (refuse_if_down(server, req))
        return;
    bool is_bitlys = !http_param(req, "stream", &name);
    struct stream *s = server_find_stream(server, req, DEFAULT_STREAM, is_bitlys);
    if (!s)
        return;
    struct http_subscriber *h = link_subscriber(server, req, s);
    if (!read_form(req, h) || !http_param_bool(req, "follow", true, &h->follow) ||
        !read_cursor(req, h, &from)) {
        http_subscriber_forget(h);
        return;
    }
    http_on_gone(req, client_gone, h);
    http_on_drain(req, SUBSCRIBER_LOW, response_drained, h);
    if (h->follow) /* its leaving is noticed also while its first read waits, perhaps for the descriptor that it holds */
        http_set_long_poll(req);
    subscribe(h, &from);
}
