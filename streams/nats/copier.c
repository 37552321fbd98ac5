#include "streams/nats/copier.h"

#include "base/name_table.h"
#include "journal/opening.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CURSOR_EVERY (60 * USEC_PER_SEC) /* at which statements store the cursor */
#define REFUSED_TURNS 20 /* turns of a partition after which it reads a refused message again */
#define FIRST_ID 1       /* of a queue */
#define LOSS_SEPARATORS " ,"

struct copy_queue {
    char id[NAME_LEN_MAX + 1];
    uint64_t mark, planned;     /* planned: the mark once the read is in effect */
    struct copy_place place;    /* the cursor that is stored with the mark */
    char opening[OPENING_TEXT]; /* of message planned - 1; "": not known */
};

struct partition {
    unsigned number;
    struct copy_place cursor, stored; /* `stored`: the latest cursor that pubsub has */
    struct copy_queue *repaired;      /* has a hole before hole_end (rule 5); NULL: none */
    uint64_t hole_end;
    struct copy_place at; /* in the subject of `repaired` */
    bool is_whole;        /* this subject is read from the beginning */
    bool waits;           /* because of `why`, until a message comes into effect */
    char why[400];
    unsigned rest; /* turns to skip */
    usec_t copied_until;
    uint64_t pending, mean_bytes; /* mean_bytes: of a message */
};

struct copier {
    struct partition partitions[NATS_PARTITIONS];
    size_t n, turn, n_idle; /* n_idle: reads in a row that found nothing */
    struct name_table queues;
    const char *losses;        /* see copier_new */
    struct partition *reading; /* NULL: no read is in progress */
    struct copy_source source;
    struct copy_read read;
    struct copy_queue **takes;  /* for each message of the read: its queue, or NULL if it is in effect */
    size_t n_takes;             /* the read ends before a hole or a refused message */
    struct copy_queue *running; /* its messages are in `run` */
    struct copy_run run;
    struct buf body;
    char opening[NAME_LEN_MAX + 1]; /* of the run */
};

static struct copy_queue *queue_named(struct copier *c, const char *id)
{
    struct copy_queue *q = name_table_find(&c->queues, id);
    if (q)
        return q;
    q = mem_zalloc(sizeof *q);
    snprintf(q->id, sizeof q->id, "%s", id);
    name_table_add(&c->queues, q->id, q);
    return q;
}

static void set_opening(struct copy_queue *q, struct bytes opening)
{
    bool is_valid = opening_is_valid(opening);
    snprintf(
        q->opening, sizeof q->opening, "%.*s", is_valid ? (int)opening.len : 0, is_valid ? opening.ptr : "");
}

void copier_begin(struct copier *c)
{
    c->reading = NULL;
    c->running = NULL;
    c->n_takes = 0;
    for (size_t i = 0; i < c->queues.n; i++) {
        struct copy_queue *q = name_table_at(&c->queues, i);
        q->mark = 0;
        q->opening[0] = '\0';
        q->place = (struct copy_place){0};
    }
    for (size_t i = 0; i < c->n; i++) {
        struct partition *p = &c->partitions[i];
        p->cursor = p->stored = (struct copy_place){0};
        p->repaired = NULL;
        p->waits = false;
    }
}

/* Reads "OPENING.SEQUENCE.TIME". The opening of another program has no dots. */
static void read_opening(struct copy_queue *q, struct bytes text)
{
    struct copy_place place;
    struct bytes parts[3] = {BYTES_NONE};
    char copy[NAME_LEN_MAX + 1];
    const char *rest = copy;
    size_t n = 0;
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.len ? text.ptr : "");
    while (n < 3 && bytes_next_word(&rest, ".", &parts[n]))
        n++;
    set_opening(q, parts[0]);
    if (n == 3 && bytes_to_u64(parts[1], &place.sequence) && bytes_to_i64(parts[2], &place.time))
        q->place = place;
}

void copier_listed(struct copier *c, struct bytes producer, uint64_t mark, struct bytes opening)
{
    char *id = bytes_dup(producer);
    for (size_t i = 0; i < c->n; i++) {
        struct partition *p = &c->partitions[i];
        if (producer.len > NAME_LEN_MAX || p->number != nats_partition(id))
            continue;
        struct copy_queue *q = queue_named(c, id);
        q->mark = mark;
        read_opening(q, opening);
        if (q->place.time > p->cursor.time)
            p->cursor = p->stored = q->place;
    }
    free(id);
}

struct copy_source copier_source(struct copier *c)
{
    struct partition *p = c->reading;
    while (!p && c->n_idle < c->n) {
        p = &c->partitions[c->turn++ % c->n];
        if (p->rest > 0) {
            p->rest--;
            c->n_idle++;
            p = NULL;
        }
    }
    c->reading = p;
    if (!p) {
        c->n_idle = 0;
        return (struct copy_source){.is_idle = true};
    }
    c->source = (struct copy_source){.partition = p->number,
        .queue_id = p->repaired ? p->repaired->id : NULL,
        .after = p->repaired ? p->at : p->cursor};
    return c->source;
}

/* Reads QUEUEID:A-B. */
static bool read_loss(struct bytes text, struct bytes *queue_id, uint64_t *first, uint64_t *end)
{
    const char *colon = memchr(text.ptr, ':', text.len), *stop = text.ptr + text.len;
    const char *dash = colon ? memchr(colon, '-', (size_t)(stop - colon)) : NULL;
    *queue_id = bytes_of(text.ptr, colon ? (size_t)(colon - text.ptr) : 0);
    return dash && bytes_is_name(*queue_id) &&
           bytes_to_u64(bytes_of(colon + 1, (size_t)(dash - colon) - 1), first) &&
           bytes_to_u64(bytes_of(dash + 1, (size_t)(stop - dash) - 1), end) && *first < *end;
}

bool copier_check_losses(const char *losses)
{
    struct bytes word, id;
    uint64_t first, end;
    while (bytes_next_word(&losses, LOSS_SEPARATORS, &word))
        if (!read_loss(word, &id, &first, &end))
            return false;
    return true;
}

/* True if the operator accepts the loss of these ids, or of more unless `is_exact`. */
static bool is_accepted(
    const struct copier *c, const char *queue_id, uint64_t first, uint64_t end, bool is_exact)
{
    const char *rest = c->losses;
    struct bytes word, id;
    uint64_t a, b;
    while (bytes_next_word(&rest, LOSS_SEPARATORS, &word))
        if (read_loss(word, &id, &a, &b) && bytes_equal_str(id, queue_id) &&
            (is_exact ? a == first && b == end : a <= first && end <= b))
            return true;
    return false;
}

static void wait_at(struct partition *p, const struct copy_message *m, bool is_copy)
{
    const struct nats_batch *b = &m->batch;
    p->waits = true;
    p->rest = REFUSED_TURNS;
    p->repaired = NULL;
    if (is_copy)
        snprintf(p->why, sizeof p->why,
            "queue %s (%s) is an old copy: message %" PRIu64
            " of JetStream has other lines for ids that are stored; accept_loss=%s:%" PRIu64 "-%" PRIu64
            " drops these lines",
            b->queue_id, b->name, m->place.sequence, b->queue_id, b->mark, b->next);
    else
        snprintf(p->why, sizeof p->why,
            "message %" PRIu64 " of JetStream (partition %u) is not a batch of a relay; delete this message",
            m->place.sequence, p->number);
}

static void repair(struct partition *p, struct copy_queue *q, const struct nats_batch *b)
{
    p->repaired = q;
    p->hole_end = b->mark;
    p->at = q->place;
    p->is_whole = q->place.sequence == 0;
    snprintf(p->why, sizeof p->why,
        "messages %" PRIu64 " to %" PRIu64 " of queue %s (%s) are not in JetStream; accept_loss=%s:%" PRIu64
        "-%" PRIu64 " continues without them",
        q->planned, b->mark - 1, q->id, b->name, q->id, q->planned, b->mark);
}

/* True if lines of the batch are before M, and belong to another past than M (rule 6). */
static bool is_of_copy(const struct copy_queue *q, const struct nats_batch *b)
{
    if (b->lines.len == 0 || nats_batch_first_id(b) >= q->planned ||
        !opening_is_valid(bytes_str(b->opening)) || !q->opening[0])
        return false;
    return b->next <= q->planned ? opening_is_after(b->opening, bytes_str(q->opening))
                                 : strcmp(b->opening, q->opening) != 0;
}

/* Sets *take to the queue of a message that changes something. Returns false if the read ends before the message. */
static bool judge(
    struct copier *c, struct partition *p, const struct copy_message *m, struct copy_queue **take)
{
    const struct nats_batch *b = &m->batch;
    bool is_valid = m->is_batch && nats_partition(b->queue_id) == p->number && nats_batch_lines(b, 0, NULL);
    struct copy_queue *q = is_valid ? queue_named(c, b->queue_id) : NULL;
    bool is_copy = q && is_of_copy(q, b) && !is_accepted(c, q->id, b->mark, b->next, false);
    *take = NULL;
    if (!is_valid || is_copy) {
        wait_at(p, m, is_copy);
        return false;
    }
    if (b->mark > (q->planned ? q->planned : FIRST_ID)) {
        if (!c->source.queue_id)
            repair(p, q, b);
        return c->source.queue_id != NULL; /* a batch behind the hole that is repaired is ignored */
    }
    if (b->next == 0 || b->next < q->planned || (b->next == q->planned && b->mark < b->next))
        return true;
    *take = q;
    q->planned = b->next;
    if (b->lines.len > 0)
        set_opening(q, bytes_str(b->opening));
    return true;
}

static void find_end(struct copier *c, struct partition *p)
{
    if (c->source.queue_id && !p->is_whole) {
        p->is_whole = true;
        p->at = (struct copy_place){0};
        return;
    }
    c->n_idle++;
    p->waits = c->source.queue_id != NULL;
    if (p->waits)
        return;
    p->copied_until = c->read.began;
    p->pending = 0;
}

static void lose_place(struct partition *p)
{
    p->is_whole = true;
    *(p->repaired ? &p->at : &p->cursor) = (struct copy_place){0};
}

void copier_read(struct copier *c, const struct copy_read *read)
{
    struct partition *p = c->reading;
    c->read = *read;
    c->n_takes = 0;
    if (read->n == 0) {
        if (read->is_lost)
            lose_place(p);
        else
            find_end(c, p);
        return;
    }
    for (size_t i = 0; i < c->queues.n; i++) {
        struct copy_queue *q = name_table_at(&c->queues, i);
        q->planned = q->mark;
    }
    c->takes = mem_realloc(c->takes, read->n * sizeof *c->takes);
    while (c->n_takes < read->n && judge(c, p, &read->messages[c->n_takes], &c->takes[c->n_takes]))
        c->n_takes++;
    c->n_idle = c->n_takes > 0 ? 0 : c->n_idle + 1;
}

/* Moves the place of the source behind the messages that are in effect. */
static void finish(struct copier *c)
{
    struct partition *p = c->reading;
    size_t n = c->n_takes;
    struct copy_place last = n > 0 ? c->read.messages[n - 1].place : c->source.after;
    uint64_t bytes = 0;
    c->reading = NULL;
    if (c->source.queue_id && p->repaired) {
        if (n > 0)
            p->at = last;
        if (p->repaired->mark >= p->hole_end)
            p->repaired = NULL;
    }
    if (c->source.queue_id || n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        bytes += c->read.messages[i].batch.lines.len;
    p->cursor = last;
    p->mean_bytes = bytes / n;
    p->pending = c->read.pending + (c->read.n - n);
    p->copied_until = p->pending > 0 ? last.time : c->read.began;
    p->waits = p->waits && p->rest > 0;
}

/* Adds the queue's messages of the read to the run. */
static void gather(struct copier *c, const struct copy_queue *q)
{
    struct copy_run *run = &c->run;
    for (size_t i = 0; i < c->n_takes; i++) {
        const struct copy_message *m = &c->read.messages[i];
        if (c->takes[i] != q)
            continue;
        (void)nats_batch_lines(&m->batch, run->next, &c->body);
        run->next = m->batch.next;
        run->name = m->batch.name;
        if (m->batch.until > 0)
            run->until = m->batch.until < m->place.time ? m->batch.until : m->place.time;
    }
    run->lines = buf_bytes(&c->body);
}

/* Returns the queue of the next run, or NULL. */
static struct copy_queue *next_queue(const struct copier *c)
{
    const struct partition *p = c->reading;
    for (size_t i = 0; i < c->n_takes; i++)
        if (c->takes[i])
            return c->takes[i];
    if (c->read.n == 0 && p->repaired && p->waits && p->repaired->mark < p->hole_end &&
        is_accepted(c, p->repaired->id, p->repaired->mark, p->hole_end, true))
        return p->repaired;
    return NULL;
}

bool copier_run(struct copier *c, struct copy_run *run)
{
    struct partition *p = c->reading;
    struct copy_queue *q = p ? next_queue(c) : NULL;
    if (!q) {
        if (p)
            finish(c);
        return false;
    }
    c->running = q;
    buf_clear(&c->body);
    c->run =
        (struct copy_run){.queue_id = q->id, .mark = q->mark, .next = q->mark, .opening = "", .name = ""};
    gather(c, q);
    if (c->read.n == 0) { /* passes an accepted hole */
        c->run.next = p->hole_end;
        q->opening[0] = '\0';
    }
    if (c->run.next > c->run.mark || p->cursor.time - p->stored.time >= CURSOR_EVERY) {
        snprintf(c->opening, sizeof c->opening, "%s.%" PRIu64 ".%" PRId64, q->opening[0] ? q->opening : "-",
            p->cursor.sequence, p->cursor.time);
        c->run.opening = c->opening;
    }
    *run = c->run;
    return true;
}

uint64_t copier_stored(struct copier *c)
{
    struct copy_queue *q = c->running;
    assert(q);
    q->mark = c->run.next;
    if (c->run.opening[0])
        q->place = c->reading->stored = c->reading->cursor;
    for (size_t i = 0; i < c->n_takes; i++)
        if (c->takes[i] == q)
            c->takes[i] = NULL;
    c->running = NULL;
    return bytes_count_lines(c->run.lines);
}

size_t copier_waiting(const struct copier *c, const char **why)
{
    size_t n = 0;
    *why = NULL;
    for (size_t i = c->n; i-- > 0;) {
        const struct partition *p = &c->partitions[i];
        n += p->waits;
        *why = p->waits ? p->why : *why;
    }
    return n;
}

struct copy_lag copier_lag(const struct copier *c, usec_t now)
{
    struct copy_lag lag = {0};
    for (size_t i = 0; i < c->n; i++) {
        const struct partition *p = &c->partitions[i];
        lag.messages += p->pending;
        lag.bytes += p->pending * p->mean_bytes;
        if (now - p->copied_until > lag.time)
            lag.time = now - p->copied_until;
    }
    return lag;
}

struct copier *copier_new(uint64_t partitions, const char *losses, usec_t now)
{
    struct copier *c = mem_zalloc(sizeof *c);
    for (unsigned i = 0; i < NATS_PARTITIONS; i++)
        if (partitions >> i & 1)
            c->partitions[c->n++] = (struct partition){.number = i, .copied_until = now};
    assert(c->n > 0);
    c->losses = losses;
    return c;
}

void copier_free(struct copier **cc)
{
    struct copier *c = *cc;
    if (!c)
        return;
    for (size_t i = 0; i < c->queues.n; i++)
        free(name_table_at(&c->queues, i));
    name_table_free(&c->queues);
    free(c->takes);
    buf_free(&c->body);
    free(c);
    *cc = NULL;
}
