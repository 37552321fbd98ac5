/* millrace rejects: shows the lines that the aggregator could not count, and makes the aggregator count these lines
 * again. */
#include "base/bytes.h"
#include "base/progress.h"
#include "base/rfc3339.h"
#include "base/url.h"
#include "config/peers.h"
#include "counts/counters.h"
#include "counts/rejects.h"
#include "counts/slice_reader.h"
#include "daemon/daemon.h"
#include "http/client/http_client.h"
#include "tools/rejects_dir.h"
#include "tools/tool.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define LINE_SHOWN 200
#define BUSY_WAIT (50 * USEC_PER_MSEC)
#define BUSY_MAX (30 * USEC_PER_SEC)

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    SETTING_STRING("reason", "only lines whose reason contains this text"),
    SETTING_STRING("stream", "only lines of this stream or file"),
    SETTING_DURATION("since", NULL, 0, INT64_C(36600) * 24 * 3600 * 1000, "s",
        "only lines rejected within this time before now, such as 2d"),
    SETTING_BOOL("count", "count the lines by reason", .excludes = "put_back"),
    SETTING_BOOL("json", "print JSON: each entry as in the rejects files; totals as one object"),
    SETTING_BOOL("put_back", "have the running aggregator count the lines again; each line is counted once"),
    SETTING_BOOL("dry_run",
        "with --put-back: change nothing; show how many lines the counters of --config would count or "
        "reject, and why",
        .needs = "put_back"),
    PEER_OPTIONS_NEEDING("aggregator", "aggregator", "", "put_back", "dry_run"),
    {.name = NULL},
};

struct reason {
    char *text;
    uint64_t n;
};

struct rejects_tool {
    const struct options *o;
    struct rejects_filter filter;
    bool json;
    struct counters_reader *counters; /* NULL without --dry-run */
    struct reason *reasons;           /* NULL without --count and --dry-run */
    size_t n_reasons, room_reasons;
};

static void print_entry(const struct rejects_entry *e)
{
    char time_text[RFC3339_TEXT], line[LINE_SHOWN];
    size_t n = e->line.len < LINE_SHOWN ? e->line.len : LINE_SHOWN;
    bool is_text = bytes_is_utf8(bytes_of(e->line.ptr, n));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)e->line.ptr[i];
        line[i] = c < ' ' || c == 0x7f || (c > 0x7f && !is_text) ? '?' : (char)c;
    }
    printf("%s %.*s %" PRIu64 " %.*s: %.*s%s\n", e->time > 0 ? rfc3339_write(e->time, time_text) : "-",
        (int)e->name.len, e->name.ptr, e->offset, (int)e->reason.len, e->reason.ptr, (int)n, line,
        n < e->length ? "..." : "");
}

static void count_reason(struct rejects_tool *t, struct bytes text)
{
    size_t i = 0;
    while (i < t->n_reasons && !bytes_equal_str(text, t->reasons[i].text))
        i++;
    if (i == t->n_reasons)
        *ARRAY_ADD(t->reasons, t->n_reasons, t->room_reasons) = (struct reason){.text = bytes_dup(text)};
    t->reasons[i].n++;
}

/* Returns the text by which --count groups entries: the reason, or with --dry-run the result of counting the line
 * again. */
static struct bytes result_of(struct rejects_tool *t, const struct rejects_entry *e, struct buf *text)
{
    struct counters_event event;
    if (!t->counters)
        return e->reason;
    if (e->line.len < e->length)
        return BYTES_LITERAL("kept: the entry has only the beginning of the line");
    enum counters_verdict verdict = counters_extract(t->counters, e->line, &event);
    if (verdict == COUNTERS_REJECTED) {
        buf_clear(text);
        buf_printf(text, "rejected again: %s", event.reason);
        return buf_bytes(text);
    }
    return verdict == COUNTERS_EVENT ? BYTES_LITERAL("counted") : BYTES_LITERAL("skipped");
}

static int compare_reasons(const void *a, const void *b)
{
    const struct reason *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : strcmp(x->text, y->text);
}

static void print_reasons(struct rejects_tool *t)
{
    uint64_t total = 0;
    struct buf out = {0};
    if (t->n_reasons > 1)
        qsort(t->reasons, t->n_reasons, sizeof *t->reasons, compare_reasons);
    buf_append_str(&out, t->json ? "{\"reasons\":[" : "");
    for (size_t i = 0; i < t->n_reasons; i++) {
        total += t->reasons[i].n;
        if (t->json) {
            buf_printf(&out, "%s{\"n\":%" PRIu64 ",\"reason\":", i > 0 ? "," : "", t->reasons[i].n);
            buf_append_json(&out, bytes_str(t->reasons[i].text));
            buf_append_char(&out, '}');
        } else {
            buf_printf(&out, "%12" PRIu64 "  %s\n", t->reasons[i].n, t->reasons[i].text);
        }
        free(t->reasons[i].text);
    }
    buf_printf(&out, t->json ? "],\"total\":%" PRIu64 "}\n" : "%12" PRIu64 "  total\n", total);
    fwrite(out.ptr, 1, out.len, stdout);
    buf_free(&out);
    free(t->reasons);
}

static int report_damage(const struct rejects_reader *r)
{
    uint64_t offset;
    char *path = rejects_reader_where(r, &offset);
    tool_fail(EX_DATAERR, "%s: the entry at byte %" PRIu64 " is damaged; restore the file from a copy", path,
        offset);
    free(path);
    return EX_DATAERR;
}

static int show(struct rejects_tool *t, const char *dir)
{
    bool counts = options_bool(t->o, "count") || t->counters;
    struct rejects_place from, end, after;
    struct bytes text;
    struct buf bytes = {0}, result = {0};
    struct error why;
    int more, status = rejects_dir_ends(dir, &from, &end, &why);
    if (status != 0)
        return tool_fail_at(status, dir, why.text);
    buf_printf(&bytes, "%s/rejects", dir);
    struct rejects_reader *r = rejects_reader_new(bytes.ptr, from, end);
    while ((more = rejects_reader_next(r, &text, &after)) > 0) {
        struct rejects_entry e;
        struct json_doc *doc;
        if (!rejects_parse(text, &e, &doc, &bytes))
            status = report_damage(r);
        else if (rejects_match(&t->filter, &e) && counts)
            count_reason(t, result_of(t, &e, &result));
        else if (rejects_match(&t->filter, &e) && t->json)
            printf("%.*s\n", (int)text.len, text.ptr);
        else if (rejects_match(&t->filter, &e))
            print_entry(&e);
        json_doc_free(&doc);
    }
    if (more < 0)
        status = tool_fail(EX_IOERR, "%s: %s", dir, strerror(errno));
    if (counts)
        print_reasons(t);
    rejects_reader_free(&r);
    buf_free(&bytes);
    buf_free(&result);
    return status;
}

static int dry_run(struct rejects_tool *t, const char *dir)
{
    const struct config *config = options_config(t->o);
    struct counters *counters = NULL;
    struct error error = {.text = "--dry-run needs --config=FILE, which defines the counters"};
    if (!config || counters_read(config, &counters, &error) != 0)
        return tool_fail(EX_CONFIG, "%s", error.text);
    t->counters = counters_reader_new(counters);
    counters_reader_set_now(t->counters, clock_wall() / USEC_PER_SEC);
    int status = show(t, dir);
    counters_reader_free(&t->counters);
    counters_free(&counters);
    return status;
}

/* Posts one step. Returns the HTTP status, or 0. Sets *reply to the parsed body, or NULL. */
static int post_step(struct http_client *client, const struct rejects_tool *t, struct rejects_place until,
    struct json_doc **reply)
{
    struct buf target = {0}, body = {0};
    int http_status = 0;
    buf_printf(&target, "/putback?since=%" PRId64, t->filter.since);
    if (until.slice > 0)
        buf_printf(&target, "&until_slice=%" PRIu64 "&until_offset=%" PRIu64, until.slice, until.offset);
    buf_append_str(&target, "&reason=");
    url_encode(t->filter.reason, &target);
    buf_append_str(&target, "&name=");
    url_encode(t->filter.name, &target);
    buf_append_char(&target, '\0');
    (void)http_client_fetch(
        client, &(struct http_call_spec){.method = "POST", .target = target.ptr}, &http_status, &body);
    *reply = json_doc_parse(buf_bytes(&body));
    buf_free(&target);
    buf_free(&body);
    return http_status;
}

/* Posts steps until the aggregator has read all rejects that existed at the first step. */
static int put_back_steps(struct http_client *client, const struct rejects_tool *t)
{
    static const char *const names[] = {"counted", "skipped", "rejected", "kept", "damaged"};
    uint64_t sums[5] = {0}, n = 0;
    struct rejects_place until = {0};
    struct progress progress;
    usec_t busy_since = 0, now = clock_monotonic();
    bool done = false;
    int status = 0;
    progress_begin(&progress, "lines", t->json, now);
    while (!done && status == 0) {
        struct json_doc *reply;
        int http_status = post_step(client, t, until, &reply);
        now = clock_monotonic();
        for (int i = 0; i < 5 && http_status == 200; i++) {
            uint64_t one = json_doc_number(reply, "/%s", names[i]);
            sums[i] += one;
            n += i < 4 ? one : 0; /* damaged entries are kept */
        }
        struct bytes detail = json_doc_text(reply, "/detail");
        bool is_busy = http_status == 503 && bytes_equal_str(json_doc_text(reply, "/code"), "busy");
        busy_since = is_busy ? (busy_since ? busy_since : now) : 0;
        if (http_status == 200 && reply) {
            done = json_doc_at(reply, "/done").v.boolean;
            until.slice = json_doc_number(reply, "/until_slice");
            until.offset = json_doc_number(reply, "/until_offset");
        } else if (is_busy && now - busy_since < BUSY_MAX) {
            clock_sleep(BUSY_WAIT);
        } else if (detail.ptr) {
            status = tool_fail(http_status >= 500 ? EX_TEMPFAIL : EX_CONFIG, "the aggregator refuses: %.*s",
                (int)detail.len, detail.ptr);
        } else {
            status =
                tool_fail(EX_TEMPFAIL, "the aggregator does not answer; run the same command to continue");
        }
        json_doc_free(&reply);
        progress_show(&progress, NULL, 0, 0, n, done || status != 0, now);
    }
    printf(t->json ? "{\"counted\":%" PRIu64 ",\"skipped\":%" PRIu64 ",\"rejected\":%" PRIu64
                     ",\"kept\":%" PRIu64 "}\n"
                   : "counted %" PRIu64 ", skipped %" PRIu64 ", rejected again %" PRIu64 ", kept %" PRIu64
                     "\n",
        sums[0], sums[1], sums[2], sums[3]);
    if (sums[2] > 0)
        tool_fail(0, "the aggregator rejected lines again: if the configuration was corrected, restart the "
                     "aggregator (SIGHUP to millrace up), then repeat the command");
    if (sums[4] > 0 && status == 0)
        status = tool_fail(EX_DATAERR, "damaged entries were kept: millrace rejects names them");
    return status;
}

static int put_back(const struct rejects_tool *t)
{
    const struct options *o = t->o;
    struct pipeline pipeline;
    struct error error;
    char *token;
    if (daemon_read_token(options_string(o, "aggregator_token_file"), &token, &error) != 0)
        return tool_fail(EX_CONFIG, "%s", error.text);
    pipeline_open(&pipeline, options_config(o), options_string(o, "data_dir"));
    const char *url = options_string(o, "aggregator_url");
    struct event_base *base = event_base_new();
    struct http_client *client = http_client_new(&(struct http_client_config){
        .base = base, .url = url ? url : pipeline_url(&pipeline, "aggregator"), .auth_token = token});
    int status = url ? EX_OK : tool_check_runs(&pipeline);
    if (status == EX_OK)
        status = client ? put_back_steps(client, t)
                        : tool_fail(EX_USAGE, "--aggregator-url: expected http://HOST:PORT or unix:PATH");
    http_client_free(&client);
    event_base_free(base);
    pipeline_close(&pipeline);
    free(token);
    return status;
}

static int run(const struct options *o)
{
    const char *reason = options_string(o, "reason"), *stream = options_string(o, "stream");
    bool puts_back = options_bool(o, "put_back");
    char **operands;
    size_t operands_n = options_operands(o, &operands);
    if (operands_n > 1)
        return tool_fail(EX_USAGE, "give one directory");
    if (operands_n > 0 && puts_back && !options_bool(o, "dry_run"))
        return tool_fail(
            EX_USAGE, "--put-back asks the aggregator for its own lines: leave out %s", operands[0]);
    struct rejects_tool t = {.o = o, .json = options_bool(o, "json")};
    t.filter.reason = reason ? bytes_str(reason) : BYTES_NONE;
    t.filter.name = stream ? bytes_str(stream) : BYTES_NONE;
    if (options_is_set(o, "since"))
        t.filter.since = (clock_wall() - options_int(o, "since") * USEC_PER_MSEC) / USEC_PER_SEC;
    if (puts_back && !options_bool(o, "dry_run"))
        return put_back(&t);
    const char *data_dir = pipeline_dir(options_config(o), options_string(o, "data_dir"));
    char *dir = operands_n > 0 ? mem_strdup(operands[0])
                               : pipeline_daemon_dir(options_config(o), data_dir, "aggregator", "");
    int status = puts_back ? dry_run(&t, dir) : show(&t, dir);
    free(dir);
    return status;
}

int tool_rejects(int argc, char **argv)
{
    const struct options_spec spec = {.program = "rejects",
        .summary = "shows the lines that the aggregator could not count, or has them counted again",
        .operands = "[DIR]",
        .more = "DIR is the data directory of the aggregator (default: [aggregator] data_dir of the file).\n",
        .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, run);
}
