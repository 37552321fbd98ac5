/* millrace forget: erases every event whose key has a value, and what was counted of it.
 *
 * The steps follow the events: wait until the queues are empty and erase what is left in their files; erase the lines of
 * the streams; wait until the aggregator has passed them; erase the lines that it rejected; merge the slices and remove
 * the key from the archive. Each step can be repeated, so a command that was interrupted is run again. */
#include "base/io.h"
#include "counts/json_fields.h"
#include "counts/counters.h"
#include "counts/key_function.h"
#include "counts/manifest.h"
#include "daemon/daemon.h"
#include "tools/forget_stream.h"
#include "tools/rejects_dir.h"
#include "tools/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define POLL (100 * USEC_PER_MSEC)

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    {.name = "field",
        .type = OPTION_STRING,
        .help = "key of the events to erase, written as in the counters: user, user.id, lower(user)"},
    {.name = "value", .type = OPTION_STRING, .help = "value of the key"},
    {.name = "dry_run", .type = OPTION_BOOL, .help = "change nothing; show what would be erased"},
    {.name = "contains",
        .type = OPTION_BOOL,
        .help = "also erase lines that are no JSON object and contain the value anywhere"},
    {.name = "wait",
        .type = OPTION_DURATION,
        .fallback = "60s",
        .min = 0,
        .max = INT64_C(24) * 3600 * 1000,
        .unit = "s",
        .help = "how long to wait until queues are empty and consumers have passed the erased lines"},
    {.name = NULL},
};

struct forget {
    const struct options *o;
    const struct config *config;
    struct pipeline pipeline;
    struct counters *counters;
    struct forget_match *match;
    const char *field, *value;
    bool dry;
    usec_t due;    /* end of --wait */
    int remaining; /* exit status if something remains; 0: nothing */
};

static void say(const char *what, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void say(const char *what, const char *name, const char *fmt, ...)
{
    va_list ap;
    printf("%-8s %-10s ", what, name);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

static int fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int fail(int status, const char *fmt, ...)
{
    va_list ap;
    fputs("millrace forget: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return status;
}

/* The token that the configuration names for the daemon; NULL: none. The caller frees it. */
static char *token_of(const struct forget *f, const char *daemon)
{
    const char *file = config_setting(f->config, daemon, "auth_token_file");
    struct config_error ignored;
    char *token = NULL;
    if (!file)
        file = config_setting(f->config, "millrace", "auth_token_file");
    return daemon_read_token(file, &token, &ignored) == 0 ? token : NULL;
}

static const struct pipeline_daemon *daemon_named(const struct forget *f, const char *name)
{
    return &f->pipeline.daemons[peer_named(name) - peers];
}

/* Returns the parsed reply to a request with status 200 or 202, or NULL after printing the error. */
static struct json_doc *ask(
    const struct forget *f, const char *daemon, const char *method, const char *target)
{
    struct buf body = {0};
    const char *why = "";
    char *token = token_of(f, daemon);
    int status = tool_request(pipeline_url(&f->pipeline, daemon), token, method, target, 0, &body, &why);
    struct json_doc *doc = status ? json_doc_parse(buf_bytes(&body)) : NULL;
    if (status != 200 && status != 202) {
        struct bytes detail = doc ? json_doc_text(doc, "/detail") : bytes_str(why);
        (void)fail(
            EX_TEMPFAIL, "%s: %s: %.*s", daemon, target, (int)detail.len, detail.len ? detail.ptr : "");
        json_doc_free(&doc);
    }
    buf_free(&body);
    free(token);
    return doc;
}

static void poll_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = POLL * 1000}, NULL);
}

/* The number at a member of a queue in the reply of /stats. */
static uint64_t queue_number(const struct json_doc *doc, const char *queue, const char *member)
{
    uint64_t n = 0;
    char pointer[160];
    snprintf(pointer, sizeof pointer, "/queues/%s/%s", queue, member);
    (void)json_doc_u64(doc, pointer, &n);
    return n;
}

/* Queues. */

/* Waits until the messages that are not buried are gone. Returns their number at the end, or -1 after an error. */
static int64_t drain(struct forget *f, const char *queue, uint64_t *buried)
{
    for (;;) {
        struct json_doc *doc = ask(f, "simplequeue", "GET", "/stats?format=json");
        if (!doc)
            return -1;
        uint64_t depth = queue_number(doc, queue, "depth");
        *buried = queue_number(doc, queue, "buried");
        json_doc_free(&doc);
        if (depth == 0 || f->dry || clock_monotonic() >= f->due)
            return (int64_t)depth;
        poll_pause();
    }
}

static int erase_queue(struct forget *f, const char *queue)
{
    char target[128], state[16] = "";
    uint64_t buried = 0;
    int64_t depth = drain(f, queue, &buried);
    if (depth < 0)
        return EX_TEMPFAIL;
    snprintf(target, sizeof target, "/erase?queue=%s", queue);
    for (const char *method = "POST"; !f->dry && strcmp(state, "done") != 0; method = "GET") {
        struct json_doc *doc = ask(f, "simplequeue", method, target);
        if (!doc)
            return EX_TEMPFAIL;
        struct bytes text = json_doc_text(doc, "/state"), error = json_doc_text(doc, "/error");
        snprintf(state, sizeof state, "%.*s", (int)text.len, text.len ? text.ptr : "");
        if (strcmp(state, "failed") == 0)
            (void)fail(EX_TEMPFAIL, "queue %s: %.*s", queue, (int)error.len, error.len ? error.ptr : "");
        json_doc_free(&doc);
        if (strcmp(state, "running") != 0)
            break;
        if (clock_monotonic() >= f->due)
            break;
        poll_pause();
    }
    bool done = f->dry || strcmp(state, "done") == 0;
    say("queue", queue, "%s%s",
        f->dry ? "files of acknowledged messages are kept"
        : done ? "files of acknowledged messages are deleted"
               : "files of acknowledged messages are not deleted yet",
        depth ? "; messages still wait in the queue, and were not searched" : "");
    if (buried)
        say("queue", queue, "%" PRIu64 " buried messages were not searched: see /dead", buried);
    if (!f->dry && (!done || depth))
        f->remaining = EX_TEMPFAIL;
    return EX_OK;
}

static int erase_queues(struct forget *f)
{
    if (daemon_named(f, "simplequeue")->is_off)
        return EX_OK;
    struct json_doc *doc = ask(f, "simplequeue", "GET", "/stats?format=json");
    int status = doc ? EX_OK : EX_TEMPFAIL;
    size_t n = doc ? json_doc_length(doc, "/queues") : 0;
    for (size_t i = 0; i < n && status == EX_OK; i++) {
        char *queue = bytes_dup(json_doc_name(doc, "/queues", i));
        status = erase_queue(f, queue);
        free(queue);
    }
    json_doc_free(&doc);
    return status;
}

/* Streams. */

/* True once every named cursor of the stream has reached `end`. Otherwise stores the name of one that has not. */
static bool have_passed(const struct forget *f, const char *stream, uint64_t end, char name[64])
{
    char target[128], pointer[64];
    uint64_t offset;
    bool passed = true;
    snprintf(target, sizeof target, "/cursors?stream=%s", stream);
    struct json_doc *doc = ask(f, "pubsub", "GET", target);
    for (size_t i = 0; doc && passed && i < json_doc_length(doc, "/cursors"); i++) {
        snprintf(pointer, sizeof pointer, "/cursors/%zu/offset", i);
        passed = json_doc_u64(doc, pointer, &offset) && offset >= end;
        struct bytes text = json_doc_text(doc, "/cursors/%zu/name", i);
        snprintf(name, 64, "%.*s", (int)text.len, text.len ? text.ptr : "");
    }
    passed = passed && doc;
    json_doc_free(&doc);
    return passed;
}

/* A consumer that has read lines before they were erased, but has not stored its cursor yet, still counts or sends
 * them. */
static void await_consumers(struct forget *f, const struct forget_stream *s)
{
    char name[64] = "";
    while (!have_passed(f, s->stream, s->end, name) && clock_monotonic() < f->due)
        poll_pause();
    if (f->dry || have_passed(f, s->stream, s->end, name))
        return;
    say("stream", s->stream, "consumer %s has not passed the erased lines; it may have read some of them",
        name);
    f->remaining = EX_TEMPFAIL;
}

static int erase_stream(struct forget *f, const char *stream)
{
    char *token = token_of(f, "pubsub");
    struct forget_stream s = {.url = pipeline_url(&f->pipeline, "pubsub"),
        .token = token,
        .stream = stream,
        .match = f->match,
        .contains = options_bool(f->o, "contains")};
    int status = forget_stream_search(&s);
    if (status == EX_OK && !f->dry)
        status = forget_stream_erase(&s);
    uint64_t erased = s.matched + (s.contains ? s.contained : 0);
    if (status != EX_OK)
        (void)fail(status, "%s", s.error);
    else
        say("stream", stream, "%" PRIu64 " of %" PRIu64 " lines %s, up to offset %" PRIu64, erased, s.read,
            f->dry ? "match" : "erased", s.end);
    if (status == EX_OK && s.contained && !s.contains)
        say("stream", stream,
            "%" PRIu64 " lines are no JSON object and contain the value; --contains erases them",
            s.contained);
    if (status == EX_OK && erased)
        await_consumers(f, &s);
    buf_free(&s.ranges);
    free(token);
    return status;
}

static int erase_streams(struct forget *f)
{
    struct json_doc *doc = ask(f, "pubsub", "GET", "/streams");
    int status = doc ? EX_OK : EX_TEMPFAIL;
    size_t n = doc ? json_doc_length(doc, "/streams") : 0;
    for (size_t i = 0; i < n && status == EX_OK; i++) {
        char *stream = bytes_dup(json_doc_text(doc, "/streams/%zu/name", i));
        status = erase_stream(f, stream);
        free(stream);
    }
    json_doc_free(&doc);
    return status;
}

/* Rejects. */

/* Overwrites the latest entry of the reader with an erased one of the same length, and syncs it. */
static bool overwrite(const struct rejects_reader *r, struct bytes text, const struct rejects_entry *e)
{
    struct buf erased = {0};
    uint64_t at;
    char *path = rejects_reader_where(r, &at);
    int fd =
        rejects_format_erased(&erased, text, e) ? io->open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0) : -1;
    bool done = fd >= 0 && io_write_all(fd, erased.ptr, erased.len, (off_t)at) == 0 && io->fdatasync(fd) == 0;
    if (fd >= 0)
        io->close(fd);
    free(path);
    buf_free(&erased);
    return done;
}

/* True if the entry's line is to be erased. The reason may quote the line. */
static bool is_matched(struct forget *f, const struct rejects_entry *e)
{
    enum forget_verdict v = forget_match_line(f->match, e->line);
    return v == FORGET_YES || v == FORGET_CONTAINS;
}

static int erase_rejects(struct forget *f)
{
    char why[SLICE_ERROR_TEXT];
    struct rejects_place from, end, after;
    struct bytes text;
    struct buf path = {0}, bytes = {0};
    uint64_t read = 0, matched = 0, failed = 0;
    int more;
    char *dir = rejects_dir_find(f->config, f->pipeline.data_dir);
    int status = rejects_dir_ends(dir, &from, &end, why);
    if (status != EX_OK) {
        free(dir);
        return fail(status, "%s", why);
    }
    buf_printf(&path, "%s/rejects", dir);
    struct rejects_reader *r = rejects_reader_new(path.ptr, (struct rejects_place){0}, end);
    while ((more = rejects_reader_next(r, &text, &after)) > 0) {
        struct rejects_entry e;
        struct json_doc *doc = NULL;
        bool valid = rejects_parse(text, &e, &doc, &bytes);
        bool is = valid && is_matched(f, &e);
        read++;
        matched += is;
        failed += !valid || (is && !f->dry && !overwrite(r, text, &e));
        json_doc_free(&doc);
    }
    if (more < 0)
        status = fail(EX_IOERR, "%s: %s", path.ptr, strerror(errno));
    rejects_reader_free(&r);
    if (status == EX_OK && read)
        say("rejects", "", "%" PRIu64 " of %" PRIu64 " lines %s", matched, read, f->dry ? "match" : "erased");
    if (failed) {
        say("rejects", "", "%" PRIu64 " entries are damaged or too short to be erased: see %s", failed,
            path.ptr);
        f->remaining = EX_DATAERR;
    }
    buf_free(&path);
    buf_free(&bytes);
    free(dir);
    return status;
}

/* The archive. */

/* Runs `millrace compact`, with an option unless it is NULL. Its log is shown only if it fails. */
static int compact(const struct forget *f, const char *option, const char *ns)
{
    char *argv[TOOL_ARGS_MAX + 1] = {NULL};
    int status, n = 0;
    FILE *log = tmpfile();
    tool_add_arg(argv, "compact");
    tool_add_arg(argv, "--config=%s", f->config->path);
    if (options_is_set(f->o, "data_dir"))
        tool_add_arg(argv, "--data-dir=%s", options_string(f->o, "data_dir"));
    if (option)
        tool_add_arg(argv, "--%s=%s|%s", option, ns, f->value);
    while (argv[n])
        n++;
    pid_t parent = getpid(), pid = log ? fork() : -1;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || dup2(fileno(log), STDERR_FILENO) < 0)
            _exit(EX_TEMPFAIL);
        exit(tool_compact(n, argv));
    }
    while (n-- > 0)
        free(argv[n]);
    if (pid < 0) {
        status = fail(EX_TEMPFAIL, "cannot start a process: %s", strerror(errno));
    } else {
        while (waitpid(pid, &status, 0) != pid)
            continue;
        status = WIFEXITED(status) ? WEXITSTATUS(status) : EX_TEMPFAIL;
    }
    if (log && status != EX_OK) {
        rewind(log);
        for (int c; (c = getc(log)) != EOF;)
            fputc(c, stderr);
    }
    if (log)
        fclose(log);
    return status;
}

static int erase_counter(struct forget *f, const char *ns, struct bytes key_text)
{
    bool is_sub = strchr(ns, '.') != NULL;
    enum forget_key key = forget_match_key(f->match, key_text);
    if (key == FORGET_OTHER_KEY)
        say("archive", ns, "kept: it counts %.*s, not %s", (int)key_text.len, key_text.ptr, f->field);
    if (key != FORGET_SAME_KEY)
        return EX_OK;
    int status = f->dry ? EX_OK : compact(f, is_sub ? "forget-sub" : "forget", ns);
    if (status == EX_OK)
        say("archive", ns, "%s %s", is_sub ? "as a sub key:" : "with its sub keys:",
            f->dry   ? "would be removed"
            : is_sub ? "counts moved to (other)"
                     : "removed");
    return status;
}

/* For each line of a canonical text of counters (counters.h): `subtotal c.u key = country`. */
static int erase_counters(struct forget *f, const char *text)
{
    int status = EX_OK;
    for (const char *line = text, *end; *line && status == EX_OK; line = *end ? end + 1 : end) {
        char ns[64], kind[16];
        int key_at = 0;
        end = strchrnul(line, '\n');
        if (sscanf(line, "%15s %63s key = %n", kind, ns, &key_at) == 2 && key_at > 0 && line + key_at < end &&
            (strcmp(kind, "total") == 0 || strcmp(kind, "subtotal") == 0))
            status = erase_counter(f, ns, bytes_of(line + key_at, (size_t)(end - line) - (size_t)key_at));
    }
    return status;
}

/* The archive's manifest names every counter whose counts it has, also those that are no longer configured. */
static int erase_archive(struct forget *f)
{
    struct manifest m;
    char why[MANIFEST_ERROR_TEXT];
    if (f->dry)
        return erase_counters(f, f->counters->text);
    int status = compact(f, NULL, NULL);
    char *archive = tool_archive_dir(f->config, f->pipeline.data_dir);
    enum manifest_result r = status == EX_OK ? manifest_read_current(archive, &m, why) : MANIFEST_ABSENT;
    free(archive);
    if (status == EX_OK && r == MANIFEST_OK) {
        status = erase_counters(f, m.counters);
        if (status == EX_OK)
            status = erase_counters(f, m.retired);
        manifest_free(&m);
    } else if (status == EX_OK) {
        return fail(EX_TEMPFAIL, "%s", why);
    }
    return status == EX_OK
               ? status
               : fail(status, "`millrace compact` has ended with status %d; repeat the command", status);
}

static int forget_all(struct forget *f)
{
    int status = erase_queues(f);
    if (status == EX_OK)
        status = erase_streams(f);
    if (status == EX_OK)
        status = erase_rejects(f);
    if (status == EX_OK)
        status = erase_archive(f);
    if (status != EX_OK)
        return status;
    if (!f->dry)
        say("kept", "", "files of ps_to_file, exports and backups; see `millrace help privacy`");
    if (f->remaining)
        (void)fail(f->remaining, "something remains; repeat the command later");
    return f->remaining;
}

static int run(const struct options *o)
{
    struct config_error error = {""};
    struct forget f = {.o = o,
        .config = options_config(o),
        .field = options_string(o, "field"),
        .value = options_string(o, "value"),
        .dry = options_bool(o, "dry_run"),
        .due = clock_monotonic() + options_int(o, "wait") * USEC_PER_MSEC};
    if (!f.field || !f.value || !f.value[0])
        return fail(EX_USAGE, "needs --field and --value");
    if (!f.config || counters_read(f.config, &f.counters, &error) != 0)
        return fail(EX_CONFIG, "%s", f.config ? error.text : "needs --config, for the counters");
    int status = EX_USAGE;
    if (!(f.match = forget_match_new(f.field, f.value))) {
        (void)fail(EX_USAGE, "--field=%s is not a field, a path or %s", f.field, KEY_FUNCTIONS);
    } else {
        signal(SIGPIPE, SIG_IGN);
        pipeline_open(&f.pipeline, f.config, options_string(o, "data_dir"));
        status = forget_all(&f);
        pipeline_close(&f.pipeline);
    }
    forget_match_free(&f.match);
    counters_free(&f.counters);
    return tool_flush("forget", status);
}

int tool_forget(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "forget",
        .summary = "erases the events with a value from streams, queues, rejects and counts",
        .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, run);
}
