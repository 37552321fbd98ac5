#include "aggregator/watermark_poll.h"

#include "aggregator/follower.h"
#include "counts/json_fields.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "http/client/http_client.h"
#include "stream/stream_client.h"
#include "stream/stream_watermark.h"
#include "stream/watermark.h"

#include <assert.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#define ASK_SECONDS 1
#define HELD_TEXT (2 * NAME_LEN_MAX + 2)

struct stream_poll {
    struct watermark *watermark;
    struct producer_times *times;
    struct stream_place place;      /* of the observations */
    char held_by[NAME_LEN_MAX + 1]; /* as of the last answer */
};

struct watermark_poll {
    struct watermark_poll_config config;
    struct watermark *watermark; /* of all streams together */
    struct watermark *stored;    /* the same, by committed counts */
    struct stream_poll streams[WATERMARK_STREAMS_MAX];
    struct event *timer;
    bool asking, is_stale; /* an answer is not of the process of pubsub that serves the lines */
    size_t at;             /* the stream of the request */
    /* the observation that is being made */
    struct watermark_time time;
    uint64_t ends[WATERMARK_STREAMS_MAX];
    char least[HELD_TEXT];   /* the producer with the least time */
    char held_by[HELD_TEXT]; /* as of the last observation */
    usec_t held_since;       /* monotonic */
    char logged[HELD_TEXT];  /* the producer that the log has named last */
};

static void ask(struct watermark_poll *p);

/* A restarted pubsub may have an older copy, so the ends that the former process stated are no measure of its lines. */
static void notice_restart(struct watermark_poll *p)
{
    for (size_t i = 0; i < p->config.n_streams; i++) {
        const struct stream_place *place = follower_place(p->config.followers[i]);
        if (strcmp(place->text, p->streams[i].place.text) == 0)
            continue;
        p->streams[i].place = *place;
        watermark_forget(p->streams[i].watermark);
        watermark_forget(p->watermark);
        watermark_forget(p->stored);
        p->is_stale = true;
    }
}

static struct watermark_time reached(struct watermark_poll *p)
{
    notice_restart(p);
    uint64_t offsets[WATERMARK_STREAMS_MAX];
    for (size_t i = 0; i < p->config.n_streams; i++)
        offsets[i] = aggregate_cursor(p->config.aggregate, i)->offset;
    return watermark_complete_until(p->watermark, offsets);
}

/* A cursor that went back to where a restored stream differs is before the committed one. */
static struct watermark_time stored(struct watermark_poll *p)
{
    notice_restart(p);
    uint64_t offsets[WATERMARK_STREAMS_MAX];
    for (size_t i = 0; i < p->config.n_streams; i++) {
        uint64_t counted = aggregate_cursor(p->config.aggregate, i)->offset;
        uint64_t committed = aggregate_committed(p->config.aggregate, i)->offset;
        offsets[i] = committed < counted ? committed : counted;
    }
    return watermark_complete_until(p->stored, offsets);
}

static struct watermark_time stream_reached(struct watermark_poll *p, size_t stream)
{
    notice_restart(p);
    uint64_t offset = aggregate_cursor(p->config.aggregate, stream)->offset;
    return watermark_complete_until(p->streams[stream].watermark, &offset);
}

/* The time up to which counts are complete: never after the moment of the observation. 0: unknown. */
static usec_t complete_until(struct watermark_time w, struct clock_moment now)
{
    usec_t time = w.at.boot ? clock_moment_time(w.at, now) : 0;
    return time < w.until ? time : w.until;
}

int64_t watermark_poll_complete_until(struct watermark_poll *p)
{
    return complete_until(reached(p), daemon_moment(p->config.daemon)) / USEC_PER_SEC;
}

int64_t watermark_poll_stored_until(struct watermark_poll *p)
{
    return complete_until(stored(p), daemon_moment(p->config.daemon)) / USEC_PER_SEC;
}

int64_t watermark_poll_stream_until(struct watermark_poll *p, size_t stream)
{
    return complete_until(stream_reached(p, stream), daemon_moment(p->config.daemon)) / USEC_PER_SEC;
}

const char *watermark_poll_stream_held_by(const struct watermark_poll *p, size_t stream)
{
    return p->streams[stream].held_by;
}

const char *watermark_poll_held_by(const struct watermark_poll *p)
{
    return p->held_by;
}

uint64_t watermark_poll_lag(const struct watermark_poll *p, size_t stream)
{
    uint64_t end = watermark_stream_end(p->watermark, stream);
    uint64_t offset = aggregate_cursor(p->config.aggregate, stream)->offset;
    return end > offset ? end - offset : 0;
}

static bool holds_back(struct watermark_time time)
{
    return time.until < time.at.trusted - WATERMARK_HELD;
}

/* The log leaves out the seconds at a start in which a producer has not stated its time yet. */
static void set_held_by(struct watermark_poll *p)
{
    bool held = p->least[0] && holds_back(p->time);
    usec_t now = clock_monotonic();
    if (!held || !p->held_by[0])
        p->held_since = now;
    snprintf(p->held_by, sizeof p->held_by, "%s", held ? p->least : "");
    if (strcmp(p->held_by, p->logged) == 0 || (held && now - p->held_since < WATERMARK_HELD))
        return;
    if (held)
        log_warn("a producer holds completeness back", LOG_S("producer", p->held_by),
            LOG_I("until", p->time.until / USEC_PER_SEC));
    else
        log_info("no producer holds completeness back");
    snprintf(p->logged, sizeof p->logged, "%s", p->held_by);
}

static void observe(struct watermark_poll *p)
{
    notice_restart(p);
    if (p->is_stale)
        return;
    set_held_by(p);
    if (p->time.until > 0) {
        watermark_observe(p->watermark, p->time, p->ends);
        watermark_observe(p->stored, p->time, p->ends);
    }
    reached(p);
    stored(p);
}

static void observe_stream(struct watermark_poll *p, size_t stream, const struct stream_watermark *w)
{
    struct stream_poll *s = &p->streams[stream];
    struct watermark_time time = {p->time.at, w->until};
    bool held = w->producer[0] && holds_back(time);
    snprintf(s->held_by, sizeof s->held_by, "%s", held ? w->producer : "");
    notice_restart(p);
    if (time.until > 0)
        watermark_observe(s->watermark, time, &w->end);
    stream_reached(p, stream);
}

static bool is_of_another_process(const struct watermark_poll *p, const struct http_reply_view *reply)
{
    const struct stream_place *followed = follower_place(p->config.followers[p->at]);
    struct stream_place place;
    stream_place_read(reply, &place);
    return place.text[0] && followed->text[0] && !stream_place_is_same(&place, followed);
}

/* Returns false if the answer is not usable, or the stream is not the one that is counted. */
static bool read_stream(struct watermark_poll *p, const struct http_reply_view *reply)
{
    const char *id = aggregate_cursor(p->config.aggregate, p->at)->id;
    struct stream_watermark w;
    struct producer_times *last = p->streams[p->at].times;
    if (reply->status == 200 && is_of_another_process(p, reply)) {
        p->is_stale = true;
        return true;
    }
    if (reply->status != 200 || !stream_watermark_read(reply->body, p->config.producer_timeout, last, &w) ||
        (id[0] && strncmp(id, w.id, strlen(w.id)) != 0))
        return false;
    p->ends[p->at] = w.end;
    observe_stream(p, p->at, &w);
    if (w.until < p->time.until) {
        p->time.until = w.until;
        snprintf(p->least, sizeof p->least, "%s/%s", p->config.streams[p->at], w.producer);
    }
    return true;
}

/* True if nothing is published yet. */
static bool is_unknown_stream(struct watermark_poll *p, const struct http_reply_view *reply)
{
    struct json_doc *doc = reply->status == 404 ? json_doc_parse(reply->body) : NULL;
    bool is = bytes_equal_str(json_doc_text(doc, "/code"), "unknown-stream");
    json_doc_free(&doc);
    is = is && !aggregate_cursor(p->config.aggregate, p->at)->id[0];
    if (is)
        observe_stream(p, p->at, &(struct stream_watermark){.until = STREAM_WATERMARK_NONE});
    return is;
}

static void answered(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct watermark_poll *p = arg;
    p->asking = result == HTTP_CLIENT_OK && (is_unknown_stream(p, reply) || read_stream(p, reply));
    if (!p->asking)
        return;
    if (++p->at < p->config.n_streams) {
        ask(p);
        return;
    }
    p->asking = false;
    observe(p);
}

static void ask(struct watermark_poll *p)
{
    char target[NAME_LEN_MAX + 48];
    snprintf(target, sizeof target, "/producers?stream=%s&stating=1", p->config.streams[p->at]);
    http_client_request(p->config.client,
        &(struct http_call_spec){
            .method = "GET", .target = target, .may_resend = true, .arg = p, .on_done = answered});
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct watermark_poll *p = arg;
    (void)fd, (void)what;
    if (p->asking)
        return;
    p->asking = true;
    p->is_stale = false;
    p->at = 0;
    p->time = (struct watermark_time){daemon_moment(p->config.daemon), STREAM_WATERMARK_NONE};
    p->least[0] = '\0';
    memset(p->ends, 0, sizeof p->ends);
    ask(p);
}

struct watermark_poll *watermark_poll_new(const struct watermark_poll_config *config)
{
    assert(config->n_streams <= WATERMARK_STREAMS_MAX);
    struct watermark_poll *p = mem_zalloc(sizeof(*p));
    p->config = *config;
    p->watermark = watermark_new(config->n_streams);
    p->stored = watermark_new(config->n_streams);
    for (size_t i = 0; i < config->n_streams; i++)
        p->streams[i] = (struct stream_poll){.watermark = watermark_new(1), .times = producer_times_new()};
    p->timer = event_new(daemon_base(config->daemon), -1, EV_PERSIST, on_timer, p);
    evtimer_add(p->timer, &(struct timeval){.tv_sec = ASK_SECONDS});
    on_timer(-1, 0, p);
    return p;
}

void watermark_poll_free(struct watermark_poll **pp)
{
    struct watermark_poll *p = *pp;
    *pp = NULL;
    if (!p)
        return;
    event_free(p->timer);
    watermark_free(&p->watermark);
    watermark_free(&p->stored);
    for (size_t i = 0; i < p->config.n_streams; i++) {
        watermark_free(&p->streams[i].watermark);
        producer_times_free(&p->streams[i].times);
    }
    free(p);
}
