#include "streams/forward/poster.h"

#include "base/log.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

/* Lines [begin, end) of the stream. Batches are in the stream's order; the cursor is the first one's begin. */
struct batch {
    struct poster *poster;
    struct batch *next;
    const struct http_pool_host *host; /* of the last attempt */
    uint64_t refusers;                 /* hosts that refused this single line (http_pool_host_bit) */
    struct buf lines;
    size_t n_lines;
    uint64_t begin, end;
    usec_t due; /* time of the next attempt; until then the batch gathers lines or waits for a retry */
    enum { GATHERING, WAITING, UNDER_WAY, DONE } state;
};

struct poster {
    struct poster_config config;
    struct batch *first, *last;
    size_t n_batches, under_way;
    uint64_t cursor;         /* valid while there is no batch */
    uint64_t refused_in_row; /* lines left out since the last accepted one */
    struct event *timer;
    bool was_full, stopping;
    char trouble[400];
    struct poster_numbers numbers;
};

static void start_waiting(struct poster *p);

/* Inserts a batch behind `before`, or as the first if that is NULL. */
static struct batch *batch_new(struct poster *p, struct batch *before, uint64_t begin)
{
    struct batch *b = mem_zalloc(sizeof *b), **place = before != NULL ? &before->next : &p->first;
    *b = (struct batch){.poster = p,
        .next = *place,
        .begin = begin,
        .end = begin,
        .due = clock_monotonic() + p->config.gather};
    *place = b;
    if (p->last == before)
        p->last = b;
    p->n_batches++;
    return b;
}

static void batch_free(struct batch *b)
{
    buf_free(&b->lines);
    free(b);
}

/* Moves the cursor past the batches that are done. */
static void drop_done(struct poster *p)
{
    while (p->first != NULL && p->first->state == DONE) {
        struct batch *b = p->first;
        p->first = b->next;
        p->last = p->first != NULL ? p->last : NULL;
        p->cursor = b->end;
        p->n_batches--;
        batch_free(b);
    }
}

static bool is_full_batch(const struct poster *p, const struct batch *b)
{
    return b->n_lines >= p->config.batch_lines || b->lines.len >= p->config.batch_bytes;
}

static void set_trouble(struct poster *p, const char *text)
{
    if (strcmp(p->trouble, text) == 0)
        return;
    if (*text != '\0')
        log_warn("cannot deliver", LOG_S("error", text));
    snprintf(p->trouble, sizeof p->trouble, "%s", text);
}

/* The pool takes a failing host down, but not one that refuses or answers 302 or 408. */
#define REFUSED_RETRY (1 * USEC_PER_SEC)

static void failed(struct batch *b, enum http_client_result result, const struct http_reply_view *reply)
{
    struct poster *p = b->poster;
    int status = result == HTTP_CLIENT_OK ? reply->status : 0;
    bool fault = http_pool_is_fault(result, status);
    const char *url = http_pool_host_url(b->host);
    char why[180], text[sizeof p->trouble];
    b->state = WAITING;
    b->due = fault ? 0 : clock_monotonic() + REFUSED_RETRY;
    p->numbers.failures++;
    http_pool_describe(reply, why, sizeof why);
    if (result == HTTP_CLIENT_OK && !fault)
        snprintf(text, sizeof text, "%.200s %s", url, why);
    else if (result == HTTP_CLIENT_OK)
        snprintf(text, sizeof text, "%.200s answered %d", url, status);
    else
        snprintf(text, sizeof text, "%.200s: %s", url, http_client_strerror(result));
    set_trouble(p, text);
}

static void wait_refused(struct batch *b, const char *trouble)
{
    b->state = WAITING;
    b->due = clock_monotonic() + REFUSED_RETRY;
    b->refusers = 0;
    set_trouble(b->poster, trouble);
}

/* Without a limit, a mistyped address that answers 400 would make the poster leave out the whole stream. */
static bool refuses_all(struct poster *p)
{
    p->numbers.refuses_all = p->config.poison_limit > 0 && p->refused_in_row >= p->config.poison_limit;
    return p->numbers.refuses_all;
}

static void refused(struct batch *b, const struct http_reply_view *reply)
{
    struct poster *p = b->poster;
    char why[180], text[sizeof p->trouble];
    p->numbers.failures++;
    b->state = WAITING;
    b->due = 0;
    if (b->n_lines > 1) { /* halve it: the second half becomes a batch behind the first */
        size_t keep = b->n_lines / 2;
        const char *at = b->lines.ptr;
        for (size_t i = 0; i < keep; i++)
            at = (const char *)memchr(at, '\n', (size_t)(b->lines.ptr + b->lines.len - at)) + 1;
        size_t length = (size_t)(at - b->lines.ptr);
        struct batch *rest = batch_new(p, b, b->begin + length);
        rest->end = b->end;
        rest->n_lines = b->n_lines - keep;
        rest->state = WAITING;
        rest->due = 0;
        buf_append(&rest->lines, at, b->lines.len - length);
        b->end = rest->begin;
        b->n_lines = keep;
        b->lines.len = length;
        return;
    }
    b->refusers |= http_pool_host_bit(b->host);
    if (http_pool_next_except(p->config.pool, b->refusers) != NULL)
        return; /* another host may accept the line, for example with a larger limit */
    http_pool_describe(reply, why, sizeof why);
    if (refuses_all(p)) {
        snprintf(text, sizeof text, "%.80s refuses every line (poison_limit): %s",
            http_pool_host_url(b->host), why);
        wait_refused(b, text);
        return;
    }
    if (p->config.on_refused != NULL && !p->config.on_refused(buf_bytes(&b->lines), p->config.arg)) {
        wait_refused(b, "cannot store a refused line");
        return;
    }
    log_warn("line left out: the destination refuses it", LOG_S("destination", http_pool_host_url(b->host)),
        LOG_I("status", reply->status), LOG_U("from", b->begin), LOG_U("to", b->end), LOG_S("error", why));
    set_trouble(p, "");
    p->numbers.refused++;
    p->refused_in_row++;
    b->state = DONE;
}

static void answered(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct batch *b = arg;
    struct poster *p = b->poster;
    int status = result == HTTP_CLIENT_OK ? reply->status : 0;
    p->under_way--;
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    if (status >= 200 && status < 300) {
        b->state = DONE;
        p->numbers.batches++;
        p->numbers.lines += b->n_lines;
        p->numbers.refuses_all = false;
        p->refused_in_row = 0;
        set_trouble(p, "");
        if (p->config.on_delivered != NULL)
            p->config.on_delivered(reply, p->config.arg);
    } else if (http_pool_is_poison(status) && p->config.skip_refused) {
        refused(b, reply);
    } else {
        failed(b, result, reply);
    }
    drop_done(p);
    start_waiting(p);
    p->config.on_change(p->config.arg);
    if (p->was_full && !poster_is_full(p)) {
        p->was_full = false;
        p->config.on_room(p->config.arg);
    }
}

static void send_batch(struct batch *b, struct http_pool_host *host)
{
    struct poster *p = b->poster;
    struct buf target = {0};
    http_pool_fill_target(host, bytes_of(b->lines.ptr, b->lines.len - 1), &target); /* without the LF */
    b->host = host;
    b->state = UNDER_WAY;
    p->under_way++;
    http_pool_request(host, &(struct http_call_spec){.method = p->config.get ? "GET" : "POST",
                                .target = target.ptr,
                                .content_type = p->config.get ? NULL : p->config.content_type,
                                .body = p->config.get ? BYTES_NONE : buf_bytes(&b->lines),
                                .arg = b,
                                .on_done = answered});
    buf_free(&target);
}

/* Sends the batches that are due. A batch that waits for a retry occupies one of the `parallel` slots, so with one slot no other batch
 * overtakes it. */
static void start_waiting(struct poster *p)
{
    usec_t now = clock_monotonic(), wake = INT64_MAX;
    size_t slots = p->stopping ? 0 : p->config.parallel - p->under_way;
    for (struct batch *b = p->first; b != NULL && slots > 0; b = b->next) {
        if (b->state == UNDER_WAY || b->state == DONE)
            continue;
        struct http_pool_host *host = NULL;
        bool early = b->due > now && !(b->state == GATHERING && is_full_batch(p, b));
        if (!early)
            host = http_pool_next_except(p->config.pool, b->refusers);
        if (!early &&
            host == NULL) /* while all others are down, a host that refused the line is asked again */
            host = http_pool_next(p->config.pool);
        usec_t due = early ? b->due : now + http_pool_wait(p->config.pool) + USEC_PER_MSEC;
        if (host != NULL)
            send_batch(b, host);
        else if (due < wake)
            wake = due;
        slots--;
    }
    if (wake == INT64_MAX)
        return;
    usec_t delay = wake > now ? wake - now : 0;
    const struct timeval tv = {(time_t)(delay / USEC_PER_SEC), (suseconds_t)(delay % USEC_PER_SEC)};
    evtimer_add(p->timer, &tv);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    start_waiting(arg);
}

void poster_take(struct poster *p, struct bytes lines, uint64_t end)
{
    uint64_t at = end - lines.len;
    while (lines.len > 0) {
        struct batch *b = p->last;
        size_t bytes = 0;
        if (b == NULL || b->state != GATHERING || is_full_batch(p, b))
            b = batch_new(p, p->last, at);
        while (bytes < lines.len && b->n_lines < p->config.batch_lines &&
               b->lines.len + bytes < p->config.batch_bytes) {
            const char *lf = memchr(lines.ptr + bytes, '\n', lines.len - bytes);
            bytes = (size_t)(lf - lines.ptr) + 1;
            b->n_lines++;
        }
        buf_append(&b->lines, lines.ptr, bytes);
        at += bytes;
        b->end = at;
        lines = bytes_of(lines.ptr + bytes, lines.len - bytes);
    }
    start_waiting(p);
    p->was_full = p->was_full || poster_is_full(p);
}

void poster_pass_over(struct poster *p, uint64_t end)
{
    struct batch *b = batch_new(p, p->last, end);
    b->state = DONE;
    drop_done(p);
}

bool poster_is_full(const struct poster *p)
{
    return p->n_batches > p->config.parallel;
}

void poster_stop(struct poster *p)
{
    p->stopping = true;
}

bool poster_is_idle(const struct poster *p)
{
    return p->under_way == 0;
}

uint64_t poster_cursor(const struct poster *p)
{
    return p->first != NULL ? p->first->begin : p->cursor;
}

const char *poster_trouble(const struct poster *p)
{
    return p->trouble[0] != '\0' ? p->trouble : NULL;
}

struct poster_numbers poster_numbers(const struct poster *p)
{
    return p->numbers;
}

struct poster *poster_new(const struct poster_config *config, uint64_t cursor)
{
    struct poster *p = mem_zalloc(sizeof *p);
    p->config = *config;
    p->cursor = cursor;
    p->timer = evtimer_new(config->base, on_timer, p);
    return p;
}

void poster_free(struct poster **pp)
{
    struct poster *p = *pp;
    if (p == NULL)
        return;
    event_free(p->timer);
    while (p->first != NULL) {
        struct batch *b = p->first;
        p->first = b->next;
        batch_free(b);
    }
    free(p);
    *pp = NULL;
}
