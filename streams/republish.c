#include "republish.h"

#include "clock.h"
#include "log.h"
#include "publisher.h"
#include "stream_client.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#define MARK_EVERY_SECONDS 1

struct republish {
    struct republish_config config;
    struct publisher *publisher;
    struct stream_client *source;
    struct event *timer;
    struct buf passed; /* filtered, not sent yet */
    uint64_t first;    /* where the source began, for a destination without a mark */
    uint64_t mark;     /* the destination's */
    uint64_t sending;  /* what the run under way moves it to */
    bool asked;        /* the mark is known */
    bool into_itself;
    struct republish_numbers numbers;
};

static void follow(struct republish *r, const struct stream_cursor *from);

static uint64_t reached(const struct republish *r)
{
    return stream_client_cursor(r->source)->offset;
}

static void send_now(struct republish *r)
{
    r->sending = reached(r);
    publisher_send(r->publisher, &r->passed, r->mark, r->sending);
    stream_client_resume(r->source);
}

static bool may_send(const struct republish *r)
{
    return r->asked && !r->into_itself && !publisher_is_busy(r->publisher);
}

static void send_what_passed(struct republish *r)
{
    if (may_send(r) && r->passed.len > 0)
        send_now(r);
}

/* Its lines would be read again, and sent again, without end. */
static bool is_into_itself(struct republish *r)
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
    struct republish *r = arg;
    r->mark = r->numbers.offset = r->sending;
    r->numbers.runs++;
    if (!is_into_itself(r))
        send_what_passed(r);
}

/* Nothing passes: the mark alone. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct republish *r = arg;
    (void)fd, (void)what;
    if (may_send(r) && reached(r) > r->mark)
        send_now(r);
}

/* The source is asked again also where it stands right: what follows then is of an answer that is newer than the destination's,
 * not of a connection to a life that may be over, whose place says nothing any more. */
static void on_mark(bool known, uint64_t mark, void *arg)
{
    struct republish *r = arg;
    struct stream_cursor from = *stream_client_cursor(r->source);
    if (is_into_itself(r))
        return;
    r->asked = true;
    r->mark = r->numbers.offset = known ? mark : 0;
    from.offset = r->mark > 0 ? r->mark : r->first;
    buf_clear(&r->passed);
    follow(r, &from);
    r->config.on_change(r->config.arg);
}

static void ask_mark(struct republish *r)
{
    const char *id = stream_client_cursor(r->source)->id;
    r->asked = false;
    stream_client_pause(r->source);
    publisher_ask(r->publisher, r->config.producer != NULL ? r->config.producer : id);
}

/* What was gathered is of a mark that is no more. */
static void on_conflict(void *arg)
{
    struct republish *r = arg;
    log_warn("the destination's mark is another than the one this moved it to: asking again");
    buf_clear(&r->passed);
    ask_mark(r);
}

static void on_begin(void *arg)
{
    struct republish *r = arg;
    r->first = reached(r);
    ask_mark(r);
}

static void filter_line(struct republish *r, struct bytes line)
{
    r->numbers.read++;
    switch (line_filter_apply(r->config.filter, line, &r->passed)) {
    case LINE_PASSED:
        r->numbers.passed++;
        break;
    case LINE_FILTERED:
        r->numbers.filtered++;
        break;
    case LINE_UNDECIDED:
        r->numbers.undecided++;
        break;
    case LINE_REFUSED:
        r->numbers.refused++;
        break;
    }
}

static void filter_lines(struct republish *r, struct bytes lines)
{
    const char *at = lines.ptr, *end = lines.ptr + lines.len;
    while (at < end) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        filter_line(r, bytes_of(at, (size_t)(lf - at)));
        at = lf + 1;
    }
}

static void on_lines(struct bytes lines, void *arg)
{
    struct republish *r = arg;
    if (r->config.filter != NULL)
        filter_lines(r, lines);
    else
        buf_append_bytes(&r->passed, lines);
    if (r->passed.len >= REPUBLISH_RUN)
        stream_client_pause(r->source);
    send_what_passed(r);
}

/* It could not be looked into, so it does not go on. */
static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    struct republish *r = arg;
    (void)head;
    log_warn("a line over max_line is not passed on", LOG_U("bytes", length), LOG_U("end", reached(r)));
    r->numbers.read++;
    r->numbers.overlong++;
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    struct republish *r = arg;
    (void)before, (void)after;
    r->numbers.gaps++;
}

static void on_change(void *arg)
{
    struct republish *r = arg;
    if (!is_into_itself(r))
        r->config.on_change(r->config.arg);
}

static void follow(struct republish *r, const struct stream_cursor *from)
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

struct republish *republish_new(const struct republish_config *config)
{
    struct republish *r = mem_zalloc(sizeof *r);
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
    follow(r, NULL);
    r->timer = event_new(config->base, -1, EV_PERSIST, on_timer, r);
    event_add(r->timer, &every);
    return r;
}

void republish_free(struct republish **rp)
{
    struct republish *r = *rp;
    if (r == NULL)
        return;
    event_free(r->timer);
    stream_client_free(&r->source);
    publisher_free(&r->publisher);
    buf_free(&r->passed);
    free(r);
    *rp = NULL;
}

const char *republish_trouble(const struct republish *r)
{
    const char *trouble = publisher_trouble(r->publisher);
    if (trouble == NULL)
        trouble = stream_client_trouble(r->source, NULL);
    if (trouble == NULL && !r->asked)
        trouble = "asking where the destination has got to";
    return trouble;
}

struct republish_numbers republish_numbers(const struct republish *r)
{
    return r->numbers;
}
