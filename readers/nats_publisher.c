#include "readers/nats_publisher.h"

#include "base/log.h"
#include "base/work_thread.h"
#include "daemon/loop_notify.h"

#include <assert.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

/* A publish names the last message only if the acknowledgement before it is older than this time. The server reads the
 * whole last message for the check, which would cost a third of the throughput. */
#define CHECK_AFTER (10 * USEC_PER_MSEC)

#define SCAN_PARTS 4 /* a restart of the relay begins settle_after again */
#define NSEC_PER_USEC 1000
#define SCAN_TIMEOUTS 2
#define STOP_TIMEOUTS 4     /* longest wait for the request in progress at a stop */
#define REQUEST_TIMEOUTS 10 /* a request takes less than this number of timeouts for each server */
#define STOP_POLL (10 * USEC_PER_MSEC)

struct request {
    bool asks;
    struct nats_batch
        batch; /* if it asks: only the queue_id, and as `mark` the id before which all is settled */
};

struct nats_publisher {
    struct nats_publisher_config config;
    struct work_thread *thread;
    struct loop_notify *notify;
    struct event *stuck; /* fires if the request in progress does not end */
    struct request request;
    bool is_busy;
    /* Between nats_publisher_ask or _send and the outcome, only the thread uses the following members. */
    natsConnection *connection;
    jsCtx *js;
    uint64_t last;   /* sequence of the subject's last message; 0: the subject has none */
    usec_t acked_at; /* time of the last acknowledgement on this connection; 0: none */
    struct nats_outcome outcome;
    char opening[NAME_LEN_MAX + 1]; /* of the subject's last message */
    char why[ERROR_TEXT];
};

static void disconnect(struct nats_publisher *p)
{
    jsCtx_Destroy(p->js);
    natsConnection_Destroy(p->connection);
    p->js = NULL;
    p->connection = NULL;
    p->acked_at = 0;
}

static void fail(struct nats_publisher *p, enum nats_result result, natsStatus s, const char *what)
{
    const char *text = nats_GetLastError(NULL), *of_server = NULL;
    if (p->connection && s == NATS_TIMEOUT &&
        natsConnection_GetLastError(p->connection, &of_server) != NATS_OK)
        text = of_server; /* such as a missing permission */
    p->outcome.result = result;
    snprintf(p->why, sizeof p->why, "%s: %s", what, text && text[0] ? text : natsStatus_GetText(s));
}

static bool connect_if_needed(struct nats_publisher *p)
{
    jsOptions options;
    if (p->connection && natsConnection_Status(p->connection) == NATS_CONN_STATUS_CONNECTED)
        return true;
    disconnect(p);
    jsOptions_Init(&options);
    options.Wait = p->config.timeout / USEC_PER_MSEC;
    natsStatus s = natsConnection_Connect(&p->connection, p->config.options);
    if (s == NATS_OK)
        s = natsConnection_JetStream(&p->js, p->connection, &options);
    if (s != NATS_OK) {
        fail(p, NATS_FAILED, s, "cannot connect to a nats-server");
        disconnect(p);
    }
    return s == NATS_OK;
}

static size_t max_payload(const struct nats_publisher *p)
{
    int64_t max = natsConnection_GetMaxPayload(p->connection);
    return max > 0 ? (size_t)max : 0;
}

/* Raises the mark to the end of a batch, unless messages before the batch are missing. */
static bool take_batch(struct nats_publisher *p, natsMsg *m)
{
    struct nats_batch b;
    uint64_t *mark = &p->outcome.mark;
    if (!nats_batch_decode(m, &b) || strcmp(b.queue_id, p->request.batch.queue_id) != 0) {
        p->outcome.result = NATS_FAILED;
        snprintf(p->why, sizeof p->why, "the subject of queue %s has a message that is not that of a relay",
            p->request.batch.queue_id);
        return false;
    }
    if (*mark > 0 && (b.mark > *mark || b.next < *mark))
        return true;
    *mark = b.next;
    snprintf(p->opening, sizeof p->opening, "%s", b.opening);
    return true;
}

/* Reads the headers of the subject's messages up to the last one, as a reader of the stream does. */
static void scan(struct nats_publisher *p, const char *subject, int64_t last_time)
{
    jsSubOptions options;
    natsSubscription *sub = NULL;
    jsMsgMetaData *meta = NULL;
    int64_t window = p->config.stream.settle_after * SCAN_PARTS * NSEC_PER_USEC;
    jsSubOptions_Init(&options);
    options.Stream = p->config.stream.name;
    options.Ordered = true;
    options.Config.HeadersOnly = true;
    options.Config.DeliverPolicy = js_DeliverByStartTime;
    options.Config.OptStartTime = last_time > window ? last_time - window : 1;
    natsStatus s = js_SubscribeSync(&sub, p->js, subject, NULL, &options, NULL);
    bool is_batch = true;
    usec_t end = clock_monotonic() + SCAN_TIMEOUTS * p->config.timeout;
    for (uint64_t at = 0; s == NATS_OK && is_batch && at < p->last;) {
        natsMsg *m = NULL;
        usec_t left = end - clock_monotonic();
        s = left > 0 ? natsSubscription_NextMsg(&m, sub, left / USEC_PER_MSEC + 1) : NATS_TIMEOUT;
        if (s == NATS_OK)
            s = natsMsg_GetMetaData(&meta, m);
        is_batch = s == NATS_OK && take_batch(p, m);
        at = s == NATS_OK ? meta->Sequence.Stream : 0;
        jsMsgMetaData_Destroy(meta);
        meta = NULL;
        natsMsg_Destroy(m);
    }
    if (s != NATS_OK)
        fail(p, NATS_FAILED, s, "the messages of the queue");
    natsSubscription_Destroy(sub);
}

/* Asks the leader of the stream: another replica may not have the last message yet. */
static void ask(struct nats_publisher *p)
{
    const char *stream = p->config.stream.name, *queue_id = p->request.batch.queue_id;
    char subject[NATS_SUBJECT_MAX];
    struct error error;
    natsMsg *m = NULL;
    p->outcome.result = NATS_ASKED;
    p->acked_at = 0;
    p->opening[0] = '\0';
    if (nats_stream_check(p->js, &p->config.stream, &error) != 0) {
        p->outcome.result = NATS_FAILED;
        snprintf(p->why, sizeof p->why, "%s", error.text);
        return;
    }
    if (max_payload(p) < NATS_PAYLOAD_MIN) {
        p->outcome.result = NATS_FAILED;
        snprintf(p->why, sizeof p->why, "max_payload of the nats-server is less than %d bytes: raise it",
            NATS_PAYLOAD_MIN);
        return;
    }
    nats_subject(stream, queue_id, subject);
    natsStatus s = js_GetLastMsg(&m, p->js, stream, subject, NULL, NULL);
    p->last = s == NATS_OK ? natsMsg_GetSequence(m) : 0;
    p->outcome.mark = s == NATS_OK ? p->request.batch.mark : 0;
    if (s == NATS_OK)
        scan(p, subject, natsMsg_GetTime(m));
    else if (s != NATS_NOT_FOUND)
        fail(p, NATS_FAILED, s, "the last message of the queue");
    natsMsg_Destroy(m);
    p->outcome.max_lines = max_payload(p) - NATS_BATCH_HEADERS_MAX;
}

static void publish_failed(struct nats_publisher *p, natsStatus s, jsErrCode code)
{
    if (code == JSStreamWrongLastSequenceErr)
        p->outcome.result = NATS_CONFLICT;
    else if (code == JSStreamMessageExceedsMaximumErr)
        fail(p, NATS_REFUSED, s, "longer than the stream's max_msg_size");
    else
        fail(p, NATS_FAILED, s, "publish");
    if (code == 0) /* no answer of JetStream: another server may answer */
        disconnect(p);
}

static void publish(struct nats_publisher *p)
{
    struct nats_batch *b = &p->request.batch;
    char subject[NATS_SUBJECT_MAX];
    natsMsg *m = NULL;
    jsPubAck *ack = NULL;
    jsErrCode code = 0;
    jsPubOptions options;
    nats_subject(p->config.stream.name, b->queue_id, subject);
    if (!b->opening[0])
        b->opening = p->opening;
    natsStatus s = nats_batch_encode(b, subject, max_payload(p), &m);
    if (s != NATS_OK) {
        p->outcome.result = NATS_REFUSED;
        snprintf(p->why, sizeof p->why,
            s == NATS_MAX_PAYLOAD ? "longer than the nats-server's max_payload of %zu bytes with its headers"
                                  : "too many ranges of ids for one message of at most %zu bytes",
            max_payload(p));
        return;
    }
    jsPubOptions_Init(&options);
    options.MaxWait = p->config.timeout / USEC_PER_MSEC;
    options.ExpectStream = p->config.stream.name;
    bool checks = p->acked_at == 0 || clock_monotonic() - p->acked_at > CHECK_AFTER;
    options.ExpectLastSubjectSeq = checks ? p->last : 0;
    options.ExpectNoMessage = checks && p->last == 0;
    s = js_PublishMsg(&ack, p->js, m, &options, &code);
    natsMsg_Destroy(m);
    if (s != NATS_OK) {
        publish_failed(p, s, code);
        return;
    }
    /* A lower sequence is that of a stream that was made again or restored. */
    p->outcome.result = ack->Sequence > p->last ? NATS_STORED : NATS_CONFLICT;
    p->last = ack->Sequence;
    p->acked_at = clock_monotonic();
    if (b->opening != p->opening)
        snprintf(p->opening, sizeof p->opening, "%s", b->opening);
    jsPubAck_Destroy(ack);
}

static void run(void *ctx, void *job)
{
    struct nats_publisher *p = ctx;
    const struct request *r = job;
    p->outcome = (struct nats_outcome){.opening = p->opening, .why = p->why};
    if (!connect_if_needed(p))
        return;
    if (r->asks)
        ask(p);
    else
        publish(p);
}

/* nats.c has no timeout for a TLS handshake and for DNS. Its thread cannot be stopped, but the process can: it leaves
 * what a kill leaves. */
static void on_stuck(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    log_error(
        "a request to a nats-server does not end: this process exits, so that the next one connects again");
    _exit(EX_TEMPFAIL);
}

static void start(struct nats_publisher *p, const struct request *request)
{
    usec_t limit = p->config.timeout * REQUEST_TIMEOUTS * (usec_t)p->config.servers;
    assert(!p->is_busy);
    event_add(p->stuck, &(struct timeval){.tv_sec = limit / USEC_PER_SEC + 1});
    p->request = *request;
    p->is_busy = true;
    work_thread_start(p->thread, &p->request);
}

void nats_publisher_ask(struct nats_publisher *p, const char *queue_id, uint64_t settled)
{
    start(p, &(struct request){.asks = true, .batch = {.queue_id = queue_id, .mark = settled}});
}

void nats_publisher_send(struct nats_publisher *p, const struct nats_batch *batch)
{
    start(p, &(struct request){.batch = *batch});
}

static void on_notify(void *arg)
{
    struct nats_publisher *p = arg;
    if (!work_thread_done(p->thread))
        return;
    p->is_busy = false;
    event_del(p->stuck);
    p->config.on_outcome(&p->outcome, p->config.arg);
}

struct nats_publisher *nats_publisher_new(const struct nats_publisher_config *config)
{
    struct nats_publisher *p = mem_zalloc(sizeof *p);
    p->config = *config;
    p->stuck = evtimer_new(config->base, on_stuck, p);
    p->notify = loop_notify_new(config->base, on_notify, p);
    if (p->notify)
        p->thread = work_thread_new(&(struct work_thread_config){
            .run = run, .ctx = p, .notify = loop_notify_wake, .notify_arg = p->notify});
    if (!p->thread)
        nats_publisher_free(&p);
    return p;
}

void nats_publisher_free(struct nats_publisher **pp)
{
    struct nats_publisher *p = *pp;
    if (!p)
        return;
    usec_t end = clock_monotonic() + STOP_TIMEOUTS * p->config.timeout;
    while (p->is_busy && !work_thread_done(p->thread)) {
        if (clock_monotonic() > end)
            on_stuck(-1, 0, p);
        clock_sleep(STOP_POLL);
    }
    if (p->thread)
        work_thread_free(&p->thread);
    if (p->stuck)
        event_free(p->stuck);
    loop_notify_free(&p->notify);
    disconnect(p);
    natsOptions_Destroy(p->config.options);
    free(p);
    *pp = NULL;
}
