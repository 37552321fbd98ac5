#include "stream/publisher.h"

#include "base/url.h"
#include "json/json_fields.h"
#include "http/client/http_pool.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct publisher {
    struct publisher_config config;
    struct publisher_destination destination;
    struct http_call *call;         /* NULL: no request in progress */
    enum publisher_result expected; /* the result of the current request if the request succeeds */
    /* The following members belong to the latest outcome. */
    struct publisher_outcome outcome;
    struct buf body;
    struct json_doc *reply;
    char why[300];
};

static void read_destination(struct publisher *p, const struct http_reply_view *reply)
{
    struct publisher_destination *d = &p->destination;
    struct bytes era = bytes_str(http_reply_header(reply, "X-Millrace-Era"));
    struct bytes time = bytes_str(http_reply_header(reply, "X-Millrace-Time"));
    struct bytes id = json_doc_text(p->reply, "/id");
    stream_place_read(reply, &d->place);
    if (reply->status == 200 && bytes_is_name(id) && id.len < sizeof d->id)
        snprintf(d->id, sizeof d->id, "%.*s", (int)id.len, id.ptr);
    if (!bytes_is_name(era) || era.len >= sizeof d->era || !bytes_to_usec(time, &d->time))
        return;
    p->outcome.is_new_era = !bytes_equal_str(era, d->era);
    snprintf(d->era, sizeof d->era, "%s", era.ptr);
}

static enum publisher_result result_of(const struct publisher *p, struct bytes code, bool has_mark)
{
    int status = p->outcome.status;
    bool asks = p->expected == PUBLISHER_ASKED;
    bool blames_lines = (status == 400 && bytes_equal_str(code, "empty-line")) ||
                        (status == 413 && bytes_equal_str(code, "line-too-large")) ||
                        (status == 413 && bytes_equal_str(code, "too-large"));
    if (status == 200)
        return asks && !has_mark ? PUBLISHER_FAILED : p->expected;
    if (asks)
        return status == 404 && bytes_equal_str(code, "unknown-stream") ? PUBLISHER_ASKED : PUBLISHER_FAILED;
    if (status == 409 && (bytes_equal_str(code, "mark-conflict") || bytes_equal_str(code, "guard-conflict")))
        return PUBLISHER_CONFLICT;
    return blames_lines && p->expected == PUBLISHER_STORED ? PUBLISHER_REFUSED : PUBLISHER_FAILED;
}

static void read_reply(struct publisher *p, const struct http_reply_view *reply)
{
    struct publisher_outcome *o = &p->outcome;
    buf_append_bytes(&p->body, reply->body);
    p->reply = json_doc_parse(buf_bytes(&p->body));
    struct bytes code = json_doc_text(p->reply, "/code"), opening = json_doc_text(p->reply, "/opening");
    struct json_value known = json_doc_at(p->reply, "/known");
    struct json_value duplicate = json_doc_at(p->reply, "/duplicate"); /* only in replies of pubsub */
    o->status = reply->status;
    o->body = buf_bytes(&p->body);
    o->detail = json_doc_text(p->reply, "/detail");
    o->hint = json_doc_text(p->reply, "/hint");
    bool has_mark = json_doc_u64(p->reply, "/mark", &o->mark);
    o->result = result_of(p, code, has_mark);
    o->known = has_mark && known.type == JSON_BOOL && known.v.boolean;
    o->opening = bytes_are_of_name(opening) ? opening : BYTES_NONE;
    bool is_new = p->config.queue ? *http_reply_header(reply, "X-Millrace-Duplicate") == '\0'
                                  : duplicate.type == JSON_BOOL && !duplicate.v.boolean;
    o->is_duplicate = o->result == PUBLISHER_STORED && !is_new;
    o->is_temporary = o->status == 503 || o->status == 429;
    o->may_be_stored = o->status >= 500 && (o->status != 503 || bytes_equal_str(code, "storage-failed"));
    int n = snprintf(p->why, sizeof p->why, "%d", o->status);
    if (code.len > 0 && code.len <= 64)
        n += snprintf(p->why + n, sizeof p->why - (size_t)n, " %.*s", (int)code.len, code.ptr);
    if (o->detail.len > 0)
        snprintf(p->why + n, sizeof p->why - (size_t)n, ": %.*s",
            o->detail.len < 150 ? (int)o->detail.len : 150, o->detail.ptr);
    read_destination(p, reply);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct publisher *p = arg;
    p->call = NULL;
    if (!p->config.on_outcome) /* publisher_free */
        return;
    if (result == HTTP_CLIENT_CANCELLED && http_call_sent_at(reply->call) == 0)
        result = HTTP_CLIENT_REFUSED; /* cancelled while the request waited for a connection */
    else if (result == HTTP_CLIENT_CANCELLED)
        result = HTTP_CLIENT_TIMEOUT;
    buf_clear(&p->body);
    json_doc_free(&p->reply);
    snprintf(p->why, sizeof p->why, "%s", http_client_strerror(result));
    p->outcome = (struct publisher_outcome){.result = PUBLISHER_FAILED,
        .why = p->why,
        .wait = http_pool_wait(p->config.pool),
        .is_temporary = true,
        .may_be_stored = result != HTTP_CLIENT_REFUSED};
    if (result == HTTP_CLIENT_OK)
        read_reply(p, reply);
    p->config.on_outcome(&p->outcome, p->config.arg);
}

static void append_text(struct buf *target, const char *parameter, const char *text)
{
    if (!text || text[0] == '\0')
        return;
    buf_append_str(target, parameter);
    url_encode(bytes_str(text), target);
}

/* True for a run that moves the mark or gives it an opening, false for a statement. */
static bool changes_mark(const struct publisher_run *run)
{
    bool has_opening = run->opening && run->opening[0] != '\0';
    return run->next > run->mark || (run->next == run->mark && has_opening);
}

static void append_marks(struct buf *target, const struct publisher *p, const struct publisher_run *run)
{
    buf_printf(target, "&mark=%" PRIu64, run->mark);
    if (changes_mark(run)) {
        buf_printf(target, "&next=%" PRIu64, run->next);
        append_text(target, "&opening=", run->opening);
    }
    if (run->states)
        buf_printf(target, "&until=%" PRId64 ".%06" PRId64 "&era=%s", run->until / USEC_PER_SEC,
            run->until % USEC_PER_SEC, p->destination.era);
    append_text(target, "&name=", run->name);
    if (run->guard)
        buf_printf(target, "&guard=%s&guard_mark=%" PRIu64, run->guard, run->guard_mark);
}

static void request(struct publisher *p, enum publisher_result expected, const struct publisher_run *run)
{
    bool asks = expected == PUBLISHER_ASKED, has_marks = run->producer != NULL;
    struct buf target = {0};
    assert(!p->call);
    p->expected = expected;
    const char *queue = p->config.queue, *to_queue = asks ? "/producer?queue=" : "/mput?separator=%0A&queue=";
    buf_append_str(&target, queue ? to_queue : asks ? "/producer?stream=" : "/pub?stream=");
    url_encode(bytes_str(queue ? queue : p->config.stream), &target);
    append_text(&target, "&producer=", run->producer);
    if (has_marks && !asks)
        append_marks(&target, p, run);
    buf_append_char(&target, '\0');
    p->call = http_pool_request(http_pool_single(p->config.pool),
        &(struct http_call_spec){.method = asks ? "GET" : "POST",
            .target = target.ptr,
            .content_type = run->lines.len > 0 ? "application/octet-stream" : NULL,
            .body = run->lines,
            .body_is_lent = true,
            .may_resend = has_marks, /* marks make a repeated run harmless */
            .arg = p,
            .on_done = on_done});
    buf_free(&target);
}

void publisher_ask(struct publisher *p, const char *producer)
{
    request(p, PUBLISHER_ASKED, &(struct publisher_run){.producer = producer});
}

void publisher_send(struct publisher *p, const struct publisher_run *run)
{
    assert(run->next > run->mark || run->lines.len == 0);
    request(p, changes_mark(run) ? PUBLISHER_STORED : PUBLISHER_STATED, run);
}

void publisher_cancel(struct publisher *p)
{
    if (p->call)
        http_call_cancel(p->call);
}

const struct publisher_destination *publisher_destination(const struct publisher *p)
{
    return &p->destination;
}

struct publisher *publisher_new(const struct publisher_config *config)
{
    struct publisher *p = mem_zalloc(sizeof *p);
    assert((config->stream != NULL) != (config->queue != NULL));
    p->config = *config;
    return p;
}

void publisher_free(struct publisher **pp)
{
    struct publisher *p = *pp;
    if (!p)
        return;
    p->config.on_outcome = NULL;
    publisher_cancel(p);
    json_doc_free(&p->reply);
    buf_free(&p->body);
    free(p);
    *pp = NULL;
}
