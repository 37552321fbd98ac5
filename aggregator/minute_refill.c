#include "aggregator/minute_refill.h"

#include "base/log.h"
#include "stream/stream_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LATER 10 /* minutes by which the refill begins later if lines have expired */

enum step {
    STEP_NEXT,    /* the next stream is due */
    STEP_SEEK,    /* ask pubsub for the first line to read */
    STEP_SEEKING, /* `first` is not known yet */
    STEP_CHECK,   /* ask pubsub for the earliest line */
    STEP_CHECKING,
    STEP_READ, /* begin to read the lines from `first` on */
    STEP_READING,
    STEP_OVER, /* no stream is left */
};

struct minute_refill {
    struct minute_refill_config config;
    enum step step;
    size_t at; /* stream */
    struct slice_cursor *ends;
    struct stream_client *stream;
    struct stream_cursor first;
    int64_t from, covered; /* minutes: the minute of the seek; the minute from which all streams were read */
    bool is_cut;           /* lines are missing */
};

struct minute_refill *minute_refill_new(const struct minute_refill_config *config)
{
    struct minute_refill *r = mem_zalloc(sizeof *r);
    *r = (struct minute_refill){.config = *config};
    r->ends = mem_zalloc((config->n_streams + 1) * sizeof *r->ends);
    bool is_new = true;
    for (size_t i = 0; i < config->n_streams; i++) {
        r->ends[i] = *aggregate_cursor(config->aggregate, i);
        is_new = is_new && r->ends[i].offset == 0;
    }
    if (!is_new)
        minute_ring_cover(config->ring, config->now / SECONDS_PER_MINUTE + MINUTE_RING_AHEAD + 1);
    r->step = is_new ? STEP_OVER : STEP_NEXT;
    return r;
}

static const struct slice_cursor *end_of(const struct minute_refill *r)
{
    return &r->ends[r->at];
}

/* Ends the stream. */
static void finish(struct minute_refill *r, bool is_cut)
{
    r->is_cut = r->is_cut || is_cut;
    r->at++;
    r->step = STEP_NEXT;
    if (r->stream)
        stream_client_stop(r->stream);
}

/* Called for the answers to STEP_SEEK and STEP_CHECK. If the stream still has a line before `first`, retention has
 * deleted no line after the time of the seek. */
static void on_begin(void *arg)
{
    struct minute_refill *r = arg;
    const struct stream_cursor *found = stream_client_cursor(r->stream);
    stream_client_stop(r->stream);
    if (strncmp(found->id, end_of(r)->id, STREAM_ID_TEXT - 1) != 0) {
        finish(r, true);
    } else if (r->step == STEP_SEEKING) {
        r->first = *found;
        r->step = found->offset == 0 ? STEP_READ : STEP_CHECK;
    } else if (found->offset < r->first.offset) {
        r->step = STEP_READ;
    } else if ((r->from += LATER) < r->config.now / SECONDS_PER_MINUTE) {
        r->step = STEP_SEEK;
    } else {
        finish(r, true);
    }
}

static void on_lines(struct bytes lines, void *arg)
{
    struct minute_refill *r = arg;
    struct bytes line;
    uint64_t offset = stream_client_cursor(r->stream)->offset - lines.len;
    while (r->step == STEP_READING && offset < end_of(r)->offset && bytes_take_line(&lines, &line)) {
        aggregate_refill_line(r->config.aggregate, line);
        offset += line.len + 1;
    }
    if (aggregate_is_full(r->config.aggregate))
        stream_client_pause(r->stream);
    if (r->step == STEP_READING && offset >= end_of(r)->offset)
        finish(r, false);
}

/* The line was rejected. */
static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    (void)length;
    on_lines(bytes_of(head.ptr, 0), arg);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    (void)before, (void)after;
    finish(arg, true);
}

static struct stream_client *open_stream(
    struct minute_refill *r, const struct stream_cursor *from, const char *begin)
{
    return stream_client_new(&(struct stream_client_config){.base = r->config.base,
        .pubsub = r->config.client,
        .stream = end_of(r)->stream,
        .from = *from,
        .begin = begin,
        .max_line = r->config.max_line,
        .on_begin = on_begin,
        .on_lines = on_lines,
        .on_overlong = on_overlong,
        .on_gap = on_gap,
        .arg = r});
}

/* Begins the next stream of which lines were counted. */
static void next_stream(struct minute_refill *r)
{
    while (r->at < r->config.n_streams && end_of(r)->offset == 0)
        r->at++;
    r->step = r->at < r->config.n_streams ? STEP_SEEK : STEP_OVER;
    r->from = r->config.now / SECONDS_PER_MINUTE - MINUTE_RING_MINUTES - MINUTE_RING_AHEAD;
    if (r->step == STEP_SEEK)
        return;
    if (!r->is_cut)
        minute_ring_cover(r->config.ring, r->covered + MINUTE_RING_AHEAD);
    log_info("minutes refilled", LOG_I("from", minute_ring_from(r->config.ring) * SECONDS_PER_MINUTE));
}

void minute_refill_tick(struct minute_refill *r)
{
    char begin[32];
    static const struct stream_cursor none;
    if (r->step == STEP_NEXT || r->step == STEP_SEEK || r->step == STEP_CHECK || r->step == STEP_READ)
        stream_client_free(&r->stream);
    switch (r->step) {
    case STEP_NEXT:
        next_stream(r);
        break;
    case STEP_SEEK:
        r->step = STEP_SEEKING;
        snprintf(begin, sizeof begin, "@%" PRId64, r->from * SECONDS_PER_MINUTE);
        r->stream = open_stream(r, &none, begin);
        break;
    case STEP_CHECK:
        r->step = STEP_CHECKING;
        r->stream = open_stream(r, &none, "earliest");
        break;
    case STEP_READ:
        r->step = STEP_READING;
        r->covered = r->from > r->covered ? r->from : r->covered;
        if (r->first.offset >= end_of(r)->offset)
            finish(r, false);
        else
            r->stream = open_stream(r, &r->first, NULL);
        break;
    case STEP_READING:
        if (!aggregate_is_full(r->config.aggregate))
            stream_client_resume(r->stream);
        break;
    case STEP_SEEKING:
    case STEP_CHECKING:
    case STEP_OVER:
        break;
    }
}

void minute_refill_stop(struct minute_refill *r)
{
    stream_client_free(&r->stream);
    r->step = STEP_OVER;
}

void minute_refill_free(struct minute_refill **rp)
{
    struct minute_refill *r = *rp;
    if (!r)
        return;
    stream_client_free(&r->stream);
    free(r->ends);
    free(r);
    *rp = NULL;
}
