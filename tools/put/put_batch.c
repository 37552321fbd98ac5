#include "tools/put/put_batch.h"

#include "base/amount.h"
#include "http/client/http_pool.h"
#include "stream/publisher.h"
#include "tools/tool.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

/* The begin and the end of a line in the input, and the checksum of the input up to each of them. */
struct place {
    uint64_t start, end, start_sum, sum;
};

#define ATTEMPT_MIN                                                                                          \
    (500 * USEC_PER_MSEC) /* minimum time of an attempt, also of the last attempt at the timeout */

struct put_batch {
    struct put_batch_config config;
    struct event_base *base;
    struct event *watch;
    struct http_pool *pool; /* one connection; NULL: none yet, or an invalid URL */
    struct publisher *queue;
    char *url;                               /* address of the pool */
    const struct publisher_outcome *outcome; /* outcome of the request; NULL: the request is in progress */
    usec_t cancel_at;  /* after *stopped is set: time to cancel the request; otherwise 0 */
    struct buf places; /* a struct place of each line */
    struct put_batch_state s;
    size_t lines_max;         /* maximum lines of a request; lowered to find a refused line */
    uint64_t next;            /* offset of the byte after the batch */
    uint64_t next_sum, begun; /* begun: offset at which the batch began, at or after the mark */
    usec_t try_until;         /* end of the attempts, unless one makes progress */
    bool has_reported;        /* an attempt without progress was reported */
};

static void on_outcome(const struct publisher_outcome *outcome, void *arg)
{
    struct put_batch *b = arg;
    b->outcome = outcome;
    event_base_loopbreak(b->base);
}

/* Cancels a request without a reply at its deadline, or soon after *stopped is set. */
static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct put_batch *b = arg;
    usec_t now = clock_monotonic();
    (void)fd, (void)what;
    if (*b->config.stopped && b->cancel_at - now > PUT_BATCH_STOP_TIMEOUT)
        b->cancel_at = now + PUT_BATCH_STOP_TIMEOUT;
    else if (now >= b->cancel_at)
        publisher_cancel(b->queue);
}

/* Returns false if there is no valid URL. */
static bool use_address(struct put_batch *b)
{
    const char *url = b->config.url(b->config.arg);
    char why[200];
    if (b->pool && url && strcmp(b->url, url) == 0)
        return true;
    publisher_free(&b->queue);
    http_pool_free(&b->pool);
    free(b->url);
    b->url = url ? mem_strdup(url) : NULL;
    b->pool =
        !url ? NULL
             : http_pool_new(
                   &(struct http_pool_config){
                       .base = b->base, .url = url, .max_connections = 1, .auth_token = b->config.auth_token},
                   why, sizeof why);
    if (!b->pool)
        return false;
    b->queue = publisher_new(&(struct publisher_config){
        .pool = b->pool, .queue = b->config.queue, .on_outcome = on_outcome, .arg = b});
    return true;
}

/* Makes one request, for the mark if `run` is NULL. Returns its outcome, which is valid until the next call. */
static const struct publisher_outcome *call(struct put_batch *b, const struct publisher_run *run)
{
    static const struct publisher_outcome no_address = {.result = PUBLISHER_FAILED,
        .why = "no connection",
        .is_temporary = true,
        .wait = 200 * USEC_PER_MSEC}; /* the pipeline may still be starting */
    if (!use_address(b))
        return &no_address;
    b->outcome = NULL;
    usec_t least = clock_monotonic() + ATTEMPT_MIN;
    b->cancel_at = b->try_until > least ? b->try_until : least;
    if (run)
        publisher_send(b->queue, run);
    else
        publisher_ask(b->queue, b->config.producer);
    event_base_dispatch(b->base);
    return b->outcome;
}

static const struct place *places(const struct put_batch *b)
{
    return (const struct place *)(const void *)b->places.ptr;
}

static void begin_tries(struct put_batch *b)
{
    b->try_until = b->config.timeout > 0 ? clock_monotonic() + b->config.timeout : INT64_MAX;
    b->has_reported = false;
}

/* Prints the queue's reply, or the reason why no reply came. */
static void print_reply(const struct put_batch *b, const struct publisher_outcome *o)
{
    struct bytes text = o->detail.ptr ? o->detail : bytes_trim(o->body);
    char *hint = o->hint.ptr ? mem_printf(" (%.*s)", (int)o->hint.len, o->hint.ptr) : mem_strdup("");
    if (o->status == 0)
        tool_fail(0, "%s: %s%s", b->url ? b->url : "simplequeue", o->why, hint);
    else
        tool_fail(
            0, "the queue answered %d: %.*s%s", o->status, (int)text.len, text.ptr ? text.ptr : "", hint);
    free(hint);
}

/* Waits before another attempt, at most until the timeout, at which the last attempt is made. Returns false if the
 * timeout has passed. */
static bool try_again(struct put_batch *b, const struct publisher_outcome *o)
{
    usec_t left = b->try_until - clock_monotonic();
    if (*b->config.stopped || left <= 0)
        return false;
    if (!b->has_reported) {
        print_reply(b, o);
        tool_fail(0, "retrying%s", b->config.advice);
        b->has_reported = true;
    }
    clock_sleep(o->wait < left ? o->wait : left);
    return !*b->config.stopped;
}

/* Prints the reason why the put ends, and the number of stored events. `why` is NULL if the put was stopped or has
 * reached its timeout. */
static int give_up(const struct put_batch *b, const struct publisher_outcome *o, const char *why)
{
    if (!why)
        why = *b->config.stopped ? "stopped" : "no progress within --timeout";
    print_reply(b, o);
    return tool_fail(o->is_temporary ? EX_TEMPFAIL : EX_DATAERR, "%s; %" PRIu64 " %s stored", why,
        b->s.numbers.posted, plural(b->s.numbers.posted, "event of this run is", "events of this run are"));
}

static int ask_mark(struct put_batch *b, uint64_t *mark, struct bytes *tag)
{
    const struct publisher_outcome *o;
    do
        o = call(b, NULL);
    while (o->result == PUBLISHER_FAILED && o->is_temporary && try_again(b, o));
    if (o->result != PUBLISHER_ASKED)
        return give_up(b, o, o->is_temporary ? NULL : "refused");
    *mark = o->mark;
    *tag = o->opening;
    return 0;
}

int put_batch_ask_mark(struct put_batch *b, uint64_t *mark, struct bytes *tag)
{
    *mark = 0;
    *tag = BYTES_NONE;
    if (!b->config.producer)
        return 0;
    begin_tries(b);
    return ask_mark(b, mark, tag);
}

void put_batch_begin_at(struct put_batch *b, uint64_t mark, uint64_t offset)
{
    b->s.mark = mark;
    b->next = b->begun = offset;
}

void put_batch_add(struct put_batch *b, struct bytes line, uint64_t end, uint64_t sum)
{
    struct place place = {b->next, end, b->next_sum, sum};
    b->next = end;
    b->next_sum = sum;
    if (line.len > 0 && line.ptr[line.len - 1] == '\n')
        line.len--;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (line.len == 0)
        return;
    buf_append_bytes(&b->s.body, line);
    buf_append_char(&b->s.body, '\n');
    buf_append(&b->places, &place, sizeof place);
    b->s.lines++;
}

/* Drops the first n lines, which have `bytes` bytes. */
static void drop(struct put_batch *b, size_t n, size_t bytes)
{
    size_t of_places = n * sizeof(struct place);
    if (n == 0)
        return; /* the buffers of a batch without lines may be NULL */
    b->s.body.len -= bytes;
    memmove(b->s.body.ptr, b->s.body.ptr + bytes, b->s.body.len);
    b->places.len -= of_places;
    memmove(b->places.ptr, b->places.ptr + of_places, b->places.len);
    b->s.lines -= n;
}

/* Returns the bytes of the first n lines. */
static size_t bytes_of_lines(const struct put_batch *b, size_t n)
{
    const char *from = b->s.body.ptr, *end = b->s.body.ptr + b->s.body.len;
    for (size_t i = 0; i < n; i++)
        from = (const char *)memchr(from, '\n', (size_t)(end - from)) + 1;
    return (size_t)(from - b->s.body.ptr);
}

/* Returns true if the queue's mark is after the first *n lines of the batch, or after the batch. Sets *n and the
 * checksum of the input up to the mark. A mark after the batch is accepted only if its tag does not depend on the
 * content, as for a followed log. */
static bool find_mark(const struct put_batch *b, uint64_t mark, size_t *n, uint64_t *sum)
{
    const struct place *p = places(b);
    *n = 0;
    while (*n < b->s.lines && p[*n].end <= mark)
        (*n)++;
    if (mark >= b->next)
        *sum = b->next_sum;
    else if (*n > 0 && p[*n - 1].end == mark)
        *sum = p[*n - 1].sum;
    else if (*n > 0 && *n < b->s.lines && p[*n].start == mark)
        *sum = p[*n].start_sum;
    else
        return false;
    return true;
}

/* Another request has moved the mark. If the mark's tag is the tag that this batch has at this offset, drops the lines
 * before the mark. */
static int drop_stored(struct put_batch *b)
{
    uint64_t mark = 0, sum = 0;
    struct bytes stored = BYTES_NONE;
    size_t n;
    int status = ask_mark(b, &mark, &stored);
    if (status != 0)
        return status;
    if (!find_mark(b, mark, &n, &sum) || !bytes_equal_str(stored, b->config.tag(b->config.arg, sum)))
        return tool_fail(EX_TEMPFAIL,
            "another put uses the producer %s; the current batch is not stored; run this put again after the "
            "other put; %" PRIu64 " %s stored",
            b->config.producer, b->s.numbers.posted,
            plural(b->s.numbers.posted, "event of this run is", "events of this run are"));
    drop(b, n, bytes_of_lines(b, n));
    b->s.numbers.duplicates += n;
    b->s.mark = b->begun = mark < b->next ? mark : b->next;
    b->s.has_stored = true;
    return 0;
}

/* Makes one attempt to store a part of the batch. Returns 0 to continue, whether the part is stored or not, or an exit
 * status. */
static int send_part(struct put_batch *b)
{
    bool whole = b->s.lines <= b->lines_max;
    size_t lines = whole ? b->s.lines : b->lines_max;
    const char *tag = b->config.producer
                          ? b->config.tag(b->config.arg, whole ? b->next_sum : places(b)[lines - 1].sum)
                          : NULL;
    const struct publisher_run part = {.opening = tag,
        .producer = b->config.producer,
        .mark = b->s.mark,
        .next = whole ? b->next : places(b)[lines - 1].end,
        .lines = bytes_of(b->s.body.ptr, whole ? b->s.body.len : bytes_of_lines(b, lines))};
    const struct publisher_outcome *o = call(b, &part);
    int status = 0;
    bool is_moved = (o->result == PUBLISHER_STORED && o->is_duplicate) || o->result == PUBLISHER_CONFLICT;
    if (is_moved && b->config.producer) {
        status = drop_stored(b);
    } else if (o->result == PUBLISHER_STORED) {
        *(o->is_duplicate ? &b->s.numbers.duplicates : &b->s.numbers.posted) += lines;
        drop(b, lines, part.lines.len);
        b->s.mark = b->begun = part.next;
        b->s.has_stored = true;
        b->lines_max *= b->lines_max <= b->s.lines ? 2 : 1;
    } else if (o->status == 413 && lines > 1) {
        b->lines_max = lines / 2;
    } else if (o->status == 413 && lines == 1) {
        /* The line is not sent. The next request moves the mark past it. */
        struct bytes why = o->detail, hint = o->hint;
        if (hint.len == 0)
            hint = BYTES_LITERAL("raise max_body of [simplequeue]");
        char *text = mem_printf("%.*s; %.*s", (int)why.len, why.ptr ? why.ptr : "", (int)hint.len, hint.ptr);
        status = b->config.refused(
            &(struct put_batch_refusal){.line = bytes_of(part.lines.ptr, part.lines.len - 1),
                .why = bytes_str(text),
                .start = places(b)->start},
            b->config.arg);
        free(text);
        if (status == 0) {
            b->s.numbers.refused++;
            drop(b, 1, part.lines.len);
        }
    } else if (o->is_temporary && (b->config.producer || !o->may_be_stored)) {
        return try_again(b, o) ? 0 : give_up(b, o, NULL);
    } else {
        return give_up(b, o,
            o->status != 0
                ? "refused"
                : "the last batch may or may not be stored; use --producer to make a put repeatable");
    }
    begin_tries(b);
    return status;
}

int put_batch_flush(struct put_batch *b)
{
    int status = 0;
    begin_tries(b);
    b->lines_max = SIZE_MAX / 2;
    while (status == 0 && (b->s.lines > 0 || (b->config.producer && b->next != b->begun)))
        status = send_part(b);
    if (status != 0)
        return status;
    if (b->begun != b->next)
        b->s.mark = b->begun = b->next;
    b->s.lines = 0;
    buf_clear(&b->s.body);
    buf_clear(&b->places);
    return 0;
}

const struct put_batch_state *put_batch_state(const struct put_batch *b)
{
    return &b->s;
}

struct put_batch *put_batch_new(const struct put_batch_config *config)
{
    static const struct timeval every = {0, 100000};
    struct put_batch *b = mem_zalloc(sizeof *b);
    b->config = *config;
    b->base = event_base_new();
    b->watch = event_new(b->base, -1, EV_PERSIST, on_watch, b);
    event_add(b->watch, &every);
    return b;
}

void put_batch_free(struct put_batch **bp)
{
    struct put_batch *b = *bp;
    if (!b)
        return;
    publisher_free(&b->queue);
    http_pool_free(&b->pool);
    event_free(b->watch);
    event_base_free(b->base);
    free(b->url);
    buf_free(&b->s.body);
    buf_free(&b->places);
    free(b);
    *bp = NULL;
}
