#include "stream/stream_feed.h"

#include "base/log.h"
#include "base/rate_limit.h"
#include "http/client/http_client.h"
#include "stream/stream_program.h"
#include "stream/watermark.h"

#include <stdlib.h>

#define LOG_TEXT 200 /* bytes of a line that the log shows */
#define LOG_RATE 10  /* lines a second */

struct stream_feed {
    struct stream_feed_config config;
    struct daemon *daemon;
    struct http_client *pubsub;
    struct stream_client *client;
    uint64_t end; /* of the stream */
    struct watermark watermark;
    struct rate_limit log_limit;
};

static uint64_t stored(const struct stream_feed *f)
{
    return f->config.stored(f->config.arg);
}

static void on_begin(void *arg)
{
    struct stream_feed *f = arg;
    if (f->config.on_begin)
        f->config.on_begin(f->config.arg);
}

static void on_lines(struct bytes lines, void *arg)
{
    struct stream_feed *f = arg;
    f->config.on_lines(lines, f->config.arg);
}

static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    struct stream_feed *f = arg;
    (void)length;
    f->config.on_overlong(head, f->config.arg);
    on_lines(BYTES_NONE, f);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    (void)before, (void)after; /* the client logs them */
    on_lines(BYTES_NONE, arg);
}

static void on_statement(const struct stream_statement *s, void *arg)
{
    struct stream_feed *f = arg;
    f->end = s->end;
    watermark_state(&f->watermark, s);
}

static void on_response_end(void *arg)
{
    struct stream_feed *f = arg;
    watermark_until(&f->watermark, stored(f));
    watermark_forget(&f->watermark);
}

static void on_change(void *arg)
{
    struct stream_feed *f = arg;
    bool refused;
    const char *trouble = stream_client_trouble(f->client, &refused);
    daemon_set_notice(
        f->daemon, "stream", refused ? NOTICE_ALARM : NOTICE_WARNING, refused ? "" : PEER_REMEDY, trouble);
    if (f->config.on_change)
        f->config.on_change(trouble || stream_client_is_caught_up(f->client), f->config.arg);
}

static double lag_bytes(void *ctx)
{
    const struct stream_feed *f = ctx;
    uint64_t offset = stored(f);
    return f->end > offset ? (double)(f->end - offset) : 0;
}

static double lag_seconds(void *ctx)
{
    struct stream_feed *f = ctx;
    usec_t until = watermark_until(&f->watermark, stored(f)), now = daemon_trusted_time(f->daemon);
    return until == 0 ? -1 : now > until ? (double)(now - until) / USEC_PER_SEC : 0;
}

struct stream_feed *stream_feed_new(
    struct daemon *d, const struct stream_feed_config *config, struct error *error)
{
    static const struct stats_row rows[] = {
        {"lag_bytes", "bytes of the stream whose lines are not stored", lag_bytes},
        {"lag_seconds", "age of the time up to which all lines of the stream are stored; -1: not known",
            lag_seconds},
        {0},
    };
    struct http_client *pubsub = stream_program_connect(d, error);
    if (!pubsub)
        return NULL;
    struct stream_feed *f = mem_zalloc(sizeof *f);
    f->config = *config;
    f->daemon = d;
    f->pubsub = pubsub;
    rate_limit_init(&f->log_limit, LOG_RATE);
    f->client = stream_program_continue(d, &(struct stream_client_config){.pubsub = pubsub,
                                               .stream = options_string(daemon_options(d), "stream"),
                                               .from = config->from,
                                               .max_line = config->max_line,
                                               .on_begin = on_begin,
                                               .on_lines = on_lines,
                                               .on_overlong = on_overlong,
                                               .on_gap = on_gap,
                                               .on_statement = on_statement,
                                               .on_response_end = on_response_end,
                                               .on_change = on_change,
                                               .arg = f});
    stats_gauges(daemon_stats(d), rows, NULL, f);
    return f;
}

void stream_feed_stop(struct stream_feed *f)
{
    stream_client_stop(f->client);
}

void stream_feed_free(struct stream_feed **fp)
{
    struct stream_feed *f = *fp;
    if (!f)
        return;
    stream_client_free(&f->client);
    http_client_free(&f->pubsub);
    free(f);
    *fp = NULL;
}

struct stream_client *stream_feed_client(const struct stream_feed *f)
{
    return f->client;
}

struct http_client *stream_feed_pubsub(const struct stream_feed *f)
{
    return f->pubsub;
}

void stream_feed_log_skipped(struct stream_feed *f, const char *error, struct bytes line)
{
    usec_t now = clock_monotonic();
    if (rate_limit_when(&f->log_limit, 1, now) > now)
        return;
    rate_limit_spend(&f->log_limit, 1, now);
    log_warn("a line of the stream is skipped", LOG_S("error", error),
        LOG_B("line", bytes_of(line.ptr, line.len < LOG_TEXT ? line.len : LOG_TEXT)),
        LOG_U("before_offset", stream_client_cursor(f->client)->offset));
}
