/* millrace put, also millrace file_to_queue: posts lines to the local queue.
 *
 * With --producer the marks are offsets in the inputs, counted as one run of unpacked bytes: a put that was cut off goes on
 * from the mark when it is repeated, and nothing is stored twice. put_batch.h has the rest. */
#include "base/clock.h"
#include "daemon/daemon.h"
#include "tools/line_source.h"
#include "tools/log_tail.h"
#include "config/options.h"
#include "base/rate_limit.h"
#include "tools/pipeline.h"
#include "base/progress.h"
#include "tools/put_batch.h"
#include "tools/put_rejects.h"
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
#include <time.h>
#include <unistd.h>

#define BATCH_BYTES ((size_t)1 << 20)
#define FOLLOW_POLL (100 * USEC_PER_MSEC)
#define BATCH_DELAY_MAX (200 * USEC_PER_MSEC) /* how long a line waits for its batch to be full */

static const struct option_row rows[] = {
    {.name = "queue_url", .type = OPTION_STRING, .help = "where simplequeue is; by default as --config says"},
    {.name = "queue_token_file", .type = OPTION_STRING, .help = "the token that simplequeue asks for"},
    {.name = "data_dir",
        .type = OPTION_STRING,
        .help = "the pipeline's directory, if not the configured one"},
    {.name = "queue", .type = OPTION_STRING, .fallback = "default", .help = "the queue to put to"},
    {.name = "producer",
        .type = OPTION_STRING,
        .help = "a name under which this same input may be put again: it goes on where it was cut off"},
    {.name = "follow",
        .type = OPTION_BOOL,
        .fallback = "false",
        .letter = 'f',
        .help = "go on with what is written to the file, also after it was rotated; needs --producer"},
    {.name = "state",
        .type = OPTION_STRING,
        .help =
            "with --follow: where it keeps which file it is in (default: .FILE.PRODUCER beside the file)"},
    {.name = "rejects",
        .type = OPTION_STRING,
        .help = "the file that lines are appended to which the queue refuses for themselves (over its "
                "max_message), and that lets it pass over those of more than 64 MiB, which are not read; "
                "unset: the first one ends it"},
    {.name = "rate",
        .type = OPTION_INT,
        .fallback = "0",
        .min = 0,
        .max = 100000000,
        .help = "lines a second at most, and made up for at most a tenth of a second's and one; 0: as fast "
                "as it goes"},
    {.name = "batch",
        .type = OPTION_INT,
        .fallback = "2000",
        .min = 1,
        .max = 1000000,
        .help = "lines a request"},
    {.name = "timeout",
        .type = OPTION_DURATION,
        .fallback = "60s",
        .min = 100,
        .max = 86400000,
        .unit = "s",
        .help = "give up after this long without progress; with --follow it goes on trying, unless this is "
                "given"},
    {.name = "quiet", .type = OPTION_BOOL, .fallback = "false", .help = "no progress, no summary"},
    {.name = NULL},
};

struct file_count {
    const char *name;
    uint64_t base;  /* where it begins in the input */
    uint64_t lines; /* in batches, sent or not */
    bool whole;     /* read to its end */
};

struct put {
    const struct options *o;
    struct pipeline *pipeline;
    struct put_batch *batch;
    size_t batch_lines;
    uint64_t resume;                /* the producer's mark when it began */
    uint64_t base;                  /* of the file under way: unpacked bytes of those before it */
    uint64_t packed_before, packed; /* for the progress: bytes of the files before, of all (0: unknown) */
    usec_t began;
    uint64_t taken;    /* lines since then */
    usec_t batch_from; /* when the batch got its first line */
    struct rate_limit rate;
    struct file_count *files; /* that lines were taken of, in order */
    size_t n_files;
    int idle_status; /* of what was flushed while the input was idle */
    struct progress progress;
    struct put_rejects *rejects; /* NULL: none are kept */
    bool passing;                /* over a line that is too long, and that was told */
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
    if (url != NULL)
        return url;
    pipeline_close(&p->pipeline);
    p->pipeline = pipeline_open(options_config(p->o), options_string(p->o, "data_dir"));
    return pipeline_url(p->pipeline, "simplequeue");
}

static void sleep_for(usec_t t)
{
    struct timespec ts = {.tv_sec = t / USEC_PER_SEC, .tv_nsec = t % USEC_PER_SEC * 1000};
    nanosleep(&ts, NULL);
}

static void wait_for_rate(struct put *p, size_t lines)
{
    usec_t now = clock_monotonic(), when;
    while (!stopped && (when = rate_limit_when(&p->rate, lines, now)) > now) {
        sleep_for(when - now);
        now = clock_monotonic();
    }
    rate_limit_spend(&p->rate, lines, now);
}

static int flush(struct put *p)
{
    size_t lines = put_batch_lines(p->batch);
    if (lines > 0)
        wait_for_rate(p, lines);
    p->taken += lines;
    return put_batch_flush(p->batch);
}

static int add(struct put *p, struct bytes line, uint64_t end)
{
    if (put_batch_lines(p->batch) > 0 && put_batch_bytes(p->batch) + line.len > BATCH_BYTES) {
        int status = flush(p);
        if (status != 0)
            return status;
    }
    usec_t now = clock_monotonic();
    if (put_batch_lines(p->batch) == 0)
        p->batch_from = now;
    size_t before = put_batch_lines(p->batch);
    put_batch_add(p->batch, line, end);
    p->files[p->n_files - 1].lines += put_batch_lines(p->batch) - before; /* an empty one is none */
    return put_batch_lines(p->batch) >= p->batch_lines || now - p->batch_from >= BATCH_DELAY_MAX ? flush(p)
                                                                                                 : 0;
}

static void show(struct put *p, uint64_t consumed, bool last)
{
    progress_show(
        &p->progress, NULL, p->packed_before + consumed, p->packed, p->taken, last, clock_monotonic());
}

static int print_error(const char *why, int status)
{
    progress_leave();
    fprintf(stderr, "millrace put: %s\n", why);
    return status;
}

static int skip(struct put *p, struct line_source *s)
{
    char error[LINE_SOURCE_ERROR_MAX];
    uint64_t reached;
    if (p->resume <= p->base)
        return 0;
    if (line_source_skip(s, p->resume - p->base, &reached, error) != 0)
        return print_error(error, EX_DATAERR);
    put_batch_begin_at(p->batch, p->base + reached);
    return 0;
}

/* Nothing more has come down the pipe yet: what has is not kept waiting. */
static bool on_idle(void *arg)
{
    struct put *p = arg;
    if (!stopped)
        p->idle_status = flush(p);
    return !stopped && p->idle_status == 0;
}

/* A line is what ends with LF; what an application is still writing looks like this too. */
static void tell_unfinished(const struct put *p, const char *name)
{
    if (options_bool(p->o, "quiet"))
        return;
    progress_leave();
    fprintf(stderr, "millrace put: %s ends without a line feed: its last line was put as it stands\n",
        strcmp(name, "-") == 0 ? "standard input" : name);
}

/* The file under way, or one before it that has lines in the batch. */
static const struct file_count *file_at(const struct put *p, uint64_t start)
{
    size_t i = p->n_files;
    while (i > 1 && p->files[i - 1].base > start)
        i--;
    return &p->files[i - 1];
}

static const char *name_of(const struct file_count *f)
{
    return strcmp(f->name, "-") == 0 ? "standard input" : f->name;
}

static int refused(const struct put_batch_refusal *refusal, void *arg)
{
    struct put *p = arg;
    const struct file_count *f = file_at(p, refusal->start);
    struct put_reject reject = {
        .line = refusal->line, .why = refusal->why, .file = name_of(f), .offset = refusal->start - f->base};
    if (p->rejects != NULL)
        return put_rejects_add(p->rejects, &reject, clock_monotonic());
    put_reject_tell(&reject);
    fprintf(stderr, "millrace put: --rejects=FILE would keep it there and go on\n");
    return EX_DATAERR;
}

/* While a line that is too long is read past, those before it are not kept waiting. */
static int pass_on(struct put *p)
{
    bool late = put_batch_lines(p->batch) > 0 && clock_monotonic() - p->batch_from >= BATCH_DELAY_MAX;
    return late ? flush(p) : 0;
}

/* A line that is too long to be read ends the put, without `length` before it ends. What stands before it is stored. */
static int end_at(struct put *p, uint64_t start, uint64_t length)
{
    const struct file_count *f = &p->files[p->n_files - 1];
    int status = flush(p);
    if (status != 0)
        return status;
    if (length > 0)
        put_passed_tell(name_of(f), start - f->base, length);
    else
        put_passing_tell(name_of(f), start - f->base);
    fprintf(stderr, "millrace put: --rejects=FILE would leave it out and go on\n");
    return EX_DATAERR;
}

/* Of the file under way: a line that is too long so far. It may never end. */
static int passing(struct put *p, uint64_t start)
{
    const struct file_count *f = &p->files[p->n_files - 1];
    if (p->rejects == NULL)
        return end_at(p, start, 0);
    if (!p->passing)
        put_rejects_begin_pass(p->rejects, name_of(f), start - f->base);
    p->passing = true;
    return pass_on(p);
}

static int passed(struct put *p, uint64_t start, uint64_t end)
{
    const struct file_count *f = &p->files[p->n_files - 1];
    p->passing = false;
    if (p->rejects == NULL)
        return end_at(p, start, end - start);
    put_rejects_pass(p->rejects, name_of(f), start - f->base, end - start);
    put_batch_add(p->batch, BYTES_NONE, end);
    return pass_on(p);
}

/* Damage: what stands before it is put, so that where it begins is told by how much is posted. */
static int put_rest(struct put *p, const char *error)
{
    (void)flush(p);
    return print_error(error, EX_DATAERR);
}

static int put_lines(struct put *p, struct line_source *s, const char *name)
{
    char error[LINE_SOURCE_ERROR_MAX];
    struct bytes line;
    bool whole = true, more = true;
    int status = skip(p, s);
    p->progress.resumed = p->packed_before + line_source_consumed(s);
    while (status == 0 && more && !stopped) {
        uint64_t start = p->base + line_source_offset(s);
        switch (line_source_next(s, false, &line, error)) {
        case LINE_SOURCE_LINE:
            whole = line.ptr[line.len - 1] == '\n';
            status = add(p, line, p->base + line_source_offset(s));
            break;
        case LINE_SOURCE_SKIPPING:
            status = passing(p, start);
            break;
        case LINE_SOURCE_SKIPPED:
            status = passed(p, start, p->base + line_source_offset(s));
            break;
        case LINE_SOURCE_END:
            more = false;
            break;
        case LINE_SOURCE_FAILED:
            return put_rest(p, error);
        }
        if (more)
            show(p, line_source_consumed(s), false);
    }
    if (!whole)
        tell_unfinished(p, name);
    return status != 0 ? status : p->idle_status;
}

static void begin_file(struct put *p, const char *name)
{
    p->files = mem_realloc(p->files, (p->n_files + 1) * sizeof *p->files);
    p->files[p->n_files++] = (struct file_count){.name = name, .base = p->base};
}

static int put_file(struct put *p, const char *name)
{
    char error[LINE_SOURCE_ERROR_MAX];
    struct line_source *s = line_source_open(name, error);
    if (s == NULL)
        return print_error(error, EX_NOINPUT);
    line_source_on_idle(s, on_idle, p);
    begin_file(p, name);
    int status = put_lines(p, s, name);
    p->files[p->n_files - 1].whole = status == 0 && !stopped;
    p->base += line_source_offset(s);
    p->packed_before += line_source_consumed(s);
    line_source_close(&s);
    return status;
}

/* For the ETA; one input of unknown size makes the whole unknown. */
static uint64_t size_of(char **files, size_t n)
{
    uint64_t size = 0;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (stat(files[i], &st) != 0 || !S_ISREG(st.st_mode))
            return 0;
        size += (uint64_t)st.st_size;
    }
    return size;
}

static int put_files(struct put *p, char **files, size_t n)
{
    int status = 0;
    p->packed = size_of(files, n);
    for (size_t i = 0; i < n && status == 0 && !stopped; i++)
        status = put_file(p, files[i]);
    if (status == 0)
        status = flush(p);
    if (status == 0 && !stopped && p->base < p->resume)
        return print_error(
            "more was put under this producer's name than this input has: it is another input, or a "
            "part of it is missing",
            EX_DATAERR);
    return stopped && status == 0 ? 128 + SIGINT : status;
}

static char *state_path(const struct put *p, const char *path)
{
    const char *given = options_string(p->o, "state"), *slash = strrchr(path, '/');
    struct buf text = {0};
    if (given != NULL)
        return mem_strdup(given);
    buf_printf(&text, "%.*s.%s.%s", slash != NULL ? (int)(slash - path) + 1 : 0, path,
        slash != NULL ? slash + 1 : path, options_string(p->o, "producer"));
    return text.ptr;
}

static int next_file(struct put *p, struct log_tail *t)
{
    char error[LINE_SOURCE_ERROR_MAX];
    int status = flush(p), rc = status == 0 ? log_tail_next_file(t, error) : 0;
    if (rc < 0)
        return print_error(error, EX_IOERR);
    if (rc > 0)
        sleep_for(FOLLOW_POLL);
    p->files[0].base = log_tail_base(t);
    return status;
}

static void tell_cut(const char *path)
{
    progress_leave();
    fprintf(stderr,
        "millrace put: %s was cut or written anew: going on from its beginning; what stood in it and was not "
        "put "
        "yet is missing\n",
        path);
}

/* What is in no batch is stored. */
static int keep_place(struct put *p, struct log_tail *t)
{
    char error[LINE_SOURCE_ERROR_MAX];
    bool ok = put_batch_lines(p->batch) > 0 || log_tail_stored(t, error) == 0;
    return ok ? 0 : print_error(error, EX_IOERR);
}

/* The batch goes out whenever there is nothing more to read. */
static int follow_on(struct put *p, struct log_tail *t)
{
    char error[LINE_SOURCE_ERROR_MAX];
    int status = 0;
    while (status == 0 && !stopped) {
        struct bytes line;
        uint64_t start = log_tail_offset(t);
        switch (log_tail_next(t, clock_wall(), &line, error)) {
        case LOG_TAIL_LINE:
            status = add(p, line, log_tail_offset(t));
            break;
        case LOG_TAIL_SKIPPING:
            status = passing(p, start);
            break;
        case LOG_TAIL_SKIPPED:
            status = passed(p, start, log_tail_offset(t));
            break;
        case LOG_TAIL_WAIT:
            status = flush(p);
            show(p, log_tail_offset(t), false);
            put_rejects_tell(p->rejects, clock_monotonic(), false);
            sleep_for(FOLLOW_POLL);
            break;
        case LOG_TAIL_CUT:
            tell_cut(p->files[0].name);
            p->passing = false;
            status = next_file(p, t);
            break;
        case LOG_TAIL_FINISHED:
            status = next_file(p, t);
            break;
        case LOG_TAIL_FAILED:
            status = print_error(error, EX_IOERR);
            break;
        }
        if (status == 0)
            status = keep_place(p, t);
    }
    return status == 0 ? flush(p) : status;
}

/* A log that nobody has made yet is waited for: a reader may well start before the writer. */
static struct log_tail *open_log(
    const struct put *p, const char *path, enum log_tail_start *place, char error[LINE_SOURCE_ERROR_MAX])
{
    char *state = state_path(p, path);
    struct log_tail *t = log_tail_open(path, state, p->resume, place, error);
    if (t == NULL && *place != LOG_TAIL_LOCKED && access(path, F_OK) != 0 && errno == ENOENT)
        fprintf(stderr, "millrace put: waiting for %s to be made\n", path);
    while (t == NULL && !stopped && *place != LOG_TAIL_LOCKED && access(path, F_OK) != 0 && errno == ENOENT) {
        sleep_for(FOLLOW_POLL);
        t = log_tail_open(path, state, p->resume, place, error);
    }
    free(state);
    return t;
}

static void tell_place(enum log_tail_start place, const char *path)
{
    if (place == LOG_TAIL_GONE)
        fprintf(stderr,
            "millrace put: the file it was in is not there any more: what was not put of it is missing; "
            "going on with %s from its beginning\n",
            path);
    if (place == LOG_TAIL_REWRITTEN)
        tell_cut(path);
}

static int follow(struct put *p, const char *path)
{
    char error[LINE_SOURCE_ERROR_MAX];
    enum log_tail_start place;
    struct log_tail *t = open_log(p, path, &place, error);
    if (t == NULL && place == LOG_TAIL_LOCKED)
        return print_error(error, EX_CONFIG);
    if (t == NULL)
        return stopped ? 0 : print_error(error, EX_DATAERR);
    tell_place(place, path);
    put_batch_begin_at(p->batch, log_tail_offset(t));
    begin_file(p, path);
    p->files[0].base = log_tail_base(t);
    int status = follow_on(p, t);
    log_tail_close(&t);
    return status;
}

static void summary(struct put *p)
{
    struct put_batch_numbers n = put_batch_numbers(p->batch);
    double seconds = (double)(clock_monotonic() - p->began) / USEC_PER_SEC;
    if (options_bool(p->o, "quiet"))
        return;
    show(p, 0, true);
    fprintf(stderr, "millrace put: %" PRIu64 " events posted", n.posted);
    if (n.duplicates > 0)
        fprintf(stderr, ", %" PRIu64 " were there already", n.duplicates);
    if (p->resume > 0)
        fprintf(stderr, "; the first %" PRIu64 " bytes were there already", p->resume);
    fprintf(stderr, ", %.2f s\n", seconds);
}

/* After an error: what of the input is stored, so that the rest can be put. */
static void tell_posted(const struct put *p)
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
        fprintf(stderr, "%s%s %" PRIu64 " line%s of %s", i > 0 ? ", " : "", all ? "all" : "the first", lines,
            lines == 1 ? "" : "s", strcmp(f->name, "-") == 0 ? "standard input" : f->name);
    }
    fprintf(stderr, "\n");
}

static void catch_signals(void)
{
    struct sigaction stop = {.sa_handler = on_signal};
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
}

static int put_all(struct put *p)
{
    static char dash[] = "-";
    char *standard_input[] = {dash}, **files;
    size_t n = options_operands(p->o, &files);
    int status = put_batch_ask_mark(p->batch, &p->resume);
    p->began = clock_monotonic();
    progress_begin(&p->progress, "events", options_bool(p->o, "quiet"), p->began);
    if (status == 0 && options_bool(p->o, "follow"))
        status = follow(p, files[0]);
    else if (status == 0)
        status = put_files(p, n > 0 ? files : standard_input, n > 0 ? n : 1);
    if (status == 0 || stopped)
        summary(p);
    else
        tell_posted(p);
    return status;
}

static int check_file(const char *name)
{
    char error[LINE_SOURCE_ERROR_MAX];
    struct stat st;
    int why = stat(name, &st) != 0 || access(name, R_OK) != 0 ? errno : 0;
    if (why == 0 && S_ISDIR(st.st_mode))
        why = EISDIR;
    if (why != 0) {
        fprintf(stderr, "millrace put: %s: %s\n", name, strerror(why));
        return EX_NOINPUT;
    }
    if (!S_ISREG(st.st_mode))
        return 0;
    struct line_source *s = line_source_open(name, error);
    bool ok = s != NULL && line_source_check(s, error) == 0;
    line_source_close(&s);
    return ok ? 0 : print_error(error, EX_DATAERR);
}

static int check_standard_input(void)
{
    int mode = fcntl(STDIN_FILENO, F_GETFL);
    return mode >= 0 && (mode & O_ACCMODE) != O_WRONLY
               ? 0
               : print_error("standard input is closed, or not open for reading", EX_NOINPUT);
}

/* Before the first line is sent: a name that is mistyped leaves nothing half done. */
static int check_files(char **files, size_t n)
{
    int status = n == 0 ? check_standard_input() : 0;
    for (size_t i = 0; i < n; i++) {
        int one = strcmp(files[i], "-") == 0 ? check_standard_input() : check_file(files[i]);
        status = one != 0 ? one : status;
    }
    return status;
}

static bool is_input(const char *input, const struct stat *st)
{
    struct stat its;
    bool there = strcmp(input, "-") == 0 ? fstat(STDIN_FILENO, &its) == 0 : stat(input, &its) == 0;
    return there && its.st_dev == st->st_dev && its.st_ino == st->st_ino;
}

/* What is added to it would be read again, refused again, and added again, without end. */
static bool reads_rejects(const struct options *o, char **files, size_t n)
{
    const char *rejects = options_string(o, "rejects");
    struct stat st;
    if (rejects == NULL)
        return false;
    if (options_bool(o, "follow") && log_tail_could_read(files[0], rejects))
        return true;
    if (stat(rejects, &st) != 0)
        return false;
    bool found = n == 0 && is_input("-", &st);
    for (size_t i = 0; i < n; i++)
        found = found || is_input(files[i], &st);
    return found;
}

static int check_rejects(const struct options *o, char **files, size_t n)
{
    return !reads_rejects(o, files, n)
               ? 0
               : print_error(
                     "--rejects is what is put, or begins as the log's name does and would be taken for "
                     "what that is rotated to: name another file",
                     EX_USAGE);
}

static int check(const struct options *o)
{
    struct url_address address;
    char **files;
    const char *url = options_string(o, "queue_url");
    if (url != NULL && url_address_parse(url, 8080, &address) != 0)
        return print_error("--queue-url is no address (http://HOST:PORT or unix:PATH)", EX_USAGE);
    size_t n = options_operands(o, &files);
    if (!options_bool(o, "follow")) {
        if (options_is_set(o, "state"))
            return print_error("--state is for --follow", EX_USAGE);
        int status = check_files(files, n);
        return status != 0 ? status : check_rejects(o, files, n);
    }
    if (options_string(o, "producer") == NULL)
        return print_error("--follow needs --producer: the mark is what it goes on from", EX_USAGE);
    if (n != 1 || strcmp(files[0], "-") == 0)
        return print_error("--follow needs one file", EX_USAGE);
    return check_rejects(o, files, n);
}

static struct put_batch *make_batch(struct put *p, const char *token)
{
    const struct options *o = p->o;
    bool lasting = options_bool(o, "follow") && !options_is_set(o, "timeout");
    return put_batch_new(&(struct put_batch_config){.url = queue_url,
        .arg = p,
        .queue = options_string(o, "queue"),
        .producer = options_string(o, "producer"),
        .auth_token = token,
        .refused = refused,
        .timeout = lasting ? 0 : options_int(o, "timeout") * USEC_PER_MSEC,
        .stopped = &stopped});
}

static int put_with(const struct options *o)
{
    struct put p = {.o = o, .batch_lines = (size_t)options_int(o, "batch")};
    struct config_error error;
    char *token;
    int status = check(o);
    if (status != 0)
        return status;
    if (daemon_read_token(options_string(o, "queue_token_file"), &token, &error) != 0)
        return print_error(error.text, EX_CONFIG);
    if (options_string(o, "rejects") != NULL &&
        (p.rejects = put_rejects_open(options_string(o, "rejects"))) == NULL) {
        free(token);
        return EX_CANTCREAT;
    }
    rate_limit_init(&p.rate, (uint64_t)options_int(o, "rate"));
    if (rate_limit_batch(&p.rate) < p.batch_lines)
        p.batch_lines = rate_limit_batch(&p.rate);
    catch_signals();
    p.batch = make_batch(&p, token);
    status = put_all(&p);
    put_rejects_tell(p.rejects, clock_monotonic(), true);
    put_rejects_free(&p.rejects);
    put_batch_free(&p.batch);
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
