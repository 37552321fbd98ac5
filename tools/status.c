/* millrace status: shows every daemon of a pipeline, and whether every posted event is counted.
 *
 * Requests follow the flow of events. millrace status first asks the queues, because an acknowledged event leaves a
 * queue only once a stream has committed the event. It then asks for the ends of the streams, and last for the
 * aggregator's offsets. If the queues are empty and each offset has reached its stream's end, every event posted before
 * the first request is counted. */
#include "base/clock.h"
#include "counts/json_fields.h"
#include "config/options.h"
#include "config/peers.h"
#include "tools/tool.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define REPLY_TIMEOUT (2 * USEC_PER_SEC)
#define POLL_INTERVAL (50 * USEC_PER_MSEC)

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    {.name = "wait",
        .type = OPTION_BOOL,
        .fallback = "false",
        .help = "wait until every daemon is ready and every posted event is counted"},
    {.name = "timeout",
        .type = OPTION_DURATION,
        .fallback = "120s",
        .min = 100,
        .max = 86400000,
        .unit = "s",
        .help = "longest wait"},
    {.name = "json", .type = OPTION_BOOL, .fallback = "false", .help = "print JSON"},
    {.name = NULL},
};

struct report {
    const char *state; /* "ready", "not ready", "failed", "stopped", "unreachable" */
    struct buf detail; /* depth, lag, or the reason */
    bool ready;
};

struct status {
    const struct options *o;
    struct pipeline pipeline;
    struct report reports[PEERS];
    struct json_doc *streams; /* pubsub's streams; their ends are compared with the aggregator's offsets */
    uint64_t depth, lag;
    bool known; /* every daemon has answered, so depth and lag are complete */
};

static struct json_doc *fetch_json(const char *url, const char *target)
{
    struct buf body = {0};
    const char *why;
    bool ok = tool_get(url, target, REPLY_TIMEOUT, &body, &why) == 200;
    struct json_doc *doc = ok ? json_doc_parse(buf_bytes(&body)) : NULL;
    buf_free(&body);
    return doc;
}

/* The queue that queue_to_pubsub reads. */
static const char *relayed_queue(const struct status *s)
{
    const char *queue = config_setting(options_config(s->o), "queue_to_pubsub", "queue");
    return queue ? queue : "default";
}

/* Only the relayed queue counts for `depth`, because the events of other queues do not reach the counted streams. */
static bool query_queue(struct status *s, const char *url, struct buf *detail)
{
    /* counters that need attention */
    static const char *const members[] = {"paused", "buried", "overflow", "rejected"};
    struct json_doc *d = fetch_json(url, "/stats?format=json");
    char pointer[128];
    bool ok = d != NULL;
    uint64_t others = 0;
    struct buf warnings = {0};
    s->depth = 0;
    for (size_t i = 0; ok && i < json_doc_length(d, "/queues"); i++) {
        struct bytes name = json_doc_name(d, "/queues", i);
        uint64_t depth = 0;
        snprintf(pointer, sizeof pointer, "/queues/%.*s/depth", (int)name.len, name.ptr);
        ok = json_doc_u64(d, pointer, &depth);
        *(bytes_equal_str(name, relayed_queue(s)) ? &s->depth : &others) += depth;
        for (size_t w = 0; w < sizeof members / sizeof *members; w++) {
            uint64_t n;
            snprintf(pointer, sizeof pointer, "/queues/%.*s/%s", (int)name.len, name.ptr, members[w]);
            if (!json_doc_u64(d, pointer, &n) || n == 0)
                continue;
            buf_printf(&warnings, ", %.*s: ", (int)name.len, name.ptr);
            if (w == 0)
                buf_append_str(&warnings, "paused");
            else
                buf_printf(&warnings, "%" PRIu64 " %s", n, w == 2 ? "overflowed" : members[w]);
        }
    }
    buf_printf(detail, "depth %" PRIu64, s->depth);
    if (others > 0)
        buf_printf(detail, ", %" PRIu64 " in other queues", others);
    buf_append_bytes(detail, buf_bytes(&warnings));
    buf_free(&warnings);
    json_doc_free(&d);
    return ok;
}

static bool query_streams(struct status *s, const char *url, struct buf *detail)
{
    s->streams = fetch_json(url, "/streams");
    if (!s->streams)
        return false;
    buf_printf(detail, "streams %zu", json_doc_length(s->streams, "/streams"));
    return true;
}

/* A stream that the aggregator does not read has no lag. */
static bool query_counts(struct status *s, const char *url, struct buf *detail)
{
    struct json_doc *d = s->streams ? fetch_json(url, "/stats?format=json") : NULL;
    char pointer[192];
    bool ok = d != NULL;
    s->lag = 0;
    for (size_t i = 0; ok && i < json_doc_length(s->streams, "/streams"); i++) {
        uint64_t end, offset;
        struct bytes name = json_doc_text(s->streams, "/streams/%zu/name", i);
        snprintf(pointer, sizeof pointer, "/streams/%zu/end", i);
        ok = name.ptr && json_doc_u64(s->streams, pointer, &end);
        snprintf(pointer, sizeof pointer, "/streams/%.*s/offset", (int)name.len, name.ptr ? name.ptr : "");
        if (ok && json_doc_u64(d, pointer, &offset) && offset < end)
            s->lag += end - offset;
    }
    buf_printf(detail, "lag %" PRIu64 " bytes", s->lag);
    json_doc_free(&d);
    return ok;
}

static const struct {
    const char *name;
    bool (*query)(struct status *s, const char *url, struct buf *detail);
} queries[] = {{"simplequeue", query_queue}, {"pubsub", query_streams}, {"aggregator", query_counts}};

/* Asks every daemon, in the order in which events flow. Does not ask a stopped pipeline, because other processes may
 * use its ports by now, nor a failed daemon, because it has no process. */
static void take(struct status *s)
{
    pipeline_close(&s->pipeline);
    pipeline_open(&s->pipeline, options_config(s->o), options_string(s->o, "data_dir"));
    s->known = true;
    for (size_t i = 0; i < PEERS; i++) {
        const struct pipeline_daemon *d = &s->pipeline.daemons[i];
        struct report *r = &s->reports[i];
        bool failed = !s->pipeline.has_ended && d->state && strcmp(d->state, "failed") == 0;
        r->ready = false;
        buf_clear(&r->detail);
        if (s->pipeline.has_ended || failed) {
            s->known = false;
            r->state = failed ? "failed" : "stopped";
            if (failed && d->status_text)
                buf_append_str(&r->detail, d->status_text);
            continue;
        }
        struct buf body = {0};
        const char *why;
        int status = tool_get(d->url, "/health", REPLY_TIMEOUT, &body, &why);
        struct json_doc *doc = status && status != 200 ? json_doc_parse(buf_bytes(&body)) : NULL;
        r->ready = status == 200;
        r->state = r->ready ? "ready" : status ? "not ready" : "unreachable";
        buf_append_bytes(&r->detail, json_doc_text(doc, "/detail"));
        json_doc_free(&doc);
        /* Each line after "ready" is a warning. */
        for (size_t at = sizeof "ready"; r->ready && at < body.len; at++)
            if (body.ptr[at] == '\n')
                buf_append_str(&r->detail, "; ");
            else
                buf_append_char(&r->detail, body.ptr[at]);
        buf_free(&body);
        for (size_t q = 0; q < sizeof queries / sizeof *queries; q++)
            if (strcmp(queries[q].name, peers[i].name) == 0 &&
                (!r->ready || !queries[q].query(s, d->url, &r->detail)))
                s->known = false;
    }
    json_doc_free(&s->streams);
}

static bool all_ready(const struct status *s)
{
    bool ready = true;
    for (size_t i = 0; i < PEERS; i++)
        ready = ready && s->reports[i].ready;
    return ready;
}

static bool is_settled(const struct status *s)
{
    return all_ready(s) && s->known && s->depth == 0 && s->lag == 0;
}

static const char *shown_url(const struct status *s, size_t i)
{
    bool was_asked = strcmp(s->reports[i].state, "failed") != 0 && !s->pipeline.has_ended;
    return was_asked ? s->pipeline.daemons[i].url : NULL;
}

static void print_table(const struct status *s)
{
    for (size_t i = 0; i < PEERS; i++) {
        const struct report *r = &s->reports[i];
        const char *url = shown_url(s, i);
        printf("%-16s %-12s %-28s %.*s\n", peers[i].name, r->state, url ? url : "-", (int)r->detail.len,
            r->detail.ptr ? r->detail.ptr : "");
    }
}

static void print_json(const struct status *s)
{
    struct buf out = {0};
    buf_printf(&out, "{\"ready\":%s,\"settled\":%s,\"daemons\":{", all_ready(s) ? "true" : "false",
        is_settled(s) ? "true" : "false");
    for (size_t i = 0; i < PEERS; i++) {
        const struct report *r = &s->reports[i];
        const char *url = shown_url(s, i);
        buf_printf(&out, "%s\"%s\":{\"state\":\"%s\",\"url\":", i ? "," : "", peers[i].name, r->state);
        if (url)
            buf_append_json(&out, bytes_str(url));
        else
            buf_append_str(&out, "null");
        buf_append_str(&out, ",\"detail\":");
        buf_append_json(&out, buf_bytes(&r->detail));
        buf_append_char(&out, '}');
    }
    buf_append_str(&out, "}}\n");
    fwrite(out.ptr, 1, out.len, stdout);
    buf_free(&out);
}

static int status_with(const struct options *o)
{
    static const char waiting[] = "millrace status: still waiting for";
    struct status s = {.o = o};
    bool waits = options_bool(o, "wait");
    usec_t end = clock_monotonic() + (waits ? options_int(o, "timeout") * USEC_PER_MSEC : 0);
    signal(SIGPIPE, SIG_IGN);
    take(&s);
    while (!is_settled(&s) && clock_monotonic() < end) {
        clock_sleep(POLL_INTERVAL);
        take(&s);
    }
    bool missing = waits && !is_settled(&s);
    for (size_t i = 0; i < PEERS && missing; i++)
        if (!s.reports[i].ready)
            fprintf(stderr, "%s %s: %s\n", waiting, peers[i].name, s.reports[i].state);
    if (missing && s.depth > 0)
        fprintf(stderr, "%s %" PRIu64 " messages on queue %s\n", waiting, s.depth, relayed_queue(&s));
    if (missing && s.lag > 0)
        fprintf(stderr, "%s %" PRIu64 " uncounted bytes of streams\n", waiting, s.lag);
    (options_bool(o, "json") ? print_json : print_table)(&s);
    int status = (waits ? !missing : all_ready(&s)) ? EX_OK : EX_TEMPFAIL;
    for (size_t i = 0; i < PEERS; i++)
        buf_free(&s.reports[i].detail);
    pipeline_close(&s.pipeline);
    return status;
}

int tool_status(int argc, char **argv)
{
    static const struct options_spec spec = {
        .program = "status", .summary = "shows the daemons of a pipeline", .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, status_with);
}
