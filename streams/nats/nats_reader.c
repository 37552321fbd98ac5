#include "streams/nats/nats_reader.h"

#include "nats/nats_client.h"

#include <stdio.h>
#include <stdlib.h>

#define NSEC_PER_USEC 1000
#define LIST_EVERY (600 * USEC_PER_SEC)

struct nats_reader {
    struct nats_reader_config config;
    struct nats_client *client;
    bool finds; /* the request lists the subjects */
    struct copy_step step;
    /* While a request is in progress, only the thread uses the following members. */
    char subject[NATS_SUBJECT_MAX]; /* of the queue */
    jsStreamInfo *info;
    uint64_t connection; /* of `info` */
    int64_t n_subjects;
    usec_t listed_at; /* 0: not yet */
    natsMsg *raw[NATS_READ_MESSAGES];
    struct copy_message messages[NATS_READ_MESSAGES];
    struct nats_read_outcome outcome;
};

static natsStatus ask_info(struct nats_reader *r, const char *subjects)
{
    jsOptions options;
    jsStreamInfo_Destroy(r->info);
    r->info = NULL;
    jsOptions_Init(&options);
    options.Stream.Info.SubjectsFilter = subjects;
    return js_GetStreamInfo(&r->info, nats_client_js(r->client), r->config.stream, &options, NULL);
}

static void find(struct nats_reader *r)
{
    static const jsStreamStateSubjects none;
    usec_t now = clock_monotonic();
    natsStatus s = ask_info(r, NULL);
    bool lists = r->listed_at == 0 || now - r->listed_at > LIST_EVERY ||
                 (s == NATS_OK && r->info->State.NumSubjects != r->n_subjects);
    if (s == NATS_OK && lists)
        s = ask_info(r, ">");
    if (s != NATS_OK) {
        nats_client_fail(r->client, s, r->config.stream);
    } else if (!r->info->Config->AllowDirect) {
        nats_client_fail(r->client, NATS_OK, "the stream has no allow_direct: set it");
    } else if (lists) {
        r->listed_at = now;
        r->n_subjects = r->info->State.NumSubjects;
        r->outcome.subjects = r->info->State.Subjects ? r->info->State.Subjects : &none;
    }
    r->outcome.info = r->info;
    r->outcome.connection = r->connection = nats_client_number(r->client);
}

/* Gets the next message of the queue from a sequence on, or the message with this sequence. */
static natsStatus get(struct nats_reader *r, natsMsg **m, const char *subject, uint64_t sequence)
{
    jsDirectGetMsgOptions options = {.Sequence = sequence, .NextBySubject = subject};
    return js_DirectGetMsg(m, nats_client_js(r->client), r->config.stream, NULL, &options);
}

static usec_t time_of(natsMsg *m)
{
    return natsMsg_GetTime(m) / NSEC_PER_USEC;
}

/* Returns JetStream's timestamp of the message that limits the time of message i, or 0. This message is usually that of
 * the place, or part of the read. */
static usec_t limit_of(struct nats_reader *r, size_t i)
{
    struct copy_message *m = &r->messages[i];
    uint64_t sequence = m->is_batch && m->batch.until > 0 ? m->batch.until_after : 0;
    natsMsg *found = NULL;
    if (sequence == 0 || sequence >= m->place.sequence)
        return 0;
    if (sequence == r->step.place.sequence)
        return r->step.place.time;
    while (i-- > 0)
        if (r->messages[i].place.sequence == sequence)
            return r->messages[i].place.time;
    (void)get(r, &found, NULL, sequence);
    usec_t time = found && strcmp(natsMsg_GetSubject(found), r->subject) == 0 ? time_of(found) : 0;
    natsMsg_Destroy(found);
    return time;
}

static void read_next(struct nats_reader *r)
{
    struct copy_read *read = &r->outcome.read;
    uint64_t sequence = r->step.after;
    size_t bytes = 0;
    natsStatus s = NATS_OK;
    nats_subject(r->config.stream, r->step.queue_id, r->subject);
    while (read->n < NATS_READ_MESSAGES && bytes < NATS_READ_BYTES) {
        struct copy_message *m = &r->messages[read->n];
        natsMsg *raw = NULL;
        s = get(r, &raw, r->subject, sequence + 1);
        if (s != NATS_OK)
            break;
        r->raw[read->n++] = raw;
        m->place = (struct copy_place){natsMsg_GetSequence(raw), time_of(raw)};
        m->is_batch = m->place.sequence > sequence && nats_batch_decode(raw, &m->batch);
        if (!m->is_batch)
            break; /* the sequence may be a header of a forged message */
        sequence = m->place.sequence;
        bytes += (size_t)natsMsg_GetDataLength(raw);
    }
    read->is_end = s == NATS_NOT_FOUND;
    if (s != NATS_OK && !read->is_end) {
        nats_client_fail(r->client, s, "the messages of the queue");
        nats_client_disconnect(r->client);
    }
    for (size_t i = 0; i < read->n; i++)
        r->messages[i].limit = limit_of(r, i);
}

static void perform(void *arg)
{
    struct nats_reader *r = arg;
    if (r->finds)
        find(r);
    else if (r->connection == nats_client_number(r->client))
        read_next(r);
    else
        nats_client_fail(r->client, NATS_OK, "the connection is new");
}

static void forget_messages(struct nats_reader *r)
{
    for (size_t i = 0; i < r->outcome.read.n; i++)
        natsMsg_Destroy(r->raw[i]);
    r->outcome.read.n = 0;
}

static void start(struct nats_reader *r)
{
    forget_messages(r);
    r->outcome = (struct nats_read_outcome){.read = {.messages = r->messages, .began = clock_wall()}};
    nats_client_start(r->client);
}

void nats_reader_read(struct nats_reader *r, const struct copy_step *step)
{
    r->step = *step;
    r->finds = false;
    start(r);
}

void nats_reader_find(struct nats_reader *r)
{
    r->finds = true;
    start(r);
}

static void on_done(void *arg)
{
    struct nats_reader *r = arg;
    r->outcome.error = nats_client_error(r->client);
    r->config.on_outcome(&r->outcome, r->config.arg);
}

struct nats_reader *nats_reader_new(const struct nats_reader_config *config)
{
    struct nats_reader *r = mem_zalloc(sizeof *r);
    r->config = *config;
    r->client = nats_client_new(&(struct nats_client_config){.base = config->base,
        .options = config->options,
        .timeout = config->timeout,
        .servers = config->servers,
        .perform = perform,
        .on_done = on_done,
        .arg = r});
    if (!r->client)
        nats_reader_free(&r);
    return r;
}

void nats_reader_free(struct nats_reader **rr)
{
    struct nats_reader *r = *rr;
    if (!r)
        return;
    nats_client_free(&r->client);
    forget_messages(r);
    jsStreamInfo_Destroy(r->info);
    free(r);
    *rr = NULL;
}
