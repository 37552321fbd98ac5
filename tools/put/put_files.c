#include "tools/put/put_files.h"

#include "base/io.h"
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

#define URL_HOST_TEXT 100

/* True for an input that cannot be read a second time, such as the pipe of `<(zcat a.gz)`. */
static bool is_pipe(const char *name)
{
    struct stat st;
    int rc = strcmp(name, "-") == 0 ? fstat(STDIN_FILENO, &st) : stat(name, &st);
    return rc != 0 || !S_ISREG(st.st_mode);
}

static int check_standard_input(void)
{
    int mode = fcntl(STDIN_FILENO, F_GETFL);
    return mode >= 0 && (mode & O_ACCMODE) != O_WRONLY
               ? 0
               : tool_fail(EX_NOINPUT, "standard input is closed, or not open for reading");
}

int put_files_check(const char *name)
{
    struct error error;
    struct stat st;
    if (strcmp(name, "-") == 0)
        return check_standard_input();
    if (tool_check_input(name) != 0)
        return EX_NOINPUT;
    if (stat(name, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    struct line_source *s = line_source_open(name, &error);
    bool ok = s && line_source_check(s, &error) == 0;
    line_source_close(&s);
    return ok ? 0 : tool_fail(EX_DATAERR, "%s", error.text);
}

/* Called while a pipe is idle. Sends the lines that have arrived. */
static bool on_idle(void *arg)
{
    struct put_input *in = arg;
    if (!put_stopped)
        in->idle_status = put_flush(in);
    return !put_stopped && in->idle_status == 0;
}

static int post_lines(struct put_input *in)
{
    struct put *p = in->put;
    struct error error;
    struct bytes bytes;
    int status = 0;
    while (status == 0 && !put_stopped) {
        enum line_source_result r = line_source_next(in->source, false, &bytes, &error);
        if (line_source_take_replaced(in->source) > 0)
            put_note_replaced(in);
        if (r == LINE_SOURCE_END)
            return in->idle_status != 0 ? in->idle_status : put_take_end(in);
        if (r == LINE_SOURCE_FAILED) {
            (void)put_flush(in);
            return tool_fail(EX_DATAERR, "%s", error.text);
        }
        status = put_take(in, r, bytes);
        progress_show(&p->progress, NULL, p->packed_before + line_source_consumed(in->source), p->packed,
            p->taken, false, clock_monotonic());
    }
    return status;
}

/* Skips to the end of the part that was posted before. The first record of a CSV file is read again. */
static int skip_to(struct put_input *in, uint64_t offset)
{
    struct error error;
    uint64_t reached;
    struct bytes line;
    while (put_needs_line(in) && line_source_offset(in->source) < offset) {
        enum line_source_result r = line_source_next(in->source, false, &line, &error);
        if (r == LINE_SOURCE_FAILED)
            return tool_fail(EX_DATAERR, "%s", error.text);
        if (r == LINE_SOURCE_HOLE)
            continue;
        if (r != LINE_SOURCE_LINE || (csv_add(in->csv, line) == CSV_WRONG && put_needs_line(in)))
            return tool_fail(EX_DATAERR, "%s: the line with the names is wrong", put_input_name(in));
    }
    if (line_source_skip(in->source, offset, &reached, &error) != 0)
        return tool_fail(EX_DATAERR, "%s", error.text);
    in->put->resumed += offset;
    return reached == offset ? 0
                             : tool_fail(EX_DATAERR, "%s has changed while it was read", put_input_name(in));
}

/* Opens a file in the format of the options. Returns NULL after printing the error. */
static struct line_source *open_source(const struct put *p, const char *name)
{
    struct error error;
    struct line_source *s = line_source_open(name, &error);
    const char *encoding = options_string(p->o, "encoding");
    if (s)
        line_source_skip_holes(s);
    if (s)
        line_source_as_text(s, encoding);
    if (!s)
        tool_fail(EX_NOINPUT, "%s", error.text);
    return s;
}

/* Finds the offsets at which the posted part of the input ends and its batch begins. */
static int find_place(struct put_input *in, struct put_sources *s, uint64_t mark)
{
    struct error error = {0};
    if (is_pipe(in->name))
        put_content_begin(&in->content, mark + (mark > 0 ? PUT_SOURCES_GAP : 0), 0);
    else {
        struct line_source *source = open_source(in->put, in->name);
        int rc = source ? put_sources_find(s, source, &in->content, &error) : 0;
        bool is_read = source != NULL;
        line_source_close(&source);
        if (strcmp(in->name, "-") == 0 && lseek(STDIN_FILENO, 0, SEEK_SET) < 0)
            rc = error_set(&error, -1, "standard input: %s", strerror(errno));
        if (!is_read || rc != 0)
            return is_read ? tool_fail(EX_DATAERR, "%s", error.text) : EX_NOINPUT;
    }
    if (put_sources_keep(s, &error) != 0)
        return tool_fail(EX_CANTCREAT, "%s", error.text);
    put_batch_begin_at(in->batch, mark, in->content.base + in->content.end);
    return 0;
}

/* Refuses a file of which no line became an event, because the options are probably wrong. An empty log is accepted,
 * but not an empty CSV file. The mark stays before the file, so a repeated put fails, too. */
static int check_taken(const struct put_input *in, uint64_t refused_before, bool has_earlier)
{
    uint64_t refused = in->put->rejects.n + in->put->rejects.skipped - refused_before;
    const struct put_batch_state *batch = put_batch_state(in->batch);
    struct put_batch_numbers n = batch->numbers;
    if (batch->lines + n.posted + n.duplicates + n.refused > 0 || has_earlier || put_stopped)
        return 0;
    if (refused == 1)
        return tool_fail(EX_DATAERR, "%s: its only line was refused", put_input_name(in));
    if (refused > 1)
        return tool_fail(
            EX_DATAERR, "%s: each of its %" PRIu64 " lines was refused", put_input_name(in), refused);
    return in->put->form.is_csv ? tool_fail(EX_DATAERR, "%s: the file has no record", put_input_name(in)) : 0;
}

static int post_file(struct put *p, struct put_sources *s, const char *name)
{
    struct put_input in;
    struct bytes tag;
    uint64_t mark, refused = p->rejects.n + p->rejects.skipped;
    put_input_begin(&in, p, name, p->producer);
    int status = put_batch_ask_mark(in.batch, &mark, &tag);
    if (status == 0 && s && !put_sources_set_mark(s, mark, tag, p->has_stored && p->stored_mark == mark))
        status = tool_fail(
            EX_DATAERR, "the producer %s follows a log: other input needs another --producer", p->producer);
    if (status == 0 && p->producer)
        status = find_place(&in, s, mark);
    in.source = status == 0 ? open_source(p, name) : NULL;
    if (status == 0 && !in.source)
        status = EX_NOINPUT;
    if (in.source)
        line_source_on_idle(in.source, on_idle, &in);
    bool has_earlier = in.content.end > 0;
    if (status == 0 && has_earlier)
        status = skip_to(&in, in.content.end);
    if (in.source)
        p->progress.resumed += line_source_consumed(in.source);
    if (status == 0)
        status = post_lines(&in);
    /* Warn, because an application may still be writing the last line. */
    if (in.unfinished && !options_bool(p->o, "quiet"))
        tool_fail(0, "%s ends without LF; posted its last line as it stands", put_input_name(&in));
    if (status == 0)
        status = check_taken(&in, refused, has_earlier);
    if (status == 0)
        status = put_flush(&in);
    if (put_batch_state(in.batch)->has_stored) {
        p->has_stored = true;
        p->stored_mark = put_batch_state(in.batch)->mark;
    }
    if (in.source)
        p->packed_before += line_source_consumed(in.source);
    put_input_end(&in, status == 0 && !put_stopped);
    return status;
}

/* Returns the path of the state file of a queue and producer if this host has no pipeline. NULL: there is no home
 * directory. */
static char *home_path(const struct put *p)
{
    const char *given = getenv("XDG_STATE_HOME"), *home = getenv("HOME"),
               *url = options_string(p->o, "queue_url");
    struct url_address a;
    bool is_given = given && given[0] == '/';
    char *path = NULL, host[URL_HOST_TEXT] = "local";
    char *dir = is_given                 ? mem_printf("%s/millrace", given)
                : home && home[0] == '/' ? mem_printf("%s/.local/state/millrace", home)
                                         : NULL;
    if (url && url_address_parse(url, 80, &a) == 0 && a.is_unix)
        snprintf(host, sizeof host, "unix-%016" PRIx64, XXH3_64bits(a.host, strlen(a.host)));
    else if (url && url_address_parse(url, 80, &a) == 0)
        snprintf(host, sizeof host, "%.80s_%d", a.host, a.port);
    for (char *c = host; *c; c++)
        if (!bytes_are_of_name(bytes_of(c, 1)))
            *c = '_';
    if (dir && io_make_dirs(dir) == 0)
        path = mem_printf("%s/%s.%s.%s.sources", dir, host, options_string(p->o, "queue"), p->producer);
    free(dir);
    return path;
}

static char *state_path(const struct put *p, const char *beside)
{
    const char *given = options_string(p->o, "state");
    char *path = given ? mem_strdup(given) : put_kept_path(p, NULL, "sources");
    path = path ? path : home_path(p);
    return path ? path : put_kept_path(p, beside, "sources");
}

/* Waits for another process with the same producer, which may be about to end. */
static int open_sources(struct put *p, const char *beside, struct put_sources **s)
{
    struct error error;
    char *path = state_path(p, beside);
    usec_t until = clock_monotonic() + options_int(p->o, "timeout") * USEC_PER_MSEC;
    bool has_said = false;
    while (!(*s = put_sources_open(path, &error)) && error.code == EX_TEMPFAIL && !put_stopped &&
           clock_monotonic() < until) {
        if (!has_said)
            tool_fail(0, "waiting for another put of the producer %s to end (lock on %s)", p->producer, path);
        has_said = true;
        clock_sleep(PUT_FOLLOW_POLL);
    }
    free(path);
    if (*s || put_stopped)
        return 0;
    return tool_fail(error.code == EX_TEMPFAIL ? EX_TEMPFAIL : EX_CANTCREAT, "%s", error.text);
}

int put_files(struct put *p, char **files, size_t n)
{
    struct put_sources *s = NULL;
    struct stat st;
    /* The progress needs the total size, which is unknown if the size of any input is unknown. */
    for (size_t i = 0; i < n; i++) {
        if (stat(files[i], &st) != 0 || !S_ISREG(st.st_mode)) {
            p->packed = 0;
            break;
        }
        p->packed += (uint64_t)st.st_size;
    }
    int status = p->producer ? open_sources(p, files[0], &s) : 0;
    for (size_t i = 0; i < n && status == 0 && !put_stopped; i++)
        status = post_file(p, s, files[i]);
    put_sources_close(&s);
    return put_stopped && status == 0 ? 128 + SIGINT : status;
}
