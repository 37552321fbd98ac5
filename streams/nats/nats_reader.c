#include "streams/nats/nats_reader.h"

#include <inttypes.h>
#include <stdio.h>

#define NSEC_PER_USEC 1000
#define LIST_EVERY (600 * USEC_PER_SEC)

void nats_reader_forget(struct nats_reader *r)
{
    for (size_t i = 0; i < r->read.n; i++)
        natsMsg_Destroy(r->raw[i]);
    jsStreamInfo_Destroy(r->info);
    r->info = NULL;
    r->subjects = NULL;
    r->read = (struct copy_read){.messages = r->messages, .began = clock_wall()};
}

static natsStatus ask_info(struct nats_reader *r, struct nats_client *c, const char *subjects)
{
    jsOptions options;
    jsStreamInfo_Destroy(r->info);
    r->info = NULL;
    jsOptions_Init(&options);
    options.Stream.Info.SubjectsFilter = subjects;
    return js_GetStreamInfo(&r->info, nats_client_js(c), r->stream, &options, NULL);
}

static void see(struct nats_reader *r, struct nats_client *c)
{
    const jsStreamState *state = &r->info->State;
    r->mean_bytes = state->Msgs > 0 ? state->Bytes / state->Msgs : 0;
    r->max_age = r->info->Config->MaxAge / NSEC_PER_USEC;
    r->state = (struct copy_stream){.first = state->FirstSeq,
        .last = state->LastSeq,
        .created = r->info->Created,
        .connection = nats_client_number(c),
        .time = r->read.began};
}

/* Reads the claim of a partition, and writes the cell's own if the stream has only older ones. */
static natsStatus compare_claim(
    const struct nats_reader *r, struct nats_client *c, unsigned partition, struct nats_claim *claim)
{
    char subject[NATS_SUBJECT_MAX], text[24];
    natsMsg *m = NULL;
    snprintf(subject, sizeof subject, "%s.%u." NATS_CLAIM, r->stream, partition);
    natsStatus s = js_GetLastMsg(&m, nats_client_js(c), r->stream, subject, NULL, NULL);
    claim->found = 0;
    if (s == NATS_OK)
        (void)bytes_to_u64(bytes_of(natsMsg_GetData(m), (size_t)natsMsg_GetDataLength(m)), &claim->found);
    natsMsg_Destroy(m);
    if (s != NATS_OK && s != NATS_NOT_FOUND)
        return s;
    int len = snprintf(text, sizeof text, "%" PRIu64, claim->number);
    return claim->found >= claim->number
               ? NATS_OK
               : js_Publish(NULL, nats_client_js(c), subject, text, len, NULL, NULL);
}

void nats_reader_find(struct nats_reader *r, struct nats_client *c)
{
    static const jsStreamStateSubjects none;
    usec_t now = clock_monotonic();
    nats_reader_forget(r);
    natsStatus s = ask_info(r, c, NULL);
    bool lists = r->listed_at == 0 || r->is_changed || now - r->listed_at > LIST_EVERY ||
                 r->state.connection != nats_client_number(c) ||
                 (s == NATS_OK &&
                     (r->info->State.NumSubjects != r->n_subjects || r->info->Created != r->state.created));
    if (s == NATS_OK && lists)
        s = ask_info(r, c, ">");
    for (unsigned i = 0; i < NATS_PARTITIONS && lists && s == NATS_OK; i++)
        if (r->claims[i].is_owner)
            s = compare_claim(r, c, i, &r->claims[i]);
    if (s != NATS_OK) {
        nats_client_fail(c, s, r->stream);
        nats_client_disconnect(c); /* the link may be cut without a sign; another server may answer */
        return;
    }
    if (!r->info->Config->AllowDirect) {
        nats_client_fail(c, NATS_OK, "the stream has no allow_direct: set it");
        return;
    }
    see(r, c);
    if (lists) {
        r->listed_at = now;
        r->is_changed = false;
        r->n_subjects = r->info->State.NumSubjects;
        r->subjects = r->info->State.Subjects ? r->info->State.Subjects : &none;
    }
}

/* Gets the next message of a subject from a sequence on, or the message with this sequence. */
static natsStatus get(
    const struct nats_reader *r, struct nats_client *c, const char *subject, uint64_t sequence, natsMsg **m)
{
    jsDirectGetMsgOptions options = {.Sequence = sequence, .NextBySubject = subject};
    return js_DirectGetMsg(m, nats_client_js(c), r->stream, NULL, &options);
}

static usec_t time_of(natsMsg *m)
{
    return natsMsg_GetTime(m) / NSEC_PER_USEC;
}

/* Returns JetStream's timestamp of the message that limits the time of message i, or 0. This message is usually that of
 * the place, or part of the read. */
static usec_t limit_of(
    const struct nats_reader *r, struct nats_client *c, const struct copy_place *place, size_t i)
{
    const struct copy_message *m = &r->messages[i];
    uint64_t sequence = m->batch.until > 0 ? m->batch.until_after : 0;
    natsMsg *found = NULL;
    if (sequence == 0 || sequence >= m->place.sequence)
        return 0;
    if (sequence == place->sequence)
        return place->time;
    for (size_t k = i; k-- > 0;)
        if (r->messages[k].place.sequence == sequence)
            return r->messages[k].place.time;
    (void)get(r, c, NULL, sequence, &found);
    bool is_own = found && strcmp(natsMsg_GetSubject(found), natsMsg_GetSubject(r->raw[i])) == 0;
    usec_t time = is_own ? time_of(found) : 0;
    natsMsg_Destroy(found);
    return time;
}

/* Adds a message to the read, unless it is bad. The sequence of a forged message may be wrong. */
static bool add(struct nats_reader *r, natsMsg *raw, const char *queue_id, uint64_t after)
{
    struct copy_message *m = &r->messages[r->read.n];
    m->place = (struct copy_place){natsMsg_GetSequence(raw), time_of(raw)};
    if (m->place.sequence <= after || !nats_batch_decode(raw, &m->batch) ||
        strcmp(m->batch.queue_id, queue_id) != 0 || !nats_batch_lines(&m->batch, 0, NULL)) {
        natsMsg_Destroy(raw);
        return false;
    }
    r->raw[r->read.n++] = raw;
    return true;
}

void nats_reader_read(struct nats_reader *r, struct nats_client *c, const struct copy_step *step)
{
    char subject[NATS_SUBJECT_MAX];
    uint64_t after = step->after;
    natsStatus s = NATS_OK;
    nats_reader_forget(r);
    if (r->state.connection != nats_client_number(c)) {
        nats_client_fail(c, NATS_OK, "the connection is new");
        return;
    }
    nats_subject(r->stream, step->queue_id, subject);
    for (size_t bytes = 0; r->read.n < NATS_READ_MESSAGES && bytes < NATS_READ_BYTES;) {
        natsMsg *raw = NULL;
        s = get(r, c, subject, after + 1, &raw);
        r->read.is_bad = s == NATS_ERR || (s == NATS_OK && !add(r, raw, step->queue_id, after));
        if (s != NATS_OK || r->read.is_bad)
            break;
        bytes += (size_t)natsMsg_GetDataLength(raw);
        after = natsMsg_GetSequence(raw);
    }
    r->read.is_end = s == NATS_NOT_FOUND;
    if (s != NATS_OK && !r->read.is_end && !r->read.is_bad) {
        nats_client_fail(c, s, "the messages of the queue");
        nats_client_disconnect(c);
        return;
    }
    for (size_t i = 0; i < r->read.n; i++)
        r->messages[i].limit = limit_of(r, c, &step->place, i);
}
