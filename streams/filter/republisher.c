#include "streams/filter/republisher.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/erased_line.h"
#include "base/log.h"
#include "counts/json_fields.h"
#include "http/client/http_pool.h"
#include "journal/opening_list.h"
#include "stream/stream_client.h"
#include "stream/stream_program.h"
#include "stream/stream_time.h"
#include "stream/watermark.h"
#include "streams/filter/line_scheduler.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MARK_EVERY_SECONDS 1
/* Delay after a reply such as 401, 404 or 413, for which the pool has no delay of its own. */
#define RETRY_FIRST (50 * USEC_PER_MSEC)
#define RETRY_MAX (2 * USEC_PER_SEC)

struct republisher {
    struct republisher_config config;
    struct stream_client *source;
    struct event *mark_timer;
    struct line_queue *unfiltered; /* NULL: no filter */
    struct buf passed;             /* lines of the next run */
    uint64_t first;                /* where to begin if the destination has no mark */
    uint64_t mark;                 /* the destination's mark */
    uint64_t sending;              /* the destination's mark once the run under way is stored */
    char opening[MARK_LABEL_MAX];  /* stored with `sending` */
    bool asked;                    /* the mark is known */
    bool into_itself;
    /* the request to the destination */
    enum { IDLE, ASKING, SENDING } doing;
    const char *name; /* of the destination's stream or queue */
    char producer[NAME_LEN_MAX + 1];
    char command[200]; /* sets the destination's mark; an offset completes it */
    struct buf run;    /* lines under way */
    struct http_call *call;
    struct event *retry_timer;
    struct backoff backoff;
    char trouble[300];
    struct stream_place place; /* of the destination's last reply; .text "": no reply yet, or a queue */
    struct republisher_numbers numbers;
    struct loss_log losses;
    struct watermark watermark; /* of the source, as far as its lines are stored in the destination */
    usec_t time;                /* of the destination, in its last reply; 0: not known */
    char era[STREAM_ERA_TEXT];  /* of that time */
    bool has_sent;              /* since the last tick of mark_timer */
};

static void follow(struct republisher *r, const struct stream_cursor *from);
static void request(struct republisher *r);

/* Returns the offset below which all lines are filtered. */
static uint64_t reached(const struct republisher *r)
{
    if (r->unfiltered != NULL && !line_queue_is_empty(r->unfiltered))
        return line_queue_offset(r->unfiltered);
    return stream_client_cursor(r->source)->offset;
}

/* Pauses the source while the mark is not known or too many lines wait. */
static void pause_or_resume(struct republisher *r)
{
    bool full = r->unfiltered != NULL && line_queue_is_full(r->unfiltered);
    if (full || !r->asked || r->passed.len >= REPUBLISHER_RUN_MAX)
        stream_client_pause(r->source);
    else
        stream_client_resume(r->source);
}

static void drop_collected(struct republisher *r)
{
    buf_clear(&r->passed);
    if (r->unfiltered != NULL)
        line_queue_clear(r->unfiltered);
}

/* The lineage of a mark, as far as the destination stores it. */
static void set_opening(struct republisher *r)
{
    stream_client_opening_at(r->source, r->sending, r->opening, sizeof r->opening);
    lineage_cut_to_tag(r->opening, strlen(r->producer));
}

/* Sends the lines that passed, or moves only the mark. */
static void send_now(struct republisher *r)
{
    struct buf used = r->run;
    buf_clear(&used);
    r->run = r->passed;
    r->passed = used;
    r->sending = reached(r);
    r->has_sent = true;
    set_opening(r);
    r->doing = SENDING;
    request(r);
    pause_or_resume(r);
}

static bool may_send(const struct republisher *r)
{
    return r->asked && !r->into_itself && r->doing == IDLE;
}

static void send_what_passed(struct republisher *r)
{
    if (may_send(r) && r->passed.len > 0)
        send_now(r);
}

/* Stops if the destination is the source, because its lines would be read and sent again endlessly. */
static bool is_into_itself(struct republisher *r)
{
    if (!r->into_itself && stream_place_is_same(stream_client_place(r->source), &r->place)) {
        r->into_itself = true;
        stream_client_stop(r->source);
        stream_program_fail_into_itself(r->config.daemon);
    }
    return r->into_itself;
}

static void on_change(void *arg)
{
    struct republisher *r = arg;
    if (!is_into_itself(r))
        r->config.on_change(r->config.arg);
}

static void retry_after(struct republisher *r, usec_t delay)
{
    const struct timeval tv = {(time_t)(delay / USEC_PER_SEC), (suseconds_t)(delay % USEC_PER_SEC)};
    evtimer_add(r->retry_timer, &tv);
}

static void failed(struct republisher *r, const char *why)
{
    if (strcmp(r->trouble, why) != 0)
        log_warn("cannot publish", LOG_S("to", r->name), LOG_S("error", why));
    snprintf(r->trouble, sizeof r->trouble, "%s", why);
    usec_t wait = http_pool_wait(r->config.destination);
    retry_after(r, wait > 0 ? wait : backoff_failed(&r->backoff));
    on_change(r);
}

static void succeeded(struct republisher *r)
{
    backoff_succeeded(&r->backoff);
    r->doing = IDLE;
    if (r->trouble[0] == '\0')
        return;
    r->trouble[0] = '\0';
    on_change(r);
}

/* Moves only the mark if no line has passed. If the mark does not move, states only `until`. */
static void on_mark_timer(evutil_socket_t fd, short what, void *arg)
{
    struct republisher *r = arg;
    (void)fd, (void)what;
    loss_log_report(&r->losses, &r->numbers.lines, r->name, clock_monotonic(), false);
    if (may_send(r) && reached(r) > r->mark) {
        send_now(r);
    } else if (may_send(r) && r->config.to_queue == NULL && r->mark > 0 && !r->has_sent) {
        r->sending = r->mark;
        r->doing = SENDING;
        request(r);
    }
    r->has_sent = false;
}

static void ask_mark(struct republisher *r)
{
    const char *id = stream_client_cursor(r->source)->id;
    r->asked = false;
    stream_client_pause(r->source);
    const char *producer = options_text(daemon_options(r->config.daemon), "producer");
    snprintf(r->producer, sizeof r->producer, "%s", producer != NULL ? producer : id);
    snprintf(r->command, sizeof r->command,
        "millrace producers --%s=%s --set=%s --mark=", r->config.to_queue != NULL ? "queue" : "stream",
        r->name, r->producer);
    r->doing = ASKING;
    request(r);
}

static bool has_code(const struct http_reply_view *reply, const char *code)
{
    struct json_doc *doc = json_doc_parse(reply->body);
    bool is = bytes_equal_str(json_doc_text(doc, "/code"), code);
    json_doc_free(&doc);
    return is;
}

/* The destination answered with an error, such as "409 mark-conflict: ...". */
static void refused(struct republisher *r, const struct http_reply_view *reply)
{
    struct json_doc *doc = json_doc_parse(reply->body);
    struct bytes code = json_doc_text(doc, "/code"), detail = json_doc_text(doc, "/detail");
    char why[300];
    snprintf(why, sizeof why, "the destination answered %d", reply->status);
    if (code.ptr != NULL && detail.ptr != NULL)
        snprintf(why, sizeof why, "the destination answered %d %.*s: %.*s", reply->status,
            (int)(code.len < 60 ? code.len : 60), code.ptr, (int)(detail.len < 150 ? detail.len : 150),
            detail.ptr);
    json_doc_free(&doc);
    failed(r, why);
}

/* Returns true if there is a reply. Otherwise schedules a retry and returns false. */
static bool replied(
    struct republisher *r, enum http_client_result result, const struct http_reply_view *reply)
{
    bool is_new_era;
    r->call = NULL;
    if (result == HTTP_CLIENT_OK) {
        stream_place_read(reply, &r->place);
        if (stream_time_read(reply, &r->time, r->era, &is_new_era) && is_new_era)
            r->watermark = (struct watermark){0};
        return true;
    }
    if (result != HTTP_CLIENT_CANCELLED)
        failed(r, http_client_strerror(result));
    return false;
}

static void asked(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct republisher *r = arg;
    struct stream_cursor from = *stream_client_cursor(r->source);
    uint64_t mark = 0;
    bool known = false;
    from.opening[0] = '\0'; /* it belongs to another offset */
    if (!replied(r, result, reply))
        return;
    struct json_doc *doc = reply->status == 200 ? json_doc_parse(reply->body) : NULL;
    if (doc != NULL) {
        struct json_value k = json_doc_at(doc, "/known");
        struct bytes opening = json_doc_text(doc, "/opening");
        known = k.type == JSON_BOOL && k.v.boolean && json_doc_u64(doc, "/mark", &mark);
        if (known && mark > 0 && opening.len < sizeof from.opening && bytes_are_of_name(opening))
            snprintf(from.opening, sizeof from.opening, "%.*s", (int)opening.len, opening.ptr);
        json_doc_free(&doc);
    } else if (reply->status != 404 || !has_code(reply, "unknown-stream")) {
        refused(r, reply);
        return;
    }
    succeeded(r);
    if (is_into_itself(r))
        return;
    /* Connect to the source again, even at the same offset. The source must answer after the destination, because the
     * old connection may be to a process that no longer runs. */
    r->asked = true;
    r->mark = r->numbers.offset = known ? mark : 0;
    from.offset = r->mark > 0 ? r->mark : r->first;
    drop_collected(r);
    r->watermark = (struct watermark){0}; /* the destination may be an older copy */
    follow(r, &from);
    r->config.on_change(r->config.arg);
}

static void sent(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct republisher *r = arg;
    if (!replied(r, result, reply))
        return;
    if (reply->status == 200) {
        succeeded(r);
        r->numbers.runs += r->sending > r->mark;
        r->mark = r->numbers.offset = r->sending;
        if (!is_into_itself(r))
            send_what_passed(r);
    } else if (reply->status == 409 && has_code(reply, "mark-conflict")) {
        succeeded(r);
        log_warn("another producer has moved the destination's mark: asking again");
        drop_collected(r); /* they begin at a mark that the destination no longer has */
        ask_mark(r);
    } else {
        refused(r, reply);
    }
}

/* The time up to which the destination is complete once it has the lines below `sending` (docs/guide/protocol.md). */
static void append_until(struct republisher *r, char *target, size_t size)
{
    usec_t until = watermark_until(&r->watermark, r->sending);
    const struct options *o = daemon_options(r->config.daemon);
    size_t len = strlen(target);
    len += (size_t)snprintf(target + len, size - len, "&until=%" PRId64 ".%06" PRId64 "&era=%s",
        until / USEC_PER_SEC, until % USEC_PER_SEC, r->era);
    if (options_text(o, "producer") == NULL)
        snprintf(target + len, size - len, "&name=%s.%.*s", r->config.program,
            NAME_LEN_MAX - 1 - (int)strlen(r->config.program), options_text(o, "stream"));
}

/* With the mark of the run under way, or without lines if the mark does not move. */
static void publish_target(struct republisher *r, char *target, size_t size)
{
    snprintf(target, size, "%s=%s&producer=%s&mark=%" PRIu64,
        r->config.to_queue != NULL ? "/mput?separator=%0A&queue" : "/pub?stream", r->name, r->producer,
        r->mark);
    size_t len = strlen(target);
    if (r->sending > r->mark)
        snprintf(target + len, size - len, "&next=%" PRIu64 "%s%s", r->sending,
            r->opening[0] != '\0' ? "&opening=" : "", r->opening);
    if (r->config.to_queue == NULL)
        append_until(r, target, size);
}

static void request(struct republisher *r)
{
    usec_t wait = http_pool_wait(r->config.destination);
    bool asks = r->doing == ASKING;
    char target[600 + MARK_LABEL_MAX];
    if (wait > 0)
        retry_after(r, wait);
    if (wait > 0 || r->doing == IDLE)
        return;
    if (asks)
        snprintf(target, sizeof target, "/producer?%s=%s&producer=%s",
            r->config.to_queue != NULL ? "queue" : "stream", r->name, r->producer);
    else
        publish_target(r, target, sizeof target);
    bool has_body = !asks && r->sending > r->mark;
    struct http_call_spec spec = {.method = asks ? "GET" : "POST",
        .target = target,
        .content_type = has_body ? "application/octet-stream" : NULL,
        .body = has_body ? buf_bytes(&r->run) : BYTES_NONE,
        .body_is_lent = has_body,
        .may_resend = true, /* the mark makes a repeated run harmless */
        .arg = r,
        .on_done = asks ? asked : sent};
    r->call = http_pool_request(http_pool_single(r->config.destination), &spec);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    request(arg);
}

static void on_begin(void *arg)
{
    struct republisher *r = arg;
    r->first = reached(r);
    ask_mark(r);
}

static void filter_line(struct bytes line, void *arg)
{
    struct republisher *r = arg;
    line_counts_add(&r->numbers.lines, line_filter_apply(r->config.filter, line, &r->passed));
}

static void on_filtered(void *arg)
{
    struct republisher *r = arg;
    pause_or_resume(r);
    send_what_passed(r);
}

/* Without a filter, only erased lines do not pass. */
static void pass_lines(struct republisher *r, struct bytes lines)
{
    const char *end = lines.ptr + lines.len, *line = lines.ptr, *found;
    while (line < end && (found = memmem(line, (size_t)(end - line), "{} ", ERASED_LINE_MIN)) != NULL) {
        const char *lf = memrchr(line, '\n', (size_t)(found - line)), *start = lf ? lf + 1 : line;
        const char *next = (const char *)memchr(found, '\n', (size_t)(end - found)) + 1;
        bool is_erased = erased_line_is(bytes_of(start, (size_t)(next - start) - 1));
        buf_append(&r->passed, line, (size_t)((is_erased ? start : next) - line));
        line = next;
    }
    buf_append(&r->passed, line, (size_t)(end - line));
}

static void on_lines(struct bytes lines, void *arg)
{
    struct republisher *r = arg;
    if (r->unfiltered != NULL)
        line_queue_add(r->unfiltered, lines, stream_client_cursor(r->source)->offset);
    else
        pass_lines(r, lines);
    pause_or_resume(r);
    send_what_passed(r);
}

/* A line over max_line cannot be filtered, so it does not pass. */
static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    struct republisher *r = arg;
    (void)head;
    log_warn("line left out: longer than max_line", LOG_U("bytes", length),
        LOG_U("end", stream_client_cursor(r->source)->offset));
    line_counts_add(&r->numbers.lines, LINE_OVERLONG);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    struct republisher *r = arg;
    (void)before, (void)after;
    r->numbers.gaps++;
}

static void on_statement(const struct stream_statement *s, void *arg)
{
    struct republisher *r = arg;
    /* The destination is as far behind its present as the source is behind its own, whichever clock is ahead. */
    struct stream_statement cut = *s;
    usec_t behind = s->now - s->until, most = r->time > behind ? r->time - behind : 0;
    if (cut.until > most)
        cut.until = most;
    watermark_until(&r->watermark, r->mark);
    watermark_state(&r->watermark, &cut);
}

static void on_response_end(void *arg)
{
    struct republisher *r = arg;
    watermark_until(&r->watermark, r->mark);
    watermark_forget(&r->watermark);
}

static void follow(struct republisher *r, const struct stream_cursor *from)
{
    stream_client_free(&r->source);
    r->source = stream_program_follow(r->config.daemon, false,
        &(struct stream_client_config){.pubsub = r->config.source,
            .from = from != NULL ? *from : (struct stream_cursor){.offset = 0},
            .accept_option = r->command,
            .on_begin = on_begin,
            .on_lines = on_lines,
            .on_overlong = on_overlong,
            .on_gap = on_gap,
            .on_statement = r->config.to_queue == NULL ? on_statement : NULL,
            .on_response_end = on_response_end,
            .on_change = on_change,
            .arg = r});
}

struct republisher *republisher_new(const struct republisher_config *config)
{
    struct republisher *r = mem_zalloc(sizeof *r);
    struct event_base *base = daemon_base(config->daemon);
    const struct timeval every = {MARK_EVERY_SECONDS, 0};
    r->config = *config;
    r->name = config->to_queue != NULL ? config->to_queue
                                       : options_text(daemon_options(config->daemon), "to_stream");
    r->retry_timer = evtimer_new(base, on_retry, r);
    backoff_init(&r->backoff, RETRY_FIRST, RETRY_MAX, (uint64_t)clock_wall() ^ (uint64_t)getpid() << 32);
    if (config->filter != NULL)
        r->unfiltered = line_queue_new(&(struct line_queue_config){
            .scheduler = config->scheduler, .on_line = filter_line, .on_slice = on_filtered, .arg = r});
    follow(r, NULL);
    r->mark_timer = event_new(base, -1, EV_PERSIST, on_mark_timer, r);
    event_add(r->mark_timer, &every);
    return r;
}

void republisher_free(struct republisher **rp)
{
    struct republisher *r = *rp;
    if (r == NULL)
        return;
    loss_log_report(&r->losses, &r->numbers.lines, r->name, clock_monotonic(), true);
    if (r->call != NULL)
        http_call_cancel(r->call);
    event_free(r->mark_timer);
    event_free(r->retry_timer);
    stream_client_free(&r->source);
    line_queue_free(&r->unfiltered);
    buf_free(&r->passed);
    buf_free(&r->run);
    free(r);
    *rp = NULL;
}

const char *republisher_trouble(const struct republisher *r)
{
    const char *trouble = r->trouble[0] != '\0' ? r->trouble : NULL;
    if (trouble == NULL)
        trouble = stream_client_trouble(r->source, NULL);
    if (trouble == NULL && !r->asked)
        trouble = "asking for the destination's mark";
    return trouble;
}

struct republisher_numbers republisher_numbers(const struct republisher *r)
{
    return r->numbers;
}
