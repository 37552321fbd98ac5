#include "aggregator/files/file_input.h"

#include "aggregator/aggregate.h"
#include "aggregator/aggregator_settings.h"
#include "base/amount.h"
#include "base/line_source.h"
#include "base/progress.h"
#include "base/xxh3.h"
#include "json/json_fields.h"
#include "daemon/daemon.h"
#include "daemon/daemon_directory.h"

#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define LINES_A_TURN 1000
#define WAIT (20 * USEC_PER_MSEC)
#define HEX64 17
#define EXIT_STOPPED (128 + SIGINT)
#define NO_INPUT SIZE_MAX

struct file_input {
    struct aggregate *aggregate;
    size_t max_line;
    sem_t job_done;
    struct progress progress;
    /* sizes in bytes of the files before the current file, and of all files */
    uint64_t packed_before, packed;
    uint64_t files_known; /* files that were counted completely before this run */
};

/* The part of a file before `offset`, which is the end of a line. */
struct prefix {
    XXH3_state_t *hash;
    uint64_t offset;
    bool ends_in_cr;
    char first[HEX64];
};

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    (void)sig;
    stopped = 1;
}

static int print_error(const char *text, int status)
{
    progress_leave();
    fprintf(stderr, "aggregator: %s\n", text);
    return status;
}

static void prefix_begin(struct prefix *p)
{
    if (!p->hash && !(p->hash = XXH3_createState()))
        abort();
    XXH3_128bits_reset(p->hash);
    p->offset = 0;
    p->ends_in_cr = false;
}

/* Adds a line to the prefix. `length` is the line's length without its LF. `line` is shorter than `length` only if the
 * line was too long to read. */
static void prefix_add(struct prefix *p, struct bytes line, uint64_t length)
{
    char text[32];
    if (line.len < length)
        line = bytes_of(text, (size_t)snprintf(text, sizeof text, "%" PRIu64, length));
    XXH3_128bits_update(p->hash, line.ptr, line.len);
    XXH3_128bits_update(p->hash, "\n", 1);
    if (p->offset == 0)
        snprintf(p->first, sizeof p->first, "%016" PRIx64, (uint64_t)XXH3_64bits(line.ptr, line.len));
    p->offset += length + 1;
    p->ends_in_cr = line.len > 0 && line.ptr[line.len - 1] == '\r';
}

static void prefix_id(const struct prefix *p, char id[SLICE_ID_TEXT])
{
    XXH128_hash_t hash = XXH3_128bits_digest(p->hash);
    snprintf(id, SLICE_ID_TEXT, "%016" PRIx64 "%016" PRIx64 ".%s", (uint64_t)hash.high64,
        (uint64_t)hash.low64, p->first);
}

/* Reads the next line without its LF. If the line is too long to read, *line is shorter than *length. */
static enum line_source_result next_line(
    struct line_source *s, struct bytes *line, uint64_t *length, bool *has_lf, struct error *error)
{
    uint64_t start = line_source_offset(s);
    enum line_source_result r;
    do
        r = line_source_next(s, false, line, error);
    while (r == LINE_SOURCE_SKIPPING && !stopped);
    if (r != LINE_SOURCE_LINE && r != LINE_SOURCE_SKIPPED)
        return r;
    if (r == LINE_SOURCE_SKIPPED)
        *line = BYTES_NONE;
    *has_lf = r != LINE_SOURCE_LINE || line->ptr[line->len - 1] == '\n';
    *length = line_source_offset(s) - start - *has_lf;
    if (r == LINE_SOURCE_LINE && *has_lf)
        line->len--;
    return r;
}

/* Returns true if only an LF can follow the line, because a cut-off object is not valid JSON. Lines may end in CR
 * LF. */
static bool is_whole(const struct prefix *p, struct bytes line)
{
    const char *why;
    struct json_fields *f = json_fields_new(NULL, 0);
    bool is_object = json_fields_extract(f, line, NULL, &why) == 0;
    json_fields_free(&f);
    return is_object && (!p->ends_in_cr || line.ptr[line.len - 1] == '\r');
}

/* Finds the cursor with the greatest offset for which the file begins with the bytes before the cursor. *found is
 * NO_INPUT if the file is new. Returns 0, or an exit status after printing the error. */
static int find_input(struct file_input *in, const char *path, size_t *found)
{
    const struct aggregate *a = in->aggregate;
    struct error error;
    char id[SLICE_ID_TEXT];
    struct prefix p = {0};
    size_t *like = mem_alloc((aggregate_inputs_end(a) + 1) * sizeof *like), n = 0;
    uint64_t last = 1; /* greatest offset of the cursors with this first line */
    enum line_source_result r = LINE_SOURCE_END;
    struct line_source *s = line_source_open(path, &error);
    prefix_begin(&p);
    *found = NO_INPUT;
    while (s && !stopped && p.offset < last) {
        struct bytes line;
        uint64_t length;
        bool has_lf;
        r = next_line(s, &line, &length, &has_lf, &error);
        if (r != LINE_SOURCE_LINE && r != LINE_SOURCE_SKIPPED)
            break;
        bool is_first = p.offset == 0;
        prefix_add(&p, line, length);
        for (size_t i = 0; is_first && i < aggregate_inputs_end(a); i++) {
            const struct slice_cursor *c = aggregate_cursor(a, i);
            if (c->stream[0] != AGGREGATE_INPUT_MARK || strlen(c->id) < HEX64 ||
                strcmp(c->id + strlen(c->id) + 1 - HEX64, p.first) != 0)
                continue;
            like[n++] = i;
            last = c->offset > last ? c->offset : last;
        }
        for (size_t i = 0; i < n; i++) {
            const struct slice_cursor *c = aggregate_cursor(a, like[i]);
            if (c->offset != p.offset)
                continue;
            prefix_id(&p, id);
            *found = strcmp(c->id, id) == 0 ? like[i] : *found;
        }
    }
    line_source_close(&s);
    XXH3_freeState(p.hash);
    free(like);
    if (stopped)
        return 0;
    if (!s && r == LINE_SOURCE_FAILED)
        return print_error(error.text, EX_DATAERR);
    if (n == 0 || *found != NO_INPUT)
        return 0;
    error_set(&error, EX_DATAERR,
        "%.200s: the file begins like a counted file, but was changed or cut off since then; append new "
        "lines to the counted file instead",
        path);
    return print_error(error.text, EX_DATAERR);
}

static void notify(void *arg)
{
    sem_post(arg);
}

/* Starts jobs of the storage thread and collects their results. With `to_end`, waits until all counts are committed;
 * otherwise waits until memory has room for more lines. Returns 0, or an exit status after printing the error. */
static int store(struct file_input *in, bool to_end)
{
    struct aggregate *a = in->aggregate;
    for (;;) {
        aggregate_set_wall(a, clock_wall(), clock_wall());
        aggregate_poll(a, clock_monotonic());
        if (to_end)
            aggregate_flush(a, clock_monotonic());
        aggregate_tick(a, clock_monotonic());
        const struct error *failure = aggregate_failure(a);
        if (failure)
            return print_error(failure->text, failure->code == SLICE_FULL ? EX_TEMPFAIL : EX_IOERR);
        if (to_end ? aggregate_is_clean(a) : !aggregate_is_full(a))
            return 0;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += WAIT * 1000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        sem_timedwait(&in->job_done, &until);
    }
}

static void show(struct file_input *in, const struct line_source *s, bool last)
{
    struct aggregate_numbers n;
    aggregate_numbers(in->aggregate, &n);
    progress_show(&in->progress, NULL, in->packed_before + (s ? line_source_consumed(s) : 0), in->packed,
        n.counted.events + n.counted.skipped + n.counted.rejected, last, clock_monotonic());
}

static void take(struct file_input *in, size_t input, struct bytes line, uint64_t length)
{
    struct bytes text = line;
    if (text.len > 0 && text.ptr[text.len - 1] == '\r')
        text.len--;
    if (length == 0 || (text.len == 0 && length == line.len))
        aggregate_pass(in->aggregate, input, length + 1);
    else if (length > in->max_line || line.len < length)
        aggregate_take_overlong(
            in->aggregate, input, line.len > in->max_line ? bytes_of(line.ptr, in->max_line) : line, length);
    else
        aggregate_take_line(in->aggregate, input, line);
}

static size_t add_input(struct aggregate *a)
{
    char name[NAME_LEN_MAX + 1];
    snprintf(name, sizeof name, "%cinput-%zu", AGGREGATE_INPUT_MARK, aggregate_inputs_end(a));
    return aggregate_add_input(a, name);
}

/* Counts a file from the cursor of `input`; with NO_INPUT, from the file's start. */
static int count_lines(struct file_input *in, struct line_source *s, const char *path, size_t input)
{
    struct error error = {0};
    char id[SLICE_ID_TEXT];
    uint64_t from = input == NO_INPUT ? 0 : aggregate_cursor(in->aggregate, input)->offset, n = 0, length;
    struct prefix p = {0};
    struct bytes line;
    bool has_lf = true, is_changed = false, is_half = false;
    int status = 0;
    enum line_source_result r = LINE_SOURCE_LINE;
    prefix_begin(&p);
    aggregate_set_input_file(in->aggregate, path, p.first); /* prefix_add sets p.first */
    for (; status == 0 && !stopped; n++) {
        r = next_line(s, &line, &length, &has_lf, &error);
        if (r != LINE_SOURCE_LINE && r != LINE_SOURCE_SKIPPED)
            break;
        bool is_counted = p.offset < from;
        is_half = !is_counted && !has_lf && !is_whole(&p, line);
        if (is_half)
            break;
        prefix_add(&p, line, length);
        if (is_counted && p.offset == from) {
            prefix_id(&p, id);
            in->progress.resumed += line_source_consumed(s);
        }
        if (is_counted && p.offset >= from &&
            (p.offset > from || strcmp(id, aggregate_cursor(in->aggregate, input)->id) != 0)) {
            error_set(&error, EX_DATAERR, "%.200s: the file changed while it was read", path);
            is_changed = true;
            r = LINE_SOURCE_FAILED;
            break;
        }
        if (!is_counted) {
            if (input == NO_INPUT)
                input = add_input(in->aggregate);
            take(in, input, line, length);
        }
        if (!is_counted && (n % LINES_A_TURN == 0 || aggregate_is_full(in->aggregate))) {
            prefix_id(&p, id);
            aggregate_set_stream_id(in->aggregate, input, id);
            status = store(in, false);
        }
        if (n % LINES_A_TURN == 0)
            show(in, s, false);
    }
    if (p.offset > from && !is_changed) {
        prefix_id(&p, id);
        aggregate_set_stream_id(in->aggregate, input, id);
    }
    XXH3_freeState(p.hash);
    if (status == 0 && r == LINE_SOURCE_FAILED)
        return print_error(error.text, EX_DATAERR);
    progress_leave();
    if (from > 0 && p.offset == from && status == 0 && !stopped)
        in->files_known++;
    if (is_half)
        fprintf(stderr,
            "aggregator: %s: the last line, at offset %" PRIu64
            ", is half-written and not counted yet; repeat the command once the line ends with LF\n",
            path, p.offset);
    return status;
}

static int count_file(struct file_input *in, const char *path)
{
    struct error error;
    size_t input;
    int status = find_input(in, path, &input);
    if (status != 0 || stopped)
        return status;
    if (input == NO_INPUT && aggregate_inputs_end(in->aggregate) >= FILE_INPUT_FILES_MAX) {
        error_set(
            &error, EX_USAGE, "%.200s: too many files were counted; concatenate the remaining files", path);
        return print_error(error.text, EX_USAGE);
    }
    struct line_source *s = line_source_open(path, &error);
    if (!s)
        return print_error(error.text, EX_NOINPUT);
    status = count_lines(in, s, path, input);
    line_source_close(&s);
    return status;
}

static int check_files(struct file_input *in, char **files, size_t n)
{
    struct error error;
    int status =
        n <= FILE_INPUT_FILES_MAX ? 0 : print_error("too many files; concatenate some of them", EX_USAGE);
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        struct line_source *s = NULL;
        if (stat(files[i], &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
            error_set(&error, EX_NOINPUT, "%.200s: %s", files[i],
                access(files[i], F_OK) != 0 ? strerror(errno) : "not a regular file");
        } else {
            s = line_source_open(files[i], &error);
        }
        if (!s)
            status = print_error(error.text, EX_NOINPUT);
        else if (line_source_check(s, &error) != 0)
            status = print_error(error.text, EX_DATAERR);
        else
            in->packed += (uint64_t)st.st_size;
        line_source_close(&s);
    }
    return status;
}

static int count_files(struct file_input *in, char **files, size_t n)
{
    struct aggregate_numbers numbers;
    usec_t began = clock_monotonic();
    int worst = 0, status = 0;
    progress_begin(&in->progress, "lines", false, began);
    for (size_t i = 0; i < n && !stopped && (status == 0 || status == EX_DATAERR || status == EX_NOINPUT);
         i++) {
        struct stat st;
        status = count_file(in, files[i]);
        worst = status != 0 ? status : worst;
        in->packed_before += stat(files[i], &st) == 0 ? (uint64_t)st.st_size : 0;
    }
    if (status != EX_IOERR && status != EX_TEMPFAIL)
        status = store(in, true);
    show(in, NULL, true);
    progress_leave();
    aggregate_numbers(in->aggregate, &numbers);
    fprintf(stderr,
        "aggregator: counted %" PRIu64 ", rejected %" PRIu64 ", skipped %" PRIu64 "; %" PRIu64
        " of %zu %s counted before; %.2f s\n",
        numbers.committed.events, numbers.committed.rejected, numbers.committed.skipped, in->files_known, n,
        plural(n, "file was", "files were"), (double)(clock_monotonic() - began) / USEC_PER_SEC);
    if (stopped)
        return print_error("stopped; run the same command to continue", EXIT_STOPPED);
    return status != 0 ? status : worst;
}

static int run(struct options *o)
{
    struct file_input in = {.max_line = (size_t)options_int(o, "max_line")};
    struct sigaction stop = {.sa_handler = on_signal};
    struct error error;
    struct counters *counters = NULL;
    struct error why;
    char **files;
    size_t n = options_operands(o, &files);
    int status = check_files(&in, files, n);
    if (status != 0)
        return status;
    const char *dir = options_string(o, "data_dir");
    if (daemon_lock_directory(dir, &error) != 0)
        return print_error(error.text, daemon_lock_status());
    if (settings_read_counters(o, &counters, &error) != 0)
        return print_error(error.text, EX_CONFIG);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sem_init(&in.job_done, 0, 0);
    enum slice_result r =
        aggregate_open(&(struct aggregate_config){.dir = dir,
                           .archive = options_string(o, "archive"),
                           .counters = counters,
                           .max_inputs = n,
                           .rejects_limits = settings_rejects_limits(o),
                           .flush_interval = options_int(o, "flush_interval") * USEC_PER_MSEC,
                           .max_memory = (size_t)options_int(o, "max_memory"),
                           .notify = notify,
                           .notify_arg = &in.job_done},
            clock_wall(), &in.aggregate, &why);
    if (r != SLICE_OK)
        status = print_error(why.text, r == SLICE_FULL ? EX_TEMPFAIL : EX_CONFIG);
    else
        status = count_files(&in, files, n);
    aggregate_close(&in.aggregate);
    sem_destroy(&in.job_done);
    counters_free(&counters);
    return status;
}

bool file_input_run(struct options *o, int *status)
{
    if (!options_bool(o, "input"))
        return false;
    *status = run(o);
    return true;
}
