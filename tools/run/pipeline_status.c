#include "tools/run/pipeline_status.h"

#include "base/io.h"
#include "base/rfc3339.h"
#include "counts/manifest.h"
#include "daemon/daemon.h"
#include "tools/put/put_report.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define REPLY_TIMEOUT (2 * USEC_PER_SEC)
#define NEWEST_SETTLED 10  /* seconds */
#define DISK_FREE_MIN 0.05 /* minimum free part of the file system */
#define DAYS_MIN 3
#define DAYS_MAX 1000 /* maximum forecast; longer forecasts are not reliable */
#define DAY_SECONDS 86400
#define DISK_SPAN_MAX                                                                                        \
    (2 *                                                                                                     \
        DAY_SECONDS) /* `millrace up` keeps samples of one day, so an older sample means that the clock was set */
#define CLOCK_BEHIND_MIN 60 /* seconds */
#define DISK_SPAN_MIN 3600  /* seconds over which the growth of the data is measured */
#define RECENT_AGE_MAX 600  /* seconds for which restarts and their errors are shown */
#define DENIED "Permission denied"
#define PROCESS "process "

enum {
    QUEUE,
    RELAY,
    STREAMS,
    AGGREGATOR,
    SORTDB,
    API,
    COMPACTOR
}; /* indexes of the daemons, in the order of peers[], then the compactor */

static struct json_doc *fetch(const struct pipeline_status *s, size_t daemon, const char *target)
{
    const struct http_call_spec call = {.method = "GET", .target = target, .timeout = REPLY_TIMEOUT};
    return pipeline_ask(&s->pipeline, pipeline_daemon_name(daemon), &call, NULL);
}

const char *pipeline_counted_queue(const struct config *config)
{
    const char *queue = config_setting(config, "queue_to_pubsub", "queue");
    return queue ? queue : "default";
}

/* Returns the remedy for "PATH: Permission denied" in a text. run.json belongs to the user of the daemons. */
static char *owner_remedy(const struct pipeline_status *s, const char *text)
{
    char owner[IO_USER_NAME], needed[IO_USER_NAME] = "of the daemons";
    const char *end = strstr(text, ": " DENIED), *at = end;
    struct stat st, run;
    while (at && at > text && !strchr(" \"", at[-1]))
        at--;
    char *path = bytes_dup(bytes_of(at ? at : "", at ? (size_t)(end - at) : 0));
    char *file = mem_printf("%s/run.json", s->pipeline.data_dir);
    bool is_known = stat(file, &run) == 0 || stat(s->pipeline.data_dir, &run) == 0;
    if (is_known)
        io_user_name(run.st_uid, needed);
    bool is_other = is_known && stat(path, &st) == 0 && st.st_uid != run.st_uid;
    if (is_other)
        io_user_name(st.st_uid, owner);
    char *remedy = is_other ? mem_printf("%s belongs to user %s, but the daemons run as user %s: `millrace "
                                         "doctor` names the command",
                                  path, owner, needed)
                            : mem_printf("let user %s read and write %s: `millrace doctor` names the command",
                                  needed, *path == '/' ? path : "the file");
    free(path);
    free(file);
    return remedy;
}

/* Returns the text of a remedy with the values of QUEUE, URL (of simplequeue), FILE (the configuration), DIR (the
 * data directory), START and RESTART (commands for the pipeline), OWNER (owner_remedy of the problem `why`), and PID (the
 * process that `why` names). The caller frees the text. */
static char *remedy_of(const struct pipeline_status *s, const char *text, struct bytes queue, const char *why)
{
    const char *url = s->pipeline.daemons[QUEUE].url, *file = s->pipeline.config_path;
    const char *service = s->pipeline.service;
    char *start = service ? mem_printf("systemctl start %s", service)
                          : mem_printf("millrace up --config=%s", file ? file : "FILE");
    char *restart =
        service ? mem_printf("systemctl restart %s", service) : mem_strdup("restart `millrace up`");
    char *owner = owner_remedy(s, why);
    const char *process = strstr(why, PROCESS), *pid = process ? process + strlen(PROCESS) : "";
    const struct {
        const char *name;
        struct bytes value;
    } names[] = {{"QUEUE", queue}, {"URL", bytes_str(url ? url : "")},
        {"FILE", bytes_str(file ? file : "FILE")}, {"DIR", bytes_str(s->pipeline.data_dir)},
        {"START", bytes_str(start)}, {"RESTART", bytes_str(restart)}, {"OWNER", bytes_str(owner)},
        {"PID", bytes_of(pid, strspn(pid, "0123456789"))}};
    const size_t n = sizeof names / sizeof *names;
    struct buf out = {0};
    while (*text) {
        size_t i = 0;
        while (i < n && strncmp(text, names[i].name, strlen(names[i].name)) != 0)
            i++;
        if (i < n)
            buf_append_bytes(&out, names[i].value);
        else
            buf_append_char(&out, *text);
        text += i < n ? strlen(names[i].name) : 1;
    }
    free(start);
    free(restart);
    free(owner);
    buf_append_char(&out, '\0');
    return out.ptr;
}

/* `remedy` is copied; "": no remedy. */
static void add_problem(struct pipeline_status *s, enum status_level level, const char *remedy,
    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void add_problem(
    struct pipeline_status *s, enum status_level level, const char *remedy, const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    s->level = level > s->level ? level : s->level;
    if (s->n_problems == STATUS_PROBLEMS_MAX)
        return;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    s->problems[s->n_problems++] =
        (struct status_problem){level, text.ptr, remedy_of(s, remedy, BYTES_NONE, text.ptr)};
}

static void add_detail(struct daemon_status *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_detail(struct daemon_status *d, const char *fmt, ...)
{
    va_list ap;
    if (d->detail.len > 0)
        buf_append_str(&d->detail, "; ");
    va_start(ap, fmt);
    buf_vprintf(&d->detail, fmt, ap);
    va_end(ap);
}

static double number_at(const struct json_doc *d, const char *pointer)
{
    struct json_value v = json_doc_at(d, pointer);
    return v.type == JSON_I64   ? (double)v.v.i64
           : v.type == JSON_U64 ? (double)v.v.u64
           : v.type == JSON_F64 ? v.v.f64
                                : -1;
}

/* Returns the sum or the maximum of a metric's values whose labels contain a text. -1: no such value. */
static double metric(
    const struct json_doc *d, const char *name, const char *label, const char *member, bool sum)
{
    struct buf all = {0}, one = {0};
    double found = -1;
    buf_printf(&all, "/%s", name);
    for (size_t i = 0; i < json_doc_length(d, all.ptr); i++) {
        struct bytes labels = json_doc_name(d, all.ptr, i);
        buf_clear(&one);
        buf_append_bytes(&one, buf_bytes(&all));
        json_pointer_append(&one, labels);
        buf_printf(&one, "%s", member);
        double n = number_at(d, one.ptr);
        if (n < 0 || !memmem(labels.ptr, labels.len, label, strlen(label)))
            continue;
        found = found < 0 ? n : sum ? found + n : n > found ? n : found;
    }
    buf_free(&all);
    buf_free(&one);
    return found;
}

/* Adds the problems of a queue. In `words`, # stands for the number. */
static void look_at_queue(struct pipeline_status *s, struct bytes queue, struct buf *notes)
{
    static const struct {
        const char *member, *words, *remedy;
    } members[] = {
        {"paused", "paused", "resume it: curl -X POST 'URL/pause?queue=QUEUE&for=0'"},
        {"buried", "# buried",
            "see the reasons; edit, delete or kick them: millrace queue --config=FILE --data-dir=DIR "
            "--queue=QUEUE"},
        {"overflow", "# overflowed", NULL},
        {"rejected", "# rejected", NULL},
        {"full", "full", "start or speed up its readers, or raise max_depth or max_bytes"},
    };
    struct buf note = {0};
    for (size_t m = 0; m < sizeof members / sizeof *members; m++) {
        const char *words = members[m].words;
        uint64_t n = json_doc_number(
            s->daemons[QUEUE].stats, "/queues/%.*s/%s", (int)queue.len, queue.ptr, members[m].member);
        if (n == 0)
            continue;
        buf_clear(&note);
        buf_printf(&note, "%.*s: ", (int)queue.len, queue.ptr);
        if (words[0] == '#')
            buf_printf(&note, "%" PRIu64, n);
        buf_printf(&note, "%s", words + (words[0] == '#'));
        buf_printf(notes, ", %s", note.ptr);
        if (!members[m].remedy)
            continue;
        char *remedy = remedy_of(s, members[m].remedy, queue, "");
        add_problem(s, STATUS_ATTENTION, remedy, "queue %s", note.ptr);
        free(remedy);
    }
    buf_free(&note);
}

/* Checks all queues. `depth` is the depth of the counted queue, because events of other queues do not reach the
 * counted streams. */
static bool look_at_queues(struct pipeline_status *s, struct daemon_status *d)
{
    struct buf notes = {0};
    uint64_t others = 0;
    bool ok = d->stats != NULL;
    for (size_t i = 0; ok && i < json_doc_length(d->stats, "/queues"); i++) {
        struct bytes name = json_doc_name(d->stats, "/queues", i);
        char pointer[128];
        uint64_t depth = 0;
        snprintf(pointer, sizeof pointer, "/queues/%.*s/depth", (int)name.len, name.ptr);
        ok = json_doc_u64(d->stats, pointer, &depth);
        *(bytes_equal_str(name, pipeline_counted_queue(s->config)) ? &s->depth : &others) += depth;
        look_at_queue(s, name, &notes);
    }
    d->waiting = ok ? (int64_t)s->depth : -1;
    d->lag = s->depth == 0 ? 0 : -1;
    add_detail(d, "depth %" PRIu64, s->depth);
    if (others > 0)
        buf_printf(&d->detail, ", %" PRIu64 " in other queues", others);
    buf_append_bytes(&d->detail, buf_bytes(&notes));
    buf_free(&notes);
    return ok;
}

static bool look_at_relay(struct pipeline_status *s, struct daemon_status *d)
{
    (void)s;
    double reserved = number_at(d->stats, "/messages_reserved_total"),
           delivered = number_at(d->stats, "/messages_delivered_total"),
           buried = number_at(d->stats, "/messages_buried_total");
    if (d->stats && reserved >= delivered + buried)
        d->waiting = (int64_t)(reserved - delivered - buried);
    return d->stats != NULL;
}

static bool look_at_streams(struct pipeline_status *s, struct daemon_status *d)
{
    s->streams = fetch(s, STREAMS, "/streams");
    if (!s->streams)
        return false;
    struct daemon_status *queue = &s->daemons[QUEUE];
    if (queue->waiting > 0)
        queue->lag = metric(d->stats, "producer_until_age_seconds", "", "", false);
    add_detail(d, "streams %zu", json_doc_length(s->streams, "/streams"));
    return true;
}

/* Computes the lag. A stream that the aggregator does not count has no lag; the lag of a refused stream is not
 * known. Lines and seconds are from the aggregator's cursors, which follow the counted offsets with a delay. */
static bool look_at_counts(struct pipeline_status *s, struct daemon_status *d)
{
    bool ok = d->stats && s->streams, is_refused = false;
    for (size_t i = 0; ok && i < json_doc_length(s->streams, "/streams"); i++) {
        uint64_t end, offset;
        char pointer[192];
        struct bytes name = json_doc_text(s->streams, "/streams/%zu/name", i);
        snprintf(pointer, sizeof pointer, "/streams/%zu/end", i);
        ok = name.ptr && json_doc_u64(s->streams, pointer, &end);
        snprintf(pointer, sizeof pointer, "/streams/%.*s/offset", (int)name.len, name.ptr ? name.ptr : "");
        if (ok && json_doc_u64(d->stats, pointer, &offset) && offset < end)
            s->lag += end - offset;
        snprintf(pointer, sizeof pointer, "/streams/%.*s/refused", (int)name.len, name.ptr ? name.ptr : "");
        struct json_value refused = json_doc_at(d->stats, pointer);
        is_refused = is_refused || (refused.type == JSON_BOOL && refused.v.boolean);
    }
    const char *cursor = config_setting(s->config, "aggregator", "cursor");
    char label[NAME_LEN_MAX + 16];
    snprintf(label, sizeof label, "cursor=\"%s\"", cursor ? cursor : "aggregator");
    const struct json_doc *pubsub = s->daemons[STREAMS].stats;
    d->waiting = s->lag ? (int64_t)metric(pubsub, "cursor_lag_lines", label, "", true) : 0;
    d->lag = s->lag ? metric(pubsub, "cursor_lag_seconds", label, "", false) : 0;
    if (is_refused) {
        d->waiting = -1;
        d->lag = -1;
        add_detail(d, "lag not known");
        ok = false;
    } else {
        add_detail(d, "lag %" PRIu64 " bytes", s->lag);
    }
    s->complete_until = (int64_t)json_doc_number(d->stats, "/complete_until");
    return ok;
}

/* Requests to each daemon. `events`: the counter from which the rate is computed. */
static const struct {
    bool (*look)(struct pipeline_status *s, struct daemon_status *d);
    const char *events, *label, *member;
} rows[PEERS] = {
    [QUEUE] = {look_at_queues, "messages_put_total", "", ""},
    [RELAY] = {look_at_relay, "messages_delivered_total", NULL, NULL},
    [STREAMS] = {look_at_streams, "published_lines_total", NULL, NULL},
    [AGGREGATOR] = {look_at_counts, "events_counted_total", NULL, NULL},
    [SORTDB] = {NULL, "total_requests", NULL, NULL},
    [API] = {NULL, "request_seconds", "/v1/", "/count"},
};

#define RESTORE_ARCHIVE                                                                                      \
    "restore the file that the reason names from a backup, then reload: systemctl reload millrace, or "      \
    "SIGHUP to `millrace up`; see millrace help backup"

#define NO_GENERATION "/manifest.json: No such file"
#define LINK_CURRENT                                                                                         \
    "make `current` a link to a generation that exists (millrace help compactor, \"Return to an older "      \
    "generation\"), then reload: systemctl reload millrace, or SIGHUP to `millrace up`"

#define FREE_DISK "free disk space; it resumes by itself"

/* Remedies of states. The first row applies whose state matches and whose words are in the reason. */
static const struct {
    const char *state, *words, *remedy;
    enum status_level level;
} states[] = {
    {"ready", "", "", STATUS_FINE},
    {"off", "", "", STATUS_FINE},
    {"damaged", DENIED, "OWNER, then reload: systemctl reload millrace, or SIGHUP to `millrace up`",
        STATUS_ATTENTION},
    {"damaged", NO_GENERATION, LINK_CURRENT, STATUS_ATTENTION},
    {"damaged", "reload failed", RESTORE_ARCHIVE, STATUS_ATTENTION},
    {"damaged", "/archive/", RESTORE_ARCHIVE, STATUS_ATTENTION},
    {"damaged", "", "see the reason, and millrace help operations, \"Damage\"", STATUS_ATTENTION},
    {"recovering", "", "wait; `millrace status --watch` shows the progress", STATUS_ATTENTION},
    {"waiting", "", "wait: it starts once the daemons above are ready", STATUS_ATTENTION},
    {"starting", "", "wait; `millrace status --watch` shows the progress", STATUS_ATTENTION},
    {"refusing", DENIED, "OWNER", STATUS_DOWN},
    {"refusing", NO_GENERATION, LINK_CURRENT, STATUS_DOWN},
    {"refusing", "cannot open the archive", RESTORE_ARCHIVE, STATUS_DOWN},
    {"refusing", "opening the archive", "wait; `millrace status --watch` shows when it is open",
        STATUS_ATTENTION},
    {"refusing", "does not answer queries", "mend the source that the reason names; queries then work again",
        STATUS_DOWN},
    {"refusing", "another stream",
        "restore pubsub from a copy, or give the stream a new name: millrace help recovery", STATUS_DOWN},
    {"refusing", "restored copy", "do what the reason says: millrace help recovery", STATUS_DOWN},
    {"refusing", "cursor", "move or delete the cursor (POST or DELETE /cursors), or free disk space",
        STATUS_DOWN},
    {"refusing", "the disk is full", FREE_DISK, STATUS_DOWN},
    {"refusing", "disk_limit", "set retain_bytes or retain_age, or raise disk_limit", STATUS_DOWN},
    {"refusing", "", "see the reason, and millrace help operations", STATUS_DOWN},
    {"failing", DENIED, "OWNER, then RESTART", STATUS_DOWN},
    {"failing", "", "repair the disk, then restart the daemon", STATUS_DOWN},
    {"restarting", DENIED, "OWNER", STATUS_DOWN},
    {"restarting", NO_GENERATION, LINK_CURRENT, STATUS_DOWN},
    {"restarting", "cannot serve error=", RESTORE_ARCHIVE, STATUS_DOWN},
    {"restarting", "", "see the log of `millrace up`; `millrace doctor` checks disk, limits and files",
        STATUS_DOWN},
    {"failed", DENIED, "OWNER, then RESTART", STATUS_DOWN},
    {"failed", "", "follow the reason, then RESTART", STATUS_DOWN},
    {"overloaded", "",
        "close connections, or raise max_connections and the limit of open files, which `millrace doctor` "
        "shows",
        STATUS_DOWN},
    {"stopping", "", "wait; then start it: START", STATUS_DOWN},
    {"stopped", "", "start it: START", STATUS_DOWN},
    {"unreachable", "does not answer", "see its log; if it hangs: kill -9 PID; `millrace up` restarts it",
        STATUS_DOWN},
    {"unreachable", "", "start it: START", STATUS_DOWN},
};

static bool contains(const struct buf *text, const char *words)
{
    return memmem(text->ptr ? text->ptr : "", text->len, words, strlen(words)) != NULL;
}

/* Sets the level of a daemon and adds a problem, unless the pipeline has ended, which is reported as one problem. */
static void judge_state(struct pipeline_status *s, size_t i)
{
    struct daemon_status *d = &s->daemons[i];
    size_t row = 0;
    while (strcmp(states[row].state, d->state) != 0 || !contains(&d->detail, states[row].words))
        row++;
    d->level = states[row].level;
    if (d->level == STATUS_FINE || s->pipeline.has_ended)
        return;
    struct bytes why = buf_bytes(&d->detail);
    bool repeats = bytes_starts_with(why, bytes_str(d->state));
    add_problem(s, d->level, states[row].remedy, "%s is %s%s%.*s", pipeline_daemon_name(i),
        repeats ? "" : d->state, why.len && !repeats ? ": " : "", (int)why.len, why.ptr ? why.ptr : "");
}

/* Asks a daemon for /health. Returns false if the daemon does not answer. */
static bool ask_health(struct daemon_status *d, const char *url)
{
    static const struct {
        const char *begin, *state;
    } reasons[] = {{"refusing", "refusing"}, {"storage failed", "failing"}, {"stopping", "stopping"}};
    struct buf body = {0};
    const char *why;
    const struct http_call_spec call = {.method = "GET", .target = "/health", .timeout = REPLY_TIMEOUT};
    int status = tool_request(url, NULL, &call, &body, &why);
    struct json_doc *doc = status && status != 200 ? json_doc_parse(buf_bytes(&body)) : NULL;
    struct bytes detail = json_doc_text(doc, "/detail");
    d->ready = status == 200;
    d->state = d->ready                                                     ? "ready"
               : !status                                                    ? "unreachable"
               : bytes_equal_str(json_doc_text(doc, "/code"), "not-well")   ? "damaged"
               : bytes_equal_str(json_doc_text(doc, "/code"), "overloaded") ? "overloaded"
                                                                            : "recovering";
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (bytes_starts_with(detail, bytes_str(reasons[i].begin)))
            d->state = reasons[i].state;
    buf_append_bytes(&d->detail, detail);
    json_doc_free(&doc);
    /* Each line after "ready" is a warning. */
    for (size_t at = sizeof "ready", n; d->ready && at < body.len; at += n + 1) {
        const char *line = body.ptr + at, *end = memchr(line, '\n', body.len - at);
        n = end ? (size_t)(end - line) : body.len - at;
        add_detail(d, "%.*s", (int)n, line);
    }
    buf_free(&body);
    return status != 0;
}

static void judge_warnings(struct pipeline_status *s, size_t i)
{
    const struct daemon_status *d = &s->daemons[i];
    const char *remedy =
        contains(&d->detail, DENIED) ? "OWNER"
        : contains(&d->detail, "this host's clock says")
            ? "if this host's clock is wrong: timedatectl set-ntp true, then millrace rejects "
              "--put-back; else correct the sender"
        : contains(&d->detail, "rejected in the last minute")
            ? "correct [input] or the sender; then millrace rejects --put-back"
        : contains(&d->detail, "has the configured field")
            ? "correct the field's name in the configuration, or the sender"
        : contains(&d->detail, "holds completeness back")
            ? "start that producer's host, or leave it out: millrace producers --leave-out; "
              "see millrace help counting"
        : contains(&d->detail, NO_GENERATION)             ? LINK_CURRENT
        : contains(&d->detail, "cannot open the archive") ? RESTORE_ARCHIVE
        : contains(&d->detail, "events get no visitor")
            ? "correct the file, or [door] visitor_key_file; see millrace help privacy"
        : contains(&d->detail, "events get places")
            ? "download the file of [door] geo_file again; see millrace help privacy"
        : contains(&d->detail, "the disk is full") ? FREE_DISK
        : contains(&d->detail, "the disk is nearly full")
            ? "free space, or set retain_bytes or retain_age of the streams"
            : "see millrace help operations";
    bool is_down = contains(&d->detail, "the disk is full");
    enum status_level level = is_down ? STATUS_DOWN : STATUS_ATTENTION;
    if (d->ready && contains(&d->detail, "warning: "))
        add_problem(s, level, remedy, "%s: %.*s", pipeline_daemon_name(i), (int)d->detail.len, d->detail.ptr);
}

/* Returns the state of a daemon if the state is known from run.json; NULL: the daemon must be asked. */
static const char *state_without_asking(const struct pipeline_status *s, size_t i)
{
    static const char *const known[] = {"failed", "restarting", "waiting", "starting", "stopping", "stopped"};
    const struct pipeline_daemon *d = &s->pipeline.daemons[i];
    if (s->pipeline.has_ended)
        return "stopped";
    if (d->is_off)
        return "off";
    for (size_t t = 0; d->state && t < sizeof known / sizeof *known; t++)
        if (strcmp(known[t], d->state) == 0 && (t < 3 || i == COMPACTOR))
            return known[t];
    return i == COMPACTOR ? (d->state ? "ready" : "off") : NULL;
}

static bool is_recent(int64_t at)
{
    return at > clock_wall() / USEC_PER_SEC - RECENT_AGE_MAX;
}

/* True if a daemon starts again after a failure. The failure may not be over yet. */
static bool is_restarting(const struct daemon_status *d, const struct pipeline_daemon *p)
{
    return !d->ready && p->restarts > 0 && p->last_error && p->state && strcmp(p->state, "starting") == 0;
}

static void look_at_daemon(struct pipeline_status *s, size_t i)
{
    const struct pipeline_daemon *p = &s->pipeline.daemons[i];
    struct daemon_status *d = &s->daemons[i];
    d->state = state_without_asking(s, i);
    d->waiting = d->events = -1;
    d->lag = d->rate = -1;
    if (d->state) {
        const char *why = strcmp(d->state, "restarting") == 0 ? p->last_error : p->status_text;
        d->ready = strcmp(d->state, "ready") == 0 || strcmp(d->state, "off") == 0;
        if (why && !s->pipeline.has_ended && !p->is_off)
            add_detail(d, "%s%s", why == p->last_error ? "last error: " : "", why);
        s->known = s->known && d->ready;
    } else if (!ask_health(d, p->url)) {
        s->known = false;
        if (p->pid > 0)
            add_detail(d, PROCESS "%" PRId64 " runs, but does not answer", p->pid);
        if (p->last_error && is_recent(p->error_at))
            add_detail(d, "last error: %s", p->last_error);
        if (is_restarting(d, p))
            d->state = "restarting";
    } else {
        d->stats = fetch(s, i, "/stats?format=json");
        judge_warnings(s, i);
        if (is_restarting(d, p)) {
            d->state = "restarting";
            add_detail(d, "last error: %s", p->last_error);
        }
        bool is_complete = !rows[i].look || rows[i].look(s, d);
        s->known = s->known && d->ready && is_complete;
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/%s", rows[i].events);
        double n = rows[i].label ? metric(d->stats, rows[i].events, rows[i].label, rows[i].member, true)
                                 : number_at(d->stats, pointer);
        d->events = (int64_t)n;
    }
    judge_state(s, i);
    s->all_ready = s->all_ready && (d->ready || i == COMPACTOR);
    if (d->ready && is_recent(p->restarted_at))
        add_problem(s, STATUS_ATTENTION, "see the log of `millrace up`",
            "%s was restarted %u time%s; last error: %s", pipeline_daemon_name(i), p->restarts,
            p->restarts == 1 ? "" : "s", p->last_error ? p->last_error : "unknown");
}

static void look_at_disk(struct pipeline_status *s)
{
    struct statvfs fs;
    s->disk_free = s->disk_size = -1;
    s->days_until_full = -1;
    if (statvfs(s->pipeline.data_dir, &fs) != 0)
        return;
    s->disk_free = (int64_t)(fs.f_bavail * fs.f_frsize);
    s->disk_size = (int64_t)(fs.f_blocks * fs.f_frsize);
    int64_t span = clock_wall() / USEC_PER_SEC - s->pipeline.disk_at,
            used = s->pipeline.disk_free - s->disk_free;
    if (s->pipeline.disk_at > 0 && span >= DISK_SPAN_MIN && span <= DISK_SPAN_MAX && used > 0)
        s->days_until_full = (double)s->disk_free / ((double)used / (double)span) / DAY_SECONDS;
    if (s->days_until_full > DAYS_MAX)
        s->days_until_full = -1;
    bool is_low = (double)s->disk_free < DISK_FREE_MIN * (double)s->disk_size;
    bool fills = s->days_until_full >= 0 && s->days_until_full < DAYS_MIN;
    s->is_disk_low = is_low || fills;
    if (s->is_disk_low)
        add_problem(s, STATUS_ATTENTION, STATUS_DISK_REMEDY, "the disk of %s has %.1f GB of %.1f GB free%s",
            s->pipeline.data_dir, (double)s->disk_free / 1e9, (double)s->disk_size / 1e9,
            fills ? " and is full within three days" : "");
}

/* The compactor does not run while `current` is older than `newest`. A run that publishes a generation moves both
 * links, so that a new link `newest` is no problem. */
static void look_at_newest(struct pipeline_status *s, const char *archive)
{
    struct stat st;
    char name[MANIFEST_NAME_TEXT], *path = mem_printf("%s/newest", archive);
    uint64_t newest;
    ssize_t n = readlink(path, name, sizeof name - 1);
    name[n > 0 ? n : 0] = '\0';
    if (manifest_directory_number(name, &newest) && newest > (uint64_t)s->archive_generation &&
        lstat(path, &st) == 0 && clock_wall() / USEC_PER_SEC - st.st_mtime > NEWEST_SETTLED)
        add_problem(s, STATUS_ATTENTION,
            "to drop the newer generations: millrace compact --discard-newer; to keep them, make `current` a "
            "link to the newest one: millrace help compactor, \"Return to an older generation\"",
            "the archive's current generation is %" PRId64 ", but generation %" PRIu64 " is newer",
            s->archive_generation, newest);
    free(path);
}

static void look_at_archive(struct pipeline_status *s)
{
    struct manifest m;
    char *path = tool_archive_dir(s->config, s->pipeline.data_dir);
    s->archive_generation = -1;
    if (manifest_read_current(path, &m, NULL) == MANIFEST_OK) {
        s->archive_generation = (int64_t)m.generation;
        s->archive_made = m.made;
        manifest_free(&m);
        look_at_newest(s, path);
    }
    const struct pipeline_daemon *c = &s->pipeline.daemons[COMPACTOR];
    if (c->status_text && strstr(c->status_text, "failed"))
        add_problem(s, STATUS_ATTENTION,
            c->last_error && strstr(c->last_error, DENIED) ? "OWNER, then run `millrace compact`"
                                                           : "correct the cause, then run `millrace compact`",
            "compaction: %s%s%s", c->status_text, c->last_error ? ": " : "",
            c->last_error ? c->last_error : "");
    free(path);
}

/* Adds a problem if the clock is earlier than a time that the pipeline has written. */
static void look_at_clock(struct pipeline_status *s)
{
    char here[RFC3339_TEXT], there[RFC3339_TEXT];
    const struct {
        const char *what;
        int64_t time;
    } written[] = {{"the archive was made at", s->archive_made},
        {"counts are complete until", s->complete_until},
        {"`millrace up` measured the disk at", s->pipeline.disk_at}};
    int64_t now = clock_wall() / USEC_PER_SEC;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (written[i].time > now + CLOCK_BEHIND_MIN) {
            add_problem(s, STATUS_ATTENTION,
                "set the clock: timedatectl set-ntp true (in a container: on the host)",
                "this host's clock says %s; %s %s", rfc3339_write(now, here), written[i].what,
                rfc3339_write(written[i].time, there));
            return;
        }
}

/* Adds one problem if run.json cannot be read and no daemon answers, because the pipeline is not started. */
static void judge_unknown(struct pipeline_status *s)
{
    for (size_t i = 0; i < PEERS; i++)
        if (strcmp(s->daemons[i].state, "unreachable") != 0)
            return;
    while (s->n_problems > 0) {
        struct status_problem *p = &s->problems[--s->n_problems];
        free(p->text);
        free(p->remedy);
    }
    if (s->pipeline.denied)
        add_problem(s, STATUS_DOWN, "run this command as that user: sudo -u USER millrace status",
            "cannot read %s/run.json: Permission denied%s", s->pipeline.data_dir, s->pipeline.denied);
    else
        add_problem(s, STATUS_DOWN, "start it: START", "the pipeline of %s is not started: no daemon answers",
            s->pipeline.data_dir);
}

/* Refused lines are a problem until the operator deletes the file that keeps them. */
static void add_put(const struct put_report *r, void *arg)
{
    struct pipeline_status *s = arg;
    struct stat st = {0};
    bool is_kept = r->rejects && stat(r->rejects, &st) == 0 && S_ISREG(st.st_mode);
    uint64_t n = r->numbers[PUT_REFUSED], status = r->numbers[PUT_EXIT_STATUS];
    char *remedy = is_kept ? mem_printf("read %s; correct --format or --log-format, post these lines, then "
                                        "delete the file",
                                 r->rejects)
                           : NULL;
    if (is_kept && n > 0)
        add_problem(s, STATUS_ATTENTION, remedy,
            "millrace put --producer=%s refused %" PRIu64 " lines; the last: %s", r->producer, n, r->why);
    else if (is_kept && st.st_size > 0)
        add_problem(
            s, STATUS_ATTENTION, remedy, "an earlier millrace put --producer=%s refused lines", r->producer);
    free(remedy);
    if (r->is_locked)
        return;
    remedy = mem_printf("%s; or, if it is no longer needed, delete %s/put/%s.%s.prom",
        r->has_ended ? "see its standard error, then start it again"
                     : "start it again; it continues where it was",
        s->pipeline.data_dir, r->queue, r->producer);
    if (!r->has_ended)
        add_problem(
            s, STATUS_ATTENTION, remedy, "millrace put --follow --producer=%s was killed", r->producer);
    else if (status > 0)
        add_problem(s, STATUS_ATTENTION, remedy,
            "millrace put --follow --producer=%s has ended with exit status %" PRIu64, r->producer, status);
    free(remedy);
}

void pipeline_status_take(struct pipeline_status *s, const struct config *config, const char *data_dir)
{
    struct error ignored;
    int64_t minutes;
    *s = (struct pipeline_status){.config = config, .all_ready = true, .known = true};
    pipeline_open(&s->pipeline, config, data_dir);
    if (!config && s->pipeline.config_path &&
        config_read(s->pipeline.config_path, &s->own_config, &ignored) == 0)
        s->config = s->pipeline.config = s->own_config;
    s->taken = clock_monotonic();
    minutes = (clock_wall() / USEC_PER_SEC - s->pipeline.wrong_since) / 60;
    if (s->pipeline.has_ended)
        add_problem(s, STATUS_DOWN,
            s->pipeline.end_reason && strstr(s->pipeline.end_reason, DENIED) ? "OWNER; then start it: START"
                                                                             : "start it: START",
            "the pipeline of %s is stopped%s%s", s->pipeline.data_dir, s->pipeline.end_reason ? ": " : "",
            s->pipeline.end_reason ? s->pipeline.end_reason : "");
    else if (s->pipeline.wrong_since)
        add_problem(s, STATUS_ATTENTION,
            "find the error: millrace up --check-config --config=FILE; correct it, then reload (SIGHUP)",
            "the configuration %s is wrong, so the reload of %" PRId64
            " minutes ago changed nothing; a daemon that "
            "restarts cannot start",
            s->pipeline.config_path ? s->pipeline.config_path : "", minutes > 0 ? minutes : 0);
    if (!s->pipeline.has_ended && s->pipeline.log_dropped > 0)
        add_problem(s, STATUS_ATTENTION,
            "see the program that reads the log; after a restart of `millrace up` the number is 0",
            "%" PRIu64 " lines of the log were dropped: the reader of `millrace up`'s standard error was too "
            "slow or has ended, or its disk is full",
            s->pipeline.log_dropped);
    for (size_t i = 0; i < PIPELINE_DAEMONS; i++)
        look_at_daemon(s, i);
    if (!s->pipeline.is_known)
        judge_unknown(s);
    look_at_archive(s);
    look_at_clock(s);
    look_at_disk(s);
    put_report_read(s->pipeline.data_dir, add_put, s);
}

void pipeline_status_close(struct pipeline_status *s)
{
    for (size_t i = 0; i < PIPELINE_DAEMONS; i++) {
        buf_free(&s->daemons[i].detail);
        json_doc_free(&s->daemons[i].stats);
    }
    for (size_t i = 0; i < s->n_problems; i++) {
        free(s->problems[i].text);
        free(s->problems[i].remedy);
    }
    json_doc_free(&s->streams);
    config_free(&s->own_config);
    pipeline_close(&s->pipeline);
}

void pipeline_status_rates(struct pipeline_status *s, const struct pipeline_status *before)
{
    double seconds = (double)(s->taken - before->taken) / USEC_PER_SEC;
    for (size_t i = 0; i < PIPELINE_DAEMONS && seconds > 0; i++) {
        struct daemon_status *d = &s->daemons[i];
        int64_t old = before->daemons[i].events;
        if (d->events >= old && old >= 0)
            d->rate = (double)(d->events - old) / seconds;
    }
}

bool pipeline_is_settled(const struct pipeline_status *s)
{
    return s->all_ready && s->known && s->depth == 0 && s->lag == 0;
}
