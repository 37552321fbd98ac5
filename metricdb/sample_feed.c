#include "metricdb/sample_feed.h"

#include "base/erased_line.h"
#include "base/work_thread.h"
#include "daemon/loop_notify.h"
#include "metricdb/sample_line.h"
#include "stream/cursor_keeper.h"
#include "stream/stream_feed.h"
#include "stream/stream_program.h"

#include <errno.h>
#include <stdlib.h>

#define LINE_MAX_BYTES ((size_t)1 << 20)
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
    struct stream_feed *stream;
    struct cursor_keeper *keeper;
    struct loop_notify *notify;
    struct work_thread *thread; /* cuts */
    struct cut cut;
    bool is_cutting, is_caught_up;
    struct stream_cursor kept; /* that of the newest block; without a block, the beginning */
    char kept_id[STREAM_CURSOR_TEXT];
    struct sample_line line;
    struct stats_counter *results[SAMPLE_BAD_TIME + 1], *malformed;
};

static const struct stream_cursor *cursor(const struct sample_feed *f)
{
    return stream_client_cursor(stream_feed_client(f->stream));
}

static void skip(struct bytes line, void *arg)
{
    struct sample_feed *f = arg;
    stats_add(f->malformed, 1);
    stream_feed_log_skipped(f->stream, "not a sample", line);
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
    struct bytes line;
    usec_t now = daemon_trusted_time(f->daemon);
    sample_store_begin(f->store);
    while (bytes_take_line(&lines, &line))
        if (sample_line_read(&f->line, line)) {
            while (sample_line_next(&f->line))
                stats_add(f->results[add_sample(f, &f->line.sample, now)], 1);
        } else if (!erased_line_is(line)) {
            skip(line, f);
        }
    sample_store_end(f->store, cursor(f));
}

static void keep(struct sample_feed *f, const struct stream_cursor *at)
{
    f->kept = *at;
    stream_cursor_print(at, f->kept_id);
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
    stream_client_resume(stream_feed_client(f->stream));
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

static struct kept_position position(void *arg, size_t stream)
{
    struct sample_feed *f = arg;
    (void)stream;
    return (struct kept_position){.stream = options_string(daemon_options(f->daemon), "stream"),
        .id = f->kept_id,
        .offset = f->kept.offset,
        .place = stream_client_place(stream_feed_client(f->stream))};
}

static void on_begin(void *arg)
{
    struct sample_feed *f = arg;
    keep(f, cursor(f));
}

static void on_change(bool is_current, void *arg)
{
    struct sample_feed *f = arg;
    f->is_caught_up = f->is_caught_up || is_current;
    if (f->is_caught_up && !daemon_is_draining(f->daemon))
        daemon_set_ready(f->daemon);
}

static uint64_t stored(void *arg)
{
    return sample_store_cursor(((struct sample_feed *)arg)->store)->offset;
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
        "correct the cause; the merge is repeated after the next block",
        sample_store_trouble(f->store, &error) ? error.text : NULL);
    if (f->is_cutting || !sample_store_is_cut_due(f->store, clock_monotonic()))
        return;
    f->is_cutting = true;
    f->cut = (struct cut){.now = clock_monotonic(),
        .wall = daemon_trusted_time(f->daemon),
        .cursor = *sample_store_cursor(f->store)};
    stream_client_pause(stream_feed_client(f->stream));
    work_thread_start(f->thread, &f->cut);
}

STATS_READ(read_offset, stored(ctx))

static void register_stats(struct sample_feed *f)
{
    static const char *const reasons[] = {[SAMPLE_NOT_LATER] = "reason=\"not_later\"",
        [SAMPLE_TOO_MANY] = "reason=\"max_series\"",
        [SAMPLE_BAD_LABELS] = "reason=\"labels\"",
        [SAMPLE_BAD_TIME] = "reason=\"time\""};
    static const struct stats_row rows[] = {
        {"read_offset", "offset of the stream before which all samples are stored", read_offset},
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
    f->keeper = cursor_keeper_new(&(struct cursor_keeper_config){.client = stream_feed_pubsub(f->stream),
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

struct sample_feed *sample_feed_new(struct daemon *d, struct sample_store *store, struct error *error)
{
    struct sample_feed *f = mem_zalloc(sizeof *f);
    f->daemon = d;
    f->store = store;
    register_stats(f);
    keep(f, sample_store_cursor(f->store));
    f->stream = stream_feed_new(d,
        &(struct stream_feed_config){.from = f->kept,
            .max_line = LINE_MAX_BYTES,
            .on_lines = on_lines,
            .on_overlong = skip,
            .on_begin = on_begin,
            .on_change = on_change,
            .stored = stored,
            .arg = f},
        error);
    if (!f->stream || !start_keeper(f, error))
        sample_feed_free(&f);
    return f;
}

void sample_feed_free(struct sample_feed **fp)
{
    struct sample_feed *f = *fp;
    if (!f)
        return;
    stream_feed_free(&f->stream);
    cursor_keeper_free(&f->keeper);
    if (f->thread)
        work_thread_free(&f->thread);
    loop_notify_free(&f->notify);
    sample_line_free(&f->line);
    free(f);
    *fp = NULL;
}
