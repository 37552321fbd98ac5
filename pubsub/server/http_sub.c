#include "pubsub/server/pubsub_server.h"

#include "base/log.h"
#include "daemon/loop_timer.h"
#include "pubsub/stream/block_cache.h"
#include "pubsub/stream/framing.h"
#include "stream/watermark.h"

#include <assert.h>
#include <event2/buffer.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <uthash.h>

/* /sub and /clients. Each request for /sub has a subscriber, which writes to the HTTP response (its sink).
 *
 * 1. An http_subscriber lives as long as its request.
 * 2. Before a response ends or an event stream reports a gap, the response waits until the client has received all
 *    sent bytes. During the wait `subscriber` is NULL. Therefore a client that stops reading gets only one gap event,
 *    even if retention deletes more lines meanwhile.
 * 3. Events, parts and lines (framing.h) are formatted only as long as at most SUBSCRIBER_LOW bytes are pending. The
 *    rest of a piece stays in its window. The end of the response or a gap event follows after the rest.
 * 4. The pending bytes of a fast client may pin large windows in memory. If a client receives less than
 *    SUBSCRIBER_BURST between two ticks, its response is rewound. A rewound response pins at most SUBSCRIBER_LOW
 *    bytes and a small window.
 * 5. With statements=1, a raw response has statements (stream/watermark.h) between its lines: one at the start, and
 *    one at each tick. The pieces of a response with statements are small and copied, so no rewind is needed.
 * 6. A response with follow=0 ends normally only at its X-Millrace-End, or where the opening of its bytes ends. If a
 *    hole, retention or a stop ends the response earlier, the response is truncated: the last chunk is missing.
 * 7. A raw response to a request with id= contains bytes of one opening (run of pubsub, journal/opening.h). */

/* Smaller pieces are copied, so that one write sends several pieces */
#define SHARE_MIN ((size_t)16 * 1024 + 1)
/* Short lines are up to thirty times as long when formatted as events or parts */
#define FORMED_WINDOW ((size_t)16 * 1024)
#define DRAIN_SECONDS_MAX 2 /* time after which a drain aborts the remaining responses */
/* A client that has shut down its sending side still gets its response. If descriptors run short, the first read of the
 * stream waits until a descriptor is closed, possibly that of this connection. Therefore a client that has shut down
 * counts as disconnected if descriptors run short and the first read takes longer than FIRST_READ_TIME_MAX. */
#define FIRST_READ_TIME_MAX USEC_PER_SEC

enum sub_form {
    SUB_RAW,    /* the stream's own bytes */
    SUB_LINES,  /* the stream's own bytes, in chunks of whole lines for bitly's clients */
    SUB_EVENTS, /* Server-Sent Events */
    SUB_PARTS,  /* bitly's multipart */
};
static const struct {
    const char *name, *type;
    enum framing_form framing; /* not for SUB_RAW */
} forms[] = {
    [SUB_RAW] = {"raw", "application/octet-stream", 0},
    [SUB_LINES] = {"lines", "application/octet-stream", FRAMING_LINES},
    [SUB_EVENTS] = {"events", "text/event-stream", FRAMING_EVENTS},
    [SUB_PARTS] = {"multipart", FRAMING_MULTIPART_TYPE, FRAMING_PARTS},
};

struct http_subscriber {
    struct pubsub_server *server;
    LIST_ENTRY(http_subscriber) link;
    struct http_request *req;
    struct stream *stream;
    struct subscriber *subscriber;
    enum sub_form form;
    struct framing framing; /* not for SUB_RAW */
    struct bytes rest;      /* the part of the last piece that is not formatted yet */
    struct window *window;  /* holds `rest` */
    bool begun;             /* the response has begun */
    bool states;            /* the response has statements */
    bool owes_statement;    /* a statement must be written as soon as a line has ended */
    bool in_line;           /* raw: the last byte sent is inside a line */
    bool follow;
    bool one_opening;
    bool ending;    /* the response ends when the client has received all sent bytes */
    bool gap_waits; /* events: `gap` is reported when the client has received all sent bytes */
    struct journal_edges gap;
    uint64_t reported; /* end of the gap that was logged; 0: no gap was logged */
    uint64_t end;      /* with follow=0: offset at which the response ends normally */
    uint64_t sent;     /* offset of the stream's next byte to send */
    uint64_t counted;  /* bytes before this offset are already in the statistics (after a rewind) */
    uint64_t taken;    /* value of http_stream_taken at the last tick */
    bool lends;        /* pending bytes may pin large windows, or many small windows */
    usec_t connected;  /* time of the request, by the wall clock */
    usec_t wrote;      /* time of the last write, by the monotonic clock */
};

static void report_gap(struct http_subscriber *h);

static void drop_rest(struct http_subscriber *h)
{
    if (h->window)
        window_release(h->window);
    h->window = NULL;
    h->rest = BYTES_NONE;
}

/* Frees the http_subscriber of a request that is answered or whose client has disconnected. */
static void forget(struct http_subscriber *h)
{
    struct pubsub_server *server = h->server;
    LIST_REMOVE(h, link);
    server->n_subscribers--;
    subscriber_free(&h->subscriber);
    drop_rest(h);
    framing_free(&h->framing);
    free(h);
    server_check_drained(server);
}

static void client_gone(struct http_request *req, void *arg)
{
    (void)req;
    forget(arg);
}

/* Formats the rest of the piece as long as the response has room. Returns true if no rest is left. */
static bool form_rest(struct http_subscriber *h)
{
    struct buf text = {0};
    while (h->rest.len && http_stream_pending(h->req) <= SUBSCRIBER_LOW) {
        framing_take(&h->framing, &h->rest, &text);
        http_stream_write(h->req, buf_bytes(&text));
        buf_clear(&text);
        h->wrote = clock_monotonic();
    }
    buf_free(&text);
    if (h->rest.len)
        return false;
    drop_rest(h);
    return true;
}

/* Truncates a response with follow=0 that ends early, because a client takes a normal end for the end of the stream. */
static void last_bytes_taken(struct http_request *req, void *arg)
{
    const struct http_subscriber *h = arg;
    if (!h->follow && h->sent < h->end && !http_is_head(req))
        http_stream_truncate(req);
    else
        http_stream_end(req);
    forget(arg);
}

static void end_when_taken(struct http_subscriber *h)
{
    if (http_stream_pending(h->req) == 0)
        last_bytes_taken(h->req, h);
    else
        http_on_drain(h->req, 0, last_bytes_taken, h);
}

static void end_response(struct http_subscriber *h)
{
    subscriber_free(&h->subscriber);
    h->gap_waits = false;
    h->ending = true;
    if (form_rest(h))
        end_when_taken(h);
}

static void write_formed(struct http_subscriber *h, struct buf *text)
{
    http_stream_write(h->req, buf_bytes(text));
    h->wrote = clock_monotonic();
    buf_free(text);
}

/* The text of a stream's statement, after an empty line. A statement stays true, so all responses use it until the
 * next tick. */
struct stated {
    const struct stream *stream;
    struct buf text;
    UT_hash_handle hh;
};

static struct bytes statement_of(struct pubsub_server *server, struct stream *s)
{
    struct stated *found;
    HASH_FIND_PTR(server->stated, &s, found);
    if (found)
        return buf_bytes(&found->text);
    struct stream_statement statement = {
        .now = daemon_trusted_time(server->daemon), .end = journal_committed_end(stream_journal(s))};
    const struct until *held_by;
    statement.until = untils_least(server->untils, s, statement.now, &held_by);
    statement.is_restored = held_by && held_by->is_restored;
    snprintf(statement.producer, sizeof statement.producer, "%s",
        !held_by           ? ""
        : held_by->name[0] ? held_by->name
                           : held_by->producer);
    found = mem_zalloc(sizeof *found);
    found->stream = s;
    buf_append_char(&found->text, '\n');
    stream_statement_append(&statement, &found->text);
    buf_append_char(&found->text, '\n');
    HASH_ADD_PTR(server->stated, stream, found);
    return buf_bytes(&found->text);
}

void http_sub_forget_statements(struct pubsub_server *server)
{
    struct stated *s, *next;
    HASH_ITER(hh, server->stated, s, next)
    {
        HASH_DEL(server->stated, s);
        buf_free(&s->text);
        free(s);
    }
}

static void write_statement(struct http_subscriber *h)
{
    http_stream_write(h->req, statement_of(h->server, h->stream));
    h->owes_statement = false;
}

/* If the client is slow, or the response is inside a line, the statement waits for the next piece. */
static void state(struct http_subscriber *h)
{
    if (h->in_line || http_stream_pending(h->req) > SUBSCRIBER_LOW)
        h->owes_statement = true;
    else
        write_statement(h);
}

/* The first id of an event stream is `cursor`, so that a client that disconnects before the gap event resumes at the
 * gap. */
static void begin_response(struct http_subscriber *h, uint64_t cursor, uint64_t offset, uint64_t end)
{
    struct buf text = {0};
    http_add_header(h->req, "X-Millrace-Stream-Id", "%s", h->framing.id);
    server_add_place(h->server, h->req, h->stream);
    server_add_openings(h->req, h->stream, offset);
    http_add_header(h->req, "X-Millrace-Offset", "%" PRIu64, offset);
    http_add_header(h->req, "X-Millrace-End", "%" PRIu64, end);
    if (h->form == SUB_EVENTS)
        http_add_header(h->req, "Access-Control-Allow-Origin", "*");
    http_stream_start_endless(h->req, forms[h->form].type);
    http_stream_disable_timeout(h->req);
    stats_add(h->server->sent_streams, 1);
    h->begun = true;
    h->end = end;
    h->sent = offset;
    framing_set_offset(&h->framing, cursor);
    if (h->form != SUB_RAW)
        framing_begin(&h->framing, &text);
    write_formed(h, &text);
}

/* While a rest of the last piece is not formatted, the sink counts as full. */
static size_t sink_pending(void *arg)
{
    const struct http_subscriber *h = arg;
    return h->rest.len ? SIZE_MAX : http_stream_pending(h->req);
}

/* Once the client has received all sent bytes, reports the gap and continues after the gap. */
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
    forget(h);
}

static void sink_start(void *arg, uint64_t offset, uint64_t end)
{
    struct http_subscriber *h = arg;
    if (!h->begun)
        begin_response(h, offset, offset, end);
    if (h->states)
        state(h);
}

static void shared_bytes_sent(const void *data, size_t len, void *window)
{
    (void)data;
    (void)len;
    window_release(window);
}

static void write_raw(struct http_subscriber *h, struct bytes piece, struct window *window)
{
    if (!piece.len)
        return;
    if (piece.len < SHARE_MIN) {
        http_stream_write(h->req, piece);
    } else {
        /* Large pieces are sent from the window without a copy, and split into parts because a rewind can only remove
         * whole parts. */
        struct evbuffer *shared = evbuffer_new();
        for (size_t done = 0, len; done < piece.len; done += len) {
            len = piece.len - done < WINDOW_BYTES + SHARE_MIN ? piece.len - done : WINDOW_BYTES;
            evbuffer_add_reference(shared, piece.ptr + done, len, shared_bytes_sent, window_hold(window));
            http_stream_write_evbuffer(h->req, shared);
        }
        evbuffer_free(shared);
        h->lends |= window_is_large(window);
    }
    h->lends |= http_stream_pending(h->req) > SUBSCRIBER_LOW + WINDOW_BLOCK;
    h->in_line = piece.ptr[piece.len - 1] != '\n';
}

static void sink_write(void *arg, struct bytes piece, struct window *window)
{
    struct http_subscriber *h = arg;
    if (h->sent >= h->counted) {
        stats_add(h->server->sent_bytes, piece.len);
        stats_add(h->server->sent_lines, window_lines(window, piece));
    } else if (h->counted - h->sent < piece.len) {
        size_t known = (size_t)(h->counted - h->sent);
        stats_add(h->server->sent_bytes, piece.len - known);
        stats_add(h->server->sent_lines, bytes_count_lines(bytes_of(piece.ptr + known, piece.len - known)));
    }
    h->sent += piece.len;
    if (h->form != SUB_RAW) {
        assert(!h->rest.len);
        h->rest = piece;
        h->window = window_hold(window);
        form_rest(h);
        return;
    }
    const char *lf = h->owes_statement && h->in_line ? memchr(piece.ptr, '\n', piece.len) : NULL;
    size_t before = lf ? (size_t)(lf - piece.ptr) + 1 : 0;
    if (before)
        write_raw(h, bytes_of(piece.ptr, before), window);
    if (h->owes_statement && (before || !h->in_line))
        write_statement(h);
    write_raw(h, bytes_of(piece.ptr + before, piece.len - before), window);
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

/* Logs the gap with the same offsets that the client gets. */
static void report_passed(struct http_subscriber *h, const char *text, const struct journal_edges *edges)
{
    log_warn(text, LOG_S("stream", stream_name(h->stream)), LOG_S("client", http_peer(h->req)),
        LOG_U("before", edges->before), LOG_U("after", edges->after));
    h->reported = edges->after;
}

static void sink_end(void *arg, enum subscriber_end why, const struct journal_edges *edges)
{
    struct http_subscriber *h = arg;
    struct journal_edges missed = edges ? *edges : (struct journal_edges){0};
    const char *lf = edges && h->rest.len ? memrchr(h->rest.ptr, '\n', h->rest.len) : NULL;
    size_t after_lf = lf ? (size_t)(h->rest.ptr + h->rest.len - (lf + 1)) : h->rest.len;
    bool continues = false;
    if (why == SUBSCRIBER_AT_END)
        h->end = h->sent;
    if (edges && (h->form == SUB_PARTS || h->form == SUB_LINES)) {
        missed.before = h->sent - after_lf - (lf ? 0 : h->framing.cut.len);
    } else if (edges && h->form == SUB_EVENTS && (lf || !h->framing.in_line)) {
        /* No byte of the incomplete line was sent, so the response can continue after a gap event. A response that
         * has sent the beginning of an event must end: the client drops the event, reconnects and gets the gap. */
        continues = true;
        missed.before = lf ? h->sent - after_lf : h->framing.offset;
        if (lf)
            h->rest.len -= after_lf;
        else
            drop_rest(h);
    }
    if (why == SUBSCRIBER_PASSED) {
        stats_add(h->server->passed, 1);
        report_passed(h, "retention passed a subscriber", &missed);
    }
    if (why == SUBSCRIBER_DAMAGED) {
        const char *failure = journal_failure(stream_journal(h->stream));
        log_error("cannot continue to read a stream", LOG_S("stream", stream_name(h->stream)),
            LOG_U("offset", h->sent), LOG_S("error", failure ? failure : "unknown"));
        http_stream_abort(h->req);
        forget(h);
    } else if (continues) {
        wait_to_report_gap(h, missed.after);
    } else {
        end_response(h);
    }
}

static void subscribe(struct http_subscriber *h, const struct stream_from *from)
{
    struct subscriber_config config = {
        .stream = h->stream,
        .from = *from,
        .follow = h->follow,
        .one_opening = h->one_opening,
        .piece_max = h->form == SUB_RAW && !h->states ? 0 : FORMED_WINDOW,
        .start_only = http_is_head(h->req),
        .sink = {h, sink_pending, sink_refuse, sink_start, sink_write, sink_end,
            h->form == SUB_RAW && !h->states ? sink_write_spans : NULL},
    };
    h->subscriber = subscriber_new(&config);
    subscriber_begin(h->subscriber);
}

/* A gap extends at least to the stream's earliest offset, because retention may have deleted more lines. */
static void report_gap(struct http_subscriber *h)
{
    struct buf text = {0};
    uint64_t earliest = journal_earliest(stream_journal(h->stream));
    if (h->gap.after < earliest)
        h->gap.after = earliest;
    h->gap.before = h->framing.offset; /* the offset after the last sent line */
    h->gap_waits = false;
    if (h->reported && h->reported < h->gap.after)
        report_passed(h, "retention passed a subscriber again before its gap event", &h->gap);
    h->reported = 0;
    framing_set_offset(&h->framing, h->gap.after);
    framing_add_gap(&h->framing, &h->gap, &text);
    write_formed(h, &text);
    h->sent = h->gap.after;
    subscribe(h, &(struct stream_from){.kind = STREAM_FROM_OFFSET, .offset = h->gap.after});
}

static void response_drained(struct http_request *req, void *arg)
{
    struct http_subscriber *h = arg;
    (void)req;
    if (!form_rest(h))
        return;
    if (h->ending)
        end_when_taken(h);
    else if (h->gap_waits)
        report_gap(h);
    else if (h->subscriber)
        subscriber_drained(h->subscriber);
}

/* last=N is another form of from=-N. */
static bool read_begin(struct http_request *req, struct stream_from *from)
{
    struct bytes ignored;
    uint64_t lines;
    if (!http_param(req, "last", &ignored))
        return server_read_from(req, "latest", from);
    if (http_param(req, "from", &ignored)) {
        http_problem(req, 400, "bad-parameter", NULL, "from= and last= exclude each other");
        return false;
    }
    if (!http_param_u64(req, "last", 0, 0, STREAM_LAST_MAX, &lines))
        return false;
    *from = (struct stream_from){.kind = lines ? STREAM_FROM_LAST : STREAM_FROM_LATEST, .lines = lines};
    return true;
}

/* When a browser reconnects, it repeats its first request and sends its cursor in Last-Event-ID. */
static bool read_cursor(struct http_request *req, const struct http_subscriber *h, struct stream_from *from)
{
    struct bytes last = h->form == SUB_EVENTS ? http_header(req, "Last-Event-ID") : BYTES_NONE;
    struct bytes id = BYTES_NONE;
    (void)http_param(req, "id", &id);
    if (!last.len)
        return read_begin(req, from) && server_check_stream_id(req, h->stream, id, from);
    if (!server_check_stream_id(req, h->stream, id, NULL))
        return false;
    *from = (struct stream_from){.kind = STREAM_FROM_OFFSET};
    if (framing_parse_id(last, &from->offset, &id))
        return server_check_stream_id(req, h->stream, id, from);
    http_problem(req, 400, "bad-parameter", "send the id of the last event, OFFSET:STREAM_ID.OPENING",
        "invalid Last-Event-ID");
    return false;
}

void http_sub(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    struct bytes name;
    struct stream_from from;
    bool events = server_wants_events(req), has_stream = http_param(req, "stream", &name), follow, parts,
         states;
    /* A request without stream= is from a client of bitly's pubsub, and gets parts unless multipart=0. */
    if (!http_param_bool(req, "multipart", !events && !has_stream, &parts))
        return;
    enum sub_form form = parts ? SUB_PARTS : events ? SUB_EVENTS : has_stream ? SUB_RAW : SUB_LINES;
    if (form == SUB_EVENTS && !server_is_up(server)) {
        server_retry_events(req);
        return;
    }
    if (!http_param_bool(req, "statements", false, &states))
        return;
    if (states && form != SUB_RAW) {
        http_problem(req, 400, "bad-parameter",
            "set stream=, and omit multipart= and Accept: text/event-stream",
            "statements= requires a raw response");
        return;
    }
    struct stream *s = server_find_stream(server, req, DEFAULT_STREAM, !has_stream);
    if (!s || !http_param_bool(req, "follow", true, &follow))
        return;
    struct http_subscriber *h = mem_zalloc(sizeof *h);
    *h = (struct http_subscriber){.server = server,
        .req = req,
        .stream = s,
        .form = form,
        .framing = {.form = forms[form].framing,
            .id = journal_id(stream_journal(s)),
            .journal = stream_journal(s)},
        .follow = follow,
        .one_opening = form == SUB_RAW && http_param(req, "id", &name),
        .states = states && follow,
        .connected = clock_wall(),
        .wrote = clock_monotonic()};
    if (!read_cursor(req, h, &from)) {
        free(h);
        return;
    }
    LIST_INSERT_HEAD(&server->subscribers, h, link);
    server->n_subscribers++;
    http_on_gone(req, client_gone, h);
    http_on_drain(req, SUBSCRIBER_LOW, response_drained, h);
    if (h->follow) /* notices a disconnect even before the first write */
        http_set_long_poll(req);
    subscribe(h, &from);
}

/* If a client has become slow, removes the client's pending bytes from the output, so that the bytes are written
 * again from small windows. */
static void rewind_if_slow(struct http_subscriber *h)
{
    uint64_t taken = http_stream_taken(h->req), before = h->taken;
    h->taken = taken;
    if (!h->lends || h->states || taken - before >= SUBSCRIBER_BURST)
        return;
    h->lends = false;
    if (!h->subscriber) {
        http_stream_copy_pending(h->req);
        return;
    }
    if (h->counted < h->sent)
        h->counted = h->sent;
    h->sent -= http_stream_rewind(h->req);
    subscriber_go_back(h->subscriber, h->sent);
}

void http_sub_tick(struct pubsub_server *server)
{
    usec_t now = clock_monotonic(), shortage = journal_set_last_shortage(streams_set(server->streams));
    bool is_short = shortage && now - shortage < FIRST_READ_TIME_MAX;
    http_sub_forget_statements(server);
    for (struct http_subscriber *h = LIST_FIRST(&server->subscribers), *next; h; h = next) {
        next = LIST_NEXT(h, link);
        bool is_quiet = h->form == SUB_EVENTS && h->begun && !h->framing.in_line && !h->ending &&
                        now - h->wrote >= server->heartbeat && http_stream_pending(h->req) == 0;
        if (is_quiet) {
            http_stream_write(h->req, FRAMING_HEARTBEAT);
            h->wrote = now;
        }
        if (h->states && h->begun && !h->ending && h->subscriber)
            state(h);
        if (is_short && !h->begun && now - h->wrote >= FIRST_READ_TIME_MAX)
            http_set_long_poll(h->req);
        else
            rewind_if_slow(h);
    }
}

static void abort_responses(void *arg)
{
    struct pubsub_server *server = arg;
    struct http_subscriber *h;
    while ((h = LIST_FIRST(&server->subscribers))) {
        http_stream_abort(h->req);
        forget(h);
    }
}

void http_sub_end_all(struct pubsub_server *server)
{
    for (struct http_subscriber *h = LIST_FIRST(&server->subscribers), *next; h; h = next) {
        next = LIST_NEXT(h, link);
        if (h->ending)
            continue;
        if (h->begun) {
            end_response(h);
            continue;
        }
        if (h->form == SUB_EVENTS)
            server_retry_events(h->req);
        else
            http_problem(h->req, 503, "not-ready", NULL, "stopping");
        forget(h);
    }
    if (LIST_EMPTY(&server->subscribers))
        return;
    server->drain_limit = loop_timer_new(daemon_base(server->daemon), abort_responses, server);
    loop_timer_set(server->drain_limit, DRAIN_SECONDS_MAX * USEC_PER_SEC);
}

static const char *state_of(const struct http_subscriber *h)
{
    if (!h->begun)
        return "beginning";
    if (h->ending)
        return "ending";
    if (h->gap_waits || http_stream_pending(h->req) > SUBSCRIBER_LOW)
        return "blocked";
    return h->sent < journal_committed_end(stream_journal(h->stream)) ? "behind" : "waiting";
}

static void add_json(const struct http_subscriber *h, struct buf *out)
{
    struct journal *j = stream_journal(h->stream);
    buf_append_str(out, "{\"client\":");
    buf_append_json(out, bytes_str(http_peer(h->req)));
    buf_printf(out,
        ",\"stream\":\"%s\",\"form\":\"%s\",\"state\":\"%s\",\"connected\":%" PRId64 ",\"offset\":\"%" PRIu64
        "\",\"lag_bytes\":%" PRIu64 ",\"unsent_bytes\":%zu}",
        stream_name(h->stream), forms[h->form].name, state_of(h), (int64_t)(h->connected / USEC_PER_SEC),
        h->sent, h->begun ? journal_bytes_between(j, h->sent, journal_committed_end(j)) : 0,
        http_stream_pending(h->req));
}

/* Appends a line with the fields of bitly's pubsub, followed by the state, the stream and the offset. */
static void add_text(const struct http_subscriber *h, struct buf *out)
{
    char connected[32];
    struct tm tm;
    time_t t = (time_t)(h->connected / USEC_PER_SEC);
    gmtime_r(&t, &tm);
    strftime(connected, sizeof connected, "%Y-%m-%d %H:%M:%S", &tm);
    buf_printf(out, "%s connected at %s. output buffer size:%zu state:%s stream:%s offset:%" PRIu64 "\n",
        http_peer(h->req), connected, http_stream_pending(h->req), state_of(h), stream_name(h->stream),
        h->sent);
}

void http_clients(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    struct bytes format = BYTES_LITERAL("text");
    struct buf out = {0};
    (void)http_param(req, "format", &format);
    bool json = bytes_equal_str(format, "json");
    if (!json && !bytes_equal_str(format, "text")) {
        http_problem(req, 400, "bad-parameter", NULL, "format must be text or json");
        return;
    }
    if (json)
        buf_append_str(&out, "{\"clients\":[");
    else if (LIST_EMPTY(&server->subscribers))
        buf_append_str(&out, "no /sub connections\n");
    const struct http_subscriber *h;
    LIST_FOREACH(h, &server->subscribers, link)
    {
        if (json && h != LIST_FIRST(&server->subscribers))
            buf_append_str(&out, ",\n");
        (json ? add_json : add_text)(h, &out);
    }
    if (json)
        buf_append_str(&out, "]}\n");
    http_reply(req, 200, json ? "application/json" : NULL, buf_bytes(&out));
    buf_free(&out);
}
