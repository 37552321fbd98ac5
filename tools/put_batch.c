#include "tools/put_batch.h"

#include "http/client/http_pool.h"
#include "counts/json_fields.h"
#include "base/progress.h"
#include "base/url.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define NO_ADDRESS_WAIT                                                                                      \
    (200 * USEC_PER_MSEC)  /* delay if there is no address: the pipeline may still be starting */
#define WATCH_EVERY 100000 /* microseconds */

/* The offsets of a line in the input. */
struct place {
    uint64_t start, end;
};

struct put_batch {
    struct put_batch_config config;
    struct event_base *base;
    struct http_pool *pool;  /* one connection; NULL: none yet, or an invalid URL */
    char *url;               /* the pool's */
    struct buf body, places; /* the lines, and a struct place of each */
    size_t lines,
        lines_max;       /* at most lines_max lines are sent in a request; lowered to find a refused line */
    uint64_t mark, next; /* offsets of the batch: its first byte, and the byte after its last */
    struct put_batch_numbers numbers;
};

struct reply {
    struct put_batch *batch;
    struct http_call *call; /* NULL: done */
    usec_t cancel_at;       /* after *stopped is set: when to cancel the request; else 0 */
    enum http_client_result result;
    int status;
    bool duplicate;
    struct buf body;
};

static void on_done(enum http_client_result result, const struct http_reply_view *view, void *arg)
{
    struct reply *r = arg;
    r->call = NULL;
    r->result = result;
    if (result == HTTP_CLIENT_OK) {
        r->status = view->status;
        r->duplicate = *http_reply_header(view, "X-Millrace-Duplicate") != '\0';
        buf_append_bytes(&r->body, view->body);
    }
    event_base_loopbreak(r->batch->base);
}

/* Cancels a request without a reply soon after *stopped is set. */
static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct reply *r = arg;
    usec_t now = clock_monotonic();
    (void)fd, (void)what;
    if (r->call == NULL || !*r->batch->config.stopped)
        return;
    if (r->cancel_at == 0)
        r->cancel_at = now + PUT_BATCH_STOP_TIMEOUT;
    else if (now >= r->cancel_at)
        http_call_cancel(r->call);
}

/* Makes one request. Without a valid URL, r->result is HTTP_CLIENT_REFUSED. */
static void call(
    struct put_batch *b, const char *method, const struct buf *target, struct bytes body, struct reply *r)
{
    const char *url = b->config.url(b->config.arg);
    char why[200];
    *r = (struct reply){.batch = b, .result = HTTP_CLIENT_REFUSED};
    if (b->pool == NULL || strcmp(b->url, url) != 0) {
        http_pool_free(&b->pool);
        free(b->url);
        b->url = mem_strdup(url);
        b->pool = http_pool_new(
            &(struct http_pool_config){
                .base = b->base, .url = url, .max_connections = 1, .auth_token = b->config.auth_token},
            why, sizeof why);
    }
    if (b->pool == NULL)
        return;
    r->call = http_pool_request(http_pool_single(b->pool), &(struct http_call_spec){.method = method,
                                                               .target = target->ptr,
                                                               .content_type = "application/octet-stream",
                                                               .body = body,
                                                               .arg = r,
                                                               .on_done = on_done});
    const struct timeval every = {0, WATCH_EVERY};
    struct event *watch = event_new(b->base, -1, EV_PERSIST, on_watch, r);
    event_add(watch, &every);
    event_base_dispatch(b->base);
    event_free(watch);
}

static void append_name(struct buf *target, const char *parameter, const char *name)
{
    buf_append_str(target, parameter);
    url_encode(bytes_str(name), target);
}

static const struct place *places(const struct put_batch *b)
{
    return (const struct place *)(const void *)b->places.ptr;
}

static bool mark_in(struct bytes body, uint64_t *mark)
{
    struct json_doc *doc = json_doc_parse(body);
    bool ok = json_doc_u64(doc, "/mark", mark);
    json_doc_free(&doc);
    return ok;
}

struct tries {
    usec_t end;
    bool reported;
};

static struct tries tries_of(const struct put_batch *b)
{
    return (struct tries){b->config.timeout > 0 ? clock_monotonic() + b->config.timeout : INT64_MAX, false};
}

/* Prints the queue's reply, or why there is none. */
static void print_reply(const struct put_batch *b, const struct reply *r)
{
    progress_leave();
    if (r->status == 0) {
        fprintf(stderr, "millrace put: %s: %s\n", b->url, http_client_strerror(r->result));
        return;
    }
    struct json_doc *doc = json_doc_parse(buf_bytes(&r->body));
    struct bytes text = json_doc_text(doc, "/detail"), hint = json_doc_text(doc, "/hint");
    if (!text.ptr)
        text = bytes_trim(buf_bytes(&r->body));
    fprintf(stderr, "millrace put: the queue answered %d: %.*s", r->status, (int)text.len,
        text.ptr ? text.ptr : "");
    if (hint.ptr)
        fprintf(stderr, " (%.*s)", (int)hint.len, hint.ptr);
    fputc('\n', stderr);
    json_doc_free(&doc);
}

/* Waits before another attempt, at most until the timeout, so that the last attempt is made then. Returns false if the
 * timeout has passed. */
static bool try_again(const struct put_batch *b, struct tries *t, const struct reply *r)
{
    usec_t wait = b->pool != NULL ? http_pool_wait(b->pool) : NO_ADDRESS_WAIT;
    usec_t left = t->end - clock_monotonic();
    if (*b->config.stopped || left <= 0)
        return false;
    if (!t->reported) {
        print_reply(b, r);
        fprintf(stderr, "millrace put: retrying\n");
        t->reported = true;
    }
    clock_sleep(wait < left ? wait : left);
    return !*b->config.stopped;
}

/* Prints why the put ends, and how much is stored. `why` is NULL if the put was stopped or has reached its timeout. */
static int give_up(const struct put_batch *b, const struct reply *r, const char *why)
{
    if (why == NULL)
        why = *b->config.stopped ? "stopped" : "no progress within --timeout";
    print_reply(b, r);
    fprintf(stderr,
        "millrace put: %s; the first %" PRIu64 " bytes are stored (%" PRIu64 " events by this run)\n", why,
        b->mark, b->numbers.posted);
    return r->status != 0 && r->status != 503 && r->status != 429 ? EX_DATAERR : EX_TEMPFAIL;
}

int put_batch_ask_mark(struct put_batch *b, uint64_t *mark)
{
    struct tries tries = tries_of(b);
    struct reply r;
    int status = EX_TEMPFAIL;
    *mark = 0;
    if (b->config.producer == NULL)
        return 0;
    struct buf target = {0};
    append_name(&target, "/producer?queue=", b->config.queue);
    append_name(&target, "&producer=", b->config.producer);
    buf_append_char(&target, '\0');
    for (bool again = true; again;) {
        call(b, "GET", &target, BYTES_NONE, &r);
        bool known = r.result == HTTP_CLIENT_OK && r.status == 200 && mark_in(buf_bytes(&r.body), mark);
        bool lasting = r.result == HTTP_CLIENT_OK && !known && r.status != 503 && r.status != 429;
        again = !known && !lasting && try_again(b, &tries, &r);
        if (!again)
            status = known ? 0 : give_up(b, &r, lasting ? "refused" : NULL);
        buf_free(&r.body);
    }
    buf_free(&target);
    return status;
}

void put_batch_begin_at(struct put_batch *b, uint64_t offset)
{
    b->mark = b->next = offset;
}

void put_batch_add(struct put_batch *b, struct bytes line, uint64_t end)
{
    struct place place = {b->next, end};
    b->next = end;
    if (line.len > 0 && line.ptr[line.len - 1] == '\n')
        line.len--;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (line.len == 0)
        return;
    buf_append_bytes(&b->body, line);
    buf_append_char(&b->body, '\n');
    buf_append(&b->places, &place, sizeof place);
    b->lines++;
}

/* Drops the first n lines, which have `bytes` bytes. */
static void drop(struct put_batch *b, size_t n, size_t bytes)
{
    size_t of_places = n * sizeof(struct place);
    b->body.len -= bytes;
    memmove(b->body.ptr, b->body.ptr + bytes, b->body.len);
    b->places.len -= of_places;
    memmove(b->places.ptr, b->places.ptr + of_places, b->places.len);
    b->lines -= n;
}

/* Whether the lines can be sent again without the risk of storing them twice. */
static bool may_send_again(const struct put_batch *b, const struct reply *r)
{
    static const char failed[] = "\"storage-failed\"";
    bool has_marks = b->config.producer != NULL;
    if (r->result != HTTP_CLIENT_OK)
        return has_marks || r->result == HTTP_CLIENT_REFUSED;
    /* A queue that answered storage-failed may have the lines after its restart. */
    bool unsure =
        r->body.len > 0 && memmem(r->body.ptr, r->body.len, failed, strlen(failed)) != NULL && !has_marks;
    return !unsure && (r->status == 503 || r->status == 429);
}

/* Makes one attempt to store a part. 0: continue, whether the part is stored or not. */
static int send_part(struct put_batch *b, struct tries *tries)
{
    struct bytes body = buf_bytes(&b->body);
    size_t lines = b->lines;
    uint64_t mark, next = b->next;
    struct buf target = {0};
    struct reply r;
    int status = 0;
    bool again = false;
    if (lines > b->lines_max) {
        lines = b->lines_max;
        next = places(b)[lines - 1].end;
        const char *end = body.ptr;
        for (size_t i = 0; i < lines; i++)
            end = (const char *)memchr(end, '\n', (size_t)(body.ptr + body.len - end)) + 1;
        body.len = (size_t)(end - body.ptr);
    }
    append_name(&target, "/mput?separator=%0A&queue=", b->config.queue);
    if (b->config.producer != NULL) {
        append_name(&target, "&producer=", b->config.producer);
        buf_printf(&target, "&mark=%" PRIu64 "&next=%" PRIu64, b->mark, next);
    }
    buf_append_char(&target, '\0');
    call(b, "POST", &target, body, &r);
    buf_free(&target);
    bool too_large = r.result == HTTP_CLIENT_OK && r.status == 413;
    if (r.result == HTTP_CLIENT_OK && r.status == 200) {
        *(r.duplicate ? &b->numbers.duplicates : &b->numbers.posted) += lines;
        drop(b, lines, body.len);
        b->mark = next;
        b->lines_max *= b->lines_max <= b->lines ? 2 : 1;
    } else if (b->config.producer != NULL && r.status == 409 && mark_in(buf_bytes(&r.body), &mark) &&
               mark > b->mark && mark < next) {
        /* If the mark is inside the batch, drop the lines that end at or before the mark. */
        size_t n = 0;
        const char *from = b->body.ptr, *end = b->body.ptr + b->body.len;
        while (n < b->lines && places(b)[n].end <= mark) {
            from = (const char *)memchr(from, '\n', (size_t)(end - from)) + 1;
            n++;
        }
        drop(b, n, (size_t)(from - b->body.ptr));
        b->numbers.duplicates += n;
        b->mark = mark;
    } else if (too_large && lines > 1) {
        b->lines_max = lines / 2;
    } else if (too_large && lines == 1) {
        /* The line is not sent. The next request moves the mark past it. */
        status = b->config.refused(&(struct put_batch_refusal){.line = bytes_of(body.ptr, body.len - 1),
                                       .why = buf_bytes(&r.body),
                                       .start = places(b)->start},
            b->config.arg);
        if (status == 0) {
            b->numbers.refused++;
            drop(b, 1, body.len);
        }
    } else if (may_send_again(b, &r)) {
        again = try_again(b, tries, &r);
        status = again ? 0 : give_up(b, &r, NULL);
    } else {
        status = give_up(b, &r,
            r.status != 0
                ? "refused"
                : "the last batch may or may not be stored; use --producer to make a put repeatable");
    }
    if (!again)
        *tries = tries_of(b);
    buf_free(&r.body);
    return status;
}

int put_batch_flush(struct put_batch *b)
{
    struct tries tries = tries_of(b);
    int status = 0;
    b->lines_max = SIZE_MAX / 2;
    while (status == 0 && (b->lines > 0 || (b->config.producer != NULL && b->next > b->mark)))
        status = send_part(b, &tries);
    if (status != 0)
        return status;
    b->mark = b->next;
    b->lines = 0;
    buf_clear(&b->body);
    buf_clear(&b->places);
    return 0;
}

size_t put_batch_lines(const struct put_batch *b)
{
    return b->lines;
}

size_t put_batch_bytes(const struct put_batch *b)
{
    return b->body.len;
}

struct put_batch_numbers put_batch_numbers(const struct put_batch *b)
{
    return b->numbers;
}

struct put_batch *put_batch_new(const struct put_batch_config *config)
{
    struct put_batch *b = mem_zalloc(sizeof *b);
    b->config = *config;
    b->base = event_base_new();
    return b;
}

void put_batch_free(struct put_batch **bp)
{
    struct put_batch *b = *bp;
    if (b == NULL)
        return;
    http_pool_free(&b->pool);
    event_base_free(b->base);
    free(b->url);
    buf_free(&b->body);
    buf_free(&b->places);
    free(b);
    *bp = NULL;
}
