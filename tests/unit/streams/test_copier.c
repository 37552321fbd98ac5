/* A model of queues, a stream that loses, repeats and renumbers messages, replicas that lag, and two cells, whose pubsubs are
 * restored to older copies. Partitions move between the cells, by commands that are killed. Whatever happens, each line is
 * stored once, in one cell and in the order of its queue, and no time of the cells is too late. */
#include "support/cm.h"
#include "streams/nats/copier.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUES 5
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
    struct model_cell {
        struct pubsub {
            uint64_t marks[QUEUES];
            bool has[QUEUES][IDS_MAX];
            char openings[QUEUES][NAME_LEN_MAX + 1];
            struct partition partitions[NATS_PARTITIONS];
            usec_t until[QUEUES];
            bool states[QUEUES], is_left_out[QUEUES];
        } pubsub, copy;
        usec_t complete;    /* up to this time by its aggregator */
        bool holds[QUEUES]; /* `complete` has heard of the queue */
        bool is_new_era;
        struct copier *copier;
        struct publisher_run stale; /* of a process that sleeps; producer NULL: none */
        char stale_text[TEXT_MAX], stale_opening[NAME_LEN_MAX + 1], stale_guard[PARTITION_PRODUCER_TEXT];
    } cells[2], *at; /* at: the cell that acts */
    struct copy_message read[READ_MAX];
    char texts[READ_MAX][TEXT_MAX], ids[READ_MAX][TEXT_MAX];
    bool is_giving; /* a command gives marks to a cell, which is not restored meanwhile */
    unsigned moves;
    unsigned skips; /* one of so many messages is missing in a replica; 0: none */
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
                                  .connection = w->connection,
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
        if (!w->stream[i].exists || w->stream[i].queue != q ||
            (w->skips && below(w, w->skips) == 0 && is_followed(w, i)))
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
    for (struct model_cell *c = w->cells; c < w->cells + 2; c++) {
        usec_t least = w->now;
        for (unsigned q = 0; q < QUEUES; q++)
            if (c->pubsub.states[q] && !c->pubsub.is_left_out[q] && c->pubsub.until[q] < least)
                least = c->pubsub.until[q];
        if (least == 0)
            continue;
        c->complete = least;
        memcpy(c->holds, c->pubsub.states, sizeof c->holds);
    }
}

static void check_lines(const struct world *w)
{
    const struct model_cell *c = w->cells;
    usec_t complete = c[0].complete < c[1].complete ? c[0].complete : c[1].complete;
    for (unsigned q = 0; q < QUEUES; q++)
        for (uint64_t id = 1; id < w->highest[q]; id++) {
            int n = c[0].pubsub.has[q][id] + c[1].pubsub.has[q][id];
            assert_true(n <= 1);
            bool is_held = c[0].holds[q] || c[1].holds[q];
            assert_true(n == has_line(q, id) || !is_held || w->accepted[q][id] >= complete);
        }
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
    if (!copier_run(w->at->copier, &run))
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

/* pubsub is restored to a copy. The cell learns of it by a conflict or, later, by the new era. */
static void restore(struct world *w)
{
    if (below(w, 2)) {
        w->at->copy = w->at->pubsub;
        return;
    }
    w->at->pubsub = w->at->copy;
    w->at->complete = 0;
    memset(w->at->holds, 0, sizeof w->at->holds);
    w->at->is_new_era = true;
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
    w->at = &w->cells[below(w, 2)];
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

/* The steps of tools/cell.c. */
static void move(struct world *w, unsigned p, unsigned to, uint64_t seed)
{
    struct model_cell *y = &w->cells[to], *x = &w->cells[1 - to];
    struct partition *left = &x->pubsub.partitions[p], *own = &y->pubsub.partitions[p];
    w->is_giving = false;
    if (own->state != PARTITION_OWNED || own->number < left->number) {
        if (left->state == PARTITION_OWNED)
            *left = (struct partition){.number = left->number + 1, .state = PARTITION_LEAVING};
        if (!goes_on(w, x, seed))
            return;
        w->is_giving = true;
        for (unsigned q = 0; q < QUEUES; q++) {
            if (nats_partition(names[q]) != p || x->pubsub.marks[q] == 0)
                continue;
            assert_true(y->pubsub.marks[q] <= x->pubsub.marks[q]);
            y->pubsub.marks[q] = x->pubsub.marks[q];
            memcpy(y->pubsub.openings[q], x->pubsub.openings[q], sizeof y->pubsub.openings[q]);
            if (x->pubsub.states[q]) {
                y->pubsub.until[q] = x->pubsub.until[q] > 0 ? x->pubsub.until[q] : y->pubsub.until[q];
                y->pubsub.states[q] = true;
                y->pubsub.is_left_out[q] = false;
            }
            if (!goes_on(w, NULL, seed))
                return;
        }
        *own = (struct partition){.number = left->number, .state = PARTITION_OWNED};
        w->moves++;
        w->is_giving = false;
    }
    usec_t moved = w->now;
    if (!goes_on(w, y, seed) || left->state == PARTITION_LEFT)
        return;
    for (int i = 0; i < 40 && y->complete <= moved; i++)
        act(w, seed);
    for (unsigned q = 0; q < QUEUES && y->complete > moved; q++)
        if (nats_partition(names[q]) == p) {
            x->pubsub.is_left_out[q] = x->pubsub.states[q];
            if (!goes_on(w, NULL, seed))
                return;
        }
    if (y->complete > moved && left->state == PARTITION_LEAVING)
        left->state = PARTITION_LEFT;
    x->copy = x->pubsub;
}

/* Without kills, the move of each partition ends, the relays publish what is lost, and everything is stored. Without a loss the
 * queues publish nothing more. */
static void settle(struct world *w)
{
    const char *why;
    w->skips = 0;
    w->at = w->cells;
    for (unsigned q = 0; q < QUEUES && w->losses; q++) {
        uint64_t middle = (w->published[q] + w->highest[q]) / 2;
        append(w, q, middle, w->highest[q] + 3);
        if (below(w, 2))
            copy(w, true);
        append(w, q, w->published[q], middle);
        append(w, q, w->highest[q], w->highest[q]);
    }
    for (w->at = w->cells; w->at < w->cells + 2; w->at++) {
        wake_up(w);
        if (below(w, 2))
            restart(w);
        see_era(w);
        find(w);
        for (int i = 0; i < 3000; i++) {
            if (i == 1500 && copier_waiting(w->at->copier, &why) > 0)
                restart(w); /* the search skipped messages, too */
            copy(w, false);
        }
        assert_int_equal(copier_waiting(w->at->copier, &why), 0);
    }
    see_times(w);
    check_lines(w);
    for (unsigned q = 0; q < QUEUES; q++) {
        const struct pubsub *x = &w->cells[0].pubsub, *y = &w->cells[1].pubsub;
        unsigned p = nats_partition(names[q]);
        assert_true(x->partitions[p].state == PARTITION_OWNED || y->partitions[p].state == PARTITION_OWNED);
        assert_int_equal(x->marks[q] > y->marks[q] ? x->marks[q] : y->marks[q], w->highest[q]);
        for (uint64_t id = 1; id < w->highest[q]; id++)
            assert_int_equal(x->has[q][id] + y->has[q][id], has_line(q, id));
    }
}

static bool is_on_its_way(const struct world *w, unsigned p)
{
    return w->cells[0].pubsub.partitions[p].state != PARTITION_OWNED &&
           w->cells[1].pubsub.partitions[p].state != PARTITION_OWNED;
}

/* Begins a move, or repeats one that was killed. */
static void move_or_repeat(struct world *w, unsigned p, uint64_t seed)
{
    const struct model_cell *c = w->cells;
    bool leaves_first = c[0].pubsub.partitions[p].number > c[1].pubsub.partitions[p].number;
    move(w, p, is_on_its_way(w, p) ? leaves_first : (unsigned)below(w, 2), seed);
}

static void each_line_is_stored_once_whatever_happens(void **state)
{
    (void)state;
    unsigned losses = 0, moves = 0;
    const char *steps = getenv("MILLRACE_STEPS");
    for (uint64_t seed = 1; seed <= (steps ? (uint64_t)atoi(steps) : 200); seed++) {
        struct world *w = calloc(1, sizeof *w);
        w->random = seed;
        w->life = 1;
        w->now = 1700000000 * USEC_PER_SEC;
        w->skips = seed % 3 == 0 ? 0 : 20;
        for (unsigned q = 0; q < QUEUES; q++)
            w->cells[0].pubsub.partitions[nats_partition(names[q])].state = PARTITION_OWNED;
        w->cells[0].copy = w->cells[0].pubsub;
        for (w->at = w->cells; w->at < w->cells + 2; w->at++)
            restart(w);
        for (int i = 0; i < 300; i++) {
            if (below(w, 30) > 0)
                act(w, seed);
            else
                move_or_repeat(w, nats_partition(names[below(w, QUEUES)]), seed);
        }
        for (unsigned q = 0; q < QUEUES; q++)
            while (is_on_its_way(w, nats_partition(names[q])))
                move_or_repeat(w, nats_partition(names[q]), seed);
        settle(w);
        losses += w->losses;
        moves += w->moves;
        copier_free(&w->cells[0].copier);
        copier_free(&w->cells[1].copier);
        free(w);
    }
    assert_true(losses > 0 && moves > 0);
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
        cmocka_unit_test(each_line_is_stored_once_whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
