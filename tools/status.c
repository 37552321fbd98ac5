/* millrace status: shows every daemon of a pipeline, and whether every posted event is counted.
 *
 * --wait asks in the order of the flow: first the queues (an acknowledged event leaves a queue only for a committed place in a stream), then
 * the ends of the streams, then the offsets of the aggregator. If every offset has reached the end asked before, every event posted before
 * the first request is counted. */
#include "base/clock.h"
#include "http/client/http_client.h"
#include "counts/json_fields.h"
#include "config/options.h"
#include "config/peers.h"
#include "tools/pipeline.h"
#include "tools/tool.h"
#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define REPLY_TIMEOUT (2 * USEC_PER_SEC)
#define POLL_INTERVAL (50 * USEC_PER_MSEC)

static const struct option_row rows[] = {
    {.name = "data_dir",
        .type = OPTION_STRING,
        .help = "directory of the pipeline (default: [millrace] data_dir)"},
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
    const char *name, *url;
    const char
        *state; /* "ready", "not ready", "failed", "stopped", "unreachable"; without HTTP that of run.json */
    bool ready;
    struct buf detail; /* depth, lag */
};

struct status {
    const struct options *o;
    struct event_base *base;
    struct report reports[PEERS];
    struct json_doc *streams; /* of pubsub, to compare the aggregator with */
    uint64_t depth, lag;
    bool known; /* depth and lag are valid */
};

static int fetch(struct status *s, const char *url, const char *target, struct buf *body)
{
    int status = 0;
    struct http_client *c =
        http_client_new(&(struct http_client_config){.base = s->base, .url = url, .timeout = REPLY_TIMEOUT});
    if (!c)
        return 0;
    enum http_client_result r =
        http_client_fetch(c, &(struct http_call_spec){.method = "GET", .target = target}, &status, body);
    http_client_free(&c);
    return r == HTTP_CLIENT_OK ? status : 0;
}

static struct json_doc *fetch_json(struct status *s, const char *url, const char *target)
{
    struct buf body = {0};
    struct json_doc *doc = fetch(s, url, target, &body) == 200 ? json_doc_parse(buf_bytes(&body)) : NULL;
    buf_free(&body);
    return doc;
}

/* The queue that queue_to_pubsub reads. */
static const char *relayed_queue(const struct status *s)
{
    const struct config_section *relay = config_section(options_config(s->o), "queue_to_pubsub", "");
    const char *queue = relay ? config_value(relay, "queue") : NULL;
    return queue ? queue : "default";
}

/* Appends the counters of a queue that need attention. */
static void add_warnings(const struct json_doc *d, struct bytes name, struct buf *out)
{
    static const char *const members[] = {"paused", "buried", "overflow", "rejected"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        char pointer[128];
        uint64_t n;
        snprintf(pointer, sizeof pointer, "/queues/%.*s/%s", (int)name.len, name.ptr, members[i]);
        if (!json_doc_u64(d, pointer, &n) || n == 0)
            continue;
        buf_printf(out, ", %.*s: ", (int)name.len, name.ptr);
        if (i == 0)
            buf_append_str(out, "paused");
        else
            buf_printf(out, "%" PRIu64 " %s", n, i == 2 ? "overflowed" : members[i]);
    }
}

/* Other queues have other readers and do not flow into the counted streams. */
static bool query_queue(struct status *s, struct report *r)
{
    struct json_doc *d = fetch_json(s, r->url, "/stats?format=json");
    char pointer[128];
    bool ok = d != NULL;
    uint64_t others = 0;
    s->depth = 0;
    for (size_t i = 0; ok && i < json_doc_length(d, "/queues"); i++) {
        struct bytes name = json_doc_name(d, "/queues", i);
        uint64_t depth;
        snprintf(pointer, sizeof pointer, "/queues/%.*s/depth", (int)name.len, name.ptr);
        ok = json_doc_u64(d, pointer, &depth);
        *(bytes_equal_str(name, relayed_queue(s)) ? &s->depth : &others) += depth;
    }
    buf_printf(&r->detail, "depth %" PRIu64, s->depth);
    if (others > 0)
        buf_printf(&r->detail, ", %" PRIu64 " in other queues", others);
    for (size_t i = 0; ok && i < json_doc_length(d, "/queues"); i++)
        add_warnings(d, json_doc_name(d, "/queues", i), &r->detail);
    json_doc_free(&d);
    return ok;
}

static bool query_streams(struct status *s, struct report *r)
{
    s->streams = fetch_json(s, r->url, "/streams");
    if (!s->streams)
        return false;
    buf_printf(&r->detail, "streams %zu", json_doc_length(s->streams, "/streams"));
    return true;
}

/* Streams that the aggregator does not read have no lag. */
static bool query_counts(struct status *s, struct report *r)
{
    struct json_doc *d = s->streams ? fetch_json(s, r->url, "/stats?format=json") : NULL;
    char pointer[192];
    bool ok = d != NULL;
    s->lag = 0;
    for (size_t i = 0; ok && i < json_doc_length(s->streams, "/streams"); i++) {
        uint64_t end, offset;
        snprintf(pointer, sizeof pointer, "/streams/%zu/name", i);
        struct json_value name = json_doc_at(s->streams, pointer);
        snprintf(pointer, sizeof pointer, "/streams/%zu/end", i);
        ok = name.type == JSON_STRING && json_doc_u64(s->streams, pointer, &end);
        snprintf(pointer, sizeof pointer, "/streams/%.*s/offset", ok ? (int)name.v.string.len : 0,
            name.v.string.ptr);
        if (ok && json_doc_u64(d, pointer, &offset) && offset < end)
            s->lag += end - offset;
    }
    buf_printf(&r->detail, "lag %" PRIu64 " bytes", s->lag);
    json_doc_free(&d);
    return ok;
}

static const struct {
    const char *name;
    bool (*look)(struct status *s, struct report *r);
} looks[] = {{"simplequeue", query_queue}, {"pubsub", query_streams}, {"aggregator", query_counts}};

/* Appends the reason of /health. */
static void add_reason(struct report *r, struct bytes body)
{
    struct json_doc *d = json_doc_parse(body);
    struct json_value v = d ? json_doc_at(d, "/detail") : (struct json_value){.type = JSON_MISSING};
    if (v.type == JSON_STRING)
        buf_append_bytes(&r->detail, v.v.string);
    json_doc_free(&d);
}

static void query_daemon(struct status *s, struct report *r)
{
    struct buf body = {0};
    int status = fetch(s, r->url, "/health", &body);
    r->ready = status == 200;
    r->state = r->ready ? "ready" : status ? "not ready" : "unreachable";
    if (!r->ready && status)
        add_reason(r, buf_bytes(&body));
    buf_free(&body);
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if (strcmp(looks[i].name, r->name) == 0 && (!r->ready || !looks[i].look(s, r)))
            s->known = false;
}

/* A daemon without HTTP: as in run.json. */
static void take_run_state(struct pipeline *p, struct report *r)
{
    const char *state = pipeline_state(p, r->name), *text = pipeline_status_text(p, r->name);
    r->ready = !state || strcmp(state, "ready") == 0;
    r->state = r->ready ? (state ? "ready" : "unknown") : "not ready";
    if (text && strcmp(text, "ready") != 0) {
        r->ready = false;
        r->state = "not ready";
        buf_append_str(&r->detail, text);
    }
}

/* Asks every daemon in the order of the flow. Not a stopped pipeline, whose ports may belong to other processes, nor a failed daemon,
 * whose socket accepts connections but never answers. */
static void take(struct status *s)
{
    struct pipeline *p = pipeline_open(options_config(s->o), options_string(s->o, "data_dir"));
    bool runs = pipeline_may_run(p);
    s->known = true;
    for (size_t i = 0; i < PEERS; i++) {
        struct report *r = &s->reports[i];
        const char *name = peers[i].name, *url = runs ? pipeline_url(p, name) : NULL;
        *r = (struct report){.name = name, .url = url ? mem_strdup(url) : NULL, .detail = r->detail};
        buf_clear(&r->detail);
        const char *state = runs ? pipeline_state(p, name) : NULL;
        bool failed = state && strcmp(state, "failed") == 0;
        if (!runs || failed) {
            s->known = false;
            r->state = failed ? "failed" : "stopped";
            const char *reason = failed ? pipeline_status_text(p, name) : NULL;
            if (reason)
                buf_append_str(&r->detail, reason);
        } else if (url) {
            query_daemon(s, r);
        } else {
            take_run_state(p, r);
        }
    }
    json_doc_free(&s->streams);
    pipeline_close(&p);
}

static void forget(struct status *s)
{
    for (size_t i = 0; i < PEERS; i++) {
        char *url = (char *)(uintptr_t)s->reports[i].url;
        free(url);
        s->reports[i].url = NULL;
    }
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

static void print_table(const struct status *s)
{
    for (size_t i = 0; i < PEERS; i++) {
        const struct report *r = &s->reports[i];
        printf("%-16s %-12s %-28s %.*s\n", r->name, r->state, r->url ? r->url : "-", (int)r->detail.len,
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
        buf_printf(&out, "%s\"%s\":{\"state\":\"%s\",\"url\":", i ? "," : "", r->name, r->state);
        if (r->url)
            buf_append_json(&out, bytes_str(r->url));
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

static void wait_until_settled(struct status *s)
{
    usec_t end = clock_monotonic() + options_int(s->o, "timeout") * USEC_PER_MSEC;
    while (!is_settled(s) && clock_monotonic() < end) {
        nanosleep(&(struct timespec){.tv_nsec = POLL_INTERVAL * 1000}, NULL);
        forget(s);
        take(s);
    }
}

static void print_missing(const struct status *s)
{
    for (size_t i = 0; i < PEERS; i++)
        if (!s->reports[i].ready)
            fprintf(stderr, "millrace status: still waiting for %s: %s\n", s->reports[i].name,
                s->reports[i].state);
    if (s->depth > 0)
        fprintf(stderr, "millrace status: still waiting for %" PRIu64 " messages on queue %s\n", s->depth,
            relayed_queue(s));
    if (s->lag > 0)
        fprintf(
            stderr, "millrace status: still waiting for %" PRIu64 " uncounted bytes of streams\n", s->lag);
}

static int status_with(const struct options *o)
{
    struct status s = {.o = o};
    signal(SIGPIPE, SIG_IGN);
    s.base = event_base_new();
    take(&s);
    if (options_bool(o, "wait"))
        wait_until_settled(&s);
    if (options_bool(o, "wait") && !is_settled(&s))
        print_missing(&s);
    (options_bool(o, "json") ? print_json : print_table)(&s);
    int status = (options_bool(o, "wait") ? is_settled(&s) : all_ready(&s)) ? EX_OK : EX_TEMPFAIL;
    forget(&s);
    for (size_t i = 0; i < PEERS; i++)
        buf_free(&s.reports[i].detail);
    event_base_free(s.base);
    return status;
}

int tool_status(int argc, char **argv)
{
    static const struct options_spec spec = {
        .program = "status", .summary = "shows the daemons of a pipeline", .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, status_with);
}
