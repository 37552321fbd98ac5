#include "streams/filter/filtered_sub.h"

#include "http/client/http_client.h"
#include "http/server/http_server.h"
#include "streams/filter/line_scheduler.h"
#include "stream/stream_client.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PENDING_MAX ((size_t)1 << 20)   /* unsent bytes of a client at which its source pauses */
#define PENDING_LOW ((size_t)128 << 10) /* unsent bytes at which the source resumes */

struct filtered_sub {
    struct filtered_subs *all;
    struct filtered_sub *previous, *next;
    struct http_request *req;
    struct http_client *pubsub;
    struct stream_client *source;
    struct event *ending;
    struct line_filter *filter; /* the request's filter; NULL: none */
    struct line_queue *unfiltered;
    struct buf once;    /* a line that passed the program's filter */
    struct buf passed;  /* lines to send */
    struct buf refusal; /* the body with which pubsub refused the offset */
    bool started, follow;
    bool congested; /* the client reads too slowly, so the source pauses */
    bool over;      /* the answer ends once all lines are filtered */
    int refused;    /* the status with which pubsub refused the offset; 0: none */
};

struct filtered_subs {
    struct filtered_subs_config config;
    char *url, *token, *stream, *heartbeat;
    struct filtered_sub *first;
    size_t n;
    struct line_counts lines;
    struct loss_log losses;
};

static void report_losses(struct filtered_subs *all, bool last)
{
    loss_log_report(&all->losses, &all->lines, "/sub", clock_monotonic(), last);
}

static void forget(struct filtered_sub *h)
{
    struct filtered_subs *all = h->all;
    *(h->previous != NULL ? &h->previous->next : &all->first) = h->next;
    if (h->next != NULL)
        h->next->previous = h->previous;
    all->n--;
    report_losses(all, false);
    stream_client_free(&h->source);
    http_client_free(&h->pubsub);
    line_queue_free(&h->unfiltered);
    event_free(h->ending);
    line_filter_free(&h->filter);
    buf_free(&h->once);
    buf_free(&h->passed);
    buf_free(&h->refusal);
    free(h);
}

static void start_answer(void *arg)
{
    struct filtered_sub *h = arg;
    const struct stream_cursor *at = stream_client_cursor(h->source);
    if (h->started)
        return;
    h->started = true;
    http_add_header(h->req, "X-Millrace-Stream-Id", "%s", at->id);
    http_add_header(h->req, "X-Millrace-Offset", "%" PRIu64, at->offset);
    http_add_header(h->req, "Cache-Control", "no-store");
    http_stream_start(h->req, 200, "application/octet-stream", -1);
    http_stream_disable_timeout(h->req);
}

/* The program's filter comes first, so that the request's filter does not see the fields that it removes. */
static enum line_filter_result filter(struct filtered_sub *h, struct bytes line)
{
    if (h->filter == NULL)
        return line_filter_apply(h->all->config.filter, line, &h->passed);
    buf_clear(&h->once);
    enum line_filter_result r = line_filter_apply(h->all->config.filter, line, &h->once);
    if (r == LINE_PASSED)
        r = line_filter_apply(h->filter, bytes_of(h->once.ptr, h->once.len - 1), &h->passed);
    return r;
}

static void on_line(struct bytes line, void *arg)
{
    struct filtered_sub *h = arg;
    line_counts_add(&h->all->lines, filter(h, line));
}

static void pause_or_resume(struct filtered_sub *h)
{
    if (h->congested || line_queue_is_full(h->unfiltered))
        stream_client_pause(h->source);
    else
        stream_client_resume(h->source);
}

static void end_if_over(struct filtered_sub *h)
{
    static const struct timeval now = {0, 0};
    if (h->over && line_queue_is_empty(h->unfiltered))
        evtimer_add(h->ending, &now);
}

static void on_slice(void *arg)
{
    struct filtered_sub *h = arg;
    if (h->passed.len > 0)
        http_stream_write(h->req, buf_bytes(&h->passed));
    buf_clear(&h->passed);
    h->congested = h->congested || http_stream_pending(h->req) > PENDING_MAX;
    report_losses(h->all, false);
    pause_or_resume(h);
    end_if_over(h);
}

static void on_lines(struct bytes lines, void *arg)
{
    struct filtered_sub *h = arg;
    line_queue_add(h->unfiltered, lines, stream_client_cursor(h->source)->offset);
    pause_or_resume(h);
}

static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    struct filtered_sub *h = arg;
    (void)head, (void)length;
    line_counts_add_overlong(&h->all->lines);
    report_losses(h->all, false);
}

static void drained(struct http_request *req, void *arg)
{
    struct filtered_sub *h = arg;
    (void)req;
    h->congested = false;
    pause_or_resume(h);
}

static void client_gone(struct http_request *req, void *arg)
{
    (void)req;
    forget(arg);
}

static void on_ending(evutil_socket_t fd, short what, void *arg)
{
    struct filtered_sub *h = arg;
    (void)fd, (void)what;
    const char *trouble = stream_client_trouble(h->source, NULL);
    if (h->started)
        http_stream_end(h->req);
    else if (h->refused != 0)
        http_reply(h->req, h->refused, "application/problem+json", buf_bytes(&h->refusal));
    else if (trouble != NULL)
        http_problem(h->req, 503, "upstream-unavailable", NULL, "%s", trouble);
    else
        http_problem(h->req, 404, "unknown-stream", NULL, "no such stream");
    forget(h);
}

/* Ends the answer once all lines are filtered. The loop does this, because a callback of the source must not free the source. */
static void end_soon(struct filtered_sub *h)
{
    stream_client_stop(h->source);
    h->over = true;
    end_if_over(h);
}

/* If pubsub fails after the answer has begun, the source reconnects, and the client only sees a pause. If another stream has replaced the
 * source's, the answer ends. */
static void on_change(void *arg)
{
    struct filtered_sub *h = arg;
    bool refused, over = stream_client_is_caught_up(h->source) && !(h->started && h->follow);
    bool trouble = stream_client_trouble(h->source, &refused) != NULL;
    if (over || (trouble && (refused || !h->started)))
        end_soon(h);
}

/* pubsub refuses the request's offset, and its refusal becomes the answer. */
static void on_refused(int status, struct bytes body, void *arg)
{
    struct filtered_sub *h = arg;
    h->refused = status;
    buf_append_bytes(&h->refusal, body);
    end_soon(h);
}

/* The answer ends at a gap, as pubsub's does, so that the client notices the gap. */
static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    (void)before, (void)after;
    end_soon(arg);
}

/* Reads bitly's parameters filter_subject and filter_pattern. Returns false after an error answer. */
static bool read_filter(const struct filtered_subs *s, struct http_request *req, struct line_filter **out)
{
    struct bytes subject, pattern;
    bool has_subject = http_param(req, "filter_subject", &subject);
    bool has_pattern = http_param(req, "filter_pattern", &pattern);
    char error[LINE_FILTER_ERROR_TEXT];
    *out = NULL;
    if (!has_subject && !has_pattern)
        return true;
    if (!has_subject || !has_pattern) {
        http_problem(
            req, 400, "missing-parameter", NULL, "filter_subject and filter_pattern require each other");
        return false;
    }
    char *field = bytes_dup(subject), *text = bytes_dup(pattern);
    *out = line_filter_new(
        &(struct line_filter_spec){.subject = field, .pattern = text, .heartbeat = s->heartbeat}, error);
    free(field);
    free(text);
    if (*out == NULL)
        http_problem(req, 400, "bad-parameter", "a PCRE2 pattern", "filter_pattern: %s", error);
    return *out != NULL;
}

/* Returns false after an error answer. */
static bool read_from(struct http_request *req, char out[64])
{
    struct bytes from = BYTES_LITERAL("latest");
    uint64_t n;
    (void)http_param(req, "from", &from);
    bool at = from.len > 1 && from.ptr[0] == '@' && bytes_to_u64(bytes_of(from.ptr + 1, from.len - 1), &n);
    bool ok =
        at || bytes_equal_str(from, "latest") || bytes_equal_str(from, "earliest") || bytes_to_u64(from, &n);
    snprintf(out, 64, "%.*s", (int)(ok ? from.len : 0), from.ptr);
    if (!ok || from.len > 60)
        http_problem(req, 400, "bad-parameter",
            "use earliest, latest, an offset, or @UNIXTIME in whole seconds", "invalid from");
    return ok && from.len <= 60;
}

void filtered_sub_answer(struct filtered_subs *s, struct http_request *req)
{
    char from[64], stream[NAME_LEN_MAX + 1];
    struct line_filter *filter;
    bool follow, multipart;
    if (!http_param_name(req, "stream", s->stream, stream))
        return;
    if (strcmp(stream, s->stream) != 0) { /* also if pubsub has a stream of that name */
        http_problem(
            req, 404, "unknown-stream", "omit stream", "only the stream %s is served here", s->stream);
        return;
    }
    if (!http_param_bool(req, "follow", true, &follow) ||
        !http_param_bool(req, "multipart", false, &multipart))
        return;
    if (multipart) { /* bitly's clients set this parameter */
        http_problem(req, 400, "bad-parameter", "ask for multipart=0", "multipart is not supported");
        return;
    }
    if (!read_from(req, from) || !read_filter(s, req, &filter))
        return;
    struct filtered_sub *h = mem_zalloc(sizeof *h);
    *h = (struct filtered_sub){.all = s, .req = req, .filter = filter, .follow = follow, .next = s->first};
    if (h->next != NULL)
        h->next->previous = h;
    s->first = h;
    s->n++;
    http_on_gone(req, client_gone, h);
    http_on_drain(req, PENDING_LOW, drained, h);
    if (follow)
        http_set_long_poll(req);
    const struct filtered_subs_config *config = &s->config;
    h->ending = evtimer_new(config->base, on_ending, h);
    h->unfiltered = line_queue_new(&(struct line_queue_config){
        .scheduler = config->scheduler, .on_line = on_line, .on_slice = on_slice, .arg = h});
    h->pubsub = http_client_new(&(struct http_client_config){
        .base = config->base, .url = s->url, .max_connections = 1, .auth_token = s->token});
    h->source = stream_client_new(&(struct stream_client_config){.base = config->base,
        .pubsub = h->pubsub,
        .stream = s->stream,
        .begin = from,
        .max_line = config->max_line,
        .on_begin = start_answer,
        .on_lines = on_lines,
        .on_overlong = on_overlong,
        .on_gap = on_gap,
        .on_refused = on_refused,
        .on_change = on_change,
        .arg = h});
}

struct filtered_subs *filtered_subs_new(const struct filtered_subs_config *config)
{
    struct filtered_subs *s = mem_zalloc(sizeof *s);
    s->config = *config;
    s->url = mem_strdup(config->pubsub_url);
    s->stream = mem_strdup(config->stream);
    s->token = config->auth_token != NULL ? mem_strdup(config->auth_token) : NULL;
    s->heartbeat = config->heartbeat != NULL ? mem_strdup(config->heartbeat) : NULL;
    return s;
}

void filtered_subs_end(struct filtered_subs *s)
{
    while (s->first != NULL) {
        struct filtered_sub *h = s->first;
        if (h->started)
            http_stream_end(h->req);
        else
            http_problem(h->req, 503, "not-ready", NULL, "stopping");
        forget(h);
    }
}

void filtered_subs_free(struct filtered_subs **sp)
{
    struct filtered_subs *s = *sp;
    if (s == NULL)
        return;
    while (s->first != NULL)
        forget(s->first);
    report_losses(s, true);
    free(s->url);
    free(s->token);
    free(s->stream);
    free(s->heartbeat);
    free(s);
    *sp = NULL;
}

size_t filtered_subs_count(const struct filtered_subs *s)
{
    return s->n;
}

const struct line_counts *filtered_subs_lines(const struct filtered_subs *s)
{
    return &s->lines;
}
