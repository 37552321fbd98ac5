/* A model of queues, a stream that loses, repeats and renumbers messages, replicas that lag, and three cells, whose pubsubs are
 * restored to older copies, and whose aggregators stop for a while. Partitions move between the cells, by commands that are
 * killed. Whatever happens, each line is stored once, in one cell and in the order of its queue, and no time of an answer is too
 * late. */
#include "support/cm.h"
#include "streams/nats/copier.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUES 5
#define CELLS 3
#define SERVERS 3
#define FREE_AFTER (60 * USEC_PER_SEC) /* no question takes longer */
#define MESSAGES_MAX 4000
#define READ_MAX 7
#define TEXT_MAX 16384
#define IDS_MAX 4096

/* Two partitions. */
static const char *const names[QUEUES] = {"q0", "q15", "q133", "q1", "q14"};

struct message {
    bool exists;
    unsigned queue;
    uint64_t mark, next;
    usec_t time, until;
};

struct world {
    uint64_t random;
    struct message stream[MESSAGES_MAX]; /* the message with sequence i is stream[i] */
    uint64_t n;                          /* the last sequence */
    uint64_t life, connection;
    usec_t now;
    uint64_t published[QUEUES];       /* the relay's next mark */
    uint64_t highest[QUEUES];         /* of all ids that were published */
    usec_t accepted[QUEUES][IDS_MAX]; /* when the relay published an id first */
    usec_t known[QUEUES];             /* when a pubsub has heard of the queue first; 0: none has */
    struct model_cell {
        struct pubsub {
            uint64_t marks[QUEUES];
            bool has[QUEUES][IDS_MAX];
            char openings[QUEUES][NAME_LEN_MAX + 1];
            struct partition partitions[NATS_PARTITIONS];
            usec_t until[QUEUES];
            bool states[QUEUES], is_left_out[QUEUES];
        } pubsub, copy, old; /* copy: a backup since the latest move; old: an older one */
        /* What its aggregator replies. */
        struct counts {
            usec_t complete; /* up to this time */
            bool has[QUEUES][IDS_MAX];
        } counts;
        bool is_stopped;                /* the aggregator */
        uint64_t left[NATS_PARTITIONS]; /* the number of the move with which it left a partition last */
        bool is_new_era;
        unsigned server, connects; /* that it reads from, and its connections to others before */
        struct copier *copier;
        struct publisher_run stale; /* of a process that sleeps; producer NULL: none */
        char stale_text[TEXT_MAX], stale_opening[NAME_LEN_MAX + 1], stale_guard[PARTITION_PRODUCER_TEXT];
    } cells[CELLS], *at; /* at: the cell that acts */
    /* A question to all cells, one after the other. */
    struct question {
        struct counts replies[CELLS];
        bool is_asked[CELLS];
        usec_t begun;
        unsigned n;
    } question;
    struct copy_message read[READ_MAX];
    char texts[READ_MAX][TEXT_MAX], ids[READ_MAX][TEXT_MAX];
    bool is_giving;                   /* a command gives marks to a cell, which is not restored meanwhile */
    unsigned moves, returns, answers; /* returns: of an owner that was restored from before its move */
    unsigned skips;                   /* one of so many messages is missing in a replica; 0: none */
    bool is_lasting; /* it is missing in all reads of servers 1 and 2, and in none of server 0 */
    unsigned losses;
};

static uint64_t below(struct world *w, uint64_t n)
{
    w->random = w->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (w->random >> 33) % n;
}

/* Some ids have no message: they were buried. */
static bool has_line(unsigned queue, uint64_t id)
{
    return id > 0 && (id * 7 + queue) % 5 != 0;
}

static void append(struct world *w, unsigned queue, uint64_t mark, uint64_t next)
{
    assert_true(w->n + 1 < MESSAGES_MAX);
    w->now += 1 + (usec_t)below(w, 30 * USEC_PER_SEC);
    assert_true(next < IDS_MAX);
    for (uint64_t id = w->highest[queue]; id < next; id++)
        w->accepted[queue][id] = w->now;
    if (next > w->highest[queue])
        w->highest[queue] = next;
    w->stream[++w->n] =
        (struct message){true, queue, mark, next, w->now, next == w->highest[queue] ? w->now : 0};
}

/* The relay publishes its next batch, a statement, or an earlier batch again. */
static void publish(struct world *w, unsigned queue)
{
    uint64_t mark = w->published[queue];
    if (below(w, 4) == 0 && mark > 0) {
        uint64_t earlier = below(w, mark);
        append(w, queue, earlier, earlier + below(w, 4));
        return;
    }
    if (mark == 0 || below(w, 3) > 0)
        w->published[queue] += mark == 0 ? 1 : 1 + below(w, 6);
    append(w, queue, mark, w->published[queue]);
}

/* The relay of each queue begins again at a mark of which the stream has everything before. */
static void notice_loss(struct world *w, unsigned queue, uint64_t mark)
{
    if (mark < w->published[queue])
        w->published[queue] = mark;
    w->losses++;
}

static void lose(struct world *w)
{
    uint64_t from = 1 + below(w, w->n + 1), to = below(w, 2) ? w->n : from;
    if (below(w, 6) == 0)
        from = 1, to = w->n, w->life++; /* the stream is made again */
    else
        w->connection++;
    for (uint64_t i = from; i <= to && i <= w->n; i++) {
        if (w->stream[i].exists)
            notice_loss(w, w->stream[i].queue, w->stream[i].mark);
        w->stream[i].exists = false;
    }
    if (to == w->n)
        w->n = from - 1;
}

/* Fills read[n] as the reader does. */
static void give(struct world *w, size_t n, uint64_t sequence)
{
    static const char opening[] = "018bcfe56800aaaaaaaaaaaa";
    const struct message *m = &w->stream[sequence];
    char *text = w->texts[n], *ids = w->ids[n];
    text[0] = ids[0] = '\0';
    for (uint64_t id = m->mark; id < m->next; id++)
        if (has_line(m->queue, id)) {
            sprintf(text + strlen(text), "%" PRIu64 "\n", id);
            sprintf(ids + strlen(ids), "%s%" PRIu64 "-%" PRIu64, ids[0] ? "," : "", id, id);
        }
    w->read[n] = (struct copy_message){.place = {sequence, m->time},
        .limit = m->until,
        .batch = {.queue_id = names[m->queue],
            .mark = m->mark,
            .next = m->next,
            .opening = opening,
            .until = m->until,
            .name = "",
            .ids = ids,
            .lines = bytes_str(text)}};
}

/* True if a later message shows that the cell lacks this one. */
static bool is_followed(const struct world *w, uint64_t sequence)
{
    const struct message *m = &w->stream[sequence];
    for (uint64_t i = sequence + 1; i <= w->n; i++)
        if (w->stream[i].exists && w->stream[i].queue == m->queue && w->stream[i].mark >= m->next)
            return true;
    return false;
}

/* True if the server that the cell reads from does not show a message. */
static bool is_skipped(struct world *w, uint64_t i)
{
    if (w->skips == 0 || (w->is_lasting && w->at->server == 0))
        return false;
    uint64_t n = w->is_lasting ? (i * 2654435761U + w->at->server) >> 7 : below(w, w->skips);
    return n % w->skips == 0 && is_followed(w, i);
}

static unsigned number_of(const char *queue_id)
{
    unsigned q = 0;
    while (strcmp(names[q], queue_id) != 0)
        q++;
    return q;
}

static void find(struct world *w)
{
    char subject[NATS_SUBJECT_MAX];
    copier_see(w->at->copier, &(struct copy_stream){.first = w->n > 0,
                                  .last = w->n,
                                  .created = (usec_t)w->life,
                                  .connection = w->connection + w->at->connects,
                                  .time = w->now});
    copier_find(w->at->copier);
    for (uint64_t i = 1; i <= w->n; i++) {
        nats_subject("clicks", names[w->stream[i].queue], subject);
        if (w->stream[i].exists)
            copier_found(w->at->copier, subject);
    }
}

static void read_next(struct world *w)
{
    struct copy_step s = copier_next(w->at->copier);
    struct copy_read read = {.messages = w->read, .began = w->now, .is_end = true};
    if (s.action == COPY_IDLE)
        return;
    unsigned q = number_of(s.queue_id);
    if (s.action == COPY_ASK) {
        copier_asked(w->at->copier, w->at->pubsub.marks[q], bytes_str(w->at->pubsub.openings[q]));
        return;
    }
    for (uint64_t i = s.after + 1; i <= w->n; i++) {
        if (!w->stream[i].exists || w->stream[i].queue != q || is_skipped(w, i))
            continue;
        if (read.n == READ_MAX) {
            read.is_end = false;
            break;
        }
        give(w, read.n++, i);
    }
    copier_read(w->at->copier, &read);
}

/* A cell is complete up to the least time that its producers state. */
static void see_times(struct world *w)
{
    for (unsigned q = 0; q < QUEUES; q++) {
        bool is_known = false;
        for (unsigned i = 0; i < CELLS; i++)
            is_known |= w->cells[i].pubsub.states[q];
        w->known[q] = !is_known ? 0 : w->known[q] > 0 ? w->known[q] : w->now;
    }
    for (struct model_cell *c = w->cells; c < w->cells + CELLS; c++) {
        usec_t least = w->now;
        for (unsigned q = 0; q < QUEUES; q++)
            if (c->pubsub.states[q] && !c->pubsub.is_left_out[q] && c->pubsub.until[q] < least)
                least = c->pubsub.until[q];
        c->is_stopped = below(w, 40) == 0 ? !c->is_stopped : c->is_stopped;
        if (least == 0 || c->is_stopped)
            continue;
        c->counts.complete = least;
        for (unsigned q = 0; q < QUEUES; q++)
            memcpy(c->counts.has[q], c->pubsub.has[q], w->highest[q]);
    }
}

/* An answer has each line that was accepted before its time. A queue holds no time back before a cell knows it. */
static void check_answer(const struct world *w, const struct counts *replies[CELLS])
{
    usec_t complete = w->now;
    for (unsigned i = 0; i < CELLS; i++)
        complete = replies[i]->complete < complete ? replies[i]->complete : complete;
    for (unsigned q = 0; q < QUEUES; q++) {
        usec_t known = w->known[q] > 0 ? w->known[q] : w->now;
        for (uint64_t id = 1; id < w->highest[q]; id++) {
            int n = 0;
            for (unsigned i = 0; i < CELLS; i++)
                n += replies[i]->has[q][id];
            assert_true(n <= 1);
            assert_true(n == has_line(q, id) || complete <= known || w->accepted[q][id] >= complete);
        }
    }
}

static void check_lines(const struct world *w)
{
    const struct counts *replies[CELLS];
    for (unsigned i = 0; i < CELLS; i++)
        replies[i] = &w->cells[i].counts;
    check_answer(w, replies);
    for (unsigned q = 0; q < QUEUES; q++)
        for (uint64_t id = 1; id < w->highest[q]; id++) {
            int n = 0;
            for (unsigned i = 0; i < CELLS; i++)
                n += w->cells[i].pubsub.has[q][id];
            assert_true(n <= 1);
        }
}

/* Asks a cell that the question has not asked yet. */
static void ask(struct world *w)
{
    struct question *a = &w->question;
    const struct counts *replies[CELLS];
    unsigned i = (unsigned)below(w, CELLS);
    if (a->n == CELLS || (a->n > 0 && w->now - a->begun >= FREE_AFTER)) {
        memset(a->is_asked, 0, sizeof a->is_asked);
        a->n = 0;
    }
    while (a->is_asked[i])
        i = (i + 1) % CELLS;
    a->begun = a->n == 0 ? w->now : a->begun;
    a->is_asked[i] = true;
    a->replies[i] = w->cells[i].counts;
    if (++a->n < CELLS)
        return;
    for (i = 0; i < CELLS; i++)
        replies[i] = &a->replies[i];
    check_answer(w, replies);
    w->answers++;
}

static bool has_guard(const struct pubsub *p, const struct publisher_run *run)
{
    char name[PARTITION_PRODUCER_TEXT];
    unsigned partition = nats_partition(run->producer);
    partition_producer(partition, name);
    assert_string_equal(run->guard, name);
    return run->guard_mark == p->partitions[partition].number;
}

/* pubsub stores a run. Returns false if the run or its guard has another mark. */
static bool store(struct world *w, const struct publisher_run *run)
{
    unsigned q = number_of(run->producer);
    struct pubsub *p = &w->at->pubsub;
    if (!has_guard(p, run))
        return false;
    bool is_duplicate = run->next > run->mark && p->marks[q] >= run->next;
    if (!is_duplicate && run->mark != p->marks[q])
        return false;
    p->states[q] = true;
    p->is_left_out[q] = false;
    p->until[q] = run->until > 0 ? run->until : p->until[q];
    if (is_duplicate)
        return true;
    struct bytes rest = run->lines;
    for (uint64_t id = run->mark; id < run->next; id++) {
        char line[24];
        int len = snprintf(line, sizeof line, "%" PRIu64 "\n", id);
        if (!has_line(q, id))
            continue;
        assert_true(bytes_starts_with(rest, bytes_of(line, (size_t)len)));
        rest = bytes_of(rest.ptr + len, rest.len - (size_t)len);
        p->has[q][id] = true;
    }
    assert_int_equal(rest.len, 0);
    assert_true(run->until <= w->now);
    p->marks[q] = run->next;
    if (run->opening[0])
        snprintf(p->openings[q], sizeof p->openings[q], "%s", run->opening);
    return true;
}

static void see_records(struct world *w)
{
    for (unsigned i = 0; i < NATS_PARTITIONS; i++) {
        const struct partition *p = &w->at->pubsub.partitions[i];
        copier_own(w->at->copier, i, p->state == PARTITION_OWNED, p->number);
    }
}

static void restart(struct world *w)
{
    copier_free(&w->at->copier);
    w->at->copier = copier_new(w->now);
    see_records(w);
    find(w);
}

/* The process sleeps before it sends its run, and another one copies. */
static void pause_before(struct world *w, const struct publisher_run *run)
{
    struct model_cell *c = w->at;
    c->stale = *run;
    c->stale.producer = names[number_of(run->producer)];
    snprintf(c->stale_text, sizeof c->stale_text, "%.*s", (int)run->lines.len, run->lines.ptr);
    snprintf(c->stale_opening, sizeof c->stale_opening, "%s", run->opening);
    snprintf(c->stale_guard, sizeof c->stale_guard, "%s", run->guard);
    c->stale.lines = bytes_str(c->stale_text);
    c->stale.opening = c->stale_opening;
    c->stale.guard = c->stale_guard;
    c->stale.name = "";
    restart(w);
}

static void wake_up(struct world *w)
{
    if (w->at->stale.producer)
        (void)store(w, &w->at->stale);
    w->at->stale.producer = NULL;
}

/* One read with its run. With `faults`, replies are lost, and processes are killed. */
static void copy(struct world *w, bool faults)
{
    struct publisher_run run;
    if (below(w, 12) == 0)
        find(w);
    read_next(w);
    bool has_run = copier_run(w->at->copier, &run);
    if (copier_wants_server(w->at->copier)) {
        w->at->server = faults ? (unsigned)below(w, SERVERS) : (w->at->server + 1) % SERVERS;
        w->at->connects++;
        find(w);
    }
    if (!has_run)
        return;
    if (faults && below(w, 30) == 0) {
        if (below(w, 2))
            (void)store(w, &run);
        restart(w);
        return;
    }
    if (faults && below(w, 30) == 0) {
        pause_before(w, &run);
        return;
    }
    if (faults && below(w, 10) == 0)
        (void)store(w, &run); /* the reply is lost: the run is repeated */
    if (store(w, &run))
        (void)copier_stored(w->at->copier);
    else {
        copier_begin(w->at->copier);
        see_records(w);
    }
}

/* The cell learns of it by a conflict or, later, by the new era. */
static void restore_from(struct world *w, const struct pubsub *copy)
{
    w->at->pubsub = *copy;
    w->at->counts = (struct counts){0};
    w->at->is_new_era = true;
    w->question.n = CELLS; /* no question that began before */
}

/* pubsub is backed up, or restored. */
static void restore(struct world *w)
{
    if (below(w, 2) == 0)
        restore_from(w, &w->at->copy);
    else
        w->at->copy = w->at->pubsub;
    if (below(w, 4) == 0)
        w->at->old = w->at->copy;
}

static void see_era(struct world *w)
{
    if (w->at->is_new_era)
        copier_begin(w->at->copier);
    see_records(w);
    w->at->is_new_era = false;
}

static void act(struct world *w, uint64_t seed)
{
    uint64_t n = below(w, 100);
    w->at = &w->cells[below(w, CELLS)];
    if (n < 40)
        publish(w, (unsigned)below(w, QUEUES));
    else if (n < 42 && seed % 2 == 0)
        lose(w);
    else if (n < 44 && !w->is_giving)
        restore(w);
    else if (n < 48)
        see_era(w);
    else if (n < 50)
        wake_up(w);
    else if (n < 55)
        ask(w);
    else
        copy(w, true);
    see_times(w);
    check_lines(w);
}

/* What happens between two requests of `millrace cell move`. Returns false if the command is killed. A backup is made after
 * a change of a record. */
static bool goes_on(struct world *w, struct model_cell *changed, uint64_t seed)
{
    if (changed)
        changed->copy = changed->pubsub;
    while (below(w, 3) > 0)
        act(w, seed);
    return below(w, 12) > 0;
}

/* A move, as tools/cell.c makes it. */
struct move {
    struct world *w;
    unsigned partition, number;
    struct model_cell *from, *to;
    uint64_t seed;
    bool is_quick; /* nothing happens during the command, which does not wait */
};

static struct partition *record(const struct move *m, struct model_cell *c)
{
    return &c->pubsub.partitions[m->partition];
}

static bool pauses(const struct move *m, struct model_cell *changed)
{
    if (m->is_quick && changed)
        changed->copy = changed->pubsub;
    return m->is_quick || goes_on(m->w, changed, m->seed);
}

/* Gives the marks of m->from. Returns false if the command is killed. */
static bool give_marks(const struct move *m)
{
    struct pubsub *x = &m->from->pubsub, *y = &m->to->pubsub;
    for (unsigned q = 0; q < QUEUES; q++) {
        if (nats_partition(names[q]) != m->partition || x->marks[q] == 0 || y->marks[q] > x->marks[q])
            continue;
        y->marks[q] = x->marks[q];
        memcpy(y->openings[q], x->openings[q], sizeof y->openings[q]);
        if (x->states[q]) {
            y->until[q] = x->until[q] > 0 ? x->until[q] : y->until[q];
            y->states[q] = true;
            y->is_left_out[q] = false;
        }
        if (!pauses(m, NULL))
            return false;
    }
    return true;
}

/* Steps 2 and 3. */
static bool arrive(struct move *m)
{
    struct world *w = m->w;
    if (record(m, m->to)->number < m->number)
        *record(m, m->to) = (struct partition){.number = m->number, .state = PARTITION_OTHER};
    if (!pauses(m, m->to))
        return false;
    w->is_giving = true;
    for (m->from = w->cells; m->from < w->cells + CELLS; m->from++)
        if (m->from != m->to && record(m, m->from)->number == m->number &&
            record(m, m->from)->state >= PARTITION_LEAVING && !give_marks(m))
            return false;
    record(m, m->to)->state = PARTITION_OWNED;
    w->moves++;
    w->is_giving = false;
    return pauses(m, m->to);
}

/* True if the times of the moved queues hold back the answers of the new cell. */
static bool is_held(const struct move *m, usec_t moved)
{
    const struct pubsub *p = &m->to->pubsub;
    const struct counts *a = &m->to->counts;
    bool is_held = true;
    for (unsigned q = 0; q < QUEUES; q++)
        if (nats_partition(names[q]) == m->partition && p->states[q] && !p->is_left_out[q])
            is_held &= a->complete <= p->until[q] && memcmp(a->has[q], p->has[q], IDS_MAX) == 0;
    return is_held || a->complete > moved;
}

static bool waits_until_held(const struct move *m)
{
    struct world *w = m->w;
    usec_t moved = w->now;
    for (int i = 0; i < 60 && !is_held(m, moved); i++)
        act(w, m->seed);
    if (!is_held(m, moved))
        return false;
    for (usec_t complete = w->now; w->now < complete + FREE_AFTER;)
        act(w, m->seed);
    return true;
}

/* Step 4. Returns false if it does not end. */
static bool end_move(struct move *m)
{
    struct world *w = m->w;
    bool has_waited = false;
    for (m->from = w->cells; m->from < w->cells + CELLS; m->from++) {
        struct partition *r = record(m, m->from);
        if (m->from == m->to || r->state < PARTITION_LEAVING ||
            (r->state == PARTITION_LEFT && r->number < m->number))
            continue;
        if (r->state == PARTITION_LEAVING && !has_waited && !m->is_quick && !waits_until_held(m))
            return false;
        has_waited |= r->state == PARTITION_LEAVING;
        *r = (struct partition){.number = m->number, .state = PARTITION_LEFT};
        if (!pauses(m, m->from))
            return false;
        for (unsigned q = 0; q < QUEUES; q++)
            if (nats_partition(names[q]) == m->partition) {
                m->from->pubsub.is_left_out[q] = m->from->pubsub.states[q];
                if (!pauses(m, NULL))
                    return false;
            }
        m->from->copy = m->from->pubsub;
    }
    return true;
}

static void move(struct move *m)
{
    struct model_cell *owner = NULL;
    struct world *w = m->w;
    w->is_giving = false;
    m->number = 0;
    for (struct model_cell *c = w->cells; c < w->cells + CELLS; c++)
        if (record(m, c)->state != PARTITION_OTHER && record(m, c)->number >= m->number) {
            m->number = (unsigned)record(m, c)->number;
            owner = record(m, c)->state == PARTITION_OWNED ? c : owner;
        }
    for (struct model_cell *c = w->cells; c < w->cells + CELLS; c++)
        if (owner && record(m, c)->state != PARTITION_OTHER &&
            record(m, c)->number > record(m, owner)->number)
            owner = NULL;
    if (owner && owner != m->to) {
        struct move before = *m; /* perhaps interrupted */
        before.to = owner;
        if (!end_move(&before))
            return;
        m->number++;
        *record(m, owner) = (struct partition){.number = m->number, .state = PARTITION_LEAVING};
        owner->left[m->partition] = m->number;
        snprintf(record(m, owner)->cell, NAME_LEN_MAX, "%u", (unsigned)(m->to - w->cells));
        if (!pauses(m, owner))
            return;
    }
    if (owner == m->to || arrive(m))
        (void)end_move(m);
}

/* The owner is restored from a backup before its move, and the command is repeated before a question asks it. The backup has
 * all that the cell had when it left the partition earlier, and the records of its other partitions. */
static void restore_owner(struct world *w, unsigned p, uint64_t seed)
{
    struct model_cell *c = w->cells;
    while (c < w->cells + CELLS && c->pubsub.partitions[p].state != PARTITION_OWNED)
        c++;
    const struct partition *old = c == w->cells + CELLS ? NULL : &c->old.partitions[p];
    if (!old || old->number >= c->pubsub.partitions[p].number || old->number < c->left[p] ||
        old->state == PARTITION_OWNED)
        return;
    for (unsigned i = 0; i < NATS_PARTITIONS; i++)
        if (i != p && (c->old.partitions[i].number != c->pubsub.partitions[i].number ||
                          c->old.partitions[i].state != c->pubsub.partitions[i].state))
            return;
    w->at = c;
    restore_from(w, &c->old);
    c->copy = c->old;
    w->returns++;
    move(&(struct move){w, p, 0, NULL, c, seed, true});
}

/* True if the cell has all of the queues that it owns. Another server is tried less and less often. */
static bool has_all(const struct world *w)
{
    for (unsigned q = 0; q < QUEUES; q++)
        if (w->at->pubsub.partitions[nats_partition(names[q])].state == PARTITION_OWNED &&
            w->at->pubsub.marks[q] != w->highest[q])
            return false;
    return true;
}

/* Without kills, the move of each partition ends, the relays publish what is lost, and everything is stored. Without a loss the
 * queues publish nothing more. */
static void settle(struct world *w)
{
    const char *why;
    w->skips = w->is_lasting ? w->skips : 0;
    w->at = w->cells;
    for (unsigned q = 0; q < QUEUES && w->losses; q++) {
        uint64_t middle = (w->published[q] + w->highest[q]) / 2;
        append(w, q, middle, w->highest[q] + 3);
        if (below(w, 2))
            copy(w, true);
        append(w, q, w->published[q], middle);
        append(w, q, w->highest[q], w->highest[q]);
    }
    for (w->at = w->cells; w->at < w->cells + CELLS; w->at++) {
        w->at->is_stopped = false;
        wake_up(w);
        if (below(w, 2))
            restart(w);
        see_era(w);
        find(w);
        for (int i = 0; i < 3000 || (i < 100000 && !has_all(w)); i++)
            copy(w, false);
        assert_int_equal(copier_waiting(w->at->copier, &why), 0);
    }
    see_times(w);
    check_lines(w);
    for (unsigned q = 0; q < QUEUES; q++) {
        uint64_t mark = 0;
        for (unsigned i = 0; i < CELLS; i++)
            mark = w->cells[i].pubsub.marks[q] > mark ? w->cells[i].pubsub.marks[q] : mark;
        assert_int_equal(mark, w->highest[q]);
        for (uint64_t id = 1; id < w->highest[q]; id++) {
            int n = 0;
            for (unsigned i = 0; i < CELLS; i++)
                n += w->cells[i].pubsub.has[q][id];
            assert_int_equal(n, has_line(q, id));
        }
    }
}

/* The cell that a partition without an owner is on its way to, or NULL. */
static struct model_cell *goal(struct world *w, unsigned p)
{
    struct model_cell *last = w->cells;
    for (struct model_cell *c = w->cells; c < w->cells + CELLS; c++)
        if (c->pubsub.partitions[p].state == PARTITION_OWNED)
            return NULL;
        else if (c->pubsub.partitions[p].state == PARTITION_LEAVING &&
                 c->pubsub.partitions[p].number >= last->pubsub.partitions[p].number)
            last = c;
    return &w->cells[atoi(last->pubsub.partitions[p].cell)];
}

/* Begins a move, or repeats one that was killed. */
static void move_or_repeat(struct world *w, unsigned p, uint64_t seed)
{
    struct model_cell *to = goal(w, p);
    move(&(struct move){w, p, 0, NULL, to ? to : &w->cells[below(w, CELLS)], seed, false});
}

static void begin(struct world *w, uint64_t seed)
{
    w->random = seed;
    w->life = 1;
    w->now = 1700000000 * USEC_PER_SEC;
    w->skips = seed % 3 == 0 ? 0 : 20;
    w->is_lasting = seed % 3 == 1;
    for (unsigned q = 0; q < QUEUES; q++)
        w->cells[0].pubsub.partitions[nats_partition(names[q])].state = PARTITION_OWNED;
    w->cells[0].copy = w->cells[0].old = w->cells[0].pubsub;
    for (w->at = w->cells; w->at < w->cells + CELLS; w->at++) {
        w->at->server = 1; /* one that may be without messages */
        restart(w);
    }
}

static void each_line_is_stored_once_whatever_happens(void **state)
{
    (void)state;
    unsigned losses = 0, moves = 0, returns = 0, answers = 0;
    const char *steps = getenv("MILLRACE_STEPS");
    for (uint64_t seed = 1; seed <= (steps ? (uint64_t)atoi(steps) : 200); seed++) {
        struct world *w = calloc(1, sizeof *w);
        begin(w, seed);
        for (int i = 0; i < 300; i++) {
            uint64_t n = below(w, 60);
            unsigned p = nats_partition(names[below(w, QUEUES)]);
            if (n == 0)
                restore_owner(w, p, seed);
            else if (n < 3)
                move_or_repeat(w, p, seed);
            else
                act(w, seed);
        }
        for (unsigned q = 0; q < QUEUES; q++)
            while (goal(w, nats_partition(names[q])))
                move_or_repeat(w, nats_partition(names[q]), seed);
        settle(w);
        losses += w->losses;
        moves += w->moves;
        returns += w->returns;
        answers += w->answers;
        for (unsigned i = 0; i < CELLS; i++)
            copier_free(&w->cells[i].copier);
        free(w);
    }
    printf("%u losses, %u moves, %u returns, %u answers\n", losses, moves, returns, answers);
    assert_true(losses > 0 && moves > 0 && returns > 0 && answers > 0);
}

/* A queue publishes, and all cells copy. */
static void copy_more(struct world *w, unsigned queue)
{
    for (int i = 0; i < 20; i++) {
        publish(w, queue);
        for (w->at = w->cells; w->at < w->cells + CELLS; w->at++) {
            see_era(w);
            find(w);
            copy(w, false);
        }
        see_times(w);
    }
}

/* Else no time waits for the lines that a cell has stored, and that its aggregator has not counted. */
static void an_interrupted_move_ends_before_the_next_one(void **state)
{
    (void)state;
    unsigned ended = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world *w = calloc(1, sizeof *w);
        begin(w, seed);
        struct model_cell *c = w->cells;
        struct move m = {w, nats_partition(names[0]), 1, NULL, &c[1], seed, true};
        copy_more(w, 0);
        *record(&m, &c[0]) = (struct partition){.number = 1, .state = PARTITION_LEAVING, .cell = "1"};
        c[0].copy = c[0].pubsub;
        assert_true(arrive(&m));
        move(&(struct move){w, m.partition, 0, NULL, &c[2], seed, false});
        ended += record(&m, &c[0])->state == PARTITION_LEFT;
        assert_int_equal(record(&m, &c[0])->number, 1);
        assert_true(
            record(&m, &c[1])->state == PARTITION_OWNED || record(&m, &c[0])->state == PARTITION_LEFT);
        for (unsigned i = 0; i < CELLS; i++)
            copier_free(&c[i].copier);
        free(w);
    }
    assert_true(ended > 0);
}

/* Two cells have left the partition with the number of the latest move: the last owner, and one that was restored during the
 * move from a copy that still owned the partition. */
static void a_restored_owner_gets_the_marks_of_the_last_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct world *w = calloc(1, sizeof *w);
        begin(w, seed);
        struct model_cell *c = w->cells;
        struct move m = {.w = w, .partition = nats_partition(names[0])};
        struct pubsub before = c[1].pubsub;
        copy_more(w, 0);
        move(&(struct move){w, m.partition, 0, NULL, &c[2], seed, true});
        copy_more(w, 0);
        move(&(struct move){w, m.partition, 0, NULL, &c[0], seed, true});
        copy_more(w, 0);
        move(&(struct move){w, m.partition, 0, NULL, &c[1], seed, true});
        record(&m, &c[2])->number = 3;
        copy_more(w, 0);
        c[1].old = before;
        restore_owner(w, m.partition, seed);
        assert_int_equal(w->returns, 1);
        settle(w);
        for (unsigned i = 0; i < CELLS; i++)
            copier_free(&c[i].copier);
        free(w);
    }
}

/* A copier that has stored message 1 of queue q1, which is the stream's message 11. */
static struct copier *copier_at_message_11(void)
{
    struct publisher_run run;
    char subject[NATS_SUBJECT_MAX];
    struct copier *c = copier_new(1);
    struct copy_message m = {
        .batch = {"q1", 1, 2, .opening = "", .name = "", .ids = "", .lines = BYTES_LITERAL("1\n")},
        .place = {11, 1000}};
    copier_own(c, nats_partition("q1"), true, 0);
    copier_see(c, &(struct copy_stream){.first = 1, .last = 11, .created = 1, .connection = 1});
    nats_subject("clicks", "q1", subject);
    copier_found(c, subject);
    assert_int_equal(copier_next(c).action, COPY_ASK);
    copier_asked(c, 0, BYTES_NONE);
    assert_int_equal(copier_next(c).action, COPY_READ);
    copier_read(c, &(struct copy_read){.messages = &m, .n = 1});
    assert_true(copier_run(c, &run));
    assert_int_equal(copier_stored(c), 1);
    return c;
}

static void a_queue_is_behind_until_its_lines_are_stored(void **state)
{
    (void)state;
    struct publisher_run run;
    struct copier *c = copier_at_message_11();
    const struct copy_message m = {
        .batch = {"q1", 2, 3, .opening = "", .name = "", .ids = "", .lines = BYTES_LITERAL("2\n")},
        .place = {12, 4000}};
    assert_true(copier_partitions(c) == UINT64_C(1) << nats_partition("q1"));
    assert_int_equal(copier_unread(c), 0);
    copier_see(c, &(struct copy_stream){.first = 1, .last = 12, .created = 1, .connection = 1, .time = 5000});
    assert_int_equal(copier_lag(c, 6000).time, 5000);
    assert_int_equal(copier_next(c).after, 11);
    copier_read(c, &(struct copy_read){.messages = &m, .n = 1});
    assert_true(copier_run(c, &run));
    assert_int_equal(copier_lag(c, 6000).time, 5000);
    copier_stored(c);
    assert_int_equal(copier_lag(c, 6000).time, 2000);
    copier_find(c);
    assert_int_equal(copier_unread(c), 0);
    char subject[NATS_SUBJECT_MAX];
    nats_subject("clicks", "q2", subject);
    copier_own(c, nats_partition("q2"), true, 0);
    copier_found(c, subject);
    assert_int_equal(copier_unread(c), 1);
    copier_free(&c);
}

static void a_stream_that_was_made_again_is_read_from_its_beginning(void **state)
{
    (void)state;
    struct copier *c = copier_at_message_11();
    assert_int_equal(copier_next(c).after, 11);
    copier_free(&c);
    c = copier_at_message_11();
    copier_see(c, &(struct copy_stream){.first = 1, .last = 20, .created = 2, .connection = 1});
    assert_int_equal(copier_next(c).after, 0);
    copier_free(&c);
}

/* So a queue that is silent costs the servers nothing, however much other queues publish. */
static void a_read_that_finds_the_end_goes_on_at_the_end_of_the_stream(void **state)
{
    (void)state;
    struct publisher_run run;
    struct copier *c = copier_at_message_11();
    copier_see(c, &(struct copy_stream){.first = 1, .last = 99, .created = 1, .connection = 1});
    copier_see(c, &(struct copy_stream){.first = 1, .last = 120, .created = 1, .connection = 1});
    assert_int_equal(copier_next(c).after, 11);
    copier_read(c, &(struct copy_read){.is_end = true});
    assert_false(copier_run(c, &run));
    while (copier_next(c).action == COPY_IDLE)
        continue;
    assert_int_equal(copier_next(c).after, 99);
    assert_int_equal(copier_next(c).place.sequence, 11);
    copier_free(&c);
}

static void the_least_batch_that_was_ignored_is_read_again(void **state)
{
    (void)state;
    static const uint64_t marks[][2] = {{1, 2}, {7, 8}, {5, 7}, {2, 5}};
    struct publisher_run run;
    struct copier *c = copier_at_message_11();
    struct copy_message m[4];
    for (size_t i = 0; i < 4; i++)
        m[i] = (struct copy_message){
            .batch = {"q1", marks[i][0], marks[i][1], .opening = "", .name = "", .ids = ""},
            .place = {11 + i, (usec_t)(1000 + i)}};
    assert_int_equal(copier_next(c).after, 11);
    copier_read(c, &(struct copy_read){.messages = m + 1, .n = 3});
    assert_false(copier_run(c, &run));
    assert_int_equal(copier_next(c).after, 10); /* the search begins with the place */
    copier_read(c, &(struct copy_read){.messages = m, .n = 4});
    assert_true(copier_run(c, &run));
    assert_int_equal(run.next, 5);
    copier_stored(c);
    assert_int_equal(copier_next(c).after, 10);
    copier_read(c, &(struct copy_read){.messages = m, .n = 4});
    assert_false(copier_run(c, &run));
    copier_free(&c);
}

/* The cell is a copy from before the move. */
static void a_partition_that_another_cell_has_claimed_stops(void **state)
{
    (void)state;
    const char *why;
    unsigned p = nats_partition("q1");
    struct copier *c = copier_at_message_11();
    copier_claimed(c, p, 1);
    assert_int_equal(copier_next(c).action, COPY_IDLE);
    assert_int_equal(copier_waiting(c, &why), 1);
    assert_non_null(strstr(why, "is older"));
    assert_false(copier_own(c, p, true, 0));
    assert_true(copier_own(c, p, false, 1));
    assert_int_equal(copier_waiting(c, &why), 0);
    assert_int_equal(copier_next(c).action, COPY_IDLE);
    assert_true(copier_own(c, p, true, 2));
    assert_int_equal(copier_next(c).action, COPY_ASK);
    copier_claimed(c, p, 3); /* while the request is in progress */
    assert_int_equal(copier_next(c).action, COPY_IDLE);
    copier_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_is_behind_until_its_lines_are_stored),
        cmocka_unit_test(a_stream_that_was_made_again_is_read_from_its_beginning),
        cmocka_unit_test(a_read_that_finds_the_end_goes_on_at_the_end_of_the_stream),
        cmocka_unit_test(the_least_batch_that_was_ignored_is_read_again),
        cmocka_unit_test(a_partition_that_another_cell_has_claimed_stops),
        cmocka_unit_test(an_interrupted_move_ends_before_the_next_one),
        cmocka_unit_test(a_restored_owner_gets_the_marks_of_the_last_one),
        cmocka_unit_test(each_line_is_stored_once_whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
