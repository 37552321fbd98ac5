#include "streams/nats/copier.h"

#include "base/name_table.h"
#include "journal/opening.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PLACE_EVERY (60 * USEC_PER_SEC) /* interval at which statements store the place */
#define REFUSED_TURNS 20                /* turns of a queue after which it reads a refused message again */
#define DOUBTS_MAX 3                    /* reads that do not find the place before it is dropped */
#define SERVERS_TRIED 8                 /* unsuccessful searches, each of which requests another server */
#define FIRST_ID 1                      /* of a queue */

struct queue {
    char id[NAME_LEN_MAX + 1], name[NAME_LEN_MAX + 1];
    bool exists;   /* the stream has messages of the queue */
    bool has_mark; /* false: pubsub must be asked */
    unsigned partition;
    uint64_t mark;
    char opening[OPENING_TEXT];      /* of message mark - 1; "": not known */
    struct copy_place place, stored; /* `stored`: the place that pubsub has */
    uint64_t at;                     /* sequence behind which the next read begins */
    uint64_t hole_end;               /* least id of the batches that were ignored (rule 5); 0: no hole */
    char *why;                       /* the queue waits because of it; NULL: it does not wait */
    usec_t copied_until;
    unsigned doubts;
    unsigned rest;   /* turns to skip */
    bool is_checked; /* the stream has the place */
    bool is_whole;   /* the search reads from the beginning */
    unsigned vain;   /* searches that have found the hole again */
    bool is_read;    /* since the start */
};

struct copier {
    struct {
        bool is_owner;
        uint64_t number, claim; /* claim: number of another cell's claim, if it is above `number`; else 0 */
    } partitions[NATS_PARTITIONS];
    char claimed[200]; /* why the last of these partitions stopped */
    struct queue **queues;
    size_t n, cap, turn, n_idle; /* n_idle: turns in a row that found nothing */
    struct name_table by_id;
    char foreign[NATS_SUBJECT_MAX + 80]; /* why a subject of the stream is refused; "": there is none */
    struct copy_stream stream;
    uint64_t end; /* the stream's last sequence at the look before, which a replica that lags has, too */
    struct queue *queue; /* of the step in progress; NULL: none */
    /* The outcome of a read. */
    struct publisher_run run;
    bool has_run;
    bool wants_server;
    struct copy_place place; /* the queue's place, `at` and `copied_until` once the run is stored */
    uint64_t at;
    usec_t copied_until; /* 0: as before */
    uint64_t hole;       /* the read ends at a hole before this id; 0: none */
    struct buf body;
    char opening[NAME_LEN_MAX + 1]; /* of the run */
    char guard[PARTITION_PRODUCER_TEXT];
    char message_opening[OPENING_TEXT]; /* of message run.next - 1 */
};

static struct queue *queue_named(struct copier *c, const char *id)
{
    struct queue *q = name_table_find(&c->by_id, id);
    if (q)
        return q;
    q = mem_zalloc(sizeof *q);
    snprintf(q->id, sizeof q->id, "%s", id);
    q->partition = nats_partition(id);
    q->copied_until = c->stream.time;
    name_table_add(&c->by_id, q->id, q);
    ARRAY_ROOM(c->queues, c->cap, c->n + 1);
    return c->queues[c->n++] = q;
}

static void set_why(struct queue *q, char *why)
{
    free(q->why);
    q->why = why;
}

void copier_begin(struct copier *c)
{
    c->queue = NULL;
    for (size_t i = 0; i < c->n; i++)
        c->queues[i]->has_mark = false;
}

/* Reads again from the place, which is checked first. So does a search. */
static void rewind_queue(struct queue *q)
{
    q->at = q->place.sequence > 0 ? q->place.sequence - 1 : 0;
    q->is_checked = q->is_whole = q->place.sequence == 0;
    q->doubts = 0;
}

void copier_see(struct copier *c, const struct copy_stream *stream)
{
    bool is_other = stream->created != c->stream.created && c->stream.created != 0;
    bool is_doubtful = stream->connection != c->stream.connection || stream->last < c->stream.last;
    c->end = is_other || is_doubtful ? 0 : c->stream.last;
    c->wants_server = c->wants_server && stream->connection == c->stream.connection;
    c->stream = *stream;
    for (size_t i = 0; i < c->n; i++) {
        struct queue *q = c->queues[i];
        if (is_other)
            q->place = (struct copy_place){0};
        if (is_other || is_doubtful)
            rewind_queue(q);
    }
}

void copier_find(struct copier *c)
{
    c->foreign[0] = '\0';
    for (size_t i = 0; i < c->n; i++)
        c->queues[i]->exists = false;
}

static bool is_copied(const struct copier *c, const struct queue *q)
{
    return c->partitions[q->partition].is_owner && c->partitions[q->partition].claim == 0;
}

bool copier_own(struct copier *c, unsigned partition, bool is_owner, uint64_t number)
{
    if (c->partitions[partition].is_owner == is_owner && c->partitions[partition].number == number)
        return false;
    c->partitions[partition].is_owner = is_owner;
    c->partitions[partition].number = number;
    c->partitions[partition].claim = 0;
    for (size_t i = 0; i < c->n; i++) {
        struct queue *q = c->queues[i];
        if (q->partition != partition)
            continue;
        q->has_mark = false;
        q->hole_end = 0;
        q->rest = 0;
        set_why(q, NULL);
        q->copied_until = c->stream.time;
        q->is_read = false;
    }
    c->queue = NULL;
    return true;
}

void copier_claimed(struct copier *c, unsigned partition, uint64_t number)
{
    c->partitions[partition].claim = number;
    c->queue = NULL; /* the step in progress may be of this partition */
    snprintf(c->claimed, sizeof c->claimed,
        "partition %u has moved to another cell (move %" PRIu64
        "), and this copy of the cell is older; millrace cell move %u --to its owner settles this",
        partition, number, partition);
}

/* Reads STREAM.PARTITION.QUEUEID. */
void copier_found(struct copier *c, const char *subject)
{
    const char *number = strchr(subject, '.'), *dot = number ? strchr(number + 1, '.') : NULL;
    uint64_t partition = NATS_PARTITIONS;
    bool is_valid = dot && bytes_is_name(bytes_str(dot + 1)) &&
                    bytes_to_u64(bytes_of(number + 1, (size_t)(dot - number) - 1), &partition);
    if (is_valid && partition < NATS_PARTITIONS && strcmp(dot + 1, NATS_CLAIM) == 0)
        return;
    if (is_valid && partition == nats_partition(dot + 1))
        queue_named(c, dot + 1)->exists = true;
    else if (partition >= NATS_PARTITIONS || c->partitions[partition].is_owner)
        snprintf(c->foreign, sizeof c->foreign,
            "subject %s of JetStream is not that of a relay; purge its messages", subject);
}

struct copy_step copier_next(struct copier *c)
{
    for (; !c->queue && c->n_idle < c->n; c->n_idle++) {
        struct queue *q = c->queues[c->turn++ % c->n];
        if (q->exists && q->rest == 0 && is_copied(c, q)) {
            c->queue = q;
            break;
        }
        q->rest -= q->rest > 0;
    }
    struct queue *q = c->queue;
    if (!q) {
        c->n_idle = 0;
        return (struct copy_step){.action = COPY_IDLE};
    }
    return (struct copy_step){
        .action = q->has_mark ? COPY_READ : COPY_ASK, .queue_id = q->id, .after = q->at, .place = q->place};
}

static void set_opening(char out[OPENING_TEXT], struct bytes opening)
{
    bool is_valid = opening_is_valid(opening);
    snprintf(out, OPENING_TEXT, "%.*s", is_valid ? (int)opening.len : 0, is_valid ? opening.ptr : "");
}

/* Reads "OPENING.SEQUENCE.TIME". The opening of another program has no dots. */
void copier_asked(struct copier *c, uint64_t mark, struct bytes opening)
{
    struct queue *q = c->queue;
    struct copy_place place = {0};
    struct bytes parts[3] = {BYTES_NONE};
    char copy[NAME_LEN_MAX + 1];
    const char *rest = copy;
    size_t n = 0;
    snprintf(copy, sizeof copy, "%.*s", (int)opening.len, opening.len ? opening.ptr : "");
    while (n < 3 && bytes_next_word(&rest, ".", &parts[n]))
        n++;
    if (n < 3 || !bytes_to_u64(parts[1], &place.sequence) || !bytes_to_i64(parts[2], &place.time))
        place = (struct copy_place){0};
    q->has_mark = true;
    c->queue = NULL;
    if (q->hole_end > 0 && q->why && mark == q->mark)
        return; /* the search goes on */
    set_opening(q->opening, parts[0]);
    q->mark = mark;
    q->place = q->stored = place;
    rewind_queue(q);
    q->hole_end = 0;
}

static bool refuse(struct queue *q, char *why)
{
    set_why(q, why);
    q->rest = REFUSED_TURNS;
    q->has_mark = false;
    return false;
}

/* True if lines of the batch are before M, and belong to another past than M (rule 6). */
static bool is_of_copy(const struct copier *c, const struct nats_batch *b)
{
    uint64_t mark = c->run.next;
    if (b->lines.len == 0 || nats_batch_first_id(b) >= mark || !opening_is_valid(bytes_str(b->opening)) ||
        !c->message_opening[0])
        return false;
    return b->next <= mark ? opening_is_after(b->opening, bytes_str(c->message_opening))
                           : strcmp(b->opening, c->message_opening) != 0;
}

/* The first hole ends the read. In a search, the batch is ignored. */
static bool meet_hole(struct copier *c, uint64_t id)
{
    struct queue *q = c->queue;
    if (q->hole_end == 0)
        c->hole = id;
    else if (id < q->hole_end)
        q->hole_end = id;
    return q->hole_end > 0;
}

static void add_to_run(struct copier *c, const struct copy_message *m)
{
    const struct nats_batch *b = &m->batch;
    (void)nats_batch_lines(b, c->run.next, &c->body);
    c->has_run = true;
    c->run.next = b->next;
    c->run.name = b->name;
    if (b->lines.len > 0)
        set_opening(c->message_opening, bytes_str(b->opening));
    if (b->until > 0 && m->limit > 0)
        c->run.until = b->until < m->limit ? b->until : m->limit;
}

/* Adds a message to the run if it changes something. Returns false if the read ends before the message. */
static bool take(struct copier *c, const struct copy_message *m)
{
    struct queue *q = c->queue;
    const struct nats_batch *b = &m->batch;
    uint64_t mark = c->run.next;
    snprintf(q->name, sizeof q->name, "%s", b->name);
    if (is_of_copy(c, b))
        return refuse(q,
            mem_printf("queue %s (%s) is an old copy: message %" PRIu64
                       " of JetStream has other lines for ids that are stored; millrace producers --set=%s "
                       "--from=%" PRIu64 " --mark=%" PRIu64 " drops these lines",
                q->id, b->name, m->place.sequence, q->id, mark, b->next > mark ? b->next : mark));
    if (b->mark > (mark ? mark : FIRST_ID))
        return meet_hole(c, b->mark);
    if (b->next > mark || (b->next == mark && b->mark == mark && mark > 0))
        add_to_run(c, m);
    return true;
}

/* A search continues from the beginning, or was unsuccessful. The second search is on another server. Later searches are rare:
 * each reads the whole queue. */
static void search_ended(struct copier *c)
{
    struct queue *q = c->queue;
    if (!q->is_whole) {
        q->is_whole = true;
        c->at = 0;
        return;
    }
    if (c->wants_server) /* searches on the next connection */
        return;
    q->vain++;
    c->wants_server = q->vain <= SERVERS_TRIED || (q->vain & (q->vain - 1)) == 0;
    if (q->vain == 1)
        return;
    refuse(q, mem_printf("messages %" PRIu64 " to %" PRIu64
                         " of queue %s (%s) are not in JetStream; millrace producers --set=%s --from=%" PRIu64
                         " --mark=%" PRIu64 " continues without them",
                  q->mark, q->hole_end - 1, q->id, q->name, q->id, q->mark, q->hole_end));
}

/* True if the stream has the place. */
static bool check_place(struct copier *c, const struct copy_read *read)
{
    struct queue *q = c->queue;
    const struct copy_place *first = read->n > 0 ? &read->messages[0].place : NULL;
    q->is_checked = q->place.sequence < c->stream.first ||
                    (first && first->sequence == q->place.sequence && first->time == q->place.time);
    if (q->is_checked)
        return true;
    if (++q->doubts < DOUBTS_MAX) {
        q->rest = REFUSED_TURNS;
        return false;
    }
    q->place = (struct copy_place){0};
    rewind_queue(q);
    return false;
}

void copier_read(struct copier *c, const struct copy_read *read)
{
    struct queue *q = c->queue;
    size_t n = 0;
    if (!q->is_checked && !check_place(c, read)) {
        c->queue = NULL;
        c->n_idle++;
        return;
    }
    if (q->hole_end == 0)
        set_why(q, NULL);
    partition_producer(q->partition, c->guard);
    c->run = (struct publisher_run){.producer = q->id,
        .mark = q->mark,
        .next = q->mark,
        .states = true,
        .opening = "",
        .name = q->name,
        .guard = c->guard,
        .guard_mark = c->partitions[q->partition].number};
    c->has_run = false;
    c->hole = 0;
    buf_clear(&c->body);
    memcpy(c->message_opening, q->opening, sizeof q->opening);
    while (n < read->n && take(c, &read->messages[n]))
        n++;
    c->at = n > 0 ? read->messages[n - 1].place.sequence : q->at;
    if (n == read->n && read->is_bad)
        refuse(q, mem_printf("the message of queue %s in JetStream after sequence %" PRIu64
                             " is not a batch of a relay; delete it",
                      q->id, c->at));
    c->run.lines = buf_bytes(&c->body);
    c->place = n > 0 && q->hole_end == 0 ? read->messages[n - 1].place : q->place;
    c->n_idle = n > 0 || c->hole > 0 ? 0 : c->n_idle + 1;
    if (q->hole_end > 0 && read->n == 0 && read->is_end)
        search_ended(c);
    else if (read->is_end && n == read->n && q->hole_end == 0)
        c->at = c->end > c->at ? c->end : c->at;
    c->copied_until = 0;
    if (q->hole_end == 0 && n == read->n && (n > 0 || read->is_end))
        c->copied_until = read->is_end ? read->began : c->place.time;
}

/* All messages of the read are in effect. */
static void finish(struct copier *c)
{
    struct queue *q = c->queue;
    c->queue = NULL;
    q->place = c->place;
    q->at = c->at;
    if (c->copied_until > 0) {
        q->copied_until = c->copied_until;
        q->is_read = true;
    }
    if (c->hole > 0) {
        q->hole_end = c->hole;
        q->vain = 0;
        rewind_queue(q);
    } else if (q->hole_end > 0 && q->mark >= q->hole_end) {
        q->hole_end = 0;
        rewind_queue(q);
        set_why(q, NULL);
    }
}

bool copier_run(struct copier *c, struct publisher_run *run)
{
    struct queue *q = c->queue;
    if (!q || !c->has_run) {
        if (q)
            finish(c);
        return false;
    }
    usec_t since = c->place.time - q->stored.time;
    if (c->run.next > q->mark || since >= PLACE_EVERY || since < 0) {
        snprintf(c->opening, sizeof c->opening, "%s.%" PRIu64 ".%" PRId64,
            c->message_opening[0] ? c->message_opening : "-", c->place.sequence, c->place.time);
        c->run.opening = c->opening;
    }
    *run = c->run;
    return true;
}

uint64_t copier_stored(struct copier *c)
{
    struct queue *q = c->queue;
    assert(q);
    q->mark = c->run.next;
    memcpy(q->opening, c->message_opening, sizeof q->opening);
    if (c->run.opening[0])
        q->stored = c->place;
    finish(c);
    return bytes_count_lines(c->run.lines);
}

void copier_refused(struct copier *c, const char *why)
{
    struct queue *q = c->queue;
    c->queue = NULL;
    refuse(q, mem_printf("pubsub refuses messages %" PRIu64 " to %" PRIu64 " of queue %s (%s): %s",
                  c->run.mark, c->run.next - 1, q->id, q->name, why));
}

bool copier_wants_server(const struct copier *c)
{
    return c->wants_server;
}

size_t copier_waiting(const struct copier *c, const char **why)
{
    size_t n = c->foreign[0] != '\0';
    *why = n > 0 ? c->foreign : NULL;
    for (size_t i = 0; i < NATS_PARTITIONS; i++)
        if (c->partitions[i].claim > 0) {
            n++;
            *why = c->claimed;
        }
    for (size_t i = c->n; i-- > 0;)
        if (c->queues[i]->why && is_copied(c, c->queues[i])) {
            n++;
            *why = c->queues[i]->why;
        }
    return n;
}

struct copy_lag copier_lag(const struct copier *c, usec_t now)
{
    struct copy_lag lag = {.time = now - c->stream.time};
    for (size_t i = 0; i < c->n; i++) {
        const struct queue *q = c->queues[i];
        if (!is_copied(c, q))
            continue;
        uint64_t messages = q->exists && c->stream.last > q->at ? c->stream.last - q->at : 0;
        usec_t time = q->exists ? now - q->copied_until : 0;
        lag.messages = messages > lag.messages ? messages : lag.messages;
        lag.time = time > lag.time ? time : lag.time;
    }
    return lag;
}

uint64_t copier_partitions(const struct copier *c)
{
    uint64_t set = 0;
    for (size_t i = 0; i < NATS_PARTITIONS; i++)
        set |= (uint64_t)(c->partitions[i].is_owner && c->partitions[i].claim == 0) << i;
    return set;
}

size_t copier_unread(const struct copier *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        n += is_copied(c, c->queues[i]) && c->queues[i]->exists && !c->queues[i]->is_read;
    return n;
}

struct copier *copier_new(usec_t now)
{
    struct copier *c = mem_zalloc(sizeof *c);
    c->stream.time = now;
    return c;
}

void copier_free(struct copier **cc)
{
    struct copier *c = *cc;
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++) {
        free(c->queues[i]->why);
        free(c->queues[i]);
    }
    free(c->queues);
    name_table_free(&c->by_id);
    buf_free(&c->body);
    free(c);
    *cc = NULL;
}
