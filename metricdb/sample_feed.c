#include "metricdb/sample_feed.h"

#include "base/erased_line.h"
#include "base/log.h"
#include "base/rate_limit.h"
#include "base/work_thread.h"
#include "daemon/loop_notify.h"
#include "http/client/http_client.h"
#include "metricdb/sample_line.h"
#include "stream/cursor_keeper.h"
#include "stream/stream_program.h"
#include "stream/watermark.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LINE_MAX_BYTES ((size_t)1 << 20)
#define LOG_TEXT 200 /* bytes of a line that the log shows */
#define LOG_RATE 10  /* lines a second */
#define FUTURE_MAX (86400 * USEC_PER_SEC)

/* A block that is being written. */
struct cut {
    usec_t now, wall;
    struct stream_cursor cursor;
    int result;
    struct error error;
};

struct sample_feed {
    struct daemon *daemon;
    struct sample_store *store;
    struct http_client *pubsub;
    struct stream_client *stream;
    struct cursor_keeper *keeper;
    struct loop_notify *notify;
    struct work_thread *thread; /* cuts */
    struct cut cut;
    bool is_cutting, is_caught_up;
    struct stream_cursor kept; /* that of the newest block; without a block, the beginning */
    char kept_id[STREAM_CURSOR_TEXT];
    struct sample_line line;
    uint64_t end; /* of the stream */
    struct watermark watermark;
    struct rate_limit log_limit;
    struct stats_counter *results[SAMPLE_BAD_TIME + 1], *malformed;
};

static void log_malformed(struct sample_feed *f, struct bytes line)
{
    usec_t now = clock_monotonic();
    stats_add(f->malformed, 1);
    if (rate_limit_when(&f->log_limit, 1, now) > now)
        return;
    rate_limit_spend(&f->log_limit, 1, now);
    log_warn("a line of the stream is not a sample",
        LOG_B("line", bytes_of(line.ptr, line.len < LOG_TEXT ? line.len : LOG_TEXT)),
        LOG_U("before_offset", stream_client_cursor(f->stream)->offset));
}

/* A sample of the far future would make its series drop all samples until then. */
static enum sample_result add_sample(struct sample_feed *f, const struct sample *sample, usec_t now)
{
    bool is_far = now > 0 && sample->at > (int64_t)((now + FUTURE_MAX) / USEC_PER_MSEC);
    return is_far ? SAMPLE_BAD_TIME : sample_store_add(f->store, sample);
}

/* Stores the samples of whole lines, which end at the stream's cursor. */
static void take_lines(struct sample_feed *f, struct bytes lines)
{
    const char *at = lines.ptr, *end = lines.ptr + lines.len;
    usec_t now = daemon_trusted_time(f->daemon);
    sample_store_begin(f->store);
    while (at < end) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        struct bytes line = bytes_of(at, (size_t)(lf - at));
        if (sample_line_read(&f->line, line))
            stats_add(f->results[add_sample(f, &f->line.sample, now)], 1);
        else if (!erased_line_is(line))
            log_malformed(f, line);
        at = lf + 1;
    }
    sample_store_end(f->store, stream_client_cursor(f->stream));
}

static void keep(struct sample_feed *f, const struct stream_cursor *cursor)
{
    f->kept = *cursor;
    stream_cursor_print(cursor, f->kept_id);
}

static void end_cut(struct sample_feed *f)
{
    bool has_failed = f->cut.result != 0;
    f->is_cutting = false;
    daemon_set_notice(
        f->daemon, "blocks", NOTICE_ALARM, DAEMON_FREE_DISK, has_failed ? f->cut.error.text : NULL);
    if (has_failed)
        return;
    keep(f, &f->cut.cursor);
    stream_client_resume(f->stream);
    cursor_keeper_tick(f->keeper);
}

static void on_cut(void *arg)
{
    struct sample_feed *f = arg;
    if (work_thread_done(f->thread))
        end_cut(f);
}

/* A paused stream may still pass on lines that it has read. They wait for the end of a cut. */
static void on_lines(struct bytes lines, void *arg)
{
    struct sample_feed *f = arg;
    if (f->is_cutting && work_thread_wait(f->thread))
        end_cut(f);
    take_lines(f, lines);
}

static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    (void)length;
    log_malformed(arg, head);
    on_lines(BYTES_NONE, arg);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    log_warn("lines of the stream are lost", LOG_U("from_offset", before), LOG_U("to_offset", after));
    on_lines(BYTES_NONE, arg);
}

static struct kept_position position(void *arg, size_t stream)
{
    struct sample_feed *f = arg;
    (void)stream;
    return (struct kept_position){.stream = options_string(daemon_options(f->daemon), "stream"),
        .id = f->kept_id,
        .offset = f->kept.offset,
        .place = stream_client_place(f->stream)};
}

static void on_begin(void *arg)
{
    struct sample_feed *f = arg;
    keep(f, stream_client_cursor(f->stream));
}

static void on_statement(const struct stream_statement *s, void *arg)
{
    struct sample_feed *f = arg;
    f->end = s->end;
    watermark_state(&f->watermark, s);
}

static void on_response_end(void *arg)
{
    struct sample_feed *f = arg;
    watermark_until(&f->watermark, sample_store_cursor(f->store)->offset);
    watermark_forget(&f->watermark);
}

static void on_change(void *arg)
{
    struct sample_feed *f = arg;
    bool refused;
    const char *trouble = stream_client_trouble(f->stream, &refused);
    daemon_set_notice(
        f->daemon, "stream", refused ? NOTICE_ALARM : NOTICE_WARNING, refused ? "" : PEER_REMEDY, trouble);
    f->is_caught_up = f->is_caught_up || trouble || stream_client_is_caught_up(f->stream);
    if (f->is_caught_up && !daemon_is_draining(f->daemon))
        daemon_set_ready(f->daemon);
}

static void run_cut(void *ctx, void *job)
{
    struct cut *cut = job;
    cut->result = sample_store_cut(ctx, cut->now, cut->wall, &cut->error);
}

void sample_feed_tick(struct sample_feed *f)
{
    struct error error;
    cursor_keeper_tick(f->keeper);
    daemon_set_notice(f->daemon, "merge", NOTICE_WARNING,
        "correct the reason; the merge is repeated after the next block",
        sample_store_trouble(f->store, &error) ? error.text : NULL);
    if (f->is_cutting || !sample_store_is_cut_due(f->store, clock_monotonic()))
        return;
    f->is_cutting = true;
    f->cut = (struct cut){.now = clock_monotonic(),
        .wall = daemon_trusted_time(f->daemon),
        .cursor = *sample_store_cursor(f->store)};
    stream_client_pause(f->stream);
    work_thread_start(f->thread, &f->cut);
}

static double read_offset(void *ctx)
{
    return (double)sample_store_cursor(((struct sample_feed *)ctx)->store)->offset;
}

static double lag_bytes(void *ctx)
{
    const struct sample_feed *f = ctx;
    uint64_t offset = sample_store_cursor(f->store)->offset;
    return f->end > offset ? (double)(f->end - offset) : 0;
}

static double lag_seconds(void *ctx)
{
    struct sample_feed *f = ctx;
    usec_t until = watermark_until(&f->watermark, sample_store_cursor(f->store)->offset),
           now = daemon_trusted_time(f->daemon);
    return until == 0 ? -1 : now > until ? (double)(now - until) / USEC_PER_SEC : 0;
}

static void register_stats(struct sample_feed *f)
{
    static const char *const reasons[] = {[SAMPLE_NOT_LATER] = "reason=\"not_later\"",
        [SAMPLE_TOO_MANY] = "reason=\"max_series\"",
        [SAMPLE_BAD_LABELS] = "reason=\"labels\"",
        [SAMPLE_BAD_TIME] = "reason=\"time\""};
    static const struct stats_row rows[] = {
        {"read_offset", "offset of the stream before which all samples are stored", read_offset},
        {"lag_bytes", "bytes of the stream whose samples are not stored", lag_bytes},
        {"lag_seconds", "age of the time up to which all samples of the stream are stored; -1: not known",
            lag_seconds},
        {0},
    };
    struct stats *s = daemon_stats(f->daemon);
    f->results[SAMPLE_STORED] = stats_counter(s, "samples_total", NULL, "stored samples");
    for (size_t i = SAMPLE_STORED + 1; i <= SAMPLE_BAD_TIME; i++)
        f->results[i] = stats_counter(s, "samples_dropped_total", reasons[i], "samples that were not stored");
    f->malformed =
        stats_counter(s, "lines_malformed_total", NULL, "lines of the stream that are not samples");
    stats_gauges(s, rows, NULL, f);
}

static bool start_keeper(struct sample_feed *f, struct error *error)
{
    char key[RANDOM_ID_SIZE];
    if (cursor_key_read(options_string(daemon_options(f->daemon), "data_dir"), key, error) != 0)
        return false;
    keep(f, sample_store_cursor(f->store));
    f->keeper = cursor_keeper_new(&(struct cursor_keeper_config){.client = f->pubsub,
        .name = options_string(daemon_options(f->daemon), "cursor"),
        .key = key,
        .n_streams = 1,
        .position = position,
        .arg = f});
    f->notify = loop_notify_new(daemon_base(f->daemon), on_cut, f);
    f->thread = work_thread_new(&(struct work_thread_config){
        .run = run_cut, .ctx = f->store, .notify = loop_notify_wake, .notify_arg = f->notify});
    if (!f->thread)
        error_set(error, -1, "cannot start a thread: %s", strerror(errno));
    return f->thread != NULL;
}

static struct stream_client *follow(struct sample_feed *f)
{
    return stream_program_continue(
        f->daemon, &(struct stream_client_config){.pubsub = f->pubsub,
                       .stream = options_string(daemon_options(f->daemon), "stream"),
                       .from = f->kept,
                       .max_line = LINE_MAX_BYTES,
                       .on_begin = on_begin,
                       .on_lines = on_lines,
                       .on_overlong = on_overlong,
                       .on_gap = on_gap,
                       .on_statement = on_statement,
                       .on_response_end = on_response_end,
                       .on_change = on_change,
                       .arg = f});
}

struct sample_feed *sample_feed_new(struct daemon *d, struct sample_store *store, struct error *error)
{
    struct sample_feed *f = mem_zalloc(sizeof *f);
    f->daemon = d;
    f->store = store;
    rate_limit_init(&f->log_limit, LOG_RATE);
    f->pubsub = stream_program_connect(d, error);
    if (!f->pubsub || !start_keeper(f, error)) {
        sample_feed_free(&f);
        return NULL;
    }
    f->stream = follow(f);
    register_stats(f);
    return f;
}

void sample_feed_free(struct sample_feed **fp)
{
    struct sample_feed *f = *fp;
    if (!f)
        return;
    stream_client_free(&f->stream);
    http_client_free(&f->pubsub);
    cursor_keeper_free(&f->keeper);
    if (f->thread)
        work_thread_free(&f->thread);
    loop_notify_free(&f->notify);
    sample_line_free(&f->line);
    free(f);
    *fp = NULL;
}
