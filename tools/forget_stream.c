#include "tools/forget_stream.h"

#include "base/erased_line.h"
#include "base/progress.h"
#include "json/json_fields.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <time.h>

#define LINE_MAX_BYTES ((size_t)64 << 20)
#define BATCH_BYTES ((size_t)4 << 20) /* less than pubsub's ERASE_BODY_MAX */
#define POLL (50 * USEC_PER_MSEC)
#define TIMEOUT (60 * USEC_PER_SEC)

struct search {
    struct forget_stream *f;
    struct event_base *base;
    struct stream_client *client;
    struct progress progress;
    uint64_t first; /* first offset that was read */
    bool ended;
    int status;
};

static int fail(struct forget_stream *f, const char *what, struct bytes why)
{
    return error_set(&f->error, EX_TEMPFAIL, "stream %s: %s%s%.*s", f->stream, what, why.len ? ": " : "",
        (int)why.len, why.len ? why.ptr : "");
}

static void end_search(struct search *s, int status)
{
    s->ended = true;
    s->status = status;
    stream_client_stop(s->client);
    event_base_loopbreak(s->base);
}

static void add_line(struct search *s, uint64_t offset, size_t length)
{
    struct forget_stream *f = s->f;
    struct forget_batch *b = f->n_batches > 0 ? &f->batches[f->n_batches - 1] : NULL;
    if (!b || b->ranges.len >= BATCH_BYTES) {
        b = ARRAY_ADD(f->batches, f->n_batches, f->room_batches);
        *b = (struct forget_batch){.opening = ""};
    }
    buf_printf(&b->ranges, "%" PRIu64 " %zu\n", offset, length);
    snprintf(b->opening, sizeof b->opening, "%s", stream_client_cursor(s->client)->opening);
    f->erased++;
}

static void on_lines(struct bytes lines, void *arg)
{
    struct search *s = arg;
    struct forget_stream *f = s->f;
    uint64_t at = stream_client_cursor(s->client)->offset - lines.len;
    while (lines.len > 0 && !s->ended) {
        size_t n = (size_t)((const char *)memchr(lines.ptr, '\n', lines.len) - lines.ptr) + 1;
        enum forget_verdict v = forget_match_line(f->match, bytes_of(lines.ptr, n - 1));
        bool erases_contained = v == FORGET_CONTAINS && f->contains && n > ERASED_LINE_MIN;
        f->read++;
        f->contained += v == FORGET_CONTAINS;
        f->erased_contained += erases_contained;
        if (v == FORGET_YES || erases_contained)
            add_line(s, at, n);
        at += n;
        lines = bytes_of(lines.ptr + n, lines.len - n);
        if (at >= f->end)
            end_search(s, EX_OK);
    }
    progress_show(&s->progress, f->stream, at - s->first, f->end > s->first ? f->end - s->first : 0, f->read,
        s->ended, clock_monotonic());
}

static void on_begin(void *arg)
{
    struct search *s = arg;
    s->first = stream_client_cursor(s->client)->offset;
}

static void on_change(void *arg)
{
    struct search *s = arg;
    const char *trouble = stream_client_trouble(s->client, NULL);
    if (trouble && !s->ended)
        end_search(s, fail(s->f, "cannot be read", bytes_str(trouble)));
    else if (!s->ended && stream_client_is_caught_up(s->client))
        end_search(s, EX_OK);
}

/* Returns the reply of pubsub, or NULL with the error, which begins with `what`. */
static struct json_doc *ask(
    struct forget_stream *f, const char *method, const char *target, struct bytes body, const char *what)
{
    struct json_doc *doc = pipeline_ask(f->pipeline, "pubsub",
        &(struct http_call_spec){.method = method, .target = target, .body = body, .timeout = TIMEOUT},
        &f->error);
    if (!doc)
        fail(f, what, bytes_str(f->error.text));
    return doc;
}

/* Gets the current end of the stream, where the search ends even if publishes continue. */
static int find_end(struct forget_stream *f)
{
    char target[128];
    snprintf(target, sizeof target, "/producers?stream=%s&stating=1", f->stream);
    struct json_doc *doc = ask(f, "GET", target, BYTES_NONE, "pubsub does not answer");
    struct bytes id = json_doc_text(doc, "/id");
    bool found = doc && bytes_to_u64(json_doc_text(doc, "/end"), &f->end) && id.len < sizeof f->id;
    snprintf(f->id, sizeof f->id, "%.*s", (int)id.len, id.len ? id.ptr : "");
    json_doc_free(&doc);
    return found ? EX_OK : EX_TEMPFAIL;
}

int forget_stream_search(struct forget_stream *f)
{
    struct search s = {.f = f, .status = find_end(f)};
    progress_begin(&s.progress, "lines", false, clock_monotonic());
    if (s.status != EX_OK || f->end == 0)
        return s.status;
    struct error error;
    char *token;
    if (pipeline_token(f->pipeline, "pubsub", &token, &error) != 0)
        return tool_fail(EX_CONFIG, "%s", error.text);
    s.base = event_base_new();
    struct http_client *client = http_client_new(&(struct http_client_config){.base = s.base,
        .url = pipeline_url(f->pipeline, "pubsub"),
        .max_connections = 2,
        .auth_token = token});
    s.client = stream_client_new(&(struct stream_client_config){.base = s.base,
        .pubsub = client,
        .stream = f->stream,
        .begin = "earliest",
        .max_line = LINE_MAX_BYTES,
        .on_begin = on_begin,
        .on_lines = on_lines,
        .on_change = on_change,
        .arg = &s});
    event_base_dispatch(s.base);
    stream_client_free(&s.client);
    progress_erase();
    http_client_free(&client);
    event_base_free(s.base);
    free(token);
    return s.status;
}

/* Polls the state of the erasure until the erasure has ended. */
static int await(struct forget_stream *f, const char *target)
{
    struct progress progress;
    progress_begin(&progress, "bytes", false, clock_monotonic());
    for (;;) {
        int status = -1;
        struct json_doc *doc =
            ask(f, "GET", target, BYTES_NONE, "pubsub does not answer; repeat the command");
        struct bytes state = json_doc_text(doc, "/state");
        uint64_t done = json_doc_number(doc, "/examined_bytes"), total = json_doc_number(doc, "/total_bytes");
        if (!doc)
            status = EX_TEMPFAIL;
        else if (bytes_equal_str(state, "failed"))
            status = fail(f, "not erased", json_doc_text(doc, "/error"));
        else if (bytes_equal_str(state, "done"))
            status = EX_OK;
        else if (!bytes_equal_str(state, "running"))
            status = fail(f, "pubsub was restarted; repeat the command", BYTES_NONE);
        json_doc_free(&doc);
        if (status >= 0) {
            progress_erase();
            return status;
        }
        progress_show(&progress, f->stream, done, total, done, false, clock_monotonic());
        nanosleep(&(struct timespec){.tv_nsec = POLL * 1000}, NULL);
    }
}

static int erase_batch(struct forget_stream *f, const struct forget_batch *b)
{
    char target[224];
    snprintf(target, sizeof target, "/erase?stream=%s&id=%s%s%s", f->stream, f->id, b->opening[0] ? "." : "",
        b->opening);
    struct json_doc *doc = ask(f, "POST", target, buf_bytes(&b->ranges), "not erased");
    bool begun = doc != NULL;
    json_doc_free(&doc);
    return begun ? await(f, target) : EX_TEMPFAIL;
}

int forget_stream_erase(struct forget_stream *f)
{
    static const struct forget_batch none;
    int status = EX_OK;
    if (f->end == 0)
        return EX_OK;
    for (size_t i = 0; i < f->n_batches && status == EX_OK; i++)
        status = erase_batch(f, &f->batches[i]);
    if (f->n_batches == 0)
        status = erase_batch(f, &none);
    return status;
}

void forget_stream_free(struct forget_stream *f)
{
    for (size_t i = 0; i < f->n_batches; i++)
        buf_free(&f->batches[i].ranges);
    free(f->batches);
}
