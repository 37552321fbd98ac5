#include "tools/run/pipeline_status.h"

#include "base/amount.h"
#include "base/io.h"
#include "base/rfc3339.h"
#include "daemon/daemon.h"
#include "tools/put/put_report.h"
#include "tools/run/cells_status.h"
#include "tools/run/host_status.h"
#include "tools/run/stats_numbers.h"
#include "tools/run/status_problems.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPLY_TIMEOUT (2 * USEC_PER_SEC)
#define RECENT_AGE_MAX 3600 /* seconds for which restarts and their errors are shown */

/* True if a signal such as SIGSTOP has suspended a process of run.json. */
static bool is_suspended(const struct pipeline_status *s, int64_t pid)
{
    struct buf stat = {0};
    char *path = mem_printf("/proc/%" PRId64 "/stat", pid);
    bool is_read = s->pipeline.is_here && pid > 0 && io_read_file(path, 4096, &stat) == 0;
    const char *end = is_read && stat.len > 0 ? memrchr(stat.ptr, ')', stat.len) : NULL; /* the name's end */
    bool is = end && end + 2 < stat.ptr + stat.len && end[2] == 'T';
    buf_free(&stat);
    free(path);
    return is;
}

/* True if `millrace up` has ended or is starting, so that run.json describes an earlier run. The daemons are then not
 * asked. */
static bool is_up_away(const struct pipeline_status *s)
{
    return s->pipeline.has_ended || s->pipeline.starting;
}

static struct json_doc *fetch(const struct pipeline_status *s, size_t daemon, const char *target)
{
    const struct http_call_spec call = {.method = "GET", .target = target, .timeout = REPLY_TIMEOUT};
    return pipeline_ask(&s->pipeline, pipeline_daemon_name(daemon), &call, NULL);
}

const char *pipeline_counted_queue(const struct config *config)
{
    const char *queue = config_setting(config, peer_relay(config), "queue");
    return queue ? queue : "default";
}

/* Returns the level of a notice in an array. */
static enum status_level notice_level(const struct json_doc *doc, const char *array, size_t i)
{
    return bytes_equal_str(json_doc_text(doc, "%s/%zu/level", array, i), "down") ? STATUS_DOWN
                                                                                 : STATUS_ATTENTION;
}

/* Adds the notices of a daemon or queue, whose words and remedies the daemon has chosen. `fmt` is the place of their
 * array. */
static void add_notices(struct pipeline_status *s, const char *before, const struct json_doc *doc,
    size_t first, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static void add_notices(struct pipeline_status *s, const char *before, const struct json_doc *doc,
    size_t first, const char *fmt, ...)
{
    struct buf at = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&at, fmt, ap);
    va_end(ap);
    for (size_t i = first; i < json_doc_length(doc, at.ptr); i++) {
        struct bytes text = json_doc_text(doc, "%s/%zu/text", at.ptr, i);
        char *remedy = bytes_dup(json_doc_text(doc, "%s/%zu/remedy", at.ptr, i));
        status_add_problem(
            s, notice_level(doc, at.ptr, i), remedy, "%s%.*s", before, (int)text.len, text.ptr);
        free(remedy);
    }
    buf_free(&at);
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

/* Appends a queue's notices and the numbers of its refused and moved messages. */
static void append_queue(const struct json_doc *stats, struct bytes name, struct buf *out)
{
    static const char *const numbers[] = {"rejected", "overflow"};
    char at[NAME_LEN_MAX + 32];
    snprintf(at, sizeof at, "/queues/%.*s/notices", (int)name.len, name.ptr);
    for (size_t i = 0; i < json_doc_length(stats, at); i++) {
        struct bytes text = json_doc_text(stats, "%s/%zu/text", at, i);
        buf_printf(out, ", %.*s", (int)text.len, text.ptr);
    }
    for (size_t i = 0; i < 2; i++) {
        uint64_t n = json_doc_number(stats, "/queues/%.*s/%s", (int)name.len, name.ptr, numbers[i]);
        if (n > 0)
            buf_printf(out, ", queue %.*s: %" PRIu64 " %s", (int)name.len, name.ptr, n, numbers[i]);
    }
}

/* True if messages wait in a queue that no reader uses. */
static bool is_unread(const struct json_doc *stats, const char *queue)
{
    return json_doc_number(stats, "/queues/%s/ready", queue) > 0 &&
           json_doc_number(stats, "/messages_got_total/queue=\"%s\"", queue) == 0 &&
           json_doc_text(stats, "/queues/%s/follower", queue).len == 0;
}

/* Adds one problem for all queues that are not counted and that no reader uses. Their names may be mistakes of senders. */
static void look_at_readers(struct pipeline_status *s, const struct json_doc *stats)
{
    const char *counted = pipeline_counted_queue(s->config);
    char queue[NAME_LEN_MAX + 1], first[NAME_LEN_MAX + 1];
    size_t unread = 0;
    for (size_t i = 0; i < json_doc_length(stats, "/queues"); i++) {
        struct bytes name = json_doc_name(stats, "/queues", i);
        snprintf(queue, sizeof queue, "%.*s", (int)name.len, name.ptr);
        if (strcmp(queue, counted) != 0 && is_unread(stats, queue) && unread++ == 0)
            memcpy(first, queue, sizeof first);
    }
    if (unread == 0)
        return;
    char *remedy = mem_printf(
        "post events to the queue %s, which is counted; or start a reader: millrace help readers", counted);
    char *others = unread > 1
                       ? mem_printf(" and in %zu more %s", unread - 1, plural(unread - 1, "queue", "queues"))
                       : NULL;
    status_add_problem(s, STATUS_ATTENTION, remedy,
        "messages wait in queue %s%s, and no reader has taken one since simplequeue started", first,
        others ? others : "");
    free(others);
    free(remedy);
}

/* Checks all queues. `depth` is the depth of the counted queue, because events of other queues do not reach the
 * counted streams. */
static bool look_at_queues(struct pipeline_status *s, struct daemon_status *d)
{
    uint64_t others = 0;
    struct buf notes = {0};
    bool ok = d->stats != NULL;
    for (size_t i = 0; ok && i < json_doc_length(d->stats, "/queues"); i++) {
        struct bytes name = json_doc_name(d->stats, "/queues", i);
        char pointer[128];
        uint64_t depth = 0;
        snprintf(pointer, sizeof pointer, "/queues/%.*s/depth", (int)name.len, name.ptr);
        ok = json_doc_u64(d->stats, pointer, &depth);
        *(bytes_equal_str(name, pipeline_counted_queue(s->config)) ? &s->depth : &others) += depth;
        append_queue(d->stats, name, &notes);
        add_notices(s, "", d->stats, 0, "/queues/%.*s/notices", (int)name.len, name.ptr);
    }
    look_at_readers(s, d->stats);
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
    double reserved = stats_number(d->stats, "/messages_reserved_total"),
           delivered = stats_number(d->stats, "/messages_delivered_total"),
           buried = stats_number(d->stats, "/messages_buried_total");
    if (d->stats && reserved >= delivered + buried)
        d->waiting = (int64_t)(reserved - delivered - buried);
    return d->stats != NULL;
}

/* Messages that JetStream has acknowledged stay in the queue for settle_after, and do not wait. The queue was asked first, so a
 * message of this look that does not wait is published. */
static bool look_at_nats_relay(struct pipeline_status *s, struct daemon_status *d)
{
    struct daemon_status *queue = &s->daemons[PIPELINE_QUEUE];
    double below = stats_number(d->stats, "/published_below"),
           age = stats_number(d->stats, "/until_age_seconds");
    double next =
        (double)json_doc_number(queue->stats, "/queues/%s/next_id", pipeline_counted_queue(s->config));
    double waiting = next > below ? next - below : 0;
    if (below > 0 && waiting < (double)s->depth) {
        s->unsettled = s->depth - (uint64_t)waiting;
        s->depth = (uint64_t)waiting;
        queue->waiting = (int64_t)s->depth;
        add_detail(queue, "%" PRIu64 " published, not yet settled", s->unsettled);
    }
    d->lag = queue->lag = s->depth == 0 ? 0 : age > 0 ? age : -1;
    return look_at_relay(s, d);
}

static bool look_at_nats_copier(struct pipeline_status *s, struct daemon_status *d)
{
    (void)s;
    if (!d->stats)
        return false;
    d->waiting = (int64_t)stats_number(d->stats, "/lag_messages");
    d->lag = stats_number(d->stats, "/lag_seconds");
    return true;
}

static bool look_at_streams(struct pipeline_status *s, struct daemon_status *d)
{
    s->streams = fetch(s, PIPELINE_STREAMS, "/streams");
    if (!s->streams)
        return false;
    struct daemon_status *queue = &s->daemons[PIPELINE_QUEUE];
    if (queue->waiting > 0 && !s->daemons[PIPELINE_NATS_RELAY].stats)
        queue->lag = stats_metric(d->stats, "producer_until_age_seconds", "", "", false);
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
    const struct json_doc *pubsub = s->daemons[PIPELINE_STREAMS].stats;
    d->waiting = s->lag ? (int64_t)stats_metric(pubsub, "cursor_lag_lines", label, "", true) : 0;
    d->lag = s->lag ? stats_metric(pubsub, "cursor_lag_seconds", label, "", false) : 0;
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

/* Shows how far a daemon that reads a stream is behind it. */
static void add_stream_lag(struct daemon_status *d)
{
    if (json_doc_at(d->stats, "/lag_bytes").type != JSON_MISSING) {
        d->lag = stats_number(d->stats, "/lag_seconds");
        add_detail(d, "lag %" PRIu64 " bytes", json_doc_number(d->stats, "/lag_bytes"));
    }
}

static bool look_at_marks(struct pipeline_status *s, struct daemon_status *d)
{
    (void)s;
    add_detail(d, "%" PRIu64 " marks", json_doc_number(d->stats, "/elements"));
    add_stream_lag(d);
    return true;
}

static bool look_at_lists(struct pipeline_status *s, struct daemon_status *d)
{
    (void)s;
    add_detail(d, "%" PRIu64 " lists not saved yet", json_doc_number(d->stats, "/unsaved_keys"));
    add_stream_lag(d);
    return true;
}

static bool look_at_samples(struct pipeline_status *s, struct daemon_status *d)
{
    (void)s;
    d->lag = stats_number(d->stats, "/lag_seconds");
    add_detail(d, "%" PRIu64 " series, lag %" PRIu64 " bytes", json_doc_number(d->stats, "/series"),
        json_doc_number(d->stats, "/lag_bytes"));
    return true;
}

static bool look_at_rules(struct pipeline_status *s, struct daemon_status *d)
{
    (void)s;
    add_detail(d, "%" PRIu64 " rules, %" PRIu64 " alerts firing", json_doc_number(d->stats, "/rules"),
        json_doc_number(d->stats, "/alerts_firing"));
    return true;
}

/* Requests to each daemon. `events`: the counter from which the rate is computed. */
static const struct {
    bool (*look)(struct pipeline_status *s, struct daemon_status *d);
    const char *events, *label, *member;
} rows[PEERS] = {
    [PIPELINE_QUEUE] = {look_at_queues, "messages_put_total", "", ""},
    [PIPELINE_RELAY] = {look_at_relay, "messages_delivered_total", NULL, NULL},
    [PIPELINE_NATS_RELAY] = {look_at_nats_relay, "messages_delivered_total", NULL, NULL},
    [PIPELINE_NATS_COPIER] = {look_at_nats_copier, "lines_stored_total", NULL, NULL},
    [PIPELINE_STREAMS] = {look_at_streams, "published_lines_total", NULL, NULL},
    [PIPELINE_AGGREGATOR] = {look_at_counts, "events_counted_total", NULL, NULL},
    [PIPELINE_SORTDB] = {NULL, "total_requests", NULL, NULL},
    [PIPELINE_SPAMFILTER] = {look_at_marks, "checks_total", NULL, NULL},
    [PIPELINE_LISTS] = {look_at_lists, "operations_total", NULL, NULL},
    [PIPELINE_METRICDB] = {look_at_samples, "samples_total", NULL, NULL},
    [PIPELINE_SCRAPER] = {NULL, "scrapes_total", NULL, NULL},
    [PIPELINE_RULER] = {look_at_rules, "evaluations_total", NULL, NULL},
    [PIPELINE_API] = {NULL, "request_seconds", "/v1/", "/count"},
};

#define SUSPENDED "suspended"
/* States that a daemon cannot report itself. A daemon that has ended may have logged a remedy, which replaces
 * `remedy`. */
static const struct outside {
    const char *state, *remedy;
    enum status_level level;
    enum { NOTHING, START, RESTART } then;
} outside[] = {
    {"waiting", "wait: it starts once the daemons above are ready", STATUS_ATTENTION, NOTHING},
    {"starting", DAEMON_WAIT, STATUS_ATTENTION, NOTHING},
    {"restarting", "see the log of `millrace up`; `millrace doctor` checks disk, limits and files",
        STATUS_DOWN, NOTHING},
    {"failed", "follow the reason", STATUS_DOWN, RESTART},
    {"stopping", "wait", STATUS_DOWN, START},
    {"stopped", "", STATUS_DOWN, START},
    {"unreachable", "", STATUS_DOWN, START},
    {SUSPENDED, "", STATUS_ATTENTION, NOTHING},
    {NULL, "", STATUS_FINE, NOTHING},
};

/* Returns "start it: COMMAND" or a command that restarts the pipeline, after `first`. The caller frees the text. */
static char *command_after(const struct pipeline_status *s, const char *first, int then)
{
    const char *service = s->pipeline.service, *between = then != NOTHING && *first ? ", then " : "";
    const char *file = s->pipeline.config_path ? s->pipeline.config_path
                       : s->config             ? s->config->path
                                               : "FILE";
    if (then == START && service)
        return mem_printf("%s%sstart it: systemctl start %s", first, between, service);
    if (then == START) {
        char owner[IO_USER_NAME];
        struct stat st;
        bool is_other = stat(s->pipeline.data_dir, &st) == 0 && st.st_uid != geteuid();
        io_user_name(is_other ? st.st_uid : geteuid(), owner);
        return mem_printf("%s%sstart it: %s%s%smillrace up --config=%s", first, between,
            is_other ? "sudo -u " : "", is_other ? owner : "", is_other ? " " : "", file);
    }
    if (then == RESTART && service)
        return mem_printf("%s%ssystemctl restart %s", first, between, service);
    return mem_printf("%s%s%s", first, between, then == RESTART ? "restart `millrace up`" : "");
}

/* Sets the level of a daemon and adds a problem, unless the state of `millrace up` is the one problem. */
static void judge_state(struct pipeline_status *s, size_t i)
{
    struct daemon_status *d = &s->daemons[i];
    const struct pipeline_daemon *p = &s->pipeline.daemons[i];
    const struct outside *row = outside;
    while (row->state && strcmp(row->state, d->state) != 0)
        row++;
    d->level = row->state ? row->level : d->level;
    bool is_stopped = strcmp(d->state, SUSPENDED) == 0, has_detail = d->detail.len > 0 && !is_stopped;
    if (is_stopped && i != PIPELINE_COMPACTOR)
        d->level = STATUS_DOWN;
    if (!row->state || is_up_away(s))
        return;
    bool has_ended = strcmp(d->state, "restarting") == 0 || strcmp(d->state, "failed") == 0;
    bool hangs = strcmp(d->state, "unreachable") == 0 && p->pid > 0;
    char *remedy =
        is_stopped ? mem_printf("kill -CONT %" PRId64, p->pid)
        : hangs
            ? mem_printf("see its log; if it hangs: kill -9 %" PRId64 "; `millrace up` restarts it", p->pid)
            : command_after(s, has_ended && p->remedy ? p->remedy : row->remedy, row->then);
    status_add_problem(s, d->level, remedy, "%s is %s%s%.*s", pipeline_daemon_name(i), d->state,
        has_detail ? ": " : "", has_detail ? (int)d->detail.len : 0, has_detail ? d->detail.ptr : "");
    free(remedy);
}

static void add_last_error(struct daemon_status *d, const struct pipeline_daemon *p)
{
    char *text = status_last_error(p);
    add_detail(d, "%s", text);
    free(text);
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

/* Takes the state and the notices from a reply to /health. */
static void take_health(struct pipeline_status *s, size_t i, int status, struct json_doc *doc)
{
    static const char *const known[] = {"refusing", "damaged", "failing", "stopping"};
    struct daemon_status *d = &s->daemons[i];
    bool is_overloaded = bytes_equal_str(json_doc_text(doc, "/code"), "overloaded");
    struct bytes state = json_doc_text(doc, "/state"), why = json_doc_text(doc, "/notices/0/text");
    d->ready = status == 200;
    d->state = d->ready ? "ready" : is_overloaded ? "overloaded" : "recovering";
    for (size_t k = 0; !d->ready && k < sizeof known / sizeof *known; k++)
        if (bytes_equal_str(state, known[k]))
            d->state = known[k];
    for (size_t k = 0; k < json_doc_length(doc, "/notices"); k++) {
        struct bytes text = json_doc_text(doc, "/notices/%zu/text", k);
        add_detail(d, "%s%.*s", d->ready || k ? "warning: " : "", (int)text.len, text.ptr);
    }
    d->level = is_overloaded ? STATUS_DOWN : d->ready ? STATUS_FINE : notice_level(doc, "/notices", 0);
    if (!why.len)
        why = json_doc_text(doc, "/detail");
    if (is_overloaded)
        add_detail(d, "%.*s", (int)why.len, why.ptr);
    if (is_restarting(d, &s->pipeline.daemons[i]))
        return;
    bool is_said = d->ready || strcmp(d->state, "stopping") == 0;
    if (!is_said) {
        bool repeats = bytes_starts_with(why, bytes_str(d->state));
        char *remedy = bytes_dup(json_doc_text(doc, is_overloaded ? "/hint" : "/notices/0/remedy"));
        status_add_problem(s, d->level, remedy, "%s is %s%s%.*s", pipeline_daemon_name(i),
            repeats ? "" : d->state, why.len && !repeats ? ": " : "", (int)why.len, why.len ? why.ptr : "");
        free(remedy);
    }
    char *before = mem_printf("%s: warning: ", pipeline_daemon_name(i));
    add_notices(s, before, doc, is_said ? 0 : 1, "/notices");
    free(before);
}

/* Asks a daemon for /health. Returns false if the daemon does not answer. Each reply of a daemon has a state, or the
 * code of an error; another program may use the port of a daemon that does not run. */
static bool ask_health(struct pipeline_status *s, size_t i)
{
    struct buf body = {0};
    const char *why;
    const struct http_call_spec call = {
        .method = "GET", .target = "/health?format=json", .timeout = REPLY_TIMEOUT};
    int status = tool_request(s->pipeline.daemons[i].url, NULL, &call, &body, &why);
    struct json_doc *doc = json_doc_parse(buf_bytes(&body));
    bool is_daemon = json_doc_text(doc, "/state").len > 0 || json_doc_text(doc, "/code").len > 0;
    if (is_daemon)
        take_health(s, i, status, doc);
    else
        s->daemons[i].state = "unreachable";
    if (status && !is_daemon)
        add_detail(&s->daemons[i], "another program answers at %s", s->pipeline.daemons[i].url);
    json_doc_free(&doc);
    buf_free(&body);
    return is_daemon;
}

/* Returns the state of a daemon if the state is known from run.json; NULL: the daemon must be asked. The compactor cannot
 * be asked. */
static const char *state_without_asking(const struct pipeline_status *s, size_t i)
{
    static const char *const known[] = {"failed", "restarting", "waiting", "starting", "stopping", "stopped"};
    const struct pipeline_daemon *d = &s->pipeline.daemons[i];
    if (s->pipeline.has_ended)
        return "stopped";
    if (d->is_off)
        return "off";
    if (s->pipeline.starting)
        return "starting";
    for (size_t t = 0; d->state && t < sizeof known / sizeof *known; t++)
        if (strcmp(known[t], d->state) == 0 && (t < 3 || i == PIPELINE_COMPACTOR))
            return known[t];
    if (is_suspended(s, d->pid))
        return SUSPENDED;
    return i != PIPELINE_COMPACTOR ? NULL : d->state ? "ready" : "off";
}

/* True if the process in run.json has ended, although the daemon answers. `millrace up` then has not written, or cannot write,
 * that the daemon was restarted. */
static bool is_replaced(const struct pipeline_status *s, size_t i)
{
    pid_t pid = (pid_t)s->pipeline.daemons[i].pid;
    return s->pipeline.is_here && pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

/* Adds a problem for the daemons whose processes run.json does not name. */
static void look_at_restarts(struct pipeline_status *s)
{
    struct buf names = {0};
    for (size_t i = 0; i < PIPELINE_DAEMONS; i++)
        if (s->daemons[i].is_replaced)
            buf_printf(&names, "%s%s", names.len ? ", " : "", pipeline_daemon_name(i));
    if (names.len > 0)
        status_add_problem(s, STATUS_ATTENTION,
            "run this command again; if the problem remains, see the log of `millrace up`",
            "%s/run.json is older than the last restart of %s, so the number of restarts is not known",
            s->pipeline.data_dir, names.ptr);
    buf_free(&names);
}

static void add_restarts(struct pipeline_status *s, size_t i)
{
    const struct pipeline_daemon *p = &s->pipeline.daemons[i];
    char age[STATUS_AGE_TEXT], *error = status_last_error(p);
    status_format_age(age, clock_wall() / USEC_PER_SEC - p->restarted_at);
    bool is_killed = p->last_error && strcmp(p->last_error, "signal 9") == 0;
    status_add_problem(s, STATUS_ATTENTION,
        is_killed ? "if no user ended it, memory ran out: see dmesg" : "see the log of `millrace up`",
        "%s was restarted %u %s, the last %s ago; %s", pipeline_daemon_name(i), p->restarts,
        plural(p->restarts, "time", "times"), age, error);
    free(error);
}

/* Without the numbers of a daemon, a look cannot say that all is fine. */
static void take_stats(struct pipeline_status *s, size_t i)
{
    const struct http_call_spec call = {
        .method = "GET", .target = "/stats?format=json", .timeout = REPLY_TIMEOUT};
    struct error error;
    const char *name = pipeline_daemon_name(i);
    s->daemons[i].stats = pipeline_ask(&s->pipeline, name, &call, &error);
    if (s->daemons[i].stats)
        return;
    buf_printf(&s->unread, "%s%s", s->unread.len ? ", " : "", name);
    snprintf(s->unread_why, sizeof s->unread_why, "%.*s", (int)sizeof s->unread_why - 1, error.text);
}

static void look_at_unread(struct pipeline_status *s)
{
    if (s->unread.len > 0)
        status_add_problem(s, STATUS_ATTENTION,
            "if a token is wrong or unreadable, correct auth_token_file, or run this command as another user",
            "the numbers of %.*s are not known: %s", (int)s->unread.len, s->unread.ptr, s->unread_why);
}

static void look_at_daemon(struct pipeline_status *s, size_t i)
{
    const struct pipeline_daemon *p = &s->pipeline.daemons[i];
    struct daemon_status *d = &s->daemons[i];
    s->daemon = i;
    d->state = state_without_asking(s, i);
    d->waiting = d->events = -1;
    d->lag = d->rate = -1;
    if (d->state) {
        bool is_ended = strcmp(d->state, "restarting") == 0 && p->last_error;
        d->ready = strcmp(d->state, "ready") == 0 || strcmp(d->state, "off") == 0;
        if (is_ended && !is_up_away(s))
            add_last_error(d, p);
        else if (p->status_text && !is_up_away(s) && !p->is_off)
            add_detail(d, "%s", p->status_text);
        s->known = s->known && d->ready;
    } else if (!ask_health(s, i)) {
        s->known = false;
        if (p->pid > 0)
            add_detail(d, "process %" PRId64 " runs, but does not answer", p->pid);
        if (p->last_error && is_recent(p->error_at))
            add_last_error(d, p);
        if (is_restarting(d, p))
            d->state = "restarting";
    } else {
        take_stats(s, i);
        d->is_replaced = is_replaced(s, i);
        if (is_restarting(d, p)) {
            d->state = "restarting";
            add_last_error(d, p);
        }
        bool is_complete = !rows[i].look || rows[i].look(s, d);
        s->known = s->known && d->ready && is_complete;
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/%s", rows[i].events);
        double n = rows[i].label ? stats_metric(d->stats, rows[i].events, rows[i].label, rows[i].member, true)
                                 : stats_number(d->stats, pointer);
        d->events = (int64_t)n;
    }
    judge_state(s, i);
    s->all_ready = s->all_ready && (d->ready || i == PIPELINE_COMPACTOR);
    if (d->ready && is_recent(p->restarted_at))
        add_restarts(s, i);
}

/* Adds the problems of daemon i of /v1/pipeline. A failing aggregator or sortdb is a problem of the api. */
static void look_at_cell_daemon(struct pipeline_status *s, size_t i)
{
    char *name = bytes_dup(json_doc_text(s->cells, "/daemons/%zu/name", i)),
         *cell = bytes_dup(json_doc_text(s->cells, "/daemons/%zu/cell", i)),
         *state = bytes_dup(json_doc_text(s->cells, "/daemons/%zu/state", i)),
         *before = mem_printf("%s of cell %s: ", name, cell);
    struct bytes url = json_doc_text(s->cells, "/daemons/%zu/url", i), why;
    bool is_source = strcmp(name, "aggregator") == 0 || strcmp(name, "sortdb") == 0;
    size_t notices = s->n_problems;
    add_notices(s, before, s->cells, 0, "/daemons/%zu/stats/health/notices", i);
    why = json_doc_text(s->cells, "/daemons/%zu/detail", i);
    if (s->n_problems == notices && !is_source && strcmp(state, "ready") != 0 &&
        strcmp(state, "unknown") != 0)
        status_add_problem(s, STATUS_DOWN, "on the host of the cell: millrace status",
            "%s of cell %s (%.*s) is %s%s%.*s", name, cell, (int)url.len, url.ptr, state, why.len ? ": " : "",
            (int)why.len, why.len ? why.ptr : "");
    free(before);
    free(state);
    free(cell);
    free(name);
}

/* Looks at the daemons of all cells, as the api shows them. */
static void look_at_cells(struct pipeline_status *s)
{
    s->daemon = PIPELINE_DAEMONS;
    if (!tool_has_cells(s->config) || !s->daemons[PIPELINE_API].stats)
        return;
    s->cells = fetch(s, PIPELINE_API, "/v1/pipeline");
    for (size_t i = 0; i < json_doc_length(s->cells, "/daemons"); i++)
        if (json_doc_text(s->cells, "/daemons/%zu/cell", i).len > 0)
            look_at_cell_daemon(s, i);
    s->complete_until = cells_status_complete_until(s->cells);
}

/* Returns the path of the pipeline's directory if the directory does not exist here, else NULL. The caller frees it. */
static char *missing_place(const struct pipeline_status *s)
{
    const char *dir = s->pipeline.data_dir;
    char *here = *dir == '/' ? NULL : getcwd(NULL, 0);
    bool is_missing = access(dir, F_OK) != 0 && errno == ENOENT;
    char *path = is_missing ? mem_printf("%s%s%s", here ? here : "", here ? "/" : "", dir) : NULL;
    free(here);
    return path;
}

/* Adds one problem if run.json cannot be read and no daemon answers, because the pipeline is not started. */
static void judge_unknown(struct pipeline_status *s)
{
    char *place = missing_place(s);
    for (size_t i = 0; i < PEERS; i++)
        if (strcmp(s->daemons[i].state, "unreachable") != 0 && strcmp(s->daemons[i].state, "off") != 0) {
            if (place)
                status_add_problem(s, STATUS_ATTENTION, PIPELINE_PLACE_REMEDY,
                    "the directory %s does not exist, so disk, archive, restarts and puts are not known",
                    place);
            free(place);
            return;
        }
    while (s->n_problems > 0) {
        struct status_problem *p = &s->problems[--s->n_problems];
        free(p->text);
        free(p->remedy);
    }
    if (s->pipeline.denied)
        status_add_problem(s, STATUS_DOWN, "run this command as that user: sudo -u USER millrace status",
            "cannot read %s/run.json: Permission denied%s", s->pipeline.data_dir, s->pipeline.denied);
    else {
        char *start = command_after(s, "", START);
        char *remedy =
            place ? mem_printf("%s; if it was started elsewhere, " PIPELINE_PLACE_REMEDY, start) : NULL;
        status_add_problem(s, STATUS_DOWN, remedy ? remedy : start,
            "the pipeline of %s is not started: no daemon answers%s", place ? place : s->pipeline.data_dir,
            place ? ", and the directory does not exist" : "");
        free(start);
        free(remedy);
    }
    free(place);
}

/* Refused lines are a problem until the operator deletes the file that keeps them. */
static void add_put(const struct put_report *r, void *arg)
{
    struct pipeline_status *s = arg;
    struct stat st = {0};
    bool is_kept = r->rejects && stat(r->rejects, &st) == 0 && S_ISREG(st.st_mode);
    uint64_t n = r->numbers[PUT_REFUSED], status = r->numbers[PUT_EXIT_STATUS];
    char *remedy = is_kept ? mem_printf("read %s.reasons; correct --format or --log-format, post %s, then "
                                        "delete both files",
                                 r->rejects, r->rejects)
                           : NULL;
    if (is_kept && n > 0)
        status_add_problem(s, STATUS_ATTENTION, remedy,
            "millrace put --producer=%s refused %" PRIu64 " %s; the last: %s", r->producer, n,
            plural(n, "line", "lines"), r->why);
    else if (is_kept && st.st_size > 0)
        status_add_problem(
            s, STATUS_ATTENTION, remedy, "an earlier millrace put --producer=%s refused lines", r->producer);
    free(remedy);
    if (r->lost && r->lost_remedy) {
        remedy = mem_printf("%s; then restart this put", r->lost_remedy);
        status_add_problem(
            s, STATUS_ATTENTION, remedy, "millrace put --producer=%s: %s", r->producer, r->lost);
        free(remedy);
    }
    if (r->is_locked)
        return;
    remedy = mem_printf("%s; or, if it is no longer needed, delete %s/put/%s.%s.prom",
        r->has_ended ? "see its standard error, then start it again"
                     : "start it again; it continues where it was",
        s->pipeline.data_dir, r->queue, r->producer);
    if (!r->has_ended)
        status_add_problem(
            s, STATUS_ATTENTION, remedy, "millrace put --follow --producer=%s was killed", r->producer);
    else if (status > 0)
        status_add_problem(s, STATUS_ATTENTION, remedy,
            "millrace put --follow --producer=%s has ended with exit status %" PRIu64, r->producer, status);
    free(remedy);
}

/* Looks at what `millrace up` has written about itself. */
static void look_at_up(struct pipeline_status *s)
{
    const struct pipeline *p = &s->pipeline;
    char age[STATUS_AGE_TEXT];
    status_format_age(age, clock_wall() / USEC_PER_SEC - p->wrong_since);
    const char *file = p->config_path ? p->config_path : "FILE";
    char *remedy = p->has_ended
                       ? command_after(s, p->end_remedy ? p->end_remedy : "", START)
                       : mem_printf("find the error: millrace up --check-config --config=%s; correct it, "
                                    "then reload (SIGHUP)",
                             file);
    char said[RFC3339_TEXT];
    if (p->was_killed)
        status_add_problem(s, STATUS_DOWN, remedy,
            "the pipeline of %s is stopped: millrace up is not running (run.json was last written at %s)",
            p->data_dir, rfc3339_write(p->written, said));
    else if (p->has_ended)
        status_add_problem(s, STATUS_DOWN, remedy, "the pipeline of %s is stopped%s%s", p->data_dir,
            p->end_reason ? ": " : "", p->end_reason ? p->end_reason : "");
    else if (p->starting)
        status_add_problem(
            s, STATUS_ATTENTION, DAEMON_WAIT, "`millrace up` (process %" PRId64 ") is starting", p->starting);
    else if (p->wrong_since)
        status_add_problem(s, STATUS_ATTENTION, remedy,
            "the configuration %s is wrong, so the reload of %s ago changed nothing; a daemon that restarts "
            "cannot "
            "start",
            file, age);
    free(remedy);
    if (is_suspended(s, p->pid)) {
        remedy = mem_printf("kill -CONT %" PRId64 ", or fg in its shell", p->pid);
        status_add_problem(s, STATUS_ATTENTION, remedy,
            "`millrace up` (process %" PRId64 ") is suspended: a daemon that ends is not restarted", p->pid);
        free(remedy);
    }
    if (!is_up_away(s) && p->log_dropped > 0)
        status_add_problem(s, STATUS_ATTENTION,
            "see the program that reads the log; after a restart of `millrace up` the number is 0",
            "%" PRIu64 " %s of the log %s dropped: the reader of `millrace up`'s standard error was too "
            "slow or has ended, or its disk is full",
            p->log_dropped, plural(p->log_dropped, "line", "lines"), plural(p->log_dropped, "was", "were"));
}

void pipeline_status_take(struct pipeline_status *s, const struct config *config, const char *data_dir)
{
    struct error ignored;
    *s = (struct pipeline_status){.config = config, .all_ready = true, .known = true};
    pipeline_open(&s->pipeline, config, data_dir);
    if (!config && s->pipeline.config_path &&
        config_read(s->pipeline.config_path, &s->own_config, &ignored) == 0)
        s->config = s->pipeline.config = s->own_config;
    s->taken = clock_monotonic();
    s->daemon = PIPELINE_DAEMONS;
    look_at_up(s);
    for (size_t i = 0; i < PIPELINE_DAEMONS; i++)
        look_at_daemon(s, i);
    s->daemon = PIPELINE_DAEMONS;
    look_at_unread(s);
    if (!s->pipeline.is_known && !s->pipeline.starting)
        judge_unknown(s);
    look_at_cells(s);
    host_status_look(s);
    look_at_restarts(s);
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
    buf_free(&s->unread);
    json_doc_free(&s->streams);
    json_doc_free(&s->cells);
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
