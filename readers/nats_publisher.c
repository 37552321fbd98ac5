#include "readers/nats_publisher.h"

#include "nats/nats_client.h"

#include <stdio.h>
#include <stdlib.h>

#define NSEC_PER_USEC 1000
#define SCAN_MESSAGES 256 /* messages in a request of a scan */

struct request {
    bool asks;
    struct nats_batch batch; /* if it asks: only the queue_id, `settled`, and the sufficient mark as `next` */
};

/* Reads the subject's messages back. */
struct scan {
    bool is_unfinished;
    uint64_t settled; /* messages before this id were settled */
    uint64_t mark,
        aged; /* all messages before these ids were found; `aged`: in messages older than settle_after */
    uint64_t first; /* sequence of the first message with a later message than `settled`; 0: none was found */
    uint64_t next, last;             /* sequences: the next to read, and the subject's last */
    int64_t last_time;               /* of the last message, in nanoseconds */
    char consumer[NAME_LEN_MAX + 1]; /* name of the consumer that reads; "": not known */
    char opening[NAME_LEN_MAX + 1];  /* of the message before `mark` */
};

struct nats_publisher {
    struct nats_publisher_config config;
    struct nats_client *client;
    struct request request;
    /* Between nats_publisher_ask or _send and the outcome, only the thread uses the following members. */
    uint64_t last; /* latest known sequence of the subject's messages; 0: none */
    struct scan scan;
    struct nats_outcome outcome;
    char opening[NAME_LEN_MAX + 1]; /* of the message before the mark */
    char why[ERROR_TEXT];
};

static jsCtx *js(struct nats_publisher *p)
{
    return nats_client_js(p->client);
}

static void fail(struct nats_publisher *p, enum nats_result result, natsStatus s, const char *what)
{
    nats_client_fail(p->client, s, what);
    p->outcome.result = result;
    snprintf(p->why, sizeof p->why, "%s", nats_client_error(p->client));
}

static size_t max_payload(struct nats_publisher *p)
{
    int64_t max = natsConnection_GetMaxPayload(nats_client_connection(p->client));
    return max > 0 ? (size_t)max : 0;
}

/* Raises the scan's marks to the end of a batch, unless messages before the batch are missing. */
static bool take_batch(struct nats_publisher *p, natsMsg *m, uint64_t sequence, int64_t time)
{
    struct scan *s = &p->scan;
    struct nats_batch b;
    if (!nats_batch_decode(m, &b) || strcmp(b.queue_id, p->request.batch.queue_id) != 0) {
        p->outcome.result = NATS_FAILED;
        snprintf(p->why, sizeof p->why, "the subject of queue %s has a message that is not that of a relay",
            p->request.batch.queue_id);
        return false;
    }
    if (s->first == 0 && b.next > s->settled)
        s->first = sequence;
    bool is_aged = time + p->config.stream.settle_after * NSEC_PER_USEC <= s->last_time;
    if (is_aged && b.mark <= s->aged && b.next > s->aged)
        s->aged = b.next;
    if (b.mark <= s->mark && b.next >= s->mark) {
        s->mark = b.next;
        snprintf(s->opening, sizeof s->opening, "%s", b.opening);
    }
    return true;
}

static natsStatus subscribe(struct nats_publisher *p, natsSubscription **sub)
{
    char subject[NATS_SUBJECT_MAX];
    jsSubOptions options;
    nats_subject(p->config.stream.name, p->request.batch.queue_id, subject);
    jsSubOptions_Init(&options);
    options.Stream = p->config.stream.name;
    options.Config.AckPolicy = js_AckNone;
    options.Config.HeadersOnly = true;
    options.Config.DeliverPolicy = p->scan.next > 0 ? js_DeliverByStartSequence : js_DeliverAll;
    options.Config.OptStartSeq = p->scan.next;
    return js_PullSubscribe(sub, js(p), subject, NULL, NULL, &options, NULL);
}

static bool is_scanned(const struct nats_publisher *p)
{
    uint64_t enough = p->request.batch.next;
    return p->scan.next > p->scan.last || (enough > 0 && p->scan.mark >= enough);
}

/* Reads the next messages. Returns false if the scan has failed. */
static bool scan_messages(struct nats_publisher *p, natsSubscription *sub)
{
    natsMsgList list = {0};
    natsStatus s = natsSubscription_Fetch(
        &list, sub, SCAN_MESSAGES, nats_client_timeout(p->client) / USEC_PER_MSEC, NULL);
    bool is_read = s == NATS_OK;
    for (int i = 0; i < list.Count && is_read && !is_scanned(p); i++) {
        jsMsgMetaData *meta = NULL;
        s = natsMsg_GetMetaData(&meta, list.Msgs[i]);
        is_read = s == NATS_OK && take_batch(p, list.Msgs[i], meta->Sequence.Stream, meta->Timestamp);
        if (is_read) {
            p->scan.next = meta->Sequence.Stream + 1;
            snprintf(p->scan.consumer, sizeof p->scan.consumer, "%s", meta->Consumer);
        }
        jsMsgMetaData_Destroy(meta);
    }
    if (s != NATS_OK)
        fail(p, NATS_FAILED, s, "the messages of the queue");
    natsMsgList_Destroy(&list);
    return is_read;
}

/* Reads for the time of one timeout, so that a stop need not wait for a long scan. */
static void scan(struct nats_publisher *p)
{
    natsSubscription *sub = NULL;
    usec_t end = clock_monotonic() + nats_client_timeout(p->client);
    p->scan.consumer[0] = '\0';
    natsStatus status = subscribe(p, &sub);
    if (status != NATS_OK)
        fail(p, NATS_FAILED, status, "the messages of the queue");
    bool reads = status == NATS_OK;
    while (reads && !is_scanned(p) && clock_monotonic() < end)
        reads = scan_messages(p, sub);
    p->scan.is_unfinished = reads && !is_scanned(p);
    /* A server keeps the consumer of a closed connection for seconds, and may limit the number of consumers. */
    if (reads && p->scan.consumer[0])
        (void)js_DeleteConsumer(js(p), p->config.stream.name, p->scan.consumer, NULL, NULL);
    /* nats.c before 3.6.1 uses freed memory if a message arrives while its subscription is destroyed. */
    natsConnection_Close(nats_client_connection(p->client));
    natsSubscription_Destroy(sub);
}

/* Begins a scan where the last message says. A restored stream has the last message of its own past. */
static void begin_scan(struct nats_publisher *p, natsMsg *last)
{
    struct nats_batch b;
    uint64_t settled = p->request.batch.settled;
    p->last = natsMsg_GetSequence(last);
    p->scan = (struct scan){.last = p->last, .last_time = natsMsg_GetTime(last)};
    bool is_batch = nats_batch_decode(last, &b);
    if (is_batch) {
        p->scan.settled = b.settled > settled ? b.settled : settled;
        p->scan.next = b.settled_at <= p->last ? b.settled_at : 0;
    }
    p->scan.mark = p->scan.aged = p->scan.settled;
}

/* Returns true if the stream and the server fit. */
static bool check(struct nats_publisher *p)
{
    struct error error;
    if (nats_stream_check(js(p), &p->config.stream, &error) != 0)
        snprintf(p->why, sizeof p->why, "%s", error.text);
    else if (max_payload(p) < NATS_PAYLOAD_MIN)
        snprintf(p->why, sizeof p->why, "max_payload of the nats-server is less than %d bytes: raise it",
            NATS_PAYLOAD_MIN);
    else
        return true;
    p->outcome.result = NATS_FAILED;
    return false;
}

/* Asks the leader of the stream for the last message: another replica may not have it yet. */
static void ask(struct nats_publisher *p)
{
    char subject[NATS_SUBJECT_MAX];
    natsMsg *m = NULL;
    p->outcome.result = NATS_ASKED;
    if (!p->scan.is_unfinished) {
        if (!check(p))
            return;
        nats_subject(p->config.stream.name, p->request.batch.queue_id, subject);
        natsStatus s = js_GetLastMsg(&m, js(p), p->config.stream.name, subject, NULL, NULL);
        p->last = 0;
        p->scan = (struct scan){.settled = p->request.batch.settled};
        if (s == NATS_OK)
            begin_scan(p, m);
        else if (s != NATS_NOT_FOUND)
            fail(p, NATS_FAILED, s, "the last message of the queue");
        natsMsg_Destroy(m);
    }
    p->outcome.max_lines = max_payload(p) - NATS_BATCH_HEADERS_MAX;
    if (p->scan.last > 0)
        scan(p);
    if (p->request.batch.next == 0)
        memcpy(p->opening, p->scan.opening, sizeof p->opening);
    p->outcome.mark = p->scan.mark;
    p->outcome.settled = p->scan.settled;
    p->outcome.aged = p->scan.aged;
}

static void publish_failed(struct nats_publisher *p, natsStatus s, jsErrCode code)
{
    if (code == JSStreamMessageExceedsMaximumErr)
        fail(p, NATS_REFUSED, s, "longer than the stream's max_msg_size");
    else
        fail(p, NATS_FAILED, s, "publish");
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
    b->settled = p->scan.settled;
    b->settled_at = p->scan.first > 0 ? p->scan.first : p->scan.last;
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
    options.MaxWait = nats_client_timeout(p->client) / USEC_PER_MSEC;
    options.ExpectStream = p->config.stream.name;
    s = js_PublishMsg(&ack, js(p), m, &options, &code);
    natsMsg_Destroy(m);
    if (s != NATS_OK) {
        publish_failed(p, s, code);
        return;
    }
    /* A lower sequence is that of a stream that was made again or restored. */
    p->outcome.result = ack->Sequence > p->last ? NATS_STORED : NATS_CONFLICT;
    p->last = ack->Sequence;
    if (b->opening != p->opening)
        snprintf(p->opening, sizeof p->opening, "%s", b->opening);
    jsPubAck_Destroy(ack);
}

static void perform(void *arg)
{
    struct nats_publisher *p = arg;
    p->outcome = (struct nats_outcome){.opening = p->opening, .why = p->why};
    if (p->request.asks)
        ask(p);
    else
        publish(p);
    p->outcome.position = p->last;
    if (p->outcome.result == NATS_FAILED) /* the link may be cut without a sign; another server may answer */
        nats_client_disconnect(p->client);
}

static void start(struct nats_publisher *p, const struct request *request)
{
    if (request != &p->request)
        p->request = *request;
    p->outcome = (struct nats_outcome){.result = NATS_FAILED, .why = nats_client_error(p->client)};
    nats_client_start(p->client);
}

void nats_publisher_ask(struct nats_publisher *p, const char *queue_id, uint64_t settled, uint64_t enough)
{
    p->scan.is_unfinished = false;
    start(p,
        &(struct request){.asks = true, .batch = {.queue_id = queue_id, .settled = settled, .next = enough}});
}

void nats_publisher_send(struct nats_publisher *p, const struct nats_batch *batch)
{
    start(p, &(struct request){.batch = *batch});
}

static void on_done(void *arg)
{
    struct nats_publisher *p = arg;
    if (p->outcome.result == NATS_ASKED && p->scan.is_unfinished)
        start(p, &p->request);
    else
        p->config.on_outcome(&p->outcome, p->config.arg);
}

struct nats_publisher *nats_publisher_new(const struct nats_publisher_config *config, struct error *error)
{
    struct nats_publisher *p = mem_zalloc(sizeof *p);
    p->config = *config;
    p->client = nats_client_new(&(struct nats_client_config){.base = config->base,
                                    .name = config->name,
                                    .options = config->options,
                                    .perform = perform,
                                    .on_done = on_done,
                                    .arg = p},
        error);
    if (!p->client)
        nats_publisher_free(&p);
    return p;
}

void nats_publisher_free(struct nats_publisher **pp)
{
    struct nats_publisher *p = *pp;
    if (!p)
        return;
    nats_client_free(&p->client);
    free(p);
    *pp = NULL;
}
