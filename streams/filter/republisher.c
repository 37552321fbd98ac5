#include "streams/filter/republisher.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/erased_line.h"
#include "base/log.h"
#include "daemon/loop_timer.h"
#include "http/client/http_pool.h"
#include "stream/publisher.h"
#include "stream/stream_client.h"
#include "stream/stream_program.h"
#include "stream/watermark.h"
#include "stream/line_scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MARK_EVERY_SECONDS 1
/* Delay before a retry after a reply such as 401, 404 or 413, for which the pool sets no delay. */
#define RETRY_FIRST (50 * USEC_PER_MSEC)
#define RETRY_MAX (2 * USEC_PER_SEC)

struct republisher {
    struct republisher_config config;
    struct stream_client *source;
    struct loop_timer *mark_timer;
    struct line_queue *unfiltered;     /* lines that are not filtered yet; NULL: no filter */
    struct buf passed;                 /* lines of the next run */
    uint64_t first;                    /* offset at which to begin if the destination has no mark */
    uint64_t mark;                     /* the destination's mark */
    uint64_t sending;                  /* the destination's mark once the current run is stored */
    char opening[STREAM_OPENING_TEXT]; /* opening (id of a run of pubsub) of the byte before `sending` */
    bool asked;                        /* the destination's mark is known */
    bool into_itself;                  /* source and destination are the same stream */
    /* The request to the destination: */
    enum { IDLE, ASKING, SENDING } doing;
    struct publisher *destination;
    const char *name; /* name of the destination's stream or queue */
    char producer[NAME_LEN_MAX + 1], producer_name[NAME_LEN_MAX + 1];
    char command[200]; /* shell command that sets the destination's mark, without the offset at its end */
    struct buf run;    /* lines of the current run */
    struct loop_timer *retry_timer;
    struct backoff backoff;
    char trouble[330];
    struct republisher_numbers numbers;
    struct loss_log losses;
    struct watermark watermark; /* watermark of the source, up to the lines that the destination has stored */
    bool has_sent;              /* a request was sent since the last tick of mark_timer */
};

static void follow(struct republisher *r, const struct stream_cursor *from);

/* Returns the offset before which all lines are filtered. */
static uint64_t reached(const struct republisher *r)
{
    if (r->unfiltered && !line_queue_is_empty(r->unfiltered))
        return line_queue_offset(r->unfiltered);
    return stream_client_cursor(r->source)->offset;
}

/* Pauses the source while the destination's mark is not known, or too many lines wait. */
static void pause_or_resume(struct republisher *r)
{
    bool full = r->unfiltered && line_queue_is_full(r->unfiltered);
    if (full || !r->asked || r->passed.len >= REPUBLISHER_RUN_MAX)
        stream_client_pause(r->source);
    else
        stream_client_resume(r->source);
}

static void drop_collected(struct republisher *r)
{
    buf_clear(&r->passed);
    if (r->unfiltered)
        line_queue_clear(r->unfiltered);
}

/* Sends a request to the destination. If the mark does not move, the request contains no lines. The request also
 * contains the time up to which the destination is complete once the run is stored. */
static void request(void *arg)
{
    struct republisher *r = arg;
    if (r->doing == ASKING)
        publisher_ask(r->destination, r->producer);
    else
        publisher_send(r->destination, &(struct publisher_run){.producer = r->producer,
                                           .mark = r->mark,
                                           .next = r->sending,
                                           .lines = buf_bytes(&r->run),
                                           .opening = r->sending > r->mark ? r->opening : NULL,
                                           .states = r->config.to_queue == NULL,
                                           .until = watermark_until(&r->watermark, r->sending),
                                           .name = r->producer_name});
}

/* Sends the lines that passed, or only the new mark, or only `until`. Sends nothing while lines of an earlier response
 * are being filtered, because the opening of these lines is no longer known. */
static void send_now(struct republisher *r)
{
    const char *opening = stream_client_opening_at(r->source, reached(r));
    struct buf used = r->run;
    if (!opening)
        return;
    buf_clear(&used);
    r->run = r->passed;
    r->passed = used;
    r->sending = reached(r);
    r->has_sent = true;
    snprintf(r->opening, sizeof r->opening, "%s", opening);
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

/* Ends the daemon if source and destination are the same stream, because its lines would be copied endlessly. */
static bool is_into_itself(struct republisher *r)
{
    if (!r->into_itself &&
        stream_place_is_same(stream_client_place(r->source), &publisher_destination(r->destination)->place)) {
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

static void failed(struct republisher *r, const struct publisher_outcome *o)
{
    char why[sizeof r->trouble];
    snprintf(why, sizeof why, "%s%s", o->status > 0 ? "the destination answered " : "", o->why);
    if (strcmp(r->trouble, why) != 0)
        log_warn("cannot publish", LOG_S("to", r->name), LOG_S("error", why));
    snprintf(r->trouble, sizeof r->trouble, "%s", why);
    loop_timer_set(r->retry_timer, o->wait > 0 ? o->wait : backoff_failed(&r->backoff));
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

/* Sends the new mark if no line has passed, or only `until` if the mark has not changed. */
static void on_mark_timer(void *arg)
{
    struct republisher *r = arg;
    loss_log_report(&r->losses, &r->numbers.lines, r->name, clock_monotonic(), false);
    bool states = !r->config.to_queue && r->mark > 0 && !r->has_sent;
    if (may_send(r) && (reached(r) > r->mark || states))
        send_now(r);
    r->has_sent = false;
}

static void ask_mark(struct republisher *r)
{
    r->asked = false;
    stream_client_pause(r->source);
    const char *producer = options_text(daemon_options(r->config.daemon), "producer");
    snprintf(
        r->producer, sizeof r->producer, "%s", producer ? producer : stream_client_cursor(r->source)->id);
    snprintf(r->command, sizeof r->command,
        "millrace producers --%s=%s --set=%s --mark=", r->config.to_queue ? "queue" : "stream", r->name,
        r->producer);
    r->doing = ASKING;
    request(r);
}

static void asked(struct republisher *r, const struct publisher_outcome *o)
{
    struct stream_cursor from = *stream_client_cursor(r->source);
    r->asked = true;
    from.offset = r->mark > 0 ? r->mark : r->first;
    snprintf(from.opening, sizeof from.opening, "%.*s", (int)o->opening.len,
        o->opening.len > 0 && r->mark > 0 ? o->opening.ptr : "");
    drop_collected(r);
    r->watermark = (struct watermark){0}; /* the destination may be an older copy of itself */
    /* A new connection to the source is needed even at the same offset: the source must answer after the destination,
     * and the old connection may be to a process that no longer runs. */
    follow(r, &from);
    r->config.on_change(r->config.arg);
}

static void on_outcome(const struct publisher_outcome *o, void *arg)
{
    struct republisher *r = arg;
    if (o->is_new_era)
        r->watermark = (struct watermark){0};
    if (o->result == PUBLISHER_REFUSED || o->result == PUBLISHER_FAILED) {
        failed(r, o);
        return;
    }
    succeeded(r);
    if (o->result == PUBLISHER_CONFLICT) {
        log_warn("another producer has moved the destination's mark: asking for the mark again");
        drop_collected(r); /* the collected lines begin at a mark that the destination no longer has */
        ask_mark(r);
        return;
    }
    r->numbers.runs += o->result == PUBLISHER_STORED;
    r->mark = r->numbers.offset = o->result != PUBLISHER_ASKED ? r->sending : o->known ? o->mark : 0;
    if (is_into_itself(r))
        return;
    if (o->result == PUBLISHER_ASKED)
        asked(r, o);
    send_what_passed(r);
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

/* Collects all lines except erased lines. Used without a filter. */
static void pass_lines(struct republisher *r, struct bytes lines)
{
    const char *end = lines.ptr + lines.len, *line = lines.ptr, *found;
    while (line < end && (found = memmem(line, (size_t)(end - line), "{} ", ERASED_LINE_MIN))) {
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
    if (r->unfiltered)
        line_queue_add(r->unfiltered, lines, stream_client_cursor(r->source)->offset);
    else
        pass_lines(r, lines);
    pause_or_resume(r);
    send_what_passed(r);
}

/* Counts a line longer than max_line. Such a line does not pass, because the filter cannot read its end. */
static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    struct republisher *r = arg;
    (void)head;
    log_warn("line skipped: longer than max_line", LOG_U("bytes", length),
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
    /* The clocks of source and destination may differ. Therefore `until` must be at least as old by the destination's
     * clock as by the source's clock. */
    struct stream_statement cut = *s;
    usec_t time = publisher_destination(r->destination)->time;
    usec_t behind = s->now - s->until, most = time > behind ? time - behind : 0;
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
    r->source = stream_program_follow(r->config.daemon, false, false,
        &(struct stream_client_config){.pubsub = r->config.source,
            .from = from ? *from : (struct stream_cursor){.offset = 0},
            .accept_option = r->command,
            .on_begin = on_begin,
            .on_lines = on_lines,
            .on_overlong = on_overlong,
            .on_gap = on_gap,
            .on_statement = !r->config.to_queue ? on_statement : NULL,
            .on_response_end = on_response_end,
            .on_change = on_change,
            .arg = r});
}

struct republisher *republisher_new(const struct republisher_config *config)
{
    struct republisher *r = mem_zalloc(sizeof *r);
    struct event_base *base = daemon_base(config->daemon);
    const struct options *o = daemon_options(config->daemon);
    r->config = *config;
    r->name = config->to_queue ? config->to_queue : options_text(o, "to_stream");
    r->destination = publisher_new(&(struct publisher_config){.pool = config->destination,
        .stream = config->to_queue ? NULL : r->name,
        .queue = config->to_queue,
        .on_outcome = on_outcome,
        .arg = r});
    if (!options_text(o, "producer") && !config->to_queue)
        snprintf(
            r->producer_name, sizeof r->producer_name, "%s.%s", config->program, options_text(o, "stream"));
    r->retry_timer = loop_timer_new(base, request, r);
    backoff_init(&r->backoff, RETRY_FIRST, RETRY_MAX, (uint64_t)clock_wall() ^ (uint64_t)getpid() << 32);
    if (config->filter)
        r->unfiltered = line_queue_new(&(struct line_queue_config){
            .scheduler = config->scheduler, .on_line = filter_line, .on_slice = on_filtered, .arg = r});
    follow(r, NULL);
    r->mark_timer = loop_timer_every(base, MARK_EVERY_SECONDS * USEC_PER_SEC, on_mark_timer, r);
    return r;
}

void republisher_free(struct republisher **rp)
{
    struct republisher *r = *rp;
    if (!r)
        return;
    loss_log_report(&r->losses, &r->numbers.lines, r->name, clock_monotonic(), true);
    publisher_free(&r->destination);
    loop_timer_free(&r->mark_timer);
    loop_timer_free(&r->retry_timer);
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
    if (!trouble)
        trouble = stream_client_trouble(r->source, NULL);
    if (!trouble && !r->asked)
        trouble = "asking for the destination's mark";
    return trouble;
}

struct republisher_numbers republisher_numbers(const struct republisher *r)
{
    return r->numbers;
}
