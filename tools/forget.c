/* millrace forget: erases every event whose key has a value, and the counts of these events.
 *
 * The steps follow the flow of events:
 * 1. Wait until the queues are empty, and erase acknowledged messages in the files of the queues.
 * 2. Wait until the cells of the api have copied all messages (forget_cells.h).
 * 3. Erase the lines in the streams.
 * 4. Wait until the aggregator has passed the erased lines.
 * 5. Erase the rejects of the aggregator.
 * 6. Merge the slices, and remove the key from the archive.
 * 7. Erase in the cells of the api.
 * A host that runs only some of the daemons has only their steps. Each step can be repeated. After an interruption, the operator runs the command again. */
#include "base/amount.h"
#include "json/json_fields.h"
#include "counts/counters.h"
#include "counts/key_function.h"
#include "counts/manifest.h"
#include "counts/records.h"
#include "sets/set_code.h"
#include "tools/forget_cells.h"
#include "tools/forget_files.h"
#include "tools/forget_rejects.h"
#include "tools/forget_stream.h"
#include "tools/rejects_dir.h"
#include "tools/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define POLL (100 * USEC_PER_MSEC)
#define DRAIN_ROUNDS 3
#define DRY_NONE 2 /* exit status of `compact --dry-run` if no generation has the key */

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    SETTING_STRING("field",
        "field or function of the events' key, written as in the counters: user, user.id, lower(user)"),
    SETTING_STRING("value", "erase the events whose key has this value"),
    SETTING_BOOL("dry_run", "change nothing; show what would be erased"),
    SETTING_BOOL("contains", "also erase lines without a key that contain the value anywhere: lines that are "
                             "not JSON objects, or whose field is a list, an object or a fraction"),
    SETTING_BOOL("local", "erase only in this pipeline, not in the cells of its api"),
    SETTING_DURATION("wait", "60s", 0, INT64_C(24) * 3600 * 1000, "s",
        "longest time for each of three waits: until the messages in the queues are published, until cells "
        "have copied them, and until consumers have passed the erased lines",
        .excludes = "dry_run"),
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
    char *archive;   /* directory */
    uint64_t erased; /* lines of streams that match */
    usec_t due;      /* deadline of the current wait */
    int remaining;   /* exit status if events may remain; 0: no events remain */
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

static const struct pipeline_daemon *daemon_named(const struct forget *f, const char *name)
{
    return &f->pipeline.daemons[peer_named(name) - peers];
}

/* Returns the parsed reply of pubsub, or NULL with the error. */
static struct json_doc *ask_pubsub(const struct forget *f, const char *target, struct error *error)
{
    return pipeline_ask(
        &f->pipeline, "pubsub", &(struct http_call_spec){.method = "GET", .target = target}, error);
}

/* Returns the parsed reply of a daemon, or NULL after printing the error. */
static struct json_doc *ask(
    const struct forget *f, const char *daemon, const char *method, const char *target)
{
    struct error error;
    struct json_doc *doc = pipeline_ask(
        &f->pipeline, daemon, &(struct http_call_spec){.method = method, .target = target}, &error);
    if (!doc)
        tool_fail(EX_TEMPFAIL, "%s", error.text);
    return doc;
}

static void begin_wait(struct forget *f)
{
    f->due = clock_monotonic() + options_int(f->o, "wait") * USEC_PER_MSEC;
}

static void poll_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = POLL * 1000}, NULL);
}

/* Queues. */

struct settled {
    char *queue_id;
    uint64_t below;
};

static bool see_mark(const struct json_doc *producer, size_t i, void *arg)
{
    struct settled *s = arg;
    uint64_t mark = 0;
    (void)i;
    if (bytes_equal_str(json_doc_text(producer, "/producer"), s->queue_id) &&
        json_doc_u64(producer, "/mark", &mark) && mark > s->below)
        s->below = mark;
    return true;
}

/* Returns the id before which queue_to_nats has settled every message of the queue; 0: unknown. */
static uint64_t settled_by_nats(const struct forget *f, const char *queue)
{
    const char *relay = peer_relay(f->config), *followed = config_setting(f->config, relay, "queue");
    if (strcmp(relay, "queue_to_nats") != 0 || strcmp(queue, followed ? followed : "default") != 0)
        return 0;
    struct json_doc *doc = pipeline_ask(
        &f->pipeline, relay, &(struct http_call_spec){.method = "GET", .target = "/stats?format=json"}, NULL);
    uint64_t below = json_doc_number(doc, "/settled_below");
    json_doc_free(&doc);
    return below;
}

/* Returns the id before which every message of the queue is published or buried; 0: unknown. queue_to_pubsub stores
 * this id in the stream as the mark of the queue (readers/reader_plan.h). */
static uint64_t settled_below(const struct forget *f, const struct json_doc *queues, const char *queue)
{
    char target[128];
    struct settled s = {.queue_id = bytes_dup(json_doc_text(queues, "/queues/%s/queue_id", queue)),
        .below = settled_by_nats(f, queue)};
    struct json_doc *streams = ask_pubsub(f, "/streams", NULL);
    for (size_t i = 0; i < json_doc_length(streams, "/streams"); i++) {
        struct bytes name = json_doc_text(streams, "/streams/%zu/name", i);
        snprintf(target, sizeof target, "/producers?stream=%.*s", (int)name.len, name.ptr);
        struct json_doc *doc = ask_pubsub(f, target, NULL);
        json_doc_each(doc, "/producers", see_mark, &s);
        json_doc_free(&doc);
    }
    json_doc_free(&streams);
    free(s.queue_id);
    return s.below;
}

/* Waits until all messages that were in the queue before the call are deleted, except buried messages. Returns 0, the
 * number of messages in the queue if old messages may remain, or -1 after an error.
 *
 * A busy queue is never empty, so the wait has rounds. A round begins without delayed messages, because these get new
 * ids, and ends once all its ids are settled. A reserve after the second round acknowledges the messages of the
 * first round. */
static int64_t drain(struct forget *f, const char *queue)
{
    uint64_t last = 0, end = 0;
    for (unsigned rounds = 0;;) {
        struct json_doc *doc = ask(f, "simplequeue", "GET", "/stats?format=json");
        if (!doc)
            return -1;
        uint64_t depth = json_doc_number(doc, "/queues/%s/depth", queue),
                 next = json_doc_number(doc, "/queues/%s/next_id", queue);
        if (end == 0 && next > last && json_doc_number(doc, "/queues/%s/delayed", queue) == 0)
            end = next;
        if (depth > 0 && end > 0 && settled_below(f, doc, queue) >= end) {
            rounds++;
            last = end;
            end = 0;
        }
        json_doc_free(&doc);
        if (depth == 0 || rounds == DRAIN_ROUNDS)
            return 0;
        if (f->dry || clock_monotonic() >= f->due)
            return (int64_t)depth;
        poll_pause();
    }
}

struct buried {
    struct forget_match *match;
    uint64_t read, matched, next; /* next: id after the last buried message */
};

static bool see_buried(const struct json_doc *message, size_t i, void *arg)
{
    struct buried *b = arg;
    uint64_t id = 0;
    struct bytes text = json_doc_text(message, "/message");
    (void)i;
    b->read++;
    b->matched += forget_match_line(b->match, text) != FORGET_NO;
    b->next = json_doc_u64(message, "/id", &id) ? id + 1 : b->next + 1;
    return true;
}

/* Searches the buried messages, which stay in the queue until a kick. */
static int search_buried(struct forget *f, const char *queue)
{
    struct buried b = {.match = f->match, .next = 1};
    size_t n = 1;
    while (n > 0) {
        char target[160];
        snprintf(target, sizeof target, "/dead?queue=%s&from=%" PRIu64, queue, b.next);
        struct json_doc *doc = ask(f, "simplequeue", "GET", target);
        if (!doc)
            return EX_TEMPFAIL;
        n = json_doc_length(doc, "/buried");
        json_doc_each(doc, "/buried", see_buried, &b);
        json_doc_free(&doc);
    }
    if (b.read > 0)
        say("queue", queue, "%" PRIu64 " of %" PRIu64 " buried %s match%s", b.matched, b.read,
            plural(b.read, "message", "messages"),
            b.matched ? "; POST /kick publishes them; then repeat the command" : "");
    if (b.matched && !f->dry)
        f->remaining = EX_TEMPFAIL;
    return EX_OK;
}

static int erase_queue(struct forget *f, const char *queue)
{
    char target[128], state[16] = "";
    begin_wait(f);
    int64_t depth = drain(f, queue);
    if (depth < 0)
        return EX_TEMPFAIL;
    begin_wait(f);
    snprintf(target, sizeof target, "/erase?queue=%s", queue);
    for (const char *method = "POST"; !f->dry && strcmp(state, "done") != 0; method = "GET") {
        struct json_doc *doc = ask(f, "simplequeue", method, target);
        if (!doc)
            return EX_TEMPFAIL;
        struct bytes text = json_doc_text(doc, "/state"), error = json_doc_text(doc, "/error");
        snprintf(state, sizeof state, "%.*s", (int)text.len, text.len ? text.ptr : "");
        if (strcmp(state, "failed") == 0)
            tool_fail(EX_TEMPFAIL, "queue %s: %.*s", queue, (int)error.len, error.len ? error.ptr : "");
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
    if (!f->dry && (!done || depth))
        f->remaining = EX_TEMPFAIL;
    return search_buried(f, queue);
}

static int erase_queues(struct forget *f)
{
    if (daemon_named(f, "simplequeue")->is_off)
        return EX_OK;
    struct json_doc *doc = ask(f, "simplequeue", "GET", "/stats?format=json");
    int status = doc ? EX_OK : EX_TEMPFAIL;
    for (size_t i = 0; i < json_doc_length(doc, "/queues") && status == EX_OK; i++) {
        char *queue = bytes_dup(json_doc_name(doc, "/queues", i));
        status = erase_queue(f, queue);
        free(queue);
    }
    json_doc_free(&doc);
    return status;
}

/* Streams. */

struct position {
    uint64_t offset;      /* offset that all consumers must reach */
    const char *producer; /* producer that must reach the offset; NULL: all named cursors of the stream */
    struct error why;     /* names a consumer that has not reached the offset */
    bool is_reached;
};

static bool see_cursor(const struct json_doc *cursor, size_t i, void *arg)
{
    struct position *p = arg;
    uint64_t offset = 0;
    bool is_producer = p->producer != NULL;
    struct bytes name = json_doc_text(cursor, is_producer ? "/producer" : "/name");
    (void)i;
    p->is_reached = (is_producer && !bytes_equal_str(name, p->producer)) ||
                    (json_doc_u64(cursor, is_producer ? "/mark" : "/offset", &offset) && offset >= p->offset);
    if (!p->is_reached)
        error_set(&p->why, EX_TEMPFAIL,
            "%s %.*s has not passed the erased lines; it may have read some of them",
            is_producer ? "the copy of" : "consumer", (int)name.len, name.ptr);
    return p->is_reached;
}

/* Returns true once the consumers have reached the position. Before that, sets p->why to the reason. */
static bool has_reached(const struct forget *f, const char *stream, struct position *p)
{
    char target[128];
    snprintf(target, sizeof target, "/%s?stream=%s", p->producer ? "producers" : "cursors", stream);
    struct json_doc *doc = ask_pubsub(f, target, &p->why);
    p->is_reached = doc != NULL;
    json_doc_each(doc, p->producer ? "/producers" : "/cursors", see_cursor, p);
    json_doc_free(&doc);
    return p->is_reached;
}

static void await_position(struct forget *f, const char *stream, struct position *p)
{
    while (!has_reached(f, stream, p)) {
        if (clock_monotonic() >= f->due) {
            if (!f->dry)
                say("stream", stream, "%s", p->why.text);
            f->remaining = f->dry ? f->remaining : EX_TEMPFAIL;
            return;
        }
        poll_pause();
    }
}

/* Waits until the consumers have passed the erased lines. A consumer that has read lines before the erasure still
 * counts or sends these lines. A copy (--to-stream) stores its cursor as a mark in the target stream, under the id
 * of the source stream. */
static void await_consumers(
    struct forget *f, const struct forget_stream *s, const struct json_doc *streams, size_t n)
{
    struct position p = {.offset = s->end};
    await_position(f, s->stream, &p);
    p.producer = s->id;
    for (size_t i = 0; i < n; i++) {
        char *other = bytes_dup(json_doc_text(streams, "/streams/%zu/name", i));
        if (strcmp(other, s->stream) != 0)
            await_position(f, other, &p);
        free(other);
    }
}

static void say_erased(const struct forget *f, const struct forget_stream *s)
{
    say("stream", s->stream, "%" PRIu64 " of %" PRIu64 " %s %s, up to offset %" PRIu64, s->erased, s->read,
        plural(s->read, "line", "lines"), f->dry ? "match" : "erased", s->end);
    uint64_t left = s->contained - s->erased_contained;
    if (left > 0)
        say("stream", s->stream,
            s->contains ? "%" PRIu64 " %s the value and %s too short to be erased"
                        : "%" PRIu64 " %s the value; --contains erases %s",
            left, plural(left, "line without a key contains", "lines without a key contain"),
            s->contains ? plural(left, "is", "are") : plural(left, "it", "them"));
}

/* Erases the lines of the i-th stream. */
static int erase_stream(
    struct forget *f, const struct json_doc *streams, size_t i, size_t n, bool is_again, bool *has_erased)
{
    char *stream = bytes_dup(json_doc_text(streams, "/streams/%zu/name", i));
    struct forget_stream s = {.pipeline = &f->pipeline,
        .stream = stream,
        .match = f->match,
        .contains = options_bool(f->o, "contains")};
    int status = forget_stream_search(&s);
    if (status == EX_OK && !f->dry)
        status = forget_stream_erase(&s);
    if (status != EX_OK)
        tool_fail(status, "%s", s.error.text);
    else if (!is_again || s.erased)
        say_erased(f, &s);
    f->erased += status == EX_OK ? s.erased : 0;
    *has_erased = *has_erased || (status == EX_OK && s.erased);
    if (status == EX_OK && s.erased)
        await_consumers(f, &s, streams, n);
    forget_stream_free(&s);
    free(stream);
    return status;
}

/* A filter may copy a line into a stream that was already searched. Therefore all streams are searched again until
 * no line is found. For chains of copies, at most one search per stream is needed. */
static int erase_streams(struct forget *f)
{
    if (daemon_named(f, "pubsub")->is_off)
        return EX_OK;
    struct json_doc *doc = ask(f, "pubsub", "GET", "/streams");
    int status = doc ? EX_OK : EX_TEMPFAIL;
    size_t n = json_doc_length(doc, "/streams"), searches = n > 1 && !f->dry ? n + 1 : 1;
    bool has_erased = true;
    for (size_t search = 0; search < searches && has_erased; search++) {
        has_erased = false;
        begin_wait(f);
        for (size_t i = 0; i < n && status == EX_OK; i++)
            status = erase_stream(f, doc, i, n, search > 0, &has_erased);
    }
    json_doc_free(&doc);
    return status;
}

/* Rejects. */

/* Erases the rejects from the position *from on. Sets *from to the end of the rejects. */
static int erase_rejects(struct forget *f, struct rejects_place *from)
{
    struct error why;
    struct rejects_place front;
    struct forget_rejects r = {.from = *from, .match = f->match, .dry = f->dry};
    char *dir = pipeline_daemon_dir(f->config, f->pipeline.data_dir, "aggregator", ""),
         *path = mem_printf("%s/rejects", dir);
    int status = rejects_dir_ends(dir, &front, &r.end, &why);
    r.dir = path;
    if (status != EX_OK)
        tool_fail_at(status, dir, why.text);
    else if ((status = forget_rejects_erase(&r)) != EX_OK)
        tool_fail(status, "%s", r.error.text);
    if (status == EX_OK && (from->slice == 0 ? r.read : r.matched) > 0)
        say("rejects", "", "%" PRIu64 " of %" PRIu64 " %s %s", r.matched, r.read,
            plural(r.read, "line", "lines"), f->dry ? "match" : "erased");
    if (status == EX_OK && r.failed) {
        say("rejects", "", "%" PRIu64 " %s damaged or too short to be erased: see %s", r.failed,
            plural(r.failed, "entry is", "entries are"), path);
        f->remaining = EX_DATAERR;
    }
    *from = r.end;
    free(path);
    free(dir);
    return status;
}

/* The archive. */

/* True if the last run of the compactor removed a key: the current generation is newer than `before`, and not only a
 * merge of slices. */
static bool has_removed(const struct forget *f, uint64_t before)
{
    struct manifest m;
    if (manifest_read_current(f->archive, &m, NULL) != MANIFEST_OK)
        return false;
    bool is_change = m.generation > before && strcmp(m.change, "forget") == 0;
    manifest_free(&m);
    return is_change;
}

/* Runs `millrace compact` with `option`; NULL: no option. Prints the log of the command only after a failure. */
static int compact(const struct forget *f, const char *option, const char *ns, bool is_member)
{
    char hash[COMPONENT_HASH + 1], code[SET_CODE_TEXT];
    FILE *log = tmpfile();
    if (!log)
        return tool_fail(EX_TEMPFAIL, "cannot create a temporary file: %s", strerror(errno));
    /* Pass the stored form, because a text may look like a hash. */
    struct bytes value = is_member ? bytes_of(code, set_code_print(set_code(bytes_str(f->value)), code))
                                   : component_store(bytes_str(f->value), hash);
    struct tool_args a = {0};
    tool_add_arg(&a, "/proc/self/exe");
    tool_add_arg(&a, "compact");
    tool_add_arg(&a, "--config=%s", f->config->path);
    if (options_is_set(f->o, "data_dir"))
        tool_add_arg(&a, "--data-dir=%s", options_string(f->o, "data_dir"));
    if (option)
        tool_add_arg(&a, "--%s=%s|%.*s", option, ns, (int)value.len, value.ptr);
    if (f->dry)
        tool_add_arg(&a, "--dry-run");
    int status = tool_wait(tool_start(&a, fileno(log), STDERR_FILENO));
    rewind(log);
    bool is_failure = status != EX_OK && !(f->dry && status == DRY_NONE);
    for (int c; is_failure && (c = getc(log)) != EOF;)
        fputc(c, stderr);
    fclose(log);
    return status;
}

static int erase_counter(
    struct forget *f, const char *ns, struct bytes key_text, bool is_member, bool is_archived)
{
    bool is_sub = strchr(ns, '.') != NULL;
    enum forget_key key = forget_match_key(f->match, key_text);
    if (key == FORGET_OTHER_KEY)
        say("archive", ns, "kept: it counts %.*s, not %s", (int)key_text.len, key_text.ptr, f->field);
    if (key != FORGET_SAME_KEY)
        return EX_OK;
    const char *of = is_member ? "as a member of sets" : is_sub ? "as a sub key" : "with its sub keys";
    const char *effect = is_sub && !is_member
                             ? f->dry ? "counts would move to (other)" : "counts moved to (other)"
                         : f->dry ? "would be removed"
                                  : "removed";
    uint64_t before = 0;
    (void)manifest_current(f->archive, &before, NULL);
    int status = is_archived ? compact(f, is_sub ? "forget-sub" : "forget", ns, is_member) : DRY_NONE;
    if (status == EX_OK)
        say("archive", ns, "%s: %s", of, f->dry || has_removed(f, before) ? effect : "nothing found");
    else if (f->dry && status == DRY_NONE)
        say("archive", ns, "%s: %s%s", of, f->erased ? effect : "nothing found",
            f->erased ? ", if the matching lines are counted" : "; slices are not searched");
    return f->dry && status == DRY_NONE ? EX_OK : status;
}

/* Erases the key in each counter of a canonical text (counters.h), whose lines are like `subtotal c.u key = country` and
 * `unique v.u member = user by = day`. `archived`, unless NULL, is the archive's text: only the other counters are
 * shown, for a dry run. */
static int erase_counters(struct forget *f, const char *text, const char *archived)
{
    int status = EX_OK;
    for (const char *line = text, *end; *line && status == EX_OK; line = *end ? end + 1 : end) {
        char ns[64], setting[16], head[96];
        int key_at = 0;
        end = strchrnul(line, '\n');
        if (sscanf(line, "%*s %63s %15s = %n", ns, setting, &key_at) != 2 || key_at == 0 ||
            line + key_at >= end)
            continue;
        struct bytes key = bytes_of(line + key_at, (size_t)(end - line) - (size_t)key_at);
        bool is_member = strcmp(setting, "member") == 0;
        if (is_member)
            key.len = (size_t)((const char *)memrchr(key.ptr, 'b', key.len) - key.ptr) - 1; /* " by = day" */
        snprintf(head, sizeof head, " %s %s = ", ns, setting);
        if ((is_member || strcmp(setting, "key") == 0) && !(archived && strstr(archived, head)))
            status = erase_counter(f, ns, key, is_member, !archived);
    }
    return status;
}

/* Erases the key in every counter of the archive's manifest, which also contains counters that are no longer
 * configured. */
static int erase_archive(struct forget *f, struct rejects_place rejects)
{
    struct manifest m;
    struct error why;
    int status = f->dry ? EX_OK : compact(f, NULL, NULL, false);
    /* The compaction has committed the aggregator's memory, which may contain rejects that were put back meanwhile. */
    if (status == EX_OK && !f->dry && (status = erase_rejects(f, &rejects)) != EX_OK)
        return status;
    enum manifest_result r = status == EX_OK ? manifest_read_current(f->archive, &m, &why) : MANIFEST_ABSENT;
    if (status == EX_OK && r == MANIFEST_OK) {
        status = erase_counters(f, m.counters, NULL);
        if (status == EX_OK)
            status = erase_counters(f, m.retired, NULL);
        if (status == EX_OK && f->dry)
            status = erase_counters(f, f->counters->text, m.counters);
        manifest_free(&m);
    } else if (f->dry && r == MANIFEST_ABSENT) {
        status = erase_counters(f, f->counters->text, "");
    } else if (status == EX_OK) {
        return tool_fail(EX_TEMPFAIL, "%s", why.text);
    }
    return status == EX_OK
               ? status
               : tool_fail(status, "`millrace compact` has ended with status %d; repeat the command", status);
}

/* Files. */

static void say_left(const char *path, const char *remedy, void *arg)
{
    struct forget *f = arg;
    say("left", "", "%s: %s", path, remedy);
    f->remaining = f->dry ? f->remaining : EX_TEMPFAIL;
}

static void say_kept(const char *path, const char *remedy, void *arg)
{
    (void)arg;
    say("kept", "", "%s: %s", path, remedy);
}

static int name_files(struct forget *f)
{
    struct error error;
    int status = forget_files_list(&f->pipeline, f->match, say_left, f, &error);
    if (status != EX_OK)
        return tool_fail(status, "%s", error.text);
    forget_files_configured(f->config, say_kept, NULL);
    say("kept", "",
        "exports, backups, copies of the archive, logs, and the files of other programs; see `millrace help "
        "privacy`");
    return EX_OK;
}

static int forget_all(struct forget *f)
{
    struct rejects_place rejects = {0};
    bool has_counts = !daemon_named(f, "aggregator")->is_off, has_cells = !options_bool(f->o, "local");
    int status = erase_queues(f);
    if (status == EX_OK && has_cells && !f->dry && forget_cells_await(f->o, f->config, say) != EX_OK)
        f->remaining = EX_TEMPFAIL;
    if (status == EX_OK)
        status = erase_streams(f);
    if (status == EX_OK && has_counts)
        status = erase_rejects(f, &rejects);
    if (status == EX_OK && has_counts)
        status = erase_archive(f, rejects);
    if (status == EX_OK)
        status = name_files(f);
    if (status != EX_OK)
        return status;
    if (has_cells && forget_cells(f->o, &f->pipeline, say) != EX_OK)
        f->remaining = EX_TEMPFAIL;
    uint64_t without = forget_match_lines_without_field(f->match);
    if (without > 0)
        say("warning", "",
            "none of the searched events (%" PRIu64 ") has the field of --field=%s: is the name right?",
            without, f->field);
    if (f->remaining)
        tool_fail(f->remaining,
            "some places still have the value: follow the lines above, then repeat the command");
    return f->remaining;
}

static int run(const struct options *o)
{
    struct error error = {0};
    struct forget f = {.o = o,
        .config = options_config(o),
        .field = options_string(o, "field"),
        .value = options_string(o, "value"),
        .dry = options_bool(o, "dry_run")};
    if (!f.field || !f.value || !f.value[0])
        return tool_fail(EX_USAGE, "needs --field and --value");
    if (strcmp(f.value, KEY_NONE) == 0)
        return tool_fail(EX_USAGE, "--value=%s: this key also has counts of other events", f.value);
    if (strcmp(f.value, COMPONENT_OTHER) == 0)
        return tool_fail(EX_USAGE,
            "--value=%s: this key has the counts of keys over max_keys; write \\%s for the value %s", f.value,
            f.value, f.value);
    if (!f.config || counters_read(f.config, &f.counters, &error) != 0)
        return tool_fail(EX_CONFIG, "%s", f.config ? error.text : "needs --config, for the counters");
    int status = EX_USAGE;
    if (!(f.match = forget_match_new(f.field, f.value, f.counters->max_text))) {
        tool_fail(EX_USAGE, "--field=%s is not a field, a path or %s", f.field, KEY_FUNCTIONS);
    } else {
        signal(SIGPIPE, SIG_IGN);
        if (component_is_hash(bytes_str(f.value)))
            say("warning", "",
                "%s has the form of the hash of a key, and events and sets do not have this hash; if it is a "
                "hash, "
                "repeat the command with the text, which `millrace compact --export` prints after lookup|%s",
                f.value, f.value);
        pipeline_open(&f.pipeline, f.config, options_string(o, "data_dir"));
        f.archive = pipeline_archive_dir(f.config, f.pipeline.data_dir);
        status = tool_check_runs(&f.pipeline);
        if (status == EX_OK)
            status = forget_all(&f);
        free(f.archive);
        pipeline_close(&f.pipeline);
    }
    forget_match_free(&f.match);
    counters_free(&f.counters);
    return status;
}

int tool_forget(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "forget",
        .summary = "erases the events with a value from streams, queues, rejects and counts",
        .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, run);
}
