/* millrace put, also millrace file_to_queue: posts lines to the local queue.
 *
 * With --producer the marks are offsets in the inputs, counted in unpacked bytes over all files. A repeated put
 * continues at the mark and stores nothing twice (put_batch.h). */
#include "base/clock.h"
#include "base/io.h"
#include "daemon/daemon.h"
#include "base/line_source.h"
#include "tools/put/log_tail.h"
#include "config/options.h"
#include "config/peers.h"
#include "config/reject_options.h"
#include "base/rate_limit.h"
#include "base/progress.h"
#include "tools/put/access_log.h"
#include "tools/put/csv_record.h"
#include "tools/put/put_batch.h"
#include "tools/put/put_counted.h"
#include "tools/put/put_rejects.h"
#include "tools/tool.h"
#include "base/url.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#define BATCH_BYTES ((size_t)1 << 20)
#define FOLLOW_POLL (100 * USEC_PER_MSEC)
#define BATCH_DELAY_MAX (200 * USEC_PER_MSEC) /* longest time that a line waits until its batch is full */

static const struct option_row rows[] = {
    PEER_OPTIONS("queue", "simplequeue", ""),
    TOOL_DATA_DIR_SETTING,
    {.name = "queue", .type = OPTION_STRING, .fallback = "default", .help = "name of the queue"},
    {.name = "producer",
        .type = OPTION_STRING,
        .help = "name that makes the put repeatable: the same input continues where it was interrupted"},
    {.name = "format",
        .type = OPTION_CHOICE,
        .fallback = "lines",
        .choices = "lines|combined|csv",
        .help = "lines: a line is an event; combined: the lines are a web server's access log (common or "
                "combined); csv: the first line of each file names the fields"},
    {.name = "follow",
        .type = OPTION_BOOL,
        .letter = 'f',
        .help = "follow a growing log across rotations; needs --producer"},
    {.name = "state",
        .type = OPTION_STRING,
        .help =
            "with --follow: file that names the current log file (default: .FILE.PRODUCER beside the log)"},
    {.name = "rejects",
        .type = OPTION_STRING,
        .help =
            "file for lines that the queue refuses (over its max_message); lines over 64 MiB are skipped and "
            "not kept (default: the first line of either kind ends the put)"},
    REJECT_LIMIT_OPTIONS,
    {.name = "rate",
        .type = OPTION_INT,
        .fallback = "0",
        .min = 0,
        .max = 100000000,
        .help = "lines a second (0: unlimited); after a pause, at most a tenth of a second's lines are sent "
                "at once"},
    {.name = "batch",
        .type = OPTION_INT,
        .fallback = "2000",
        .min = 1,
        .max = 1000000,
        .help = "lines in a request"},
    {.name = "timeout",
        .type = OPTION_DURATION,
        .fallback = "60s",
        .min = 100,
        .max = 86400000,
        .unit = "s",
        .help = "give up after this time without progress (with --follow: never, unless set)"},
    {.name = "input_file",
        .type = OPTION_STRING,
        .flags = OPTION_COMMAND_LINE | OPTION_OPERAND,
        .means = "FILE",
        .help = "file to post"},
    {.name = "simplequeue_url",
        .type = OPTION_STRING,
        .means = "queue_url",
        .help = "address of simplequeue"},
    {.name = "max_queue_depth",
        .type = OPTION_STRING,
        .means = "",
        .help = "no effect: while the queue is full (its max_depth), put waits"},
    {.name = "concurrent_requests",
        .type = OPTION_STRING,
        .means = "",
        .help = "no effect: a request has `batch` lines"},
    {.name = "check_simplequeue_interval", .type = OPTION_STRING, .means = "", .help = "no effect"},
    {.name = "stats_interval",
        .type = OPTION_STRING,
        .means = "",
        .help = "no effect: put shows its progress"},
    {.name = "quiet", .type = OPTION_BOOL, .help = "print no progress and no summary"},
    {.name = NULL},
};

struct file_count {
    const char *name;
    uint64_t base;  /* offset of its first byte in the input */
    uint64_t lines; /* added to batches, sent or not */
    bool whole;     /* read to its end */
};

struct put {
    const struct options *o;
    struct pipeline pipeline;
    struct put_batch *batch;
    size_t batch_lines;
    struct line_source *source; /* the current file; NULL while a log is followed */
    struct log_tail *tail;      /* NULL without --follow */
    uint64_t resume;            /* the producer's mark at the start */
    uint64_t packed_before,
        packed; /* sizes in bytes: of the files before the current one, and of all files (0: unknown) */
    usec_t began;
    uint64_t taken;    /* lines read */
    usec_t batch_from; /* time of the first line in the batch */
    struct rate_limit rate;
    struct file_count *files; /* files read so far; the last one is the current file */
    size_t n_files, room_files;
    int idle_status; /* exit status of the flush that on_idle made */
    struct progress progress;
    struct put_rejects rejects;
    bool is_access_log;
    struct buf event;      /* of a line of an access log */
    struct csv *csv;       /* NULL: another format */
    uint64_t record_start; /* of the current record of csv */
    bool skipping;         /* skipping the rest of a line that is too long; the line was reported */
    bool unfinished;       /* the last line has no LF */
};

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    (void)sig;
    stopped = 1;
}

static const char *queue_url(void *arg)
{
    struct put *p = arg;
    const char *url = options_string(p->o, "queue_url");
    if (url)
        return url;
    pipeline_close(&p->pipeline);
    pipeline_open(&p->pipeline, options_config(p->o), options_string(p->o, "data_dir"));
    return pipeline_url(&p->pipeline, "simplequeue");
}

static int flush(struct put *p)
{
    size_t lines = put_batch_lines(p->batch);
    usec_t now = clock_monotonic(), when;
    while (lines > 0 && !stopped && (when = rate_limit_when(&p->rate, lines, now)) > now) {
        clock_sleep(when - now);
        now = clock_monotonic();
    }
    if (lines > 0)
        rate_limit_spend(&p->rate, lines, now);
    p->taken += lines;
    return put_batch_flush(p->batch);
}

static int flush_if_late(struct put *p)
{
    bool late = put_batch_lines(p->batch) > 0 && clock_monotonic() - p->batch_from >= BATCH_DELAY_MAX;
    return late ? flush(p) : 0;
}

static int add(struct put *p, struct bytes line, uint64_t end)
{
    if (put_batch_lines(p->batch) > 0 && put_batch_bytes(p->batch) + line.len > BATCH_BYTES) {
        int status = flush(p);
        if (status != 0)
            return status;
    }
    size_t before = put_batch_lines(p->batch);
    if (before == 0)
        p->batch_from = clock_monotonic();
    put_batch_add(p->batch, line, end);
    p->files[p->n_files - 1].lines +=
        put_batch_lines(p->batch) - before; /* put_batch_add drops empty lines */
    return put_batch_lines(p->batch) >= p->batch_lines ? flush(p) : flush_if_late(p);
}

/* The pipe is idle: send the lines that have arrived. */
static bool on_idle(void *arg)
{
    struct put *p = arg;
    if (!stopped)
        p->idle_status = flush(p);
    return !stopped && p->idle_status == 0;
}

static const char *shown_name(const char *name)
{
    return strcmp(name, "-") == 0 ? "standard input" : name;
}

static int refused(const struct put_batch_refusal *refusal, void *arg)
{
    struct put *p = arg;
    size_t i = p->n_files - 1;
    while (i > 0 && p->files[i].base > refusal->start)
        i--;
    return put_rejects_add(&p->rejects, refusal, shown_name(p->files[i].name),
        refusal->start - p->files[i].base, clock_monotonic());
}

/* Refuses a line that is not an event. */
static int refuse(struct put *p, const struct put_batch_refusal *refusal, uint64_t end)
{
    int status = !p->rejects.file.path ? flush(p) : 0;
    if (status == 0)
        status = refused(refusal, p);
    if (status == 0)
        put_batch_add(p->batch, BYTES_NONE, end);
    return status == 0 ? flush_if_late(p) : status;
}

/* Adds the event of a line of an access log. */
static int add_access(struct put *p, struct bytes line, uint64_t start, uint64_t end)
{
    while (line.len > 0 && (line.ptr[line.len - 1] == '\n' || line.ptr[line.len - 1] == '\r'))
        line.len--;
    const char *wrong = line.len > 0 ? access_log_read(line, &p->event) : NULL;
    if (!wrong)
        return add(p, line.len > 0 ? buf_bytes(&p->event) : line, end);
    return refuse(p, &(struct put_batch_refusal){line, bytes_str(wrong), start}, end);
}

static int add_csv_result(struct put *p, enum csv_result r, uint64_t end)
{
    struct bytes text = csv_text(p->csv);
    const struct file_count *f = &p->files[p->n_files - 1];
    switch (r) {
    case CSV_MORE:
        return flush_if_late(p);
    case CSV_NONE:
        if (csv_has_names(p->csv)) /* skip_to_mark reads them again */
            put_batch_add(p->batch, BYTES_NONE, end);
        return flush_if_late(p);
    case CSV_EVENT:
        return add(p, csv_event(p->csv), end);
    case CSV_WRONG:
        break;
    }
    if (!csv_has_names(p->csv))
        return tool_fail(EX_DATAERR, "%s: %s", shown_name(f->name), csv_wrong(p->csv));
    while (text.len > 0 && (text.ptr[text.len - 1] == '\n' || text.ptr[text.len - 1] == '\r'))
        text.len--;
    return refuse(p, &(struct put_batch_refusal){text, bytes_str(csv_wrong(p->csv)), p->record_start}, end);
}

static int add_csv(struct put *p, struct bytes line, uint64_t start, uint64_t end)
{
    if (!csv_is_inside(p->csv))
        p->record_start = start;
    return add_csv_result(p, csv_add(p->csv, line), end);
}

/* Skips a line that is too long. `end` is 0 until the end of the line is found. Without --rejects, stores the lines
 * before the long line and ends the put. */
static int skip_long_line(struct put *p, uint64_t start, uint64_t end)
{
    const struct file_count *f = &p->files[p->n_files - 1];
    bool is_new = end > 0 || !p->skipping;
    int status = !p->rejects.file.path ? flush(p) : 0;
    p->skipping = end == 0;
    if (status == 0 && is_new)
        status =
            put_rejects_skip(&p->rejects, shown_name(f->name), start - f->base, end > 0 ? end - start : 0);
    if (status == 0 && end > 0)
        put_batch_add(p->batch, BYTES_NONE, end);
    return status == 0 ? flush_if_late(p) : status;
}

/* The offset after the last line read. */
static uint64_t offset(const struct put *p)
{
    return p->tail ? log_tail_offset(p->tail) : p->files[p->n_files - 1].base + line_source_offset(p->source);
}

static void warn_truncated(const char *path)
{
    tool_fail(0,
        "%s was truncated or rewritten; continuing at its beginning; lines that were not posted before "
        "are missing",
        path);
}

/* The current log file is complete or truncated. */
static int next_log_file(struct put *p)
{
    struct error error;
    int status = flush(p), rc = status == 0 ? log_tail_next_file(p->tail, &error) : 0;
    if (rc < 0)
        return tool_fail(EX_IOERR, "%s", error.text);
    if (rc > 0)
        clock_sleep(FOLLOW_POLL);
    p->files[0].base = log_tail_base(p->tail);
    return status;
}

/* Reads and posts lines until the file ends, or a followed log until the put is stopped. */
static int put_lines(struct put *p)
{
    struct error error;
    int status = 0;
    while (status == 0 && !stopped) {
        struct bytes line;
        uint64_t start = offset(p);
        enum line_source_result r = p->tail ? log_tail_next(p->tail, clock_wall(), &line, &error)
                                            : line_source_next(p->source, false, &line, &error);
        switch (r) {
        case LINE_SOURCE_LINE:
            p->unfinished = line.ptr[line.len - 1] != '\n';
            status = p->csv             ? add_csv(p, line, start, offset(p))
                     : p->is_access_log ? add_access(p, line, start, offset(p))
                                        : add(p, line, offset(p));
            break;
        case LINE_SOURCE_SKIPPING:
            if (p->csv && (csv_is_inside(p->csv) || !csv_has_names(p->csv)))
                return tool_fail(EX_DATAERR, "a record has a line over 64 MiB, or a quote is missing");
            status = skip_long_line(p, start, 0);
            break;
        case LINE_SOURCE_SKIPPED:
            status = skip_long_line(p, start, offset(p));
            break;
        case LINE_SOURCE_END:
            if (!p->tail && p->csv && p->idle_status == 0 && csv_end(p->csv) == CSV_WRONG)
                return add_csv_result(p, CSV_WRONG, offset(p));
            if (!p->tail)
                return p->idle_status;
            status = flush(p);
            put_rejects_report(&p->rejects, clock_monotonic(), false);
            clock_sleep(FOLLOW_POLL);
            break;
        case LINE_SOURCE_CUT:
            warn_truncated(p->files[0].name);
            p->skipping = false;
            status = next_log_file(p);
            break;
        case LINE_SOURCE_FINISHED:
            status = next_log_file(p);
            break;
        case LINE_SOURCE_FAILED:
            (void)flush(p);
            return tool_fail(p->tail ? EX_IOERR : EX_DATAERR, "%s", error.text);
        }
        uint64_t consumed = p->source ? line_source_consumed(p->source) : 0;
        progress_show(
            &p->progress, NULL, p->packed_before + consumed, p->packed, p->taken, false, clock_monotonic());
        bool all_stored = status == 0 && p->tail && put_batch_lines(p->batch) == 0;
        if (all_stored && log_tail_stored(p->tail, &error) != 0)
            status = tool_fail(EX_IOERR, "%s", error.text);
    }
    return status;
}

static void begin_file(struct put *p, const char *name, uint64_t base)
{
    *ARRAY_ADD(p->files, p->n_files, p->room_files) = (struct file_count){.name = name, .base = base};
}

/* Reads the names of the fields, and then skips to the mark. */
static int skip_to_mark(struct put *p, uint64_t base)
{
    struct error error;
    uint64_t reached, offset = p->resume - base;
    struct bytes line;
    while (p->csv && !csv_has_names(p->csv)) {
        enum line_source_result r = line_source_next(p->source, false, &line, &error);
        if (r == LINE_SOURCE_END)
            break;
        if (r == LINE_SOURCE_FAILED)
            return tool_fail(EX_DATAERR, "%s", error.text);
        if (r != LINE_SOURCE_LINE || csv_add(p->csv, line) == CSV_WRONG ||
            line_source_offset(p->source) > offset)
            return tool_fail(EX_DATAERR, "this is not the input posted before under this producer");
    }
    if (line_source_skip(p->source, offset, &reached, &error) != 0)
        return tool_fail(EX_DATAERR, "%s", error.text);
    put_batch_begin_at(p->batch, base + reached);
    return 0;
}

static int put_file(struct put *p, const char *name, uint64_t *base)
{
    struct error error;
    int status = 0;
    p->source = line_source_open(name, &error);
    if (!p->source)
        return tool_fail(EX_NOINPUT, "%s", error.text);
    line_source_on_idle(p->source, on_idle, p);
    begin_file(p, name, *base);
    if (p->csv)
        csv_begin(p->csv);
    if (p->resume > *base)
        status = skip_to_mark(p, *base);
    p->progress.resumed = p->packed_before + line_source_consumed(p->source);
    p->unfinished = false;
    if (status == 0)
        status = put_lines(p);
    /* Warn, because an application may still be writing the last line. */
    if (p->unfinished && !options_bool(p->o, "quiet"))
        tool_fail(0, "%s ends without LF; posted its last line as it stands", shown_name(name));
    p->files[p->n_files - 1].whole = status == 0 && !stopped;
    *base += line_source_offset(p->source);
    p->packed_before += line_source_consumed(p->source);
    line_source_close(&p->source);
    return status;
}

static int put_files(struct put *p, char **files, size_t n)
{
    int status = 0;
    uint64_t base = 0;
    struct stat st;
    /* The progress needs the total size, which is unknown if the size of any input is unknown. */
    for (size_t i = 0; i < n; i++) {
        if (stat(files[i], &st) != 0 || !S_ISREG(st.st_mode)) {
            p->packed = 0;
            break;
        }
        p->packed += (uint64_t)st.st_size;
    }
    for (size_t i = 0; i < n && status == 0 && !stopped; i++)
        status = put_file(p, files[i], &base);
    if (status == 0)
        status = flush(p);
    if (status == 0 && !stopped && base < p->resume)
        return tool_fail(EX_DATAERR,
            "the input ends before the producer's mark: a part of it is missing, or it is "
            "another input, which needs "
            "another --producer");
    return stopped && status == 0 ? 128 + SIGINT : status;
}

static int follow(struct put *p, const char *path)
{
    struct error error;
    enum log_tail_start place;
    const char *given = options_string(p->o, "state"), *slash = strrchr(path, '/');
    struct buf state = {0};
    if (given)
        buf_printf(&state, "%s", given);
    else
        buf_printf(&state, "%.*s.%s.%s", slash ? (int)(slash - path) + 1 : 0, path, slash ? slash + 1 : path,
            options_string(p->o, "producer"));
    p->tail = log_tail_open(path, state.ptr, p->resume, &place, &error);
    /* Wait for the log: its writer may start later than the put. */
    for (bool waits = false;
         !p->tail && !stopped && place != LOG_TAIL_LOCKED && access(path, F_OK) != 0 && errno == ENOENT;
         waits = true) {
        if (!waits)
            tool_fail(0, "waiting for %s to be created", path);
        clock_sleep(FOLLOW_POLL);
        p->tail = log_tail_open(path, state.ptr, p->resume, &place, &error);
    }
    buf_free(&state);
    if (!p->tail && place == LOG_TAIL_LOCKED)
        return tool_fail(EX_CONFIG, "%s", error.text);
    if (!p->tail)
        return stopped ? 0 : tool_fail(EX_DATAERR, "%s", error.text);
    if (place == LOG_TAIL_GONE)
        tool_fail(0,
            "the previous log file was deleted or packed; lines of it that were not posted are missing; "
            "continuing at the beginning of %s",
            path);
    if (place == LOG_TAIL_REWRITTEN)
        warn_truncated(path);
    put_batch_begin_at(p->batch, log_tail_offset(p->tail));
    begin_file(p, path, log_tail_base(p->tail));
    int status = put_lines(p);
    log_tail_close(&p->tail);
    return status == 0 ? flush(p) : status;
}

static void summary(struct put *p)
{
    struct put_batch_numbers n = put_batch_numbers(p->batch);
    double seconds = (double)(clock_monotonic() - p->began) / USEC_PER_SEC;
    if (options_bool(p->o, "quiet"))
        return;
    progress_show(&p->progress, NULL, p->packed_before, p->packed, p->taken, true, clock_monotonic());
    fprintf(stderr, "millrace put: %" PRIu64 " events posted", n.posted);
    if (n.duplicates > 0)
        fprintf(stderr, ", %" PRIu64 " were stored before", n.duplicates);
    if (p->resume > 0)
        fprintf(stderr, "; the first %" PRIu64 " bytes were stored before", p->resume);
    fprintf(stderr, ", %.2f s\n", seconds);
}

/* After an error: prints how much of each file is stored, so that the operator can post the rest. */
static void print_posted(const struct put *p)
{
    struct put_batch_numbers n = put_batch_numbers(p->batch);
    uint64_t left = n.posted + n.duplicates + n.refused;
    progress_leave();
    fprintf(stderr, "millrace put: posted by this run: %s", left == 0 ? "nothing" : "");
    for (size_t i = 0; left > 0 && i < p->n_files; i++) {
        const struct file_count *f = &p->files[i];
        bool all = f->whole && f->lines <= left;
        uint64_t lines = f->lines < left ? f->lines : left;
        left -= lines;
        fprintf(stderr, "%s%s %" PRIu64 " %s%s of %s", i > 0 ? ", " : "", all ? "all" : "the first", lines,
            p->csv ? "record" : "line", lines == 1 ? "" : "s", shown_name(f->name));
    }
    fprintf(stderr, "\n");
}

static int check_standard_input(void)
{
    int mode = fcntl(STDIN_FILENO, F_GETFL);
    return mode >= 0 && (mode & O_ACCMODE) != O_WRONLY
               ? 0
               : tool_fail(EX_NOINPUT, "standard input is closed, or not open for reading");
}

static int check_file(const char *name)
{
    struct error error;
    struct stat st;
    if (strcmp(name, "-") == 0)
        return check_standard_input();
    int why = stat(name, &st) != 0 || access(name, R_OK) != 0 ? errno : 0;
    if (why == 0 && S_ISDIR(st.st_mode))
        why = EISDIR;
    if (why != 0)
        return tool_fail(EX_NOINPUT, "%s: %s", name, strerror(why));
    if (!S_ISREG(st.st_mode))
        return 0;
    struct line_source *s = line_source_open(name, &error);
    bool ok = s && line_source_check(s, &error) == 0;
    line_source_close(&s);
    return ok ? 0 : tool_fail(EX_DATAERR, "%s", error.text);
}

/* Checks all options and files before the first line is sent, so that a mistyped name posts nothing. */
static int check(const struct options *o)
{
    struct url_address address;
    char **files;
    const char *url = options_string(o, "queue_url");
    if (url && url_address_parse(url, 8080, &address) != 0)
        return tool_fail(EX_USAGE, "--queue-url: expected http://HOST:PORT or unix:PATH");
    size_t n = options_operands(o, &files);
    bool follows = options_bool(o, "follow");
    if (!follows && options_is_set(o, "state"))
        return tool_fail(EX_USAGE, "--state needs --follow");
    if (follows && !options_string(o, "producer"))
        return tool_fail(EX_USAGE, "--follow needs --producer, to continue at its mark");
    if (follows && strcmp(options_string(o, "format"), "csv") == 0)
        return tool_fail(EX_USAGE, "--format=csv reads whole files: omit --follow");
    if (follows && (n != 1 || strcmp(files[0], "-") == 0))
        return tool_fail(EX_USAGE, "--follow needs one file");
    int status = n == 0 ? check_standard_input() : 0;
    for (size_t i = 0; i < n && !follows; i++) {
        int one = check_file(files[i]);
        status = one != 0 ? one : status;
    }
    const char *rejects = options_text(o, "rejects");
    if (status != 0 || !rejects)
        return status;
    /* If the rejects file were also an input, its lines would be refused and added again endlessly. */
    bool found = follows && log_tail_could_read(files[0], rejects);
    found = found || (n == 0 && io_is_same_file("/dev/stdin", rejects));
    for (size_t i = 0; i < n; i++)
        found = found || io_is_same_file(strcmp(files[i], "-") == 0 ? "/dev/stdin" : files[i], rejects);
    return found ? tool_fail(EX_USAGE,
                       "--rejects names an input, or a file whose name starts with the log's; name "
                       "another file")
                 : 0;
}

static int put_with(const struct options *o)
{
    static char dash[] = "-";
    char *standard_input[] = {dash}, **files, *token;
    size_t n = options_operands(o, &files);
    struct put p = {.o = o,
        .batch_lines = (size_t)options_int(o, "batch"),
        .is_access_log = strcmp(options_string(o, "format"), "combined") == 0};
    struct sigaction stop = {.sa_handler = on_signal};
    struct error error;
    int status = check(o);
    if (status != 0)
        return status;
    if (daemon_read_token(options_string(o, "queue_token_file"), &token, &error) != 0)
        return tool_fail(EX_CONFIG, "%s", error.text);
    struct reject_file rejects = reject_options_file(o);
    if (put_rejects_open(&p.rejects, &rejects) != 0) {
        free(token);
        return EX_CANTCREAT;
    }
    if (strcmp(options_string(o, "format"), "csv") == 0)
        p.csv = csv_new();
    rate_limit_init(&p.rate, (uint64_t)options_int(o, "rate"));
    if (rate_limit_batch(&p.rate) < p.batch_lines)
        p.batch_lines = rate_limit_batch(&p.rate);
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    bool follows = options_bool(o, "follow"), lasting = follows && !options_is_set(o, "timeout");
    p.batch = put_batch_new(&(struct put_batch_config){.url = queue_url,
        .arg = &p,
        .queue = options_string(o, "queue"),
        .producer = options_string(o, "producer"),
        .auth_token = token,
        .refused = refused,
        .timeout = lasting ? 0 : options_int(o, "timeout") * USEC_PER_MSEC,
        .stopped = &stopped});
    status = put_batch_ask_mark(p.batch, &p.resume);
    struct put_counted counted = {.url = NULL};
    const char *counted_queue = config_setting(options_config(o), "queue_to_pubsub", "queue");
    bool is_counted = strcmp(options_string(o, "queue"), counted_queue ? counted_queue : "default") == 0;
    if (!follows && is_counted && !options_string(o, "queue_url"))
        put_counted_begin(&counted, options_config(o), options_string(o, "data_dir"));
    p.began = clock_monotonic();
    progress_begin(&p.progress, "events", options_bool(o, "quiet"), p.began);
    if (status == 0)
        status =
            follows ? follow(&p, files[0]) : put_files(&p, n > 0 ? files : standard_input, n > 0 ? n : 1);
    if (status == 0 || stopped)
        summary(&p);
    else
        print_posted(&p);
    put_rejects_report(&p.rejects, clock_monotonic(), true);
    put_counted_report(&counted, put_batch_numbers(p.batch).posted);
    put_batch_free(&p.batch);
    buf_free(&p.event);
    csv_free(&p.csv);
    free(p.files);
    pipeline_close(&p.pipeline);
    free(token);
    return status;
}

int tool_put(int argc, char **argv)
{
    bool other_name = strcmp(argv[0], "file_to_queue") == 0;
    const struct options_spec spec = {.program = "put",
        .usage = other_name ? "millrace file_to_queue" : NULL,
        .summary = "posts events, one a line, to the local queue",
        .operands = "[FILE...|-]",
        .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, put_with);
}
