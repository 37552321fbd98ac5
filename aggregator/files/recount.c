#include "aggregator/files/recount.h"

#include "aggregator/aggregate.h"
#include "aggregator/aggregator_settings.h"
#include "aggregator/files/archived_file.h"
#include "base/progress.h"
#include "config/peers.h"
#include "counts/manifest.h"
#include "daemon/daemon.h"
#include "daemon/daemon_directory.h"
#include "daemon/loop_notify.h"
#include "daemon/loop_timer.h"
#include "http/client/http_client.h"
#include "stream/stream_program.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>

#define LINES_A_TURN 1000
#define TICK (100 * USEC_PER_MSEC)
#define EXIT_STOPPED (128 + SIGINT)

struct recount {
    /* manifests of ARCHIVE, and of the archive made from this data directory */
    struct manifest target, so_far;
    const struct counters *counters;
    struct archived_file *files;
    size_t n_files;
    size_t max_line;
    struct aggregate *aggregate;
    struct event_base *base;
    struct loop_notify *notify;
    struct loop_timer *tick;
    struct http_client *client;
    struct progress progress;
    /* The members below describe the stream that is being followed. */
    struct stream_client *stream;
    size_t at;
    uint64_t until;
    int status; /* exit status of the first failure, or 0 */
};

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    (void)sig;
    stopped = 1;
}

__attribute__((format(printf, 3, 4))) static void fail(struct recount *r, int status, const char *fmt, ...)
{
    va_list ap;
    if (r->status != 0)
        return;
    r->status = status;
    progress_leave();
    fputs("aggregator: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

static uint64_t offset_of(const struct recount *r, size_t i)
{
    return aggregate_cursor(r->aggregate, i)->offset;
}

static void show(struct recount *r, bool last)
{
    struct aggregate_numbers n;
    uint64_t done = 0, all = 0;
    aggregate_numbers(r->aggregate, &n);
    for (size_t i = 0; i < r->target.n_streams; i++) {
        done += offset_of(r, i);
        all += r->target.streams[i].end;
    }
    progress_show(&r->progress, NULL, done, all, n.counted.events + n.counted.skipped + n.counted.rejected,
        last, clock_monotonic());
}

static void advance(void *arg)
{
    struct recount *r = arg;
    aggregate_set_wall(r->aggregate, clock_wall(), clock_wall());
    aggregate_poll(r->aggregate, clock_monotonic());
    aggregate_tick(r->aggregate, clock_monotonic());
    const struct error *failure = aggregate_failure(r->aggregate);
    if (failure)
        fail(r, failure->code == SLICE_FULL ? EX_TEMPFAIL : EX_IOERR, "%s", failure->text);
    if (r->stream && !aggregate_is_full(r->aggregate))
        stream_client_resume(r->stream);
}

static void on_tick(void *arg)
{
    advance(arg);
    show(arg, false);
}

static bool goes_on(const struct recount *r)
{
    return r->status == 0 && !stopped;
}

static void set_id(struct recount *r, size_t i, const char *id, const char *opening)
{
    char text[SLICE_ID_TEXT];
    snprintf(text, sizeof text, "%s%s%s", id, opening[0] ? "." : "", opening);
    aggregate_set_stream_id(r->aggregate, i, text);
}

/* Counts the line. Returns true until the cursor is at `until`. */
static bool take(struct recount *r, struct bytes line)
{
    if (line.len > r->max_line)
        aggregate_take_overlong(r->aggregate, r->at, bytes_of(line.ptr, r->max_line), line.len);
    else
        aggregate_take_line(r->aggregate, r->at, line);
    return offset_of(r, r->at) < r->until;
}

static void check_end(struct recount *r)
{
    uint64_t at = offset_of(r, r->at);
    if (at > r->until)
        fail(r, EX_DATAERR,
            "stream %s: no line ends at offset %" PRIu64 "; the line across this offset ends at %" PRIu64,
            r->target.streams[r->at].name, r->until, at);
}

static void count_file(struct recount *r, struct archived_file *f)
{
    struct error error = {0};
    uint64_t skip = offset_of(r, r->at) - f->first, reached = 0;
    struct bytes line;
    enum line_source_result next = LINE_SOURCE_FAILED;
    if (!f->is_verified && archived_file_verify(f, &stopped, &error) != 0)
        return fail(r, EX_DATAERR, "%s", error.text);
    struct line_source *s = stopped ? NULL : line_source_open(f->path, &error);
    set_id(r, r->at, f->id, ""); /* the openings (runs of pubsub) of the lines in the file are unknown */
    if (s && line_source_skip(s, skip, &reached, &error) == 0) {
        for (unsigned n = 1; goes_on(r) && offset_of(r, r->at) < r->until; n++) {
            if ((next = line_source_next(s, false, &line, &error)) != LINE_SOURCE_LINE)
                break;
            take(r, bytes_of(line.ptr, line.len - 1));
            if (n % LINES_A_TURN == 0)
                event_base_loop(r->base, EVLOOP_NONBLOCK);
            while (goes_on(r) && aggregate_is_full(r->aggregate))
                event_base_loop(r->base, EVLOOP_ONCE);
        }
    }
    line_source_close(&s);
    if (goes_on(r) && offset_of(r, r->at) < r->until)
        fail(r, EX_DATAERR, "%s",
            next == LINE_SOURCE_END || reached < skip ? "a file changed while it was read" : error.text);
    check_end(r);
    if (goes_on(r))
        set_id(r, r->at, f->id, offset_of(r, r->at) == f->end ? f->opening : "");
}

static void on_lines(struct bytes lines, void *arg)
{
    struct recount *r = arg;
    const struct stream_cursor *cursor = stream_client_cursor(r->stream);
    struct bytes line;
    bool more = true;
    while (more && bytes_take_line(&lines, &line))
        more = take(r, line);
    check_end(r);
    set_id(r, r->at, cursor->id, cursor->opening);
    if (!more)
        stream_client_stop(r->stream);
    else if (aggregate_is_full(r->aggregate))
        stream_client_pause(r->stream);
}

static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    struct recount *r = arg;
    const struct stream_cursor *cursor = stream_client_cursor(r->stream);
    aggregate_take_overlong(r->aggregate, r->at, head, length);
    check_end(r);
    set_id(r, r->at, cursor->id, cursor->opening);
    if (offset_of(r, r->at) >= r->until)
        stream_client_stop(r->stream);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    struct recount *r = arg;
    (void)before;
    aggregate_cross_hole(r->aggregate, r->at, after);
    set_id(r, r->at, stream_client_cursor(r->stream)->id, stream_client_cursor(r->stream)->opening);
    if (after >= r->until)
        stream_client_stop(r->stream);
}

static void on_change(void *arg)
{
    struct recount *r = arg;
    bool refused;
    const char *trouble = stream_client_trouble(r->stream, &refused);
    if (trouble && refused)
        fail(r, EX_DATAERR,
            "stream %s: %s; if files of ps_to_file have the missing lines, name these files with millrace "
            "recount "
            "--from",
            r->target.streams[r->at].name, trouble);
}

static void follow(struct recount *r)
{
    const struct slice_cursor *c = aggregate_cursor(r->aggregate, r->at);
    r->stream = stream_client_new(&(struct stream_client_config){.base = r->base,
        .pubsub = r->client,
        .stream = c->stream,
        .from = stream_cursor_read(c->id, c->offset),
        .max_line = r->max_line,
        .loss = STREAM_LOSS_REFUSED,
        .on_lines = on_lines,
        .on_overlong = on_overlong,
        .on_gap = on_gap,
        .on_change = on_change,
        .arg = r});
    while (goes_on(r) && offset_of(r, r->at) < r->until)
        event_base_loop(r->base, EVLOOP_ONCE);
    stream_client_free(&r->stream);
}

/* Refuses the history of a restored copy at the archive's end, even if an earlier run of recount has counted it. */
static void check_history(struct recount *r)
{
    const struct manifest_stream *s = &r->target.streams[r->at];
    const char *theirs = strchr(s->id, '.'), *ours = strchr(aggregate_cursor(r->aggregate, r->at)->id, '.');
    if (!theirs || !ours || strcmp(theirs, ours) == 0)
        return;
    fail(r, EX_DATAERR,
        "stream %s: the line before offset %" PRIu64 " is not the line that the archive includes: the stream "
        "or the archive is a restored copy; if an earlier recount counted the line, remove the directory of "
        "that recount to begin again",
        s->name, s->end);
}

/* Reads each part of the stream from a file if a file has the part, otherwise from pubsub. */
static void count_stream(struct recount *r, size_t i)
{
    const struct manifest_stream *s = &r->target.streams[i];
    char id[STREAM_ID_TEXT] = "";
    r->at = i;
    (void)sscanf(s->id, "%32[0-9a-f]", id);
    if (aggregate_cursor(r->aggregate, i)->id[0] == '\0')
        aggregate_begin_stream(r->aggregate, i, id, 0);
    if (strncmp(aggregate_cursor(r->aggregate, i)->id, id, strlen(id)) != 0 || offset_of(r, i) > s->end)
        fail(r, EX_CONFIG,
            "stream %s: counted to offset %" PRIu64 ", after the archive's end %" PRIu64
            ", or of another stream; remove the data directory to begin again",
            s->name, offset_of(r, i), s->end);
    while (goes_on(r) && offset_of(r, i) < s->end) {
        struct archived_file *f = archived_files_at(r->files, r->n_files, s->name, offset_of(r, i));
        bool is_in_file = f && f->first <= offset_of(r, i);
        uint64_t edge = !f ? s->end : is_in_file ? f->end : f->first;
        r->until = edge < s->end ? edge : s->end;
        if (is_in_file)
            count_file(r, f);
        else
            follow(r);
    }
    if (goes_on(r))
        check_history(r);
}

static bool is_at_end(const struct recount *r)
{
    for (size_t i = 0; i < r->target.n_streams; i++)
        if (offset_of(r, i) != r->target.streams[i].end)
            return false;
    return true;
}

static void store(struct recount *r)
{
    while (r->status == 0 && !aggregate_is_clean(r->aggregate)) {
        aggregate_flush(r->aggregate, clock_monotonic());
        event_base_loop(r->base, EVLOOP_ONCE);
    }
}

static void seal(struct recount *r)
{
    struct error error;
    uint64_t number = aggregate_open_slice(r->aggregate);
    while (r->status == 0 && !sealed_find(aggregate_sealed(r->aggregate), number)) {
        if (aggregate_seal(r->aggregate, clock_monotonic(), clock_wall(), &error) != SLICE_OK)
            fail(r, EX_TEMPFAIL, "%s", error.text);
        else
            event_base_loop(r->base, EVLOOP_ONCE);
    }
}

/* Refuses slices of other counters, which were sealed when the directory was opened, or were merged before. */
static void check_counters(struct recount *r, const char *dir)
{
    const struct sealed *sealed = aggregate_sealed(r->aggregate);
    bool differ = r->so_far.counters && r->so_far.counters[0] &&
                  (strcmp(r->so_far.counters, r->counters->text) != 0 || r->so_far.retired[0]);
    for (size_t i = 0; i < sealed->n; i++)
        differ = differ || strcmp(sealed->slices[i].state.counters, r->counters->text) != 0;
    if (differ)
        fail(r, EX_CONFIG, "the data directory %s has counts of other counters; remove it to begin again",
            dir);
}

static void count_streams(struct recount *r)
{
    struct aggregate_numbers n;
    usec_t began = clock_monotonic();
    progress_begin(&r->progress, "lines", false, began);
    for (size_t i = 0; i < r->target.n_streams; i++)
        r->progress.resumed += offset_of(r, i);
    for (size_t i = 0; i < r->target.n_streams && goes_on(r); i++)
        count_stream(r, i);
    store(r);
    aggregate_numbers(r->aggregate, &n);
    if (goes_on(r) && is_at_end(r) && n.slice.events + n.slice.skipped + n.slice.rejected > 0)
        seal(r);
    show(r, true);
    progress_leave();
    aggregate_numbers(r->aggregate, &n);
    fprintf(stderr,
        "aggregator: counted %" PRIu64 ", rejected %" PRIu64 ", skipped %" PRIu64
        " in this run (in all %" PRIu64 ", %" PRIu64 ", %" PRIu64 "); %.2f s\n",
        n.counted.events, n.counted.rejected, n.counted.skipped, n.total.events, n.total.rejected,
        n.total.skipped, (double)(clock_monotonic() - began) / USEC_PER_SEC);
    if (r->status == 0 && stopped)
        fail(r, EXIT_STOPPED, "stopped; run the same command to continue");
}

static void read_files(struct recount *r, char **paths, size_t n)
{
    struct error error;
    r->files = mem_zalloc((n + 1) * sizeof *r->files);
    for (size_t i = 0; i < n && r->status == 0; i++) {
        struct archived_file *f = &r->files[r->n_files++];
        const struct manifest_stream *s = NULL;
        if (archived_file_read(paths[i], f, &error) != 0)
            return fail(r, EX_NOINPUT, "%s", error.text);
        for (size_t k = 0; k < r->target.n_streams && !s; k++)
            s = strcmp(r->target.streams[k].name, f->stream) == 0 ? &r->target.streams[k] : NULL;
        if (!s || strncmp(s->id, f->id, strlen(f->id)) != 0)
            fail(r, EX_DATAERR, "%s: the archive has no counts of the file's stream %s (%s)", f->path,
                f->stream, f->id);
    }
    size_t twice = archived_files_sort(r->files, r->n_files);
    if (twice < r->n_files)
        fail(r, EX_DATAERR, "%s and %s overlap in stream %s; name only one of these files",
            r->files[twice - 1].path, r->files[twice].path, r->files[twice].stream);
}

/* Reads the end of each stream from the archive's manifest, without the cursors of files and of rejects. */
static void read_target(struct recount *r, const char *archive, const char *own)
{
    struct error error;
    if (manifest_read_current(archive, &r->target, &error) != MANIFEST_OK)
        return fail(r, EX_CONFIG, "%s: cannot read the archive: %s", archive, error.text);
    struct manifest *m = &r->target;
    size_t n = m->n_streams;
    m->n_streams = 0;
    for (size_t i = 0; i < n; i++)
        if (m->streams[i].name[0] != AGGREGATE_INPUT_MARK)
            m->streams[m->n_streams++] = m->streams[i];
    struct stat target, mine;
    if (own && stat(archive, &target) == 0 && stat(own, &mine) == 0 && target.st_dev == mine.st_dev &&
        target.st_ino == mine.st_ino)
        fail(r, EX_CONFIG, "%s is the archive itself; recount into another directory", own);
    if (own && r->status == 0)
        (void)manifest_read_current(own, &r->so_far, NULL);
}

static void open_and_count(struct recount *r, struct options *o)
{
    struct error why;
    const char **names = mem_zalloc((r->target.n_streams + 1) * sizeof *names);
    for (size_t i = 0; i < r->target.n_streams; i++)
        names[i] = r->target.streams[i].name;
    enum slice_result opened =
        aggregate_open(&(struct aggregate_config){.dir = options_string(o, "data_dir"),
                           .archive = options_string(o, "archive"),
                           .counters = r->counters,
                           .streams = names,
                           .n_streams = r->target.n_streams,
                           .rejects_limits = settings_rejects_limits(o),
                           .flush_interval = options_int(o, "flush_interval") * USEC_PER_MSEC,
                           .max_memory = (size_t)options_int(o, "max_memory"),
                           .notify = loop_notify_wake,
                           .notify_arg = r->notify},
            clock_wall(), &r->aggregate, &why);
    free(names);
    if (opened != SLICE_OK)
        return fail(r, opened == SLICE_FULL ? EX_TEMPFAIL : EX_CONFIG, "%s", why.text);
    r->tick = loop_timer_every(r->base, TICK, on_tick, r);
    check_counters(r, options_string(o, "data_dir"));
    if (r->status == 0)
        count_streams(r);
    loop_timer_free(&r->tick);
}

static void run(struct recount *r, struct options *o)
{
    struct sigaction stop = {.sa_handler = on_signal};
    struct error error;
    struct counters *counters = NULL;
    char **paths, *token = NULL;
    size_t n = options_operands(o, &paths);
    if (daemon_lock_directory(options_string(o, "data_dir"), &error) != 0)
        return fail(r, daemon_lock_status(), "%s", error.text);
    if (settings_read_counters(o, &counters, &error) != 0)
        return fail(r, EX_CONFIG, "%s", error.text);
    r->counters = counters;
    r->max_line = (size_t)options_int(o, "max_line");
    read_target(r, options_string(o, "recount"), options_string(o, "archive"));
    if (r->status == 0)
        read_files(r, paths, n);
    if (daemon_read_token(options_text(o, "pubsub_token_file"), &token, &error) != 0)
        fail(r, EX_CONFIG, "%s", error.text);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    r->base = event_base_new();
    r->notify = loop_notify_new(r->base, advance, r);
    r->client = http_client_new(&(struct http_client_config){
        .base = r->base, .url = peer_url(o, "pubsub"), .max_connections = 1, .auth_token = token});
    if (r->status == 0)
        open_and_count(r, o);
    http_client_free(&r->client);
    aggregate_close(&r->aggregate);
    loop_notify_free(&r->notify);
    event_base_free(r->base);
    free(token);
    counters_free(&counters);
}

bool recount_run(struct options *o, int *status)
{
    struct recount r = {.status = 0};
    if (!options_text(o, "recount"))
        return false;
    run(&r, o);
    manifest_free(&r.target);
    manifest_free(&r.so_far);
    free(r.files);
    *status = r.status;
    return true;
}
