#include "streams/filter/republisher.h"

#include "base/clock.h"
#include "streams/filter/line_scheduler.h"
#include "base/log.h"
#include "stream/publisher.h"
#include "stream/stream_client.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#define MARK_EVERY_SECONDS 1

struct republisher {
    struct republisher_config config;
    struct publisher *publisher;
    struct stream_client *source;
    struct event *timer;
    struct line_queue *unfiltered; /* NULL: no filter */
    struct buf passed;             /* lines to send */
    uint64_t first;                /* the first offset if the destination has no mark */
    uint64_t mark;                 /* the destination's mark */
    uint64_t sending;              /* the destination's mark after the run under way */
    bool asked;                    /* the mark is known */
    bool into_itself;
    struct republisher_numbers numbers;
    struct loss_log losses;
};

static void follow(struct republisher *r, const struct stream_cursor *from);

/* Returns the offset below which all lines are filtered. */
static uint64_t reached(const struct republisher *r)
{
    if (r->unfiltered != NULL && !line_queue_is_empty(r->unfiltered))
        return line_queue_offset(r->unfiltered);
    return stream_client_cursor(r->source)->offset;
}

/* The source waits until the mark is known. */
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

static void send_now(struct republisher *r)
{
    r->sending = reached(r);
    publisher_send(r->publisher, &r->passed, r->mark, r->sending);
    pause_or_resume(r);
}

static bool may_send(const struct republisher *r)
{
    return r->asked && !r->into_itself && !publisher_is_busy(r->publisher);
}

static void send_what_passed(struct republisher *r)
{
    if (may_send(r) && r->passed.len > 0)
        send_now(r);
}

/* Stops if the destination is the source: its lines would be read and sent again without end. */
static bool is_into_itself(struct republisher *r)
{
    if (!r->into_itself &&
        stream_place_is_same(stream_client_place(r->source), publisher_place(r->publisher))) {
        r->into_itself = true;
        stream_client_stop(r->source);
        r->config.on_into_itself(r->config.arg);
    }
    return r->into_itself;
}

static void on_stored(void *arg)
{
    struct republisher *r = arg;
    r->mark = r->numbers.offset = r->sending;
    r->numbers.runs++;
    if (!is_into_itself(r))
        send_what_passed(r);
}

/* Moves the mark alone if no line has passed. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct republisher *r = arg;
    (void)fd, (void)what;
    loss_log_report(&r->losses, &r->numbers.lines, r->config.to_stream, clock_monotonic(), false);
    if (may_send(r) && reached(r) > r->mark)
        send_now(r);
}

/* Follows the source anew, even from the same offset. The source's place must be newer than the destination's answer: the old
 * connection may be to a process that no longer runs. */
static void on_mark(bool known, uint64_t mark, void *arg)
{
    struct republisher *r = arg;
    struct stream_cursor from = *stream_client_cursor(r->source);
    if (is_into_itself(r))
        return;
    r->asked = true;
    r->mark = r->numbers.offset = known ? mark : 0;
    from.offset = r->mark > 0 ? r->mark : r->first;
    drop_collected(r);
    follow(r, &from);
    r->config.on_change(r->config.arg);
}

static void ask_mark(struct republisher *r)
{
    const char *id = stream_client_cursor(r->source)->id;
    r->asked = false;
    stream_client_pause(r->source);
    publisher_ask(r->publisher, r->config.producer != NULL ? r->config.producer : id);
}

/* Drops the collected lines, because they follow a mark that the destination no longer has. */
static void on_conflict(void *arg)
{
    struct republisher *r = arg;
    log_warn("another producer has moved the destination's mark: asking again");
    drop_collected(r);
    ask_mark(r);
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

static void on_lines(struct bytes lines, void *arg)
{
    struct republisher *r = arg;
    if (r->unfiltered != NULL)
        line_queue_add(r->unfiltered, lines, stream_client_cursor(r->source)->offset);
    else
        buf_append_bytes(&r->passed, lines);
    pause_or_resume(r);
    send_what_passed(r);
}

/* A line that cannot be filtered does not pass. */
static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    struct republisher *r = arg;
    (void)head;
    log_warn("line left out: longer than max_line", LOG_U("bytes", length),
        LOG_U("end", stream_client_cursor(r->source)->offset));
    line_counts_add_overlong(&r->numbers.lines);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    struct republisher *r = arg;
    (void)before, (void)after;
    r->numbers.gaps++;
}

static void on_change(void *arg)
{
    struct republisher *r = arg;
    if (!is_into_itself(r))
        r->config.on_change(r->config.arg);
}

static void follow(struct republisher *r, const struct stream_cursor *from)
{
    stream_client_free(&r->source);
    r->source = stream_client_new(&(struct stream_client_config){.base = r->config.base,
        .pubsub = r->config.source,
        .stream = r->config.stream,
        .from = from != NULL ? *from : (struct stream_cursor){.offset = 0},
        .begin = r->config.begin,
        .max_line = r->config.max_line,
        .on_begin = on_begin,
        .on_lines = on_lines,
        .on_overlong = on_overlong,
        .on_gap = on_gap,
        .on_change = on_change,
        .arg = r});
}

struct republisher *republisher_new(const struct republisher_config *config)
{
    struct republisher *r = mem_zalloc(sizeof *r);
    const struct timeval every = {MARK_EVERY_SECONDS, 0};
    r->config = *config;
    r->publisher = publisher_new(&(struct publisher_config){.base = config->base,
        .destination = config->destination,
        .stream = config->to_stream,
        .queue = config->to_queue,
        .on_mark = on_mark,
        .on_stored = on_stored,
        .on_conflict = on_conflict,
        .on_change = on_change,
        .arg = r});
    if (config->filter != NULL)
        r->unfiltered = line_queue_new(&(struct line_queue_config){
            .scheduler = config->scheduler, .on_line = filter_line, .on_slice = on_filtered, .arg = r});
    follow(r, NULL);
    r->timer = event_new(config->base, -1, EV_PERSIST, on_timer, r);
    event_add(r->timer, &every);
    return r;
}

void republisher_free(struct republisher **rp)
{
    struct republisher *r = *rp;
    if (r == NULL)
        return;
    loss_log_report(&r->losses, &r->numbers.lines, r->config.to_stream, clock_monotonic(), true);
    event_free(r->timer);
    stream_client_free(&r->source);
    line_queue_free(&r->unfiltered);
    publisher_free(&r->publisher);
    buf_free(&r->passed);
    free(r);
    *rp = NULL;
}

const char *republisher_trouble(const struct republisher *r)
{
    const char *trouble = publisher_trouble(r->publisher);
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
