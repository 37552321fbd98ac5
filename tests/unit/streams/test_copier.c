/* A model of queues, a stream that loses, repeats and renumbers messages, replicas that lag, and a pubsub with marks, which
 * is restored to an older copy. Whatever happens, each line is stored once, in the order of its queue. */
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

/* Two partitions. */
static const char *const names[QUEUES] = {"q0", "q15", "q133", "q1", "q14"};

struct message {
    bool exists;
    unsigned queue;
    uint64_t mark, next;
    usec_t time;
};

struct world {
    uint64_t random;
    struct message stream[MESSAGES_MAX]; /* the message with sequence i is stream[i] */
    uint64_t n;                          /* the last sequence */
    uint64_t life, connection;
    usec_t now;
    uint64_t published[QUEUES]; /* the relay's next mark */
    uint64_t highest[QUEUES];   /* of all ids that were published */
    /* pubsub */
    struct pubsub {
        uint64_t marks[QUEUES], lines[QUEUES];
        char openings[QUEUES][NAME_LEN_MAX + 1];
    } pubsub, copy;
    bool is_new_era;
    /* the cell */
    struct copier *copier;
    struct copy_message read[READ_MAX];
    char texts[READ_MAX][TEXT_MAX], ids[READ_MAX][TEXT_MAX];
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

static uint64_t partitions(void)
{
    uint64_t set = 0;
    for (unsigned i = 0; i < QUEUES; i++)
        set |= UINT64_C(1) << nats_partition(names[i]);
    return set;
}

static void append(struct world *w, unsigned queue, uint64_t mark, uint64_t next)
{
    assert_true(w->n + 1 < MESSAGES_MAX);
    w->now += 1 + (usec_t)below(w, 30 * USEC_PER_SEC);
    if (next > w->highest[queue])
        w->highest[queue] = next;
    w->stream[++w->n] = (struct message){true, queue, mark, next, w->now};
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
        .batch = {.queue_id = names[m->queue],
            .mark = m->mark,
            .next = m->next,
            .opening = opening,
            .until = m->time,
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
    copier_see(w->copier, &(struct copy_stream){.first = w->n > 0,
                              .last = w->n,
                              .created = (usec_t)w->life,
                              .connection = w->connection,
                              .time = w->now});
    copier_find(w->copier);
    for (uint64_t i = 1; i <= w->n; i++) {
        nats_subject("clicks", names[w->stream[i].queue], subject);
        if (w->stream[i].exists)
            copier_found(w->copier, subject);
    }
}

static void read_next(struct world *w)
{
    struct copy_step s = copier_next(w->copier);
    struct copy_read read = {.messages = w->read, .began = w->now, .is_end = true};
    if (s.action == COPY_IDLE)
        return;
    unsigned q = number_of(s.queue_id);
    if (s.action == COPY_ASK) {
        copier_asked(w->copier, w->pubsub.marks[q], bytes_str(w->pubsub.openings[q]));
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
    copier_read(w->copier, &read);
}

/* pubsub stores a run. Returns false if the run has another mark. */
static bool store(struct world *w, const struct publisher_run *run)
{
    unsigned q = number_of(run->producer);
    if (run->next > run->mark && w->pubsub.marks[q] >= run->next)
        return true; /* a duplicate */
    if (run->mark != w->pubsub.marks[q])
        return false;
    struct bytes rest = run->lines;
    for (uint64_t id = run->mark; id < run->next; id++) {
        char line[24];
        int len = snprintf(line, sizeof line, "%" PRIu64 "\n", id);
        if (!has_line(q, id))
            continue;
        assert_true(bytes_starts_with(rest, bytes_of(line, (size_t)len)));
        rest = bytes_of(rest.ptr + len, rest.len - (size_t)len);
        w->pubsub.lines[q]++;
    }
    assert_int_equal(rest.len, 0);
    assert_true(run->until <= w->now);
    w->pubsub.marks[q] = run->next;
    if (run->opening[0])
        snprintf(w->pubsub.openings[q], sizeof w->pubsub.openings[q], "%s", run->opening);
    return true;
}

static void restart(struct world *w)
{
    copier_free(&w->copier);
    w->copier = copier_new(partitions(), w->now);
    find(w);
}

/* One read with its run. With `faults`, replies are lost, and processes are killed. */
static void copy(struct world *w, bool faults)
{
    struct publisher_run run;
    if (below(w, 12) == 0)
        find(w);
    read_next(w);
    if (!copier_run(w->copier, &run))
        return;
    if (faults && below(w, 30) == 0) {
        if (below(w, 2))
            (void)store(w, &run);
        restart(w);
        return;
    }
    if (faults && below(w, 10) == 0)
        (void)store(w, &run); /* the reply is lost: the run is repeated */
    if (store(w, &run))
        (void)copier_stored(w->copier);
    else
        copier_begin(w->copier);
}

/* pubsub is restored to a copy. The cell learns of it by a conflict or, later, by the new era. */
static void restore(struct world *w)
{
    if (below(w, 2)) {
        w->copy = w->pubsub;
        return;
    }
    w->pubsub = w->copy;
    w->is_new_era = true;
}

static void see_era(struct world *w)
{
    if (w->is_new_era)
        copier_begin(w->copier);
    w->is_new_era = false;
}

static uint64_t lines_before(unsigned queue, uint64_t end)
{
    uint64_t n = 0;
    for (uint64_t id = 1; id < end; id++)
        n += has_line(queue, id);
    return n;
}

/* The relays publish what is lost. Without a loss the queues publish nothing more. Then everything is stored. */
static void settle(struct world *w)
{
    const char *why;
    w->skips = 0;
    if (below(w, 2))
        restart(w);
    for (unsigned q = 0; q < QUEUES && w->losses; q++) {
        uint64_t middle = (w->published[q] + w->highest[q]) / 2;
        append(w, q, middle, w->highest[q] + 3);
        if (below(w, 2))
            copy(w, true);
        append(w, q, w->published[q], middle);
        append(w, q, w->highest[q], w->highest[q]);
    }
    see_era(w);
    find(w);
    for (int i = 0; i < 3000; i++) {
        if (i == 1500 && copier_waiting(w->copier, &why) > 0)
            restart(w); /* the search skipped messages, too */
        copy(w, false);
    }
    assert_int_equal(copier_waiting(w->copier, &why), 0);
    for (unsigned q = 0; q < QUEUES; q++) {
        assert_int_equal(w->pubsub.marks[q], w->highest[q]);
        assert_int_equal(w->pubsub.lines[q], lines_before(q, w->highest[q]));
    }
}

static void each_line_is_stored_once_whatever_happens(void **state)
{
    (void)state;
    unsigned losses = 0;
    const char *steps = getenv("MILLRACE_STEPS");
    for (uint64_t seed = 1; seed <= (steps ? (uint64_t)atoi(steps) : 200); seed++) {
        struct world *w = calloc(1, sizeof *w);
        w->random = seed;
        w->life = 1;
        w->now = 1700000000 * USEC_PER_SEC;
        w->skips = seed % 3 == 0 ? 0 : 20;
        restart(w);
        for (int i = 0; i < 300; i++) {
            uint64_t act = below(w, 100);
            if (act < 40)
                publish(w, (unsigned)below(w, QUEUES));
            else if (act < 42 && seed % 2 == 0)
                lose(w);
            else if (act < 44)
                restore(w);
            else if (act < 46)
                see_era(w);
            else
                copy(w, true);
        }
        settle(w);
        losses += w->losses;
        copier_free(&w->copier);
        free(w);
    }
    assert_true(losses > 0);
}

/* A copier that has stored message 1 of queue q1, which is the stream's message 11. */
static struct copier *copier_at_message_11(void)
{
    struct publisher_run run;
    char subject[NATS_SUBJECT_MAX];
    struct copier *c = copier_new(UINT64_MAX, 1);
    struct copy_message m = {
        .batch = {"q1", 1, 2, .opening = "", .name = "", .ids = "", .lines = BYTES_LITERAL("1\n")},
        .place = {11, 1000}};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_that_was_made_again_is_read_from_its_beginning),
        cmocka_unit_test(a_read_that_finds_the_end_goes_on_at_the_end_of_the_stream),
        cmocka_unit_test(the_least_batch_that_was_ignored_is_read_again),
        cmocka_unit_test(each_line_is_stored_once_whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
