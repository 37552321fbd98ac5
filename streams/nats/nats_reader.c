#include "streams/nats/nats_reader.h"

#include "base/error.h"
#include "base/work_thread.h"
#include "daemon/loop_notify.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NSEC_PER_USEC 1000
#define CONSUMER_LASTS (60 * USEC_PER_SEC * NSEC_PER_USEC)
#define CONSUMER_NAME_MAX 80
#define MESSAGE_FRAME 4096 /* bytes that JetStream counts in addition to headers and body */

struct consumer {
    char name[CONSUMER_NAME_MAX]; /* "": none */
    char subject[NATS_SUBJECT_MAX];
    uint64_t number;   /* of its last message */
    uint64_t sequence; /* of its last message in the stream */
};

struct nats_reader {
    struct nats_reader_config config;
    struct work_thread *thread;
    struct loop_notify *notify;
    struct copy_source source;
    bool is_busy;
    /* Between nats_reader_read and the outcome, only the thread uses the following members. */
    natsConnection *connection;
    jsCtx *js;
    natsInbox *inbox;
    natsSubscription *replies;
    uint64_t n_requests;
    struct consumer consumers[NATS_PARTITIONS];
    natsMsg *raw[NATS_READ_MESSAGES];
    struct copy_message messages[NATS_READ_MESSAGES];
    struct nats_read_outcome outcome;
    char why[ERROR_TEXT];
};

static void disconnect(struct nats_reader *r)
{
    natsSubscription_Destroy(r->replies);
    natsInbox_Destroy(r->inbox);
    jsCtx_Destroy(r->js);
    natsConnection_Destroy(r->connection);
    r->replies = NULL;
    r->inbox = NULL;
    r->js = NULL;
    r->connection = NULL;
    for (size_t i = 0; i < NATS_PARTITIONS; i++)
        r->consumers[i].name[0] = '\0';
}

static bool fail(struct nats_reader *r, natsStatus s, const char *what)
{
    const char *text = nats_GetLastError(NULL);
    r->outcome.result = NATS_READ_FAILED;
    snprintf(r->why, sizeof r->why, "%s: %s", what, text && text[0] ? text : natsStatus_GetText(s));
    return false;
}

static bool connect_if_needed(struct nats_reader *r)
{
    jsOptions options;
    char *subject = NULL;
    if (r->connection && natsConnection_Status(r->connection) == NATS_CONN_STATUS_CONNECTED)
        return true;
    disconnect(r);
    jsOptions_Init(&options);
    options.Wait = r->config.timeout / USEC_PER_MSEC;
    natsStatus s = natsConnection_Connect(&r->connection, r->config.options);
    if (s == NATS_OK)
        s = natsConnection_JetStream(&r->js, r->connection, &options);
    if (s == NATS_OK)
        s = natsInbox_Create(&r->inbox);
    if (s == NATS_OK) {
        subject = mem_printf("%s.*", r->inbox);
        s = natsConnection_SubscribeSync(&r->replies, r->connection, subject);
        free(subject);
    }
    if (s == NATS_OK)
        return true;
    fail(r, s, "cannot connect to a nats-server");
    disconnect(r);
    return false;
}

static usec_t usec_of(int64_t nanoseconds)
{
    return nanoseconds / NSEC_PER_USEC;
}

/* Checks the place that is named in rule 2 of the header. */
static bool check_place(struct nats_reader *r)
{
    const struct copy_place *place = &r->source.after;
    natsMsg *m = NULL;
    jsStreamInfo *info = NULL;
    bool is_valid = place->sequence == 0;
    natsStatus s = is_valid ? NATS_OK : js_GetMsg(&m, r->js, r->config.stream, place->sequence, NULL, NULL);
    if (m)
        is_valid = usec_of(natsMsg_GetTime(m)) == place->time;
    else if (s == NATS_NOT_FOUND)
        s = js_GetStreamInfo(&info, r->js, r->config.stream, NULL, NULL);
    if (info)
        is_valid = place->sequence < info->State.FirstSeq;
    natsMsg_Destroy(m);
    jsStreamInfo_Destroy(info);
    if (s != NATS_OK)
        return fail(r, s, "the message at the cursor");
    if (!is_valid)
        r->outcome.result = NATS_LOST_PLACE;
    return is_valid;
}

static void drop(struct nats_reader *r, struct consumer *c)
{
    if (c->name[0])
        (void)js_DeleteConsumer(r->js, r->config.stream, c->name, NULL, NULL);
    c->name[0] = '\0';
}

static bool make_consumer(struct nats_reader *r, struct consumer *c, const char *subject)
{
    jsConsumerConfig config;
    jsConsumerInfo *info = NULL;
    uint64_t after = r->source.after.sequence;
    drop(r, c);
    jsConsumerConfig_Init(&config);
    config.DeliverPolicy = after > 0 ? js_DeliverByStartSequence : js_DeliverAll;
    config.OptStartSeq = after > 0 ? after + 1 : 0;
    config.AckPolicy = js_AckNone;
    config.FilterSubject = subject;
    config.InactiveThreshold = CONSUMER_LASTS;
    config.MemoryStorage = true;
    config.Replicas = 1;
    natsStatus s = js_AddConsumer(&info, r->js, r->config.stream, &config, NULL, NULL);
    if (s != NATS_OK)
        return fail(r, s, "a consumer of the JetStream stream");
    snprintf(c->name, sizeof c->name, "%s", info->Name);
    snprintf(c->subject, sizeof c->subject, "%s", subject);
    jsConsumerInfo_Destroy(info);
    stats_add(r->config.consumers_made, 1);
    c->number = 0;
    c->sequence = after;
    if (check_place(r))
        return true;
    drop(r, c);
    return false;
}

/* Takes over a message. Returns false, and takes nothing, if the message does not have the consumer's next number. Ignores a
 * message of an earlier consumer. */
static bool take(struct nats_reader *r, struct consumer *c, natsMsg *m)
{
    struct copy_read *read = &r->outcome.read;
    struct copy_message *to = &r->messages[read->n];
    char subject[NATS_SUBJECT_MAX] = "";
    jsMsgMetaData *meta = NULL;
    if (natsMsg_GetMetaData(&meta, m) != NATS_OK)
        return false;
    bool is_stale = strcmp(meta->Consumer, c->name) != 0;
    bool is_next = meta->Sequence.Consumer == c->number + 1 && meta->Sequence.Stream > c->sequence;
    if (is_stale) {
        natsMsg_Destroy(m);
    } else if (is_next) {
        c->number = meta->Sequence.Consumer;
        c->sequence = meta->Sequence.Stream;
        read->pending = meta->NumPending;
        to->place = (struct copy_place){c->sequence, usec_of(meta->Timestamp)};
        to->is_batch = nats_batch_decode(m, &to->batch);
        if (to->is_batch)
            nats_subject(r->config.stream, to->batch.queue_id, subject);
        to->is_batch = to->is_batch && strcmp(subject, natsMsg_GetSubject(m)) == 0;
        r->raw[read->n++] = m;
    }
    jsMsgMetaData_Destroy(meta);
    return is_next || is_stale;
}

/* Returns the status of a reply without a message, such as 404, or 0. */
static int status_of(natsMsg *m)
{
    const char *status = NULL;
    if (natsMsg_GetDataLength(m) > 0 || natsMsgHeader_Get(m, "Status", &status) != NATS_OK)
        return 0;
    return atoi(status);
}

/* Receives messages up to the end of the read. */
static bool receive(struct nats_reader *r, struct consumer *c, const char *reply)
{
    struct copy_read *read = &r->outcome.read;
    while (read->n < NATS_READ_MESSAGES) {
        natsMsg *m = NULL;
        natsStatus s = natsSubscription_NextMsg(&m, r->replies, r->config.timeout / USEC_PER_MSEC);
        if (s == NATS_NO_RESPONDERS) {
            drop(r, c);
            return fail(r, s, "a consumer of the JetStream stream");
        }
        if (s != NATS_OK) {
            disconnect(r);
            return read->n > 0 || fail(r, s, "no messages from the JetStream stream");
        }
        int status = status_of(m);
        if (status == 0 && take(r, c, m)) {
            if (read->n > 0 && read->pending == 0)
                return true;
            continue;
        }
        bool is_stale = status > 0 && strcmp(natsMsg_GetSubject(m), reply) != 0;
        bool ends = status == 404 || status == 408 || (status == 409 && read->n > 0);
        const char *text = "a message is missing";
        (void)natsMsgHeader_Get(m, "Description", &text);
        if (!is_stale && !ends && read->n == 0)
            fail(r, NATS_ERR, text);
        natsMsg_Destroy(m);
        if (is_stale)
            continue;
        if (!ends)
            drop(r, c);
        return ends || read->n > 0;
    }
    return true;
}

static void read_next(struct nats_reader *r)
{
    const struct copy_source *source = &r->source;
    struct consumer *c = &r->consumers[source->partition];
    char subject[NATS_SUBJECT_MAX], request[160], *ask, *reply;
    int64_t payload = natsConnection_GetMaxPayload(r->connection) + MESSAGE_FRAME;
    if (source->queue_id)
        nats_subject(r->config.stream, source->queue_id, subject);
    else
        snprintf(subject, sizeof subject, "%s.%u.*", r->config.stream, source->partition);
    if ((!c->name[0] || c->sequence != source->after.sequence || strcmp(c->subject, subject) != 0) &&
        !make_consumer(r, c, subject))
        return;
    snprintf(request, sizeof request, "{\"batch\":%d,\"max_bytes\":%" PRId64 ",\"no_wait\":true}",
        NATS_READ_MESSAGES, payload > NATS_READ_BYTES ? payload : NATS_READ_BYTES);
    ask = mem_printf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", r->config.stream, c->name);
    reply = mem_printf("%s.%" PRIu64, r->inbox, ++r->n_requests);
    natsStatus s = natsConnection_PublishRequestString(r->connection, ask, reply, request);
    if (s != NATS_OK)
        fail(r, s, "a request for messages");
    else
        (void)receive(r, c, reply);
    free(ask);
    free(reply);
}

static void forget_messages(struct nats_reader *r)
{
    for (size_t i = 0; i < r->outcome.read.n; i++)
        natsMsg_Destroy(r->raw[i]);
    r->outcome.read.n = 0;
}

static void run(void *ctx, void *job)
{
    struct nats_reader *r = ctx;
    (void)job;
    forget_messages(r);
    r->outcome = (struct nats_read_outcome){
        .result = NATS_READ, .why = r->why, .read = {.messages = r->messages, .began = clock_wall()}};
    if (connect_if_needed(r))
        read_next(r);
    r->outcome.read.is_lost = r->outcome.result == NATS_LOST_PLACE;
}

void nats_reader_read(struct nats_reader *r, const struct copy_source *source)
{
    assert(!r->is_busy);
    r->source = *source;
    r->is_busy = true;
    work_thread_start(r->thread, r);
}

static void on_notify(void *arg)
{
    struct nats_reader *r = arg;
    if (!work_thread_done(r->thread))
        return;
    r->is_busy = false;
    r->config.on_outcome(&r->outcome, r->config.arg);
}

struct nats_reader *nats_reader_new(const struct nats_reader_config *config)
{
    struct nats_reader *r = mem_zalloc(sizeof *r);
    r->config = *config;
    r->notify = loop_notify_new(config->base, on_notify, r);
    if (r->notify)
        r->thread = work_thread_new(&(struct work_thread_config){
            .run = run, .ctx = r, .notify = loop_notify_wake, .notify_arg = r->notify});
    if (!r->thread)
        nats_reader_free(&r);
    return r;
}

void nats_reader_free(struct nats_reader **rr)
{
    struct nats_reader *r = *rr;
    if (!r)
        return;
    if (r->thread)
        work_thread_free(&r->thread);
    loop_notify_free(&r->notify);
    forget_messages(r);
    disconnect(r);
    natsOptions_Destroy(r->config.options);
    free(r);
    *rr = NULL;
}
