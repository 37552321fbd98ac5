#include "tools/put/put_counted.h"

#include "counts/counters.h"
#include "json/json_fields.h"
#include <inttypes.h>
#include <stdio.h>

#define REPLY_TIMEOUT (2 * USEC_PER_SEC)
#define WAIT_MAX (2 * USEC_PER_SEC)
#define POLL_INTERVAL (50 * USEC_PER_MSEC)

static struct json_doc *ask(const struct pipeline *p, uint64_t *lines, uint64_t *rejected)
{
    uint64_t events = 0, skipped = 0;
    const struct http_call_spec call = {
        .method = "GET", .target = "/stats?format=json", .timeout = REPLY_TIMEOUT};
    struct json_doc *d = pipeline_ask(p, "aggregator", &call, NULL);
    if (!json_doc_u64(d, "/events_counted_total", &events) ||
        !json_doc_u64(d, "/lines_skipped_total", &skipped) ||
        !json_doc_u64(d, "/lines_rejected_total", rejected))
        json_doc_free(&d);
    *lines = events + skipped + *rejected;
    return d;
}

void put_counted_begin(struct put_counted *c, const struct config *config, const char *data_dir)
{
    *c = (struct put_counted){.url = NULL};
    pipeline_open(&c->pipeline, config, data_dir);
    const struct pipeline_daemon *d = &c->pipeline.daemons[peer_named("aggregator") - peers];
    c->url = d->state && !c->pipeline.has_ended ? d->url : NULL;
    struct json_doc *doc = c->url ? ask(&c->pipeline, &c->lines, &c->rejected) : NULL;
    if (!doc)
        c->url = NULL;
    json_doc_free(&doc);
}

/* Fields of counters that none of the aggregator's first events had. */
static void print_absent_fields(const struct json_doc *d)
{
    size_t n = json_doc_length(d, "/absent_fields");
    if (n == 0)
        return;
    fprintf(stderr, "millrace put: warning: no event of %d has the configured field ", COUNTERS_SAMPLE);
    for (size_t i = 0; i < n; i++) {
        struct bytes field = json_doc_text(d, "/absent_fields/%zu", i);
        fprintf(stderr, "%s%.*s", i ? ", " : "", (int)field.len, field.ptr);
    }
    fputs(" (correct the field's name in the configuration, or the sender)\n", stderr);
}

void put_counted_report(struct put_counted *c, uint64_t posted)
{
    usec_t end = clock_monotonic() + WAIT_MAX;
    uint64_t lines = 0, rejected = 0;
    struct json_doc *d = c->url ? ask(&c->pipeline, &lines, &rejected) : NULL;
    while (d && lines < c->lines + posted && lines >= c->lines && clock_monotonic() < end) {
        clock_sleep(POLL_INTERVAL);
        json_doc_free(&d);
        d = ask(&c->pipeline, &lines, &rejected);
    }
    struct bytes reason = json_doc_text(d, "/last_minute/reasons/0/reason"),
                 source = json_doc_text(d, "/last_minute/reasons/0/source"),
                 offset = json_doc_text(d, "/last_minute/reasons/0/offset"),
                 line = json_doc_text(d, "/last_minute/reasons/0/line");
    if (d && rejected > c->rejected)
        fprintf(stderr,
            "millrace put: warning: %" PRIu64 " of %" PRIu64
            " lines could not be counted: %.*s; first at offset %.*s of %.*s: `%.*s` (see millrace "
            "rejects)\n",
            rejected - c->rejected, lines - c->lines, (int)reason.len, reason.ptr, (int)offset.len,
            offset.ptr, (int)source.len, source.ptr, (int)line.len, line.ptr);
    if (d && lines > c->lines)
        print_absent_fields(d);
    json_doc_free(&d);
    pipeline_close(&c->pipeline);
}
