#include "readers/queuereader.h"

#include "base/url.h"
#include "daemon/loop_timer.h"
#include "readers/queue_call.h"
#include "readers/reader_plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define QUEUEREADER_MAGIC 0x51524452
#define BEGAN_TEXT 32
#define STATE_WAIT USEC_PER_SEC /* longest wait with `state`: each answer contains a new time */

struct queuereader {
    unsigned magic;
    struct queuereader_config config;
    char *queue, *reader; /* percent-encoded */
    struct plan *plan;
    struct http_client *client;
    struct http_call *call; /* call to the queue in progress; NULL: none */
    bool reading;           /* the call is a PLAN_READ, which may be a long poll */
    bool with_destination;  /* the destination must answer a run or a request for its mark */
    size_t run_length;      /* messages in the destination's run */
    size_t burying;         /* during PLAN_BURY: index of the message in plan_batch */
    char destination[QUEUEREADER_DESTINATION_DIGITS + 1]; /* id; "": unknown */
    char host[NAME_LEN_MAX + 1];                          /* host of the queue; "": unknown */
    struct queuereader_old_copy old_copy;
    struct buf openings; /* text of old_copy.openings */
    char began[BEGAN_TEXT];
    bool stopping, ended;
    struct loop_timer *advance;
    char trouble[256];
    bool troubled, queue_answered, destination_answered;
    usec_t superseded_at; /* time of the last takeover by another process; 0: none */
    usec_t rival_until;   /* repeated takeovers are reported as trouble until this time; 0: none */
    struct queuereader_numbers numbers;
};

static void advance(void *arg);

static void set_trouble(struct queuereader *qr, const char *side, const char *what)
{
    char text[sizeof qr->trouble];
    snprintf(text, sizeof text, "%s: %s", side, what);
    if (qr->troubled && strcmp(text, qr->trouble) == 0)
        return;
    memcpy(qr->trouble, text, sizeof text);
    qr->troubled = true;
    if (qr->config.on_trouble)
        qr->config.on_trouble(qr->trouble, qr->config.arg);
}

/* If two processes repeatedly take over from each other, the operator has given both the same reader name. Both report
 * RIVAL_TEXT on /health. */
#define RIVAL_TEXT "another process with this reader's name repeatedly takes over: stop one of them"
#define RIVAL_TURNS 4 /* a takeover is remembered for RIVAL_TURNS * backoff_max */

static bool have_both_answered(const struct queuereader *qr)
{
    return qr->queue_answered && qr->destination_answered;
}

static void answered(struct queuereader *qr, enum plan_lane side)
{
    const char *prefix = side == PLAN_QUEUE ? "queue: " : "destination: ";
    bool had_both = have_both_answered(qr);
    *(side == PLAN_QUEUE ? &qr->queue_answered : &qr->destination_answered) = true;
    bool clears = qr->troubled && strncmp(qr->trouble, prefix, strlen(prefix)) == 0;
    if (!clears && (had_both || !have_both_answered(qr)))
        return;
    if (clock_monotonic() < qr->rival_until) {
        set_trouble(qr, "queue", RIVAL_TEXT);
        return;
    }
    qr->troubled = qr->troubled && !clears;
    if (!qr->troubled && have_both_answered(qr) && qr->config.on_trouble)
        qr->config.on_trouble(NULL, qr->config.arg);
}

const char *queuereader_trouble(const struct queuereader *qr)
{
    if (qr->troubled)
        return qr->trouble;
    if (!qr->queue_answered)
        return "connecting to the queue";
    return qr->destination_answered ? NULL : "connecting to the destination";
}

static void queue_faulted(struct queuereader *qr, const char *why)
{
    qr->numbers.queue_faults++;
    set_trouble(qr, "queue", why);
    plan_faulted(qr->plan, PLAN_QUEUE, clock_monotonic(), QUEUEREADER_BACKOFF);
}

static void advance_at(struct queuereader *qr, usec_t delay)
{
    loop_timer_set(qr->advance, delay);
}

/* Ends a call to the queue. If the call has failed, handles the fault and returns false. */
static bool queue_replied(
    struct queuereader *qr, enum http_client_result result, const struct http_reply_view *reply)
{
    assert(qr->magic == QUEUEREADER_MAGIC);
    qr->call = NULL;
    qr->reading = false;
    if (result == HTTP_CLIENT_CANCELLED) { /* cancelled by queuereader_stop or queuereader_free */
        plan_cancelled(qr->plan, PLAN_QUEUE);
        return false;
    }
    advance_at(qr, 0);
    char why[QUEUE_CALL_REASON_MAX];
    if (queue_call_succeeded(result, reply, why))
        return true;
    queue_faulted(qr, why);
    return false;
}

static struct bytes queue_id_of(const struct http_reply_view *reply)
{
    struct bytes id = bytes_str(http_reply_header(reply, "X-Millrace-Queue-Id"));
    return bytes_is_name(id) ? id : BYTES_NONE;
}

static uint64_t number_in(const struct http_reply_view *reply, const char *member)
{
    uint64_t n;
    return bytes_to_u64(queuereader_reply_member(reply->body, member), &n) ? n : 0;
}

static void followed(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    static const struct bytes takeover = BYTES_LITERAL("\"takeover\":true");
    struct queuereader *qr = arg;
    char why[QUEUE_CALL_REASON_MAX];
    if (!queue_replied(qr, result, reply))
        return;
    if (reply->status == 409) {
        queue_call_describe_holder(reply, why);
        queue_faulted(qr, why);
        return;
    }
    struct bytes body = reply->body, host = queuereader_reply_member(body, "host");
    struct plan_queue queue = {
        .id = queue_id_of(reply),
        .number = number_in(reply, "follow"),
        .opening = queuereader_reply_member(body, "opening"),
        .next_id = number_in(reply, "next_id"),
    };
    if (!queue.id.len || !queue.number) {
        queue_faulted(qr, "the reply to /follow is not that of a simplequeue");
        return;
    }
    queue.is_takeover = memmem(body.ptr, body.len, takeover.ptr, takeover.len) != NULL;
    snprintf(
        qr->host, sizeof qr->host, "%.*s", bytes_is_name(host) ? (int)host.len : 0, host.len ? host.ptr : "");
    answered(qr, PLAN_QUEUE);
    plan_followed(qr->plan, &queue);
}

/* Handles the end of this reader's follow: another process with this name has taken over, or the queue was
 * restarted. */
static void superseded(struct queuereader *qr, bool by_another)
{
    usec_t now = clock_monotonic(), memory = RIVAL_TURNS * qr->config.backoff_max;
    if (by_another) {
        bool again = qr->superseded_at > 0 && now - qr->superseded_at < memory;
        qr->numbers.superseded++;
        qr->superseded_at = now;
        qr->rival_until = again ? now + memory : 0;
    }
    set_trouble(qr, "queue",
        now < qr->rival_until ? RIVAL_TEXT
        : by_another          ? "another process has taken over this reader's name"
                              : "the follow has ended: the queue was restarted, or unfollowed");
    plan_superseded(qr->plan, now);
}

static void note_other_history(struct queuereader *qr, const struct http_reply_view *reply)
{
    static const struct bytes certain = BYTES_LITERAL("\"is_certain\":true"),
                              first = BYTES_LITERAL("\"first\":");
    struct queuereader_old_copy *copy = &qr->old_copy;
    struct bytes rest = reply->body;
    const char *at;
    copy->differs_from = number_in(reply, "differs_from");
    copy->acked_below = number_in(reply, "acked_below");
    copy->is_certain = memmem(rest.ptr, rest.len, certain.ptr, certain.len) != NULL;
    while ((at = memmem(rest.ptr, rest.len, first.ptr, first.len))) {
        uint64_t id = 0;
        rest = bytes_of(at, rest.len - (size_t)(at - rest.ptr));
        struct bytes began = queuereader_reply_member(rest, "began");
        bytes_to_u64(queuereader_reply_member(rest, "first"), &id);
        if (id <= copy->differs_from)
            snprintf(qr->began, sizeof qr->began, "%.*s", (int)began.len, began.len ? began.ptr : "");
        buf_printf(&qr->openings, "%sfrom id %" PRIu64 " at %.*s", qr->openings.len ? ", " : "", id,
            (int)began.len, began.len ? began.ptr : "");
        rest = bytes_of(rest.ptr + first.len, rest.len - first.len);
    }
    buf_append_char(&qr->openings, '\0');
    plan_other_history(qr->plan);
}

/* Handles a 409 to a read or a burial. */
static void refused_follower(struct queuereader *qr, const struct http_reply_view *reply, bool reads)
{
    struct bytes code = queuereader_reply_member(reply->body, "code");
    if (reads && bytes_equal_str(code, "destination-behind"))
        plan_destination_behind(qr->plan, number_in(reply, "acked_below"));
    else if (reads && bytes_equal_str(code, "other-history"))
        note_other_history(qr, reply);
    else if (!reads && bytes_equal_str(code, "lease-lost"))
        plan_bury_lost(qr->plan);
    else
        superseded(qr, number_in(reply, "number") > 0);
}

static struct plan_accepted accepted_of(const struct http_reply_view *reply)
{
    struct plan_accepted a = {0};
    if (!bytes_to_usec(bytes_str(http_reply_header(reply, "X-Millrace-Accepted-Before")), &a.before) ||
        !bytes_to_u64(bytes_str(http_reply_header(reply, "X-Millrace-Accepted-Last")), &a.last_id))
        a.before = 0;
    return a;
}

static void was_read(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct queuereader *qr = arg;
    struct batch batch = {0};
    if (!queue_replied(qr, result, reply))
        return;
    if (reply->status == 409) {
        refused_follower(qr, reply, true);
        return;
    }
    bool is_of_queue = bytes_equal_str(queue_id_of(reply), plan_queue_id(qr->plan));
    if (!is_of_queue || !batch_parse(reply->body, 0, &batch)) {
        queue_faulted(qr, "the reply to /reserve is not that of a simplequeue");
        return;
    }
    answered(qr, PLAN_QUEUE);
    snprintf(batch.opening, sizeof batch.opening, "%s", http_reply_header(reply, "X-Millrace-Opening"));
    qr->numbers.reserved += batch.n;
    struct plan_accepted accepted = accepted_of(reply);
    plan_read(qr->plan, &batch, &accepted, clock_monotonic());
}

static void buried(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct queuereader *qr = arg;
    if (!queue_replied(qr, result, reply))
        return;
    if (reply->status == 409) {
        refused_follower(qr, reply, false);
        return;
    }
    qr->numbers.buried++;
    if (qr->config.on_buried)
        qr->config.on_buried(&plan_batch(qr->plan)->messages[qr->burying], qr->config.arg);
    plan_buried(qr->plan);
}

static void unfollowed(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct queuereader *qr = arg;
    if (!queue_replied(qr, result, reply))
        return;
    if (reply->status == 200)
        plan_unfollowed(qr->plan);
    else
        plan_faulted(qr->plan, PLAN_QUEUE, clock_monotonic(), 0);
}

static void post(struct queuereader *qr, struct buf *target, queue_call_fn *done)
{
    qr->call = queue_call_send(qr->client, "POST", target, BYTES_NONE, 0, done, qr);
}

static void append_settled(const struct queuereader *qr, const struct plan_step *step, struct buf *target)
{
    buf_printf(target, "&follow=%" PRIu64 "&settle=%" PRIu64, plan_number(qr->plan), step->settle);
    if (qr->destination[0])
        buf_printf(target, "&destination=%s", qr->destination);
}

static void follow(struct queuereader *qr, const struct plan_step *step)
{
    struct buf target = {0};
    (void)step;
    buf_printf(&target, "/follow?queue=%s&reader=%s", qr->queue, qr->reader);
    post(qr, &target, followed);
}

static void read_messages(struct queuereader *qr, const struct plan_step *step)
{
    struct buf target = {0};
    usec_t wait = step->wait ? qr->config.wait : 0;
    if (qr->config.destination.state && wait > STATE_WAIT)
        wait = STATE_WAIT;
    buf_printf(&target, "/reserve?queue=%s&items=%" PRIu64 "&wait=%" PRId64 "&from=%" PRIu64, qr->queue,
        qr->config.items, wait / USEC_PER_MSEC, step->from);
    append_settled(qr, step, &target);
    if (qr->config.destination.settle_after > 0)
        buf_printf(&target, "&mark=%" PRIu64, step->mark);
    buf_append_str(&target, "&opening=");
    url_encode(bytes_str(step->opening), &target);
    usec_t timeout = wait + qr->config.timeout;
    qr->reading = true;
    qr->call = queue_call_send(qr->client, "GET", &target, BYTES_NONE, timeout, was_read, qr);
}

static void bury(struct queuereader *qr, const struct plan_step *step)
{
    const struct message *m = &plan_batch(qr->plan)->messages[step->first];
    struct buf target = {0};
    buf_printf(&target, "/bury?queue=%s&follow=%" PRIu64 "&id=%" PRIu64 "&reason=", qr->queue,
        plan_number(qr->plan), m->id);
    url_encode(bytes_str(m->reason), &target);
    qr->burying = step->first;
    post(qr, &target, buried);
}

static void unfollow(struct queuereader *qr, const struct plan_step *step)
{
    struct buf target = {0};
    buf_printf(&target, "/unfollow?queue=%s", qr->queue);
    append_settled(qr, step, &target);
    post(qr, &target, unfollowed);
}

static struct queuereader_run run_of(const struct queuereader *qr, const struct plan_step *step)
{
    return (struct queuereader_run){
        .messages = step->count ? plan_batch(qr->plan)->messages + step->first : NULL,
        .n = step->count,
        .queue_id = plan_queue_id(qr->plan),
        .host = qr->host,
        .mark = step->mark,
        .next = step->next,
        .opening = step->opening,
        .until = step->watermark,
        .until_after = step->watermark_after,
    };
}

static void deliver(struct queuereader *qr, const struct plan_step *step)
{
    struct queuereader_run run = run_of(qr, step);
    qr->with_destination = true;
    qr->run_length = step->count;
    qr->config.destination.deliver(qr, &run, qr->config.destination.arg);
}

static void state(struct queuereader *qr, const struct plan_step *step)
{
    struct queuereader_run run = run_of(qr, step);
    qr->with_destination = true;
    qr->run_length = 0;
    qr->config.destination.state(qr, &run, qr->config.destination.arg);
}

static void ask(struct queuereader *qr, const struct plan_step *step)
{
    (void)step;
    qr->with_destination = true;
    qr->config.destination.ask(qr, plan_queue_id(qr->plan), qr->config.destination.arg);
}

/* Starts the next step in the next iteration of the loop, because the destination may answer before `deliver`
 * returns. */
static void destination_answers(struct queuereader *qr)
{
    assert(qr->magic == QUEUEREADER_MAGIC && qr->with_destination);
    qr->with_destination = false;
    advance_at(qr, 0);
}

void queuereader_set_destination(struct queuereader *qr, struct bytes id)
{
    const char *queue_id = plan_queue_id(qr->plan);
    memset(qr->destination, '\0', sizeof qr->destination);
    if (id.len < QUEUEREADER_DESTINATION_DIGITS || strlen(queue_id) < QUEUEREADER_DESTINATION_DIGITS)
        return;
    for (size_t i = 0; i < QUEUEREADER_DESTINATION_DIGITS; i++)
        qr->destination[i] =
            "0123456789abcdef"[(bytes_hex_digit(id.ptr[i]) ^ bytes_hex_digit(queue_id[i])) & 15];
}

void queuereader_set_time(struct queuereader *qr, usec_t time, bool is_new_era)
{
    plan_destination_time(qr->plan, time, is_new_era);
}

void queuereader_set_position(struct queuereader *qr, uint64_t position)
{
    plan_destination_position(qr->plan, position);
}

void queuereader_set_aged(struct queuereader *qr, uint64_t settled, uint64_t aged)
{
    plan_destination_has(qr->plan, settled, aged);
}

void queuereader_set_max_bytes(struct queuereader *qr, size_t max_bytes)
{
    plan_set_max_bytes(qr->plan, max_bytes);
}

void queuereader_asked(struct queuereader *qr, uint64_t mark, struct bytes opening)
{
    destination_answers(qr);
    answered(qr, PLAN_DESTINATION);
    plan_asked(qr->plan, mark, opening);
}

void queuereader_delivered(struct queuereader *qr)
{
    destination_answers(qr);
    answered(qr, PLAN_DESTINATION);
    qr->numbers.delivered += qr->run_length;
    qr->numbers.runs += qr->run_length > 0;
    plan_delivered(qr->plan);
}

void queuereader_stated(struct queuereader *qr)
{
    destination_answers(qr);
    answered(qr, PLAN_DESTINATION);
    plan_stated(qr->plan);
}

void queuereader_conflict(struct queuereader *qr)
{
    destination_answers(qr);
    answered(qr, PLAN_DESTINATION);
    qr->numbers.conflicts++;
    plan_conflict(qr->plan, clock_monotonic());
}

void queuereader_refused(struct queuereader *qr, const char *reason)
{
    if (qr->run_length == 0) { /* the run has no message that could be the reason */
        queuereader_faulted(qr, reason, QUEUEREADER_BACKOFF);
        return;
    }
    destination_answers(qr);
    answered(qr, PLAN_DESTINATION);
    qr->numbers.refused++;
    plan_refused(qr->plan, reason);
}

void queuereader_faulted(struct queuereader *qr, const char *why, usec_t wait)
{
    destination_answers(qr);
    qr->numbers.deliveries_failed++;
    set_trouble(qr, "destination", why);
    plan_faulted(qr->plan, PLAN_DESTINATION, clock_monotonic(), wait);
}

const char *queuereader_end_text(enum queuereader_end end)
{
    switch (end) {
    case QUEUEREADER_STOPPED:
        return "stopped";
    case QUEUEREADER_OLD_COPY:
        return "the queue is an old copy: the destination already has later messages of this queue";
    case QUEUEREADER_OLD_DESTINATION:
        return "the destination is an old copy: acknowledged messages are missing from it";
    }
    return "unknown end";
}

struct queuereader_old_copy queuereader_old_copy(const struct queuereader *qr)
{
    struct queuereader_old_copy copy = qr->old_copy;
    copy.queue_id = plan_queue_id(qr->plan);
    copy.mark_id = plan_mark(qr->plan);
    copy.opening = plan_opening(qr->plan);
    copy.is_ahead = copy.opening[0] == '\0';
    copy.began = qr->began;
    copy.openings = qr->openings.ptr;
    return copy;
}

struct queuereader_old_destination queuereader_old_destination(const struct queuereader *qr)
{
    return (struct queuereader_old_destination){
        qr->destination, plan_mark(qr->plan), plan_acked_below(qr->plan)};
}

static void end(struct queuereader *qr, enum plan_action action)
{
    static const enum queuereader_end ends[] = {
        [PLAN_STOPPED] = QUEUEREADER_STOPPED,
        [PLAN_OLD_COPY] = QUEUEREADER_OLD_COPY,
        [PLAN_OLD_DESTINATION] = QUEUEREADER_OLD_DESTINATION,
    };
    qr->ended = true;
    if (qr->config.on_stopped)
        qr->config.on_stopped(ends[action], qr->config.arg);
}

typedef void act_fn(struct queuereader *qr, const struct plan_step *step);

/* Starts the next step of the lane if the step is due. If the step is due later, but before *again, sets *again to the
 * time of the step. */
static void advance_lane(struct queuereader *qr, enum plan_lane lane, usec_t now, usec_t *again)
{
    static act_fn *const acts[] = {
        [PLAN_FOLLOW] = follow,
        [PLAN_READ] = read_messages,
        [PLAN_BURY] = bury,
        [PLAN_UNFOLLOW] = unfollow,
        [PLAN_ASK] = ask,
        [PLAN_DELIVER] = deliver,
        [PLAN_STATE] = state,
    };
    struct plan_step step = plan_next(qr->plan, lane, now);
    if (step.action < PLAN_WAIT)
        acts[step.action](qr, &step);
    else if (step.action == PLAN_PAUSE)
        *again = step.until < *again ? step.until : *again;
    else if (step.action >= PLAN_STOPPED)
        end(qr, step.action);
}

static void advance(void *arg)
{
    struct queuereader *qr = arg;
    usec_t now = clock_monotonic(), again = INT64_MAX;
    if (!qr->ended && !qr->with_destination)
        advance_lane(qr, PLAN_DESTINATION, now, &again);
    if (!qr->ended && !qr->call)
        advance_lane(qr, PLAN_QUEUE, now, &again);
    if (!qr->ended && again != INT64_MAX && !loop_timer_is_set(qr->advance))
        advance_at(qr, again > now ? again - now : 0);
}

struct queuereader *queuereader_new(const struct queuereader_config *config)
{
    struct queuereader_config filled = queue_call_config(config);
    struct http_client_config client_config = {
        .base = config->base,
        .url = config->queue_url,
        .max_connections = 1,
        .timeout = filled.timeout,
        .auth_token = config->auth_token,
    };
    struct http_client *client = http_client_new(&client_config);
    if (!client)
        return NULL;
    struct queuereader *qr = mem_zalloc(sizeof *qr);
    qr->magic = QUEUEREADER_MAGIC;
    qr->config = filled;
    qr->client = client;
    qr->queue = queue_call_encode(config->queue);
    qr->reader = queue_call_encode(config->reader);
    qr->plan = plan_new(&(struct plan_config){
        .states = config->destination.state != NULL,
        .lines = config->destination.lines,
        .hand_over = config->destination.hand_over,
        .settle_after = config->destination.settle_after,
        .items = config->items,
        .max_bytes = config->destination.max_bytes,
        .backoff_min = qr->config.backoff_min,
        .backoff_max = qr->config.backoff_max,
        .seed = (uint64_t)clock_wall() ^ ((uint64_t)getpid() << 40),
    });
    qr->advance = loop_timer_new(config->base, advance, qr);
    advance_at(qr, 0);
    return qr;
}

void queuereader_free(struct queuereader **qr)
{
    if (!*qr)
        return;
    assert((*qr)->magic == QUEUEREADER_MAGIC);
    http_client_free(&(*qr)->client);
    loop_timer_free(&(*qr)->advance);
    plan_free(&(*qr)->plan);
    buf_free(&(*qr)->openings);
    (*qr)->magic = 0;
    free((*qr)->queue);
    free((*qr)->reader);
    free(*qr);
    *qr = NULL;
}

/* Stops the plan, and cancels a long poll. */
void queuereader_stop(struct queuereader *qr)
{
    if (!qr->stopping && qr->reading)
        http_call_cancel(qr->call);
    plan_stop(qr->plan);
    qr->stopping = true;
    advance_at(qr, 0);
}

bool queuereader_has_unfollowed(const struct queuereader *qr)
{
    return plan_has_unfollowed(qr->plan);
}

struct queuereader_numbers queuereader_numbers(const struct queuereader *qr)
{
    struct queuereader_numbers numbers = qr->numbers;
    numbers.unsettled = plan_unsettled(qr->plan);
    numbers.backlog = plan_backlog(qr->plan);
    numbers.settled = plan_settled(qr->plan);
    numbers.due = plan_due(qr->plan);
    numbers.below = plan_mark(qr->plan);
    return numbers;
}
