#include "readers/dispatcher.h"

#include "base/backoff.h"
#include "base/url.h"
#include "daemon/loop_timer.h"
#include "readers/queue_call.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CALM (60 * USEC_PER_SEC)
#define DRAIN (10 * USEC_PER_SEC)

enum phase {
    PHASE_RELEASE, /* ends the leases of an earlier process or of an earlier start */
    PHASE_WORK,
    PHASE_LAST_RELEASE, /* ends all leases before the dispatcher ends */
    PHASE_ENDED,
};

struct dispatcher {
    struct dispatcher_config config;
    char *queue, *reader; /* percent-encoded */
    char queue_id[NAME_LEN_MAX + 1];
    struct dispatch *dispatch;
    struct http_client *client;
    struct http_call *call, *reserve; /* calls in progress, or NULL */
    usec_t reserve_at;                /* time when the current reserve was sent */
    usec_t pause;                     /* time before which no request is sent to the queue */
    struct backoff queue_backoff, destination_backoff;
    enum phase phase;
    bool stopping, ended;
    bool has_lost_acks;            /* acknowledgements were lost since the last reserve */
    usec_t give_up;                /* time when a stopping dispatcher ends its retries */
    const struct message *burying; /* the message of the current DISPATCH_BURY */
    uint64_t poison_in_row, failures_in_row;
    usec_t delivered_at, failed_at; /* 0: never */
    bool failing;                   /* true from the call of on_failing until CALM after failed_at */
    bool queue_answered, troubled;
    char trouble[256];
    struct loop_timer *advance;
    struct queuereader_numbers numbers;
};

static void advance(void *arg);

static void set_trouble(struct dispatcher *x, const char *side, const char *what)
{
    char text[sizeof x->trouble];
    snprintf(text, sizeof text, "%s: %s", side, what);
    if (x->troubled && strcmp(text, x->trouble) == 0)
        return;
    memcpy(x->trouble, text, sizeof text);
    x->troubled = true;
    if (x->config.reader.on_trouble)
        x->config.reader.on_trouble(x->trouble, x->config.reader.arg);
}

/* Records that one side, the queue or the destination, works. */
static void clear_trouble(struct dispatcher *x, const char *side)
{
    bool first = !x->queue_answered;
    x->queue_answered = true;
    if (!first && !(x->troubled && strncmp(x->trouble, side, strlen(side)) == 0))
        return;
    x->troubled = false;
    if (x->config.reader.on_trouble)
        x->config.reader.on_trouble(NULL, x->config.reader.arg);
}

const char *dispatcher_trouble(const struct dispatcher *x)
{
    if (x->troubled)
        return x->trouble;
    return x->queue_answered ? NULL : "connecting to the queue";
}

static void advance_at(struct dispatcher *x, usec_t delay)
{
    loop_timer_set(x->advance, delay);
}

static void queue_failed(struct dispatcher *x, const char *why)
{
    x->numbers.queue_faults++;
    set_trouble(x, "queue", why);
    x->pause = clock_monotonic() + backoff_failed(&x->queue_backoff);
}

static void queue_works(struct dispatcher *x)
{
    backoff_succeeded(&x->queue_backoff);
    x->pause = 0;
    clear_trouble(x, "queue: ");
}

/* Returns true for a reply of 200 or 409. Handles any other reply as a failure of the queue. */
static bool queue_replied(
    struct dispatcher *x, enum http_client_result result, const struct http_reply_view *reply)
{
    char why[QUEUE_CALL_REASON_MAX];
    advance_at(x, 0);
    if (queue_call_succeeded(result, reply, why))
        return true;
    queue_failed(x, why);
    return false;
}

static void released(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct dispatcher *x = arg;
    x->call = NULL;
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    bool replied = queue_replied(x, result, reply);
    if (x->phase == PHASE_LAST_RELEASE) { /* the last release is tried only once */
        x->phase = PHASE_ENDED;
    } else if (replied && reply->status == 200 && memmem(reply->body.ptr, reply->body.len, "released", 8)) {
        queue_works(x);
        x->phase = PHASE_WORK;
    } else if (replied) {
        queue_failed(x, "the reply to /release is not that of a simplequeue");
    }
}

static void reserved(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct dispatcher *x = arg;
    x->reserve = NULL;
    if (result == HTTP_CLIENT_CANCELLED || !queue_replied(x, result, reply))
        return;
    if (reply->status == 409) {
        char why[QUEUE_CALL_REASON_MAX];
        queue_call_describe_holder(reply, why);
        queue_failed(x, why);
        return;
    }
    struct batch batch = {0};
    struct bytes id;
    if (!queue_call_parse_batch(reply, &batch, &id)) {
        queue_failed(x, "the reply to /reserve is not that of a simplequeue");
        return;
    }
    queue_works(x);
    if (batch.n == 0)
        return;
    snprintf(x->queue_id, sizeof x->queue_id, "%.*s", (int)id.len, id.ptr);
    x->numbers.reserved += batch.n;
    if (dispatch_is_stopping(x->dispatch))
        batch_free(&batch); /* the release or the end of the lease returns the messages */
    else {
        x->has_lost_acks = false;
        dispatch_add(x->dispatch, &batch, x->reserve_at);
    }
}

static void report_lost(struct dispatcher *x, const char *why, const struct buf *ids)
{
    if (ids->len == 0)
        return;
    x->has_lost_acks = true;
    if (x->config.on_ack_lost)
        x->config.on_ack_lost(why, buf_bytes(ids), x->config.reader.arg);
}

/* Handles the queue's answer to a step. A refused acknowledgement is not repeated. The queue delivers its messages
 * again when their lease ends. */
static void step_answered(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct dispatcher *x = arg;
    struct buf ids = {0};
    x->call = NULL;
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    if (queue_call_is_refused(result, reply)) {
        x->numbers.acks_refused++;
        advance_at(x, 0);
        dispatch_step_refused(x->dispatch, &ids);
        report_lost(x, "the queue refused the acknowledgement of these messages", &ids);
    } else if (!queue_replied(x, result, reply)) {
        dispatch_step_failed(x->dispatch, result != HTTP_CLIENT_REFUSED);
    } else if (reply->status == 409) {
        queue_works(x);
        dispatch_step_lost(x->dispatch, &ids);
        report_lost(x, "the lease ended before the queue answered the acknowledgement", &ids);
    } else {
        queue_works(x);
        dispatch_step_done(x->dispatch);
    }
    buf_free(&ids);
}

static void buried(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct dispatcher *x = arg;
    if (result == HTTP_CLIENT_OK && reply->status == 200) {
        x->numbers.buried++;
        if (x->config.reader.on_buried)
            x->config.reader.on_buried(x->burying, x->config.reader.arg);
    }
    step_answered(result, reply, arg);
}

static void reserve(struct dispatcher *x)
{
    struct buf target = {0};
    const struct queuereader_config *c = &x->config.reader;
    usec_t wait = x->pause > 0 ? 0 : c->wait; /* 0 after a fault: a quick answer shows that the queue works */
    buf_printf(&target, "/reserve?queue=%s&items=%" PRIu64 "&lease=%" PRId64 "&wait=%" PRId64, x->queue,
        c->items, c->lease / USEC_PER_MSEC, wait / USEC_PER_MSEC);
    if (!x->config.is_shared)
        buf_printf(&target, "&reader=%s", x->reader);
    x->reserve_at = clock_monotonic();
    x->reserve = queue_call_send(x->client, "GET", &target, BYTES_NONE, wait + c->timeout, reserved, x);
}

static void release(struct dispatcher *x)
{
    struct buf target = {0};
    buf_printf(&target, "/release?queue=%s&reader=%s", x->queue, x->reader);
    x->call = queue_call_send(x->client, "POST", &target, BYTES_NONE, 0, released, x);
}

static void begin_step(struct dispatcher *x, const struct dispatch_step *step)
{
    static const char *const paths[] = {[DISPATCH_TOUCH] = "/touch",
        [DISPATCH_ACK] = "/ack",
        [DISPATCH_BURY] = "/bury",
        [DISPATCH_NACK] = "/nack"};
    struct buf target = {0};
    struct bytes body = BYTES_NONE;
    buf_printf(&target, "%s?queue=%s&lease=%" PRIu64, paths[step->action], x->queue, step->lease);
    if (step->action == DISPATCH_TOUCH) {
        buf_printf(&target, "&extend=%" PRId64, x->config.reader.lease / USEC_PER_MSEC);
    } else if (step->action == DISPATCH_BURY) {
        buf_printf(&target, "&id=%" PRIu64 "&reason=", step->message->id);
        url_encode(bytes_str(step->message->reason), &target);
        x->burying = step->message;
    } else if (step->ids.len > QUEUE_CALL_IDS_MAX) {
        body = step->ids;
    } else {
        buf_append_str(&target, "&id=");
        buf_append_bytes(&target, step->ids);
    }
    queue_call_fn *done = step->action == DISPATCH_BURY ? buried : step_answered;
    x->call = queue_call_send(x->client, "POST", &target, body, 0, done, x);
}

/* Called when the dispatch is empty. Restarts the dispatch after a lost lease, or ends the dispatcher. */
static void leave(struct dispatcher *x)
{
    if (x->reserve)
        http_call_cancel(x->reserve);
    if (!x->stopping) {
        dispatch_resume(x->dispatch);
        x->phase = x->config.is_shared ? PHASE_WORK : PHASE_RELEASE;
    } else {
        x->phase = x->config.is_shared ? PHASE_ENDED : PHASE_LAST_RELEASE;
    }
}

/* Sends the next request to the queue if it is due. Returns the time until the next request. */
static usec_t advance_queue(struct dispatcher *x, usec_t now)
{
    bool has_failed = x->pause > 0, no_runs = dispatch_runs(x->dispatch) == 0;
    if (x->stopping && (x->phase == PHASE_RELEASE || (now >= x->give_up && has_failed && no_runs)))
        x->phase = PHASE_ENDED;
    if (x->phase == PHASE_ENDED)
        return INT64_MAX;
    if (x->pause > now)
        return x->pause;
    if (x->phase == PHASE_RELEASE || x->phase == PHASE_LAST_RELEASE) {
        release(x);
        return INT64_MAX;
    }
    struct dispatch_step step = dispatch_step(x->dispatch, now);
    if (step.action != DISPATCH_NOTHING) {
        begin_step(x, &step);
        return INT64_MAX;
    }
    return step.until;
}

/* Begins runs, and returns the time of the next possible run. */
static usec_t advance_runs(struct dispatcher *x, usec_t now)
{
    usec_t until = INT64_MAX;
    for (struct dispatch_run *run; (run = dispatch_run_begin(x->dispatch, now, &until));)
        x->config.deliver(x, run, x->config.arg);
    return until;
}

/* Reports a minute without a failure. Returns the time when this report is due. */
static usec_t advance_calm(struct dispatcher *x, usec_t now)
{
    if (x->failing && now - x->failed_at >= CALM) {
        x->failing = false;
        if (x->config.on_failing)
            x->config.on_failing(NULL, x->config.arg);
    }
    return x->failing ? x->failed_at + CALM : INT64_MAX;
}

static void advance(void *arg)
{
    struct dispatcher *x = arg;
    usec_t now = clock_monotonic(), again, due;
    if (x->ended)
        return;
    if (dispatch_has_expired(x->dispatch, now))
        dispatch_stop(x->dispatch);
    bool is_over = x->stopping && !x->config.is_shared
                       ? !dispatch_has_outcomes(x->dispatch) /* the release returns the rest */
                       : dispatch_is_empty(x->dispatch);
    if (x->phase == PHASE_WORK && dispatch_is_stopping(x->dispatch) && is_over && !x->call)
        leave(x);
    again = advance_calm(x, now);
    due = x->phase == PHASE_WORK ? advance_runs(x, now) : INT64_MAX;
    again = due < again ? due : again;
    due = x->call ? INT64_MAX : advance_queue(x, now);
    again = due < again ? due : again;
    if (x->phase == PHASE_WORK && !x->reserve && x->pause <= now && dispatch_wants_more(x->dispatch))
        reserve(x);
    if (x->phase == PHASE_ENDED) {
        x->ended = true;
        if (x->config.reader.on_stopped)
            x->config.reader.on_stopped(QUEUEREADER_STOPPED, x->config.reader.arg);
    } else if (again != INT64_MAX && !loop_timer_is_set(x->advance)) {
        advance_at(x, again > now ? again - now : 0);
    }
}

struct dispatcher *dispatcher_new(const struct dispatcher_config *config)
{
    struct queuereader_config reader = queue_call_config(&config->reader), *c = &reader;
    uint64_t seed = (uint64_t)clock_wall() ^ ((uint64_t)getpid() << 40);
    struct http_client *client = http_client_new(&(struct http_client_config){.base = c->base,
        .url = c->queue_url,
        .max_connections = 2, /* one for the reserve, which may wait, and one for all other requests */
        .timeout = c->timeout,
        .auth_token = c->auth_token});
    if (!client)
        return NULL;
    struct dispatcher *x = mem_zalloc(sizeof *x);
    x->config = *config;
    x->config.reader = reader;
    x->config.drain = config->drain ? config->drain : DRAIN;
    x->client = client;
    x->queue = queue_call_encode(c->queue);
    x->reader = queue_call_encode(config->is_shared ? "" : c->reader);
    x->phase = config->is_shared ? PHASE_WORK : PHASE_RELEASE;
    x->dispatch = dispatch_new(&(struct dispatch_config){.parallel = config->parallel ? config->parallel : 1,
        .order = config->order,
        .key = config->key,
        .arg = config->arg,
        .lines = config->lines,
        .items = c->items,
        .max_items = config->max_items ? config->max_items : c->items,
        .max_bytes = config->max_bytes,
        .rate = config->rate,
        .lease = c->lease,
        .backoff_min = c->backoff_min,
        .backoff_max = c->backoff_max,
        .seed = seed});
    backoff_init(&x->queue_backoff, c->backoff_min, c->backoff_max, ~seed);
    backoff_init(&x->destination_backoff, c->backoff_min, c->backoff_max, seed ^ (seed << 21));
    x->advance = loop_timer_new(c->base, advance, x);
    advance_at(x, 0);
    return x;
}

void dispatcher_free(struct dispatcher **p)
{
    struct dispatcher *x = *p;
    if (!x)
        return;
    http_client_free(&x->client);
    loop_timer_free(&x->advance);
    dispatch_free(&x->dispatch);
    free(x->queue);
    free(x->reader);
    free(x);
    *p = NULL;
}

/* Messages that a cancelled reserve has leased become ready at the release, or when their lease expires. */
void dispatcher_stop(struct dispatcher *x)
{
    usec_t now = clock_monotonic();
    x->give_up = x->stopping ? now : now + x->config.drain;
    x->stopping = true;
    x->pause = 0;
    if (x->reserve)
        http_call_cancel(x->reserve);
    dispatch_stop(x->dispatch);
    advance_at(x, 0);
}

void dispatcher_delivered(struct dispatcher *x, struct dispatch_run *run)
{
    x->numbers.delivered += run->n;
    x->numbers.runs++;
    x->poison_in_row = x->failures_in_row = 0;
    x->delivered_at = clock_monotonic();
    backoff_succeeded(&x->destination_backoff);
    clear_trouble(x, "destination: ");
    dispatch_pause(x->dispatch, 0);
    dispatch_run_delivered(x->dispatch, run);
    advance_at(x, 0);
}

static void note_failure(struct dispatcher *x, const char *why, bool is_down)
{
    usec_t now = clock_monotonic();
    x->numbers.deliveries_failed++;
    bool lasts = ++x->failures_in_row >= DISPATCHER_FAILURES && now - x->delivered_at >= DISPATCHER_PATIENCE;
    if (is_down || x->delivered_at == 0 || lasts) {
        set_trouble(x, "destination", why);
    } else if (!x->failing) {
        x->failing = true;
        if (x->config.on_failing)
            x->config.on_failing(why, x->config.arg);
    }
    x->failed_at = now;
    advance_at(x, 0);
}

void dispatcher_failed(struct dispatcher *x, struct dispatch_run *run, const char *why)
{
    note_failure(x, why, false);
    dispatch_run_failed(x->dispatch, run, clock_monotonic());
}

void dispatcher_down(struct dispatcher *x, struct dispatch_run *run, const char *why, usec_t wait)
{
    usec_t now = clock_monotonic();
    note_failure(x, why, true);
    if (wait < 0)
        wait = backoff_failed(&x->destination_backoff);
    dispatch_run_failed(x->dispatch, run, now); /* tries another message first */
    dispatch_pause(x->dispatch, now + wait);
}

void dispatcher_later(struct dispatcher *x, struct dispatch_run *run, usec_t wait)
{
    dispatch_run_again(x->dispatch, run);
    dispatch_pause(x->dispatch, clock_monotonic() + wait);
}

void dispatcher_again(struct dispatcher *x, struct dispatch_run *run)
{
    dispatch_run_again(x->dispatch, run);
    advance_at(x, 0);
}

bool dispatcher_abort(struct dispatcher *x)
{
    struct dispatch_run *run = dispatch_run_first(x->dispatch);
    bool any = run != NULL;
    for (; run; run = dispatch_run_first(x->dispatch)) {
        x->config.cancel(run, x->config.arg);
        dispatcher_again(x, run);
    }
    return any;
}

void dispatcher_refused(struct dispatcher *x, struct dispatch_run *run, const char *reason)
{
    uint64_t limit = x->config.poison_limit;
    if (limit && run->n == 1 && ++x->poison_in_row > limit) {
        char why[sizeof x->trouble];
        snprintf(why, sizeof why, "refuses every message: %s", reason);
        dispatcher_down(x, run, why, QUEUEREADER_BACKOFF);
        return;
    }
    x->numbers.refused++;
    clear_trouble(x, "destination: ");
    dispatch_run_refused(x->dispatch, run, reason);
    advance_at(x, 0);
}

const char *dispatcher_queue_id(const struct dispatcher *x)
{
    return x->queue_id;
}

void dispatcher_unacknowledged(const struct dispatcher *x, struct buf *ids)
{
    dispatch_unacknowledged(x->dispatch, ids);
}

bool dispatcher_has_lost_acks(const struct dispatcher *x)
{
    return x->has_lost_acks;
}

struct queuereader_numbers dispatcher_numbers(const struct dispatcher *x)
{
    return x->numbers;
}
