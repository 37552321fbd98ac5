#include "stream/stream_client.h"

#include "base/backoff.h"
#include "http/client/http_client.h"
#include "json/json_fields.h"
#include "base/line_splitter.h"
#include "base/log.h"
#include "daemon/loop_timer.h"
#include "journal/opening.h"
#include "stream/watermark.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RETRY_FIRST (50 * USEC_PER_MSEC)
#define RETRY_MAX (2 * USEC_PER_SEC)
/* RETRY_UNKNOWN is short, so that the first line of a new stream arrives within a second. */
#define RETRY_UNKNOWN (200 * USEC_PER_MSEC)
#define RETRY_REFUSED (5 * USEC_PER_SEC)
#define STATEMENT_MAX 256
_Static_assert(STREAM_OPENING_TEXT == OPENING_TEXT, "an opening");

struct stream_client {
    struct stream_client_config config;
    struct stream_cursor cursor; /* cursor after the last line that a callback got */
    struct stream_place place;
    char opening[STREAM_OPENING_TEXT]; /* opening of the bytes of the response */
    char before[STREAM_OPENING_TEXT];  /* opening of the byte before `asked_from` */
    char *stream, *begin;
    struct http_call *call;
    struct loop_timer *timer;
    struct backoff backoff;
    struct line_splitter lines;
    struct buf statement;                                  /* the beginning of an incomplete statement */
    enum { AFTER_LINE, INSIDE_LINE, INSIDE_STATEMENT } at; /* position in a response with statements */
    bool stopped, paused, caught_up, has_target, ignoring, refused;
    uint64_t target;     /* the end of the stream in the first response */
    uint64_t asked_from; /* the cursor at the last request */
    char trouble[600];
};

static void ask(void *arg);

static void changed(struct stream_client *c)
{
    if (c->config.on_change)
        c->config.on_change(c->config.arg);
}

static void set_trouble(struct stream_client *c, bool refused, const char *text)
{
    if (strcmp(c->trouble, text) != 0)
        log_warn("cannot follow the stream", LOG_S("stream", c->stream), LOG_S("error", text));
    c->refused = refused;
    snprintf(c->trouble, sizeof c->trouble, "%s", text);
}

static void clear_trouble(struct stream_client *c)
{
    c->trouble[0] = '\0';
    c->refused = false;
    backoff_succeeded(&c->backoff);
}

static void check_caught_up(struct stream_client *c)
{
    if (c->has_target && c->cursor.offset >= c->target)
        c->caught_up = true;
    changed(c);
}

static void ask_after(struct stream_client *c, usec_t delay)
{
    if (!c->stopped)
        loop_timer_set(c->timer, delay);
}

static void refuse(struct stream_client *c, const char *text)
{
    set_trouble(c, true, text);
    ask_after(c, RETRY_REFUSED);
}

const char *stream_client_opening_at(const struct stream_client *c, uint64_t offset)
{
    assert(offset <= c->cursor.offset);
    if (offset == c->cursor.offset)
        return c->cursor.opening;
    return offset > c->asked_from ? c->opening : offset == c->asked_from ? c->before : NULL;
}

/* Moves the cursor forwards over bytes of the current response. */
static void move_cursor(struct stream_client *c, uint64_t bytes)
{
    c->cursor.offset += bytes;
    memcpy(c->cursor.opening, c->opening, sizeof c->opening);
}

static void on_lines(void *arg, struct bytes lines)
{
    struct stream_client *c = arg;
    move_cursor(c, lines.len);
    c->config.on_lines(lines, c->config.arg);
}

static void on_overlong(void *arg, struct bytes head, uint64_t length)
{
    struct stream_client *c = arg;
    char text[120];
    if (c->config.on_overlong) {
        move_cursor(c, length + 1);
        c->config.on_overlong(head, length, c->config.arg);
        return;
    }
    snprintf(
        text, sizeof text, "a line of %" PRIu64 " bytes exceeds max_line (%zu)", length, c->config.max_line);
    set_trouble(c, true, text);
    c->ignoring = true;
    line_splitter_reset(&c->lines);
}

/* Moves the bytes of a statement, up to its LF, from the piece to c->statement. */
static void take_statement(struct stream_client *c, struct bytes *piece)
{
    struct stream_statement s;
    const char *lf = memchr(piece->ptr, '\n', piece->len);
    size_t n = lf ? (size_t)(lf - piece->ptr) : piece->len;
    if (c->statement.len + n > STATEMENT_MAX) {
        set_trouble(c, true, "a statement of pubsub is too long");
        c->ignoring = true;
        return;
    }
    buf_append(&c->statement, piece->ptr, n);
    *piece = bytes_of(piece->ptr + n + (lf ? 1 : 0), piece->len - n - (lf ? 1 : 0));
    if (!lf)
        return;
    c->at = AFTER_LINE;
    if (stream_statement_read(buf_bytes(&c->statement), &s)) {
        s.at = clock_boot();
        c->config.on_statement(&s, c->config.arg);
    }
    buf_clear(&c->statement);
}

/* Returns the number of bytes up to the first LF that is followed by another LF, or piece.len. A memchr for each LF
 * is several times as fast as a memmem. */
static size_t lines_before_statement(struct bytes piece)
{
    const char *end = piece.ptr + piece.len;
    for (const char *at = piece.ptr, *lf; (lf = memchr(at, '\n', (size_t)(end - at))); at = lf + 1)
        if (lf + 1 < end && lf[1] == '\n')
            return (size_t)(lf + 1 - piece.ptr);
    return piece.len;
}

/* No line is empty, so an LF directly after a line begins a statement. */
static void take_body(struct stream_client *c, struct bytes piece)
{
    while (piece.len > 0 && !c->stopped && !c->ignoring) {
        if (c->at == INSIDE_STATEMENT) {
            take_statement(c, &piece);
            continue;
        }
        if (c->at == AFTER_LINE && piece.ptr[0] == '\n') {
            c->at = INSIDE_STATEMENT;
            piece = bytes_of(piece.ptr + 1, piece.len - 1);
            continue;
        }
        struct bytes lines = bytes_of(piece.ptr, lines_before_statement(piece));
        piece = bytes_of(piece.ptr + lines.len, piece.len - lines.len);
        c->at = lines.ptr[lines.len - 1] == '\n' ? AFTER_LINE : INSIDE_LINE;
        line_splitter_feed(&c->lines, lines);
    }
}

static void on_body(struct http_call *call, struct bytes piece, void *arg)
{
    struct stream_client *c = arg;
    (void)call;
    if (c->stopped || c->ignoring)
        return;
    if (c->config.on_statement)
        take_body(c, piece);
    else
        line_splitter_feed(&c->lines, piece);
    if (c->stopped)
        return;
    check_caught_up(c);
    if (c->ignoring && c->call)
        http_call_cancel(c->call);
}

static void set_opening(char out[STREAM_OPENING_TEXT], struct bytes text)
{
    snprintf(out, STREAM_OPENING_TEXT, "%.*s", (int)text.len, text.len ? text.ptr : "");
}

static bool header_number(const struct http_reply_view *reply, const char *name, uint64_t *out)
{
    return bytes_to_u64(bytes_str(http_reply_header(reply, name)), out);
}

/* Cancels the call, because a response that the client cannot use might never end. */
static void give_up(struct stream_client *c, struct http_call *call, const char *text)
{
    set_trouble(c, true, text);
    http_call_cancel(call);
}

static void on_headers(const struct http_reply_view *reply, void *arg)
{
    struct stream_client *c = arg;
    uint64_t start, end;
    const char *id = http_reply_header(reply, "X-Millrace-Stream-Id");
    const char *opening = http_reply_header(reply, "X-Millrace-Opening");
    c->ignoring = true;
    if (reply->status != 200)
        return;
    if (strlen(id) != STREAM_ID_TEXT - 1 || !opening_is_valid(bytes_str(opening)) ||
        !header_number(reply, "X-Millrace-Offset", &start) || !header_number(reply, "X-Millrace-End", &end)) {
        give_up(c, reply->call,
            "the response has no X-Millrace headers of a stream: the server is not millrace's pubsub");
        return;
    }
    bool begins = c->cursor.id[0] == '\0';
    if (begins) {
        memcpy(c->cursor.id, id, STREAM_ID_TEXT);
        c->cursor.offset = c->asked_from = start;
    }
    if (strcmp(c->cursor.id, id) != 0 || c->cursor.offset != start) {
        give_up(c, reply->call, "pubsub answered with another stream or offset than the requested one");
        return;
    }
    c->ignoring = false;
    c->at = AFTER_LINE;
    buf_clear(&c->statement);
    stream_place_read(reply, &c->place);
    set_opening(c->opening, bytes_str(opening));
    set_opening(c->before, bytes_str(http_reply_header(reply, "X-Millrace-Opening-Before")));
    memcpy(c->cursor.opening, c->before, sizeof c->before);
    clear_trouble(c);
    if (begins && c->config.on_begin)
        c->config.on_begin(c->config.arg);
    if (!c->has_target)
        c->target = end;
    c->has_target = true;
    check_caught_up(c);
}

/* `opening` is the opening of the byte before `after`. If `opening` is empty, pubsub does not check it. */
static void skip_lost(struct stream_client *c, const char *text, uint64_t after, struct bytes opening)
{
    uint64_t from = c->cursor.offset;
    log_warn(text, LOG_S("stream", c->stream), LOG_U("from", from), LOG_U("after", after));
    c->cursor.offset = after;
    set_opening(c->cursor.opening, opening);
    if (c->config.on_gap)
        c->config.on_gap(from, after, c->config.arg);
    ask_after(c, 0);
}

/* True if accept_option is a command, to which the offset is appended; false: an option of the program. */
static bool has_command(const struct stream_client *c)
{
    const char *option = c->config.accept_option;
    return option && option[0] && option[strlen(option) - 1] == '=';
}

/* Refuses to continue. The message names the option or the command with which the operator can continue. `place` is the
 * offset for this option or command; NULL: it needs no offset. */
static void refuse_loss(struct stream_client *c, const char *text, const char *effect, const uint64_t *place)
{
    const char *option = c->config.accept_option;
    char full[sizeof c->trouble], offset[32] = "";
    if (place)
        snprintf(offset, sizeof offset, "%s%" PRIu64, has_command(c) ? "" : "-from=", *place);
    snprintf(full, sizeof full, "%s; to continue %s, %s %s%s", text, effect,
        has_command(c) ? "run:" : "start the program once with", option ? option : "", offset);
    refuse(c, option ? full : text);
}

static void on_gone(struct stream_client *c, struct bytes body)
{
    struct json_doc *doc = json_doc_parse(body);
    uint64_t from = c->cursor.offset, after = json_doc_number(doc, "/after");
    char text[200];
    if (after <= from) {
        refuse(c, "the bytes at the cursor are deleted or lost, and pubsub does not say where the stream "
                  "continues");
    } else if (c->config.loss == STREAM_LOSS_REFUSED && from < json_doc_number(doc, "/earliest")) {
        snprintf(text, sizeof text, "lines from offset %" PRIu64 " to %" PRIu64 " have expired", from, after);
        refuse_loss(c, text, "without them", NULL);
    } else {
        skip_lost(c, "skipping lost bytes of the stream", after, json_doc_text(doc, "/opening_before"));
    }
    json_doc_free(&doc);
}

/* True if an opening of the copy begins at the offset `place`. */
static bool is_listed(const struct json_doc *doc, uint64_t place)
{
    for (size_t i = 0; i < json_doc_length(doc, "/openings"); i++) {
        uint64_t first;
        if (bytes_to_u64(json_doc_text(doc, "/openings/%zu/first", i), &first) && first == place)
            return true;
    }
    return false;
}

/* Logs where and when each opening of the copy began, for an operator who knows the time of the restore. */
static void log_openings(const struct stream_client *c, const struct json_doc *doc)
{
    struct buf list = {0};
    for (size_t i = 0; i < json_doc_length(doc, "/openings"); i++) {
        struct bytes first = json_doc_text(doc, "/openings/%zu/first", i),
                     began = json_doc_text(doc, "/openings/%zu/began", i);
        buf_printf(
            &list, "%s%.*s at %.*s", i > 0 ? ", " : "", (int)first.len, first.ptr, (int)began.len, began.ptr);
    }
    log_warn(
        "openings of the restored copy", LOG_S("stream", c->stream), LOG_B("openings", buf_bytes(&list)));
    buf_free(&list);
}

static void refuse_copy(struct stream_client *c, const struct json_doc *doc, uint64_t place, bool is_certain)
{
    struct bytes detail = json_doc_text(doc, "/detail");
    char text[500], wrong[120] = "";
    if (c->config.accepts_place)
        snprintf(wrong, sizeof wrong,
            "--accept-loss-from=%" PRIu64 ": no opening of the copy before the cursor begins there; ",
            c->config.accept_from);
    snprintf(text, sizeof text, "%s%.*s", wrong, (int)detail.len, detail.len ? detail.ptr : "");
    if (!c->refused)
        log_openings(c, doc);
    refuse_loss(c, text, is_certain ? "there and skip no line" : "there",
        has_command(c) || !is_certain ? &place : NULL);
}

/* If pubsub has only estimated the offset where the copy differs, the operator must confirm it (accepts_place). */
static void on_misfit(struct stream_client *c, struct bytes body)
{
    static const char going_on[] = "continuing in a restored copy of the stream";
    struct json_doc *doc = json_doc_parse(body);
    struct json_value certain = json_doc_at(doc, "/is_certain");
    bool accepts = c->config.loss == STREAM_LOSS_ACCEPTED,
         is_certain = certain.type == JSON_BOOL && certain.v.boolean;
    uint64_t place, chosen = c->config.accept_from;
    if (!json_doc_u64(doc, "/differs_from", &place) &&
        !bytes_to_u64(json_doc_text(doc, "/differs_from"), &place)) {
        refuse(c, "pubsub has another stream with this name: its id differs from the cursor's; restore "
                  "pubsub from a "
                  "copy, or give the stream a new name");
    } else if (accepts && c->config.accepts_place && chosen <= c->cursor.offset && is_listed(doc, chosen)) {
        c->config.accepts_place = false;
        skip_lost(c, going_on, chosen, chosen == place ? json_doc_text(doc, "/opening_before") : BYTES_NONE);
    } else if (accepts && is_certain && !c->config.accepts_place) {
        skip_lost(c, going_on, place, json_doc_text(doc, "/opening_before"));
    } else {
        refuse_copy(c, doc, place, is_certain);
    }
    json_doc_free(&doc);
}

/* A stream that does not exist is complete up to pubsub's present time. */
static void note_no_stream(struct stream_client *c, const struct http_reply_view *reply)
{
    struct stream_statement s = {0};
    if (c->config.on_statement &&
        bytes_to_usec(bytes_str(http_reply_header(reply, "X-Millrace-Time")), &s.now)) {
        s.until = s.now;
        s.at = clock_boot();
        c->config.on_statement(&s, c->config.arg);
    }
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct stream_client *c = arg;
    int status = result == HTTP_CLIENT_OK ? reply->status : 0;
    bool begins = c->cursor.id[0] == '\0';
    char text[400];
    c->call = NULL;
    line_splitter_reset(&c->lines);
    if (c->stopped)
        return;
    if (c->config.on_response_end)
        c->config.on_response_end(c->config.arg);
    if ((status == 410 || status == 416) && begins && c->config.on_refused) {
        c->config.on_refused(status, reply->body, c->config.arg);
    } else if (status == 200 || (result == HTTP_CLIENT_CANCELLED && c->refused)) {
        if (c->refused)
            ask_after(c, RETRY_REFUSED);
        else /* request again at once if the response had lines */
            ask_after(c, c->cursor.offset > c->asked_from ? 0 : backoff_failed(&c->backoff));
    } else if (status == 404 && begins) {
        clear_trouble(c);
        note_no_stream(c, reply);
        c->has_target = true; /* an unknown stream ends at 0 */
        check_caught_up(c);
        if (strcmp(c->begin, "latest") == 0) {
            free(c->begin);
            c->begin = mem_strdup("earliest");
        }
        ask_after(c, RETRY_UNKNOWN);
    } else if (status == 404) {
        refuse(c, "pubsub no longer has the stream");
    } else if (status == 410) {
        on_gone(c, reply->body);
    } else if (status == 409) {
        on_misfit(c, reply->body);
    } else if (status == 416) {
        refuse(c, "the stream ends before the cursor: it is an old copy");
    } else {
        struct json_doc *doc = result == HTTP_CLIENT_OK ? json_doc_parse(reply->body) : NULL;
        struct bytes detail = json_doc_text(doc, "/detail");
        if (result == HTTP_CLIENT_OK)
            snprintf(text, sizeof text, "pubsub answered %d%s%.*s", status, detail.len > 0 ? ": " : "",
                (int)detail.len, detail.len > 0 ? detail.ptr : "");
        else
            snprintf(text, sizeof text, "pubsub: %s", http_client_strerror(result));
        json_doc_free(&doc);
        set_trouble(c, false, text);
        ask_after(c, backoff_failed(&c->backoff));
    }
    changed(c);
}

static void ask(void *arg)
{
    struct stream_client *c = arg;
    struct buf target = {0};
    if (c->stopped || c->paused || c->call)
        return;
    buf_printf(&target, "/sub?stream=%s&from=", c->stream);
    if (c->cursor.id[0] == '\0')
        buf_printf(&target, "%s&id=", c->begin);
    else
        buf_printf(&target, "%" PRIu64 "&id=%s%s%s", c->cursor.offset, c->cursor.id,
            c->cursor.opening[0] != '\0' ? "." : "", c->cursor.opening);
    if (c->config.on_statement)
        buf_append_str(&target, "&statements=1");
    buf_append_char(&target, '\0');
    c->asked_from = c->cursor.offset;
    memcpy(c->before, c->cursor.opening, sizeof c->before);
    struct http_call_spec spec = {.method = "GET",
        .target = target.ptr,
        .arg = c,
        .on_headers = on_headers,
        .on_body = on_body,
        .on_done = on_done};
    c->call = http_client_request(c->config.pubsub, &spec);
    buf_free(&target);
}

struct stream_client *stream_client_new(const struct stream_client_config *config)
{
    struct stream_client *c = mem_zalloc(sizeof *c);
    c->config = *config;
    if (c->config.max_line == 0)
        c->config.max_line = STREAM_LINE_MAX;
    c->lines = (struct line_splitter){
        .max_line = c->config.max_line, .lines = on_lines, .overlong = on_overlong, .arg = c};
    c->stream = mem_strdup(config->stream);
    c->begin = mem_strdup(config->begin ? config->begin : "earliest");
    c->cursor = config->from;
    c->timer = loop_timer_new(config->base, ask, c);
    backoff_init(&c->backoff, RETRY_FIRST, RETRY_MAX, (uint64_t)clock_wall() ^ (uint64_t)getpid() << 32);
    ask_after(c, 0);
    return c;
}

void stream_client_stop(struct stream_client *c)
{
    c->stopped = c->ignoring = true;
    line_splitter_reset(&c->lines);
    loop_timer_stop(c->timer);
    if (c->call)
        http_call_cancel(c->call);
}

void stream_client_free(struct stream_client **cp)
{
    struct stream_client *c = *cp;
    if (!c)
        return;
    stream_client_stop(c);
    loop_timer_free(&c->timer);
    line_splitter_free(&c->lines);
    buf_free(&c->statement);
    free(c->stream);
    free(c->begin);
    free(c);
    *cp = NULL;
}

void stream_client_pause(struct stream_client *c)
{
    if (!c->paused && c->call)
        http_call_pause(c->call);
    c->paused = true;
}

void stream_client_resume(struct stream_client *c)
{
    if (!c->paused)
        return;
    c->paused = false;
    if (c->call)
        http_call_resume(c->call);
    else
        ask_after(c, 0);
}

void stream_place_read(const struct http_reply_view *reply, struct stream_place *place)
{
    const char *text = http_reply_header(reply, "X-Millrace-Stream-Place");
    snprintf(place->text, sizeof place->text, "%s", strlen(text) < sizeof place->text ? text : "");
}

bool stream_place_is_same(const struct stream_place *a, const struct stream_place *b)
{
    return a->text[0] != '\0' && strcmp(a->text, b->text) == 0;
}

const struct stream_cursor *stream_client_cursor(const struct stream_client *c)
{
    return &c->cursor;
}

const struct stream_place *stream_client_place(const struct stream_client *c)
{
    return &c->place;
}

bool stream_client_is_caught_up(const struct stream_client *c)
{
    return c->caught_up;
}

const char *stream_client_trouble(const struct stream_client *c, bool *refused)
{
    if (refused)
        *refused = c->refused;
    return c->trouble[0] != '\0' ? c->trouble : NULL;
}
