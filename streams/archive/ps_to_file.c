/* ps_to_file: writes a stream into files, each line once. */
#include "streams/archive/archive_lock.h"
#include "streams/archive/event_time.h"
#include "streams/archive/file_archive.h"
#include "http/client/http_client.h"
#include "base/line_ends.h"
#include "counts/event_seconds.h"
#include "json/json_path.h"
#include "base/log.h"
#include "daemon/loop_notify.h"
#include "daemon/loop_timer.h"
#include "stream/stream_client.h"
#include "stream/stream_program.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <time.h>

#define TICK (250 * USEC_PER_MSEC)
/* The lines in memory are written when no line has arrived for this time. */
#define QUIET (10 * USEC_PER_MSEC)

static const struct option_row option_rows[] = {
    STREAM_OPTIONS("stream to write", "longest line accepted"),
    STREAM_ACCEPT_LOSS_OPTIONS(
        "although the stream is a restored copy; otherwise the program stays not ready"),
    SETTING_STRING("filename_format",
        "path of the files, with strftime conversions, such as /var/clicks/clicks-%Y%m%d-%H.ndjson"),
    SETTING_STRING("state", "state file with the cursor and the list of unfinished files (default: "
                            ".ps_to_file-STREAM.json beside the files)"),
    SETTING_STRING("time_field", "field with the event's time, which selects the file (default: none, the "
                                 "time of arrival selects the file)"),
    SETTING_CHOICE("time_unit", "s", EVENT_SECONDS_UNITS,
        "unit of the time in time_field, if the time is a number and not RFC 3339 text"),
    SETTING_BOOL("local_time", "file names in the local time zone instead of UTC"),
    SETTING_CHOICE("compress", "none", "none|gzip|zstd", "compression of finished files"),
    SETTING_DURATION("commit_every", "1s", 10, 3600000, "ms",
        "interval at which files are synced and the cursor is stored"),
    SETTING_DURATION("close_after", "10m", 100, 86400000, "ms",
        "with time_field: finish a file when no line has arrived for this time"),
    SETTING_INT("max_open", "256", 1, 1000,
        "with time_field: maximum open files; before a further file is opened, the file that was idle for "
        "longest is finished"),
    {.name = NULL},
};

struct writer {
    struct daemon *daemon;
    struct file_archive *archive;
    struct stream_client *stream;
    struct http_client *pubsub;
    struct loop_notify *notify;
    struct loop_timer *ticker, *quiet;
    struct event_time *event_time; /* NULL: lines are filed by arrival */
    struct archive_run *runs;      /* lines to add to the archive next */
    size_t n_runs, room_for_runs;
    struct archive_span span; /* times of the last run */
    struct buf held;          /* lines that were read but do not fit on the disk */
    uint64_t gaps, untimed;
};

/* Returns the next conversion of `*format` (%, flags, width and letter), and moves `*format` to the byte after the
 * conversion. */
static struct bytes next_conversion(const char **format)
{
    const char *from = strchr(*format, '%');
    if (!from)
        return BYTES_NONE;
    const char *at = from + 1;
    at += strspn(at, "_-0^#+");
    at += strspn(at, "0123456789");
    at += *at == 'E' || *at == 'O';
    at += *at != '\0';
    *format = at;
    return bytes_of(from, (size_t)(at - from));
}

/* The operator sets the format. A format from outside is safe, because strftime's conversions read no arguments. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
/* Returns whether strftime knows the conversion. strftime copies an unknown conversion unchanged. */
static bool is_known(struct bytes conversion)
{
    char *text = bytes_dup(conversion), made[256];
    struct tm tm;
    gmtime_r(&(time_t){0}, &tm);
    size_t n = strftime(made, sizeof made, text, &tm);
    bool same = bytes_equal(bytes_of(made, n), conversion);
    free(text);
    return !same;
}

/* Checks the lengths of the names in the path. A directory's name may have NAME_MAX bytes. A file's name must be
 * shorter, because the name of its manifest has a further suffix. */
static int check_name_length(struct options *o, const char *format, struct error *error)
{
    char name[PATH_MAX];
    struct tm tm;
    gmtime_r(&(time_t){clock_wall() / USEC_PER_SEC}, &tm);
    if (strftime(name, sizeof name, format, &tm) == 0)
        return options_refuse(o, "filename_format", error, "path too long");
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += strspn(part, "/");
        size_t n = strcspn(part, "/"), room = NAME_MAX - (part[n] == '\0' ? strlen(".manifest.json") : 0);
        if (n > room)
            return options_refuse(
                o, "filename_format", error, "makes a name of %zu bytes; the maximum is %zu", n, room);
    }
    return 0;
}
#pragma GCC diagnostic pop

static bool is_one_name(const char *format)
{
    struct bytes conversion;
    while ((conversion = next_conversion(&format)).len > 0)
        if (conversion.ptr[conversion.len - 1] != '%')
            return false;
    return true;
}

/* Returns true if `path` may be the path of a published file. The state must not have such a path, because storing the
 * state would replace the file. */
static bool may_be_archived(const char *path, const char *format)
{
    static const char *const ends[] = {".gz", ".zst", ".manifest.json"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n >= strlen(ends[i]) && strcmp(path + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    struct tm tm = {.tm_year = 0};
    const char *rest = strptime(path, format, &tm);
    return rest && (*rest == '\0' || (*rest == '.' && rest[1 + strspn(rest + 1, "0123456789")] == '\0'));
}

static int check(struct options *o, struct error *error)
{
    static const char *const by_time[] = {"time_unit", "close_after", "max_open"};
    const char *format = options_string(o, "filename_format"), *state = options_text(o, "state");
    if (!format || *format == '\0')
        return options_refuse(o, "filename_format", error,
            "required, for example "
            "--filename_format=/var/clicks/clicks-%%Y%%m%%d-%%H.ndjson");
    if (format[strlen(format) - 1] == '/')
        return options_refuse(o, "filename_format", error, "must name a file, but ends in /");
    struct bytes conversion;
    for (const char *at = format; (conversion = next_conversion(&at)).len > 0;)
        if (!is_known(conversion))
            return options_refuse(o, "filename_format", error,
                "unknown strftime conversion %.*s; write %%%% for a %%", (int)conversion.len, conversion.ptr);
    if (check_name_length(o, format, error) != 0)
        return -1;
    if (state && may_be_archived(state, format))
        return options_refuse(o, "state", error, "%s may be the name of an archived file", state);
    for (size_t i = 0; i < sizeof by_time / sizeof *by_time; i++)
        if (!options_text(o, "time_field") && options_is_set(o, by_time[i]))
            return options_refuse(o, by_time[i], error, "only allowed with time_field");
    if (options_text(o, "time_field") && !json_path_is_valid(bytes_str(options_text(o, "time_field"))))
        return options_refuse(
            o, "time_field", error, "not a field; write t, meta.time, items[0].t or [\"a.b\"]");
    return stream_program_check(o, error);
}

static int64_t now_seconds(void)
{
    return clock_wall() / USEC_PER_SEC;
}

/* Adds each line to the last run, or to a new run if the line's time is in another span. A line without a usable time
 * is filed by arrival. */
static void take_by_event(struct writer *w, struct bytes lines)
{
    uint16_t ends[LINE_ENDS_BLOCK_MAX];
    const char *line = lines.ptr;
    w->n_runs = 0;
    while (lines.len > 0) {
        size_t n = lines.len < LINE_ENDS_BLOCK_MAX ? lines.len : LINE_ENDS_BLOCK_MAX;
        size_t n_ends = line_ends_find(bytes_of(lines.ptr, n), ends);
        for (size_t i = 0; i < n_ends; i++) {
            struct bytes text =
                bytes_of(line, (size_t)(lines.ptr + ends[i] - line)); /* a line without its LF */
            int64_t time;
            line = lines.ptr + ends[i] + 1;
            if (!event_time_of(w->event_time, text, &time)) {
                w->untimed++;
                time = now_seconds();
            }
            if (w->n_runs > 0 && time >= w->span.first && time <= w->span.last) {
                w->runs[w->n_runs - 1].lines.len += text.len + 1;
                w->runs[w->n_runs - 1].n++;
                continue;
            }
            *ARRAY_ADD(w->runs, w->n_runs, w->room_for_runs) =
                (struct archive_run){.lines = bytes_of(text.ptr, text.len + 1), .n = 1, .time = time};
            w->span = file_archive_span_of(w->archive, time);
        }
        lines = bytes_of(lines.ptr + n, lines.len - n);
    }
    file_archive_take(w->archive, stream_client_cursor(w->stream)->opening, w->runs, w->n_runs);
}

/* Adds the leading lines that fit on the disk to the archive, and returns the length of these lines. */
static size_t take_fitting(struct writer *w, struct bytes lines)
{
    lines = file_archive_fitting(w->archive, lines);
    if (w->event_time) {
        take_by_event(w, lines);
    } else if (lines.len > 0) {
        struct archive_run run = {.lines = lines, .n = bytes_count_lines(lines), .time = now_seconds()};
        file_archive_take(w->archive, stream_client_cursor(w->stream)->opening, &run, 1);
    }
    return lines.len;
}

static bool is_full(const struct writer *w)
{
    return w->held.len > 0 || file_archive_is_full(w->archive);
}

static void on_lines(struct bytes lines, void *arg)
{
    struct writer *w = arg;
    loop_timer_set(w->quiet, QUIET);
    size_t taken = w->held.len == 0 ? take_fitting(w, lines) : 0;
    buf_append(&w->held, lines.ptr + taken, lines.len - taken);
    if (is_full(w)) {
        stream_client_pause(w->stream);
        loop_notify_wake(w->notify);
    }
}

static void on_begin(void *arg)
{
    struct writer *w = arg;
    file_archive_begin(w->archive, stream_client_cursor(w->stream));
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    struct writer *w = arg;
    (void)before, (void)after;
    assert(w->held.len == 0); /* the stream is paused while lines are held */
    w->gaps++;
    file_archive_gap(w->archive, stream_client_cursor(w->stream));
    if (is_full(w))
        stream_client_pause(w->stream);
}

static void update_health(struct writer *w)
{
    bool final;
    const char *trouble = file_archive_trouble(w->archive, &final);
    if (!trouble)
        trouble = stream_client_trouble(w->stream, NULL);
    if (trouble || stream_client_cursor(w->stream)->id[0] != '\0')
        stream_program_set_trouble(w->daemon, trouble);
}

/* If the stream does not exist yet, `latest` means the beginning of the stream. A state without an id records this
 * position, so that a restart after the creation of the stream also begins at the first line. */
static void on_change(void *arg)
{
    struct writer *w = arg;
    if (w->stream && stream_program_awaits(w->stream)) {
        daemon_notify_parent();
        if (stream_program_begins_at_end(w->daemon) && !file_archive_has_state(w->archive))
            file_archive_make_state(w->archive);
    }
    update_health(w);
}

static void tick(void *arg)
{
    struct writer *w = arg;
    file_archive_tick(w->archive, clock_wall(), clock_monotonic());
    if (!loop_timer_is_set(w->quiet)) /* writes lines that waited for space or memory */
        file_archive_write(w->archive);
    if (w->held.len > 0 && !file_archive_is_full(w->archive)) {
        size_t taken = take_fitting(w, buf_bytes(&w->held));
        w->held.len -= taken;
        memmove(w->held.ptr, w->held.ptr + taken, w->held.len);
        if (w->held.len == 0)
            buf_free(&w->held);
    }
    if (!is_full(w))
        stream_client_resume(w->stream);
    update_health(w);
}

/* May be called from any thread. */
static void wake(void *arg)
{
    struct writer *w = arg;
    loop_notify_wake(w->notify);
}

static void on_quiet(void *arg)
{
    struct writer *w = arg;
    file_archive_write(w->archive);
}

/* Number of descriptors for standard streams, the loop, the log, /metrics and pubsub. */
#define OTHER_DESCRIPTORS 24

#define NUMBER(name, expression)                                                                             \
    static double read_##name(void *ctx)                                                                     \
    {                                                                                                        \
        struct writer *w = ctx;                                                                              \
        return (double)(expression);                                                                         \
    }
NUMBER(bytes, file_archive_numbers(w->archive).bytes)
NUMBER(commits, file_archive_numbers(w->archive).commits)
NUMBER(finished, file_archive_numbers(w->archive).finished)
NUMBER(open, file_archive_numbers(w->archive).open)
NUMBER(finishing, file_archive_numbers(w->archive).finishing)
NUMBER(offset, file_archive_cursor(w->archive)->offset)
NUMBER(committed, file_archive_committed(w->archive)->offset)
NUMBER(wants, file_archive_numbers(w->archive).shortages)
NUMBER(wanting, file_archive_numbers(w->archive).is_short)
NUMBER(gaps, w->gaps)
NUMBER(untimed, w->untimed)

static void register_stats(struct writer *w)
{
    static const struct stats_row rows[] = {
        {"written_bytes_total", "Bytes taken from the stream", read_bytes},
        {"commits_total", "Commits of files and cursor", read_commits},
        {"files_finished_total", "Files published", read_finished},
        {"wants_total", "Shortages of space, descriptors or memory", read_wants},
        {"gaps_total", "Gaps in the stream", read_gaps},
        {"lines_without_time_total", "Lines without a usable time, filed by arrival", read_untimed},
        {"files_open", "Files being written", read_open},
        {"files_finishing", "Complete files waiting to be published", read_finishing},
        {"offset_bytes", "Offset of the next line in the stream", read_offset},
        {"committed_offset_bytes", "Offset at which a restart after a crash continues", read_committed},
        {"wanting", "1 during a shortage of space, descriptors or memory", read_wanting},
        {0},
    };
    stats_gauges(daemon_stats(w->daemon), rows, NULL, w);
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct writer *w = mem_zalloc(sizeof *w);
    const char *field = options_text(o, "time_field"), *format = options_string(o, "filename_format");
    const char *compress = options_string(o, "compress");
    struct rlimit limit;
    *ctx = w;
    w->daemon = d;
    if (field)
        w->event_time = event_time_new(field, event_seconds_units(options_string(o, "time_unit")));
    w->notify = loop_notify_new(daemon_base(d), tick, w);
    w->quiet = loop_timer_new(daemon_base(d), on_quiet, w);
    /* Only archives by event time open many files. The daemon has already raised its descriptor limit. */
    size_t max_open = (size_t)options_int(o, "max_open");
    size_t need = file_archive_descriptors(max_open) + OTHER_DESCRIPTORS;
    if (w->event_time && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < need) {
        options_refuse(o, "max_open", error,
            "%zu files need %zu descriptors, but only %llu are allowed: raise ulimit -n or LimitNOFILE=",
            max_open, need, (unsigned long long)limit.rlim_cur);
        return EX_CONFIG;
    }
    char *beside = mem_printf(
        "%.*s.ps_to_file-%s.json", (int)archive_fixed_directory(format), format, options_string(o, "stream"));
    w->archive =
        file_archive_open(&(struct file_archive_config){.format = format,
                              .state_path = options_string(o, "state") ? options_string(o, "state") : beside,
                              .stream = options_string(o, "stream"),
                              .compression = strcmp(compress, "gzip") == 0   ? ARCHIVE_GZIP
                                             : strcmp(compress, "zstd") == 0 ? ARCHIVE_ZSTD
                                                                             : ARCHIVE_PLAIN,
                              .local_time = options_bool(o, "local_time"),
                              .by_event_time = w->event_time != NULL,
                              .commit_every = options_int(o, "commit_every") * USEC_PER_MSEC,
                              .close_after = options_int(o, "close_after") * USEC_PER_MSEC,
                              .max_open = max_open,
                              .max_pending = (size_t)options_int(o, "max_line") + ((size_t)4 << 20),
                              .wake = wake,
                              .arg = w},
            clock_monotonic(), error);
    free(beside);
    if (!w->archive)
        return EX_CONFIG;
    w->pubsub = stream_program_connect(d, error);
    if (!w->pubsub)
        return EX_CONFIG;
    w->stream = stream_program_follow(d, file_archive_has_state(w->archive), true,
        &(struct stream_client_config){.pubsub = w->pubsub,
            .from = *file_archive_cursor(w->archive),
            .loss = STREAM_LOSS_CROSSED,
            .on_begin = on_begin,
            .on_lines = on_lines,
            .on_gap = on_gap,
            .on_change = on_change,
            .arg = w});
    w->ticker = loop_timer_every(daemon_base(d), TICK, tick, w);
    register_stats(w);
    if (is_one_name(format))
        log_warn("filename_format has no conversion: all lines go to one file until SIGHUP",
            LOG_S("filename_format", format));
    daemon_set_not_ready(d, NOTICE_RECOVERING, DAEMON_WAIT, "asking pubsub for the stream");
    return 0;
}

static void hangup(void *ctx)
{
    struct writer *w = ctx;
    file_archive_roll(w->archive);
    tick(w);
}

static void drain(void *ctx)
{
    struct writer *w = ctx;
    stream_client_stop(w->stream);
    if (file_archive_flush(w->archive) != 0)
        log_error("the last lines are not committed: the next start reads these lines again");
    daemon_drained(w->daemon);
}

static void stop(void *ctx)
{
    struct writer *w = ctx;
    if (!w)
        return;
    stats_remove_gauges(daemon_stats(w->daemon), w);
    stream_client_free(&w->stream);
    http_client_free(&w->pubsub);
    file_archive_close(&w->archive);
    loop_timer_free(&w->ticker);
    loop_timer_free(&w->quiet);
    loop_notify_free(&w->notify);
    event_time_free(&w->event_time);
    free(w->runs);
    buf_free(&w->held);
    free(w);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "ps_to_file",
        .summary = "writes a stream into files named by time, each line once",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .hangup = hangup,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
