#include "cm.h"
#include "reader_plan.h"
#include <stdio.h>
#include <stdlib.h>

static const struct plan_config usual = {
    .marks = true,
    .lines = true,
    .lease = 10 * USEC_PER_SEC,
    .backoff_min = 10 * USEC_PER_MSEC,
    .backoff_max = USEC_PER_SEC,
    .seed = 7,
};

/* ---- backoff and batches ---- */

static void backoff_grows_to_its_bound_and_forgets(void **state)
{
    (void)state;
    struct backoff b;
    backoff_init(&b, 100, 1000, 3);
    static const usec_t bases[] = {100, 200, 400, 800, 1000, 1000, 1000};
    for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
        usec_t wait = backoff_failed(&b);
        assert_in_range(wait, bases[i] / 2, bases[i]);
    }
    backoff_succeeded(&b);
    assert_in_range(backoff_failed(&b), 50, 100);
}

static void backoff_of_two_differs(void **state)
{
    (void)state;
    struct backoff a, b;
    backoff_init(&a, 1000000, 64000000, 1);
    backoff_init(&b, 1000000, 64000000, 2);
    int same = 0;
    for (int i = 0; i < 20; i++)
        same += backoff_failed(&a) == backoff_failed(&b);
    assert_int_not_equal(same, 20);
}

static void a_batch_is_read_as_framed(void **state)
{
    (void)state;
    struct batch b;
    assert_true(batch_parse(BYTES_LITERAL("5 1 3\na\nb\n7 2 0\n\n8 1 1\n\0\n"), 9, &b));
    assert_int_equal(b.n, 3);
    assert_true(bytes_equal(b.messages[0].text, BYTES_LITERAL("a\nb")));
    assert_int_equal(b.messages[1].tries, 2);
    assert_int_equal(b.messages[1].text.len, 0);
    assert_true(bytes_equal(b.messages[2].text, BYTES_LITERAL("\0")));
    batch_free(&b);
    static const char *const bad[] = {"5 1 3\nab\n", "5 1 2\nab", "5 1\n", "x 1 1\na\n", "5 1 99\na\n",
        "5 1 1\na\n5 1 1\na\n", "99999999999999999999999 1 1\na\n", "5 1 18446744073709551615\na\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(batch_parse(bytes_str(bad[i]), 1, &b));
}

static void acks_are_ranges(void **state)
{
    (void)state;
    struct batch b;
    struct buf out = {0};
    assert_true(
        batch_parse(BYTES_LITERAL("1 1 1\na\n2 1 1\na\n3 1 1\na\n5 1 1\na\n6 1 1\na\n9 1 1\na\n"), 4, &b));
    assert_false(batch_append_done(&b, &out));
    for (size_t i = 0; i < b.n; i++)
        b.messages[i].state = i == 1 ? MESSAGE_BURIED : MESSAGE_DONE;
    assert_true(batch_append_done(&b, &out));
    assert_true(bytes_equal_str(buf_bytes(&out), "4:1,3,5-6,9"));
    buf_free(&out);
    batch_free(&b);
}

/* ---- the plan, step by step ---- */

static void reserve(struct plan *p, const char *queue, const char *framed, usec_t now)
{
    struct batch b;
    assert_true(batch_parse(bytes_str(framed), 1, &b));
    plan_reserved(p, bytes_str(queue), &b, now);
}

static struct plan *begun(const struct plan_config *config, uint64_t next_id, uint64_t mark)
{
    struct plan *p = plan_new(config);
    assert_int_equal(plan_next(p, 0).action, PLAN_RELEASE);
    plan_released(p, BYTES_LITERAL("q"), next_id);
    assert_int_equal(plan_next(p, 0).action, PLAN_ASK);
    plan_asked(p, mark);
    return p;
}

static void expect_run(struct plan *p, usec_t now, size_t first, size_t count, uint64_t mark, uint64_t next)
{
    struct plan_step s = plan_next(p, now);
    assert_int_equal(s.action, PLAN_DELIVER);
    assert_int_equal(s.first, first);
    assert_int_equal(s.count, count);
    assert_int_equal(s.mark, mark);
    assert_int_equal(s.next, next);
}

static void what_is_under_the_mark_is_only_acknowledged(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 9, 5);
    reserve(p, "q", "3 1 1\na\n4 1 1\nb\n5 1 1\nc\n6 1 1\nd\n", 0);
    expect_run(p, 0, 2, 2, 5, 7);
    plan_delivered(p);
    assert_int_equal(plan_next(p, 0).action, PLAN_RESERVE);
    assert_true(bytes_equal_str(plan_acks(p), "1:3-6"));
    plan_free(&p);
}

static void a_fault_repeats_the_same_run_later(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "q", "1 1 1\na\n2 1 1\nb\n", 0);
    for (int i = 0; i < 5; i++) {
        expect_run(p, 0, 0, 2, 0, 3);
        plan_faulted(p, PLAN_DESTINATION, -1000 * USEC_PER_SEC); /* long ago: no pause left */
    }
    plan_faulted(p, PLAN_DESTINATION, 0);
    struct plan_step s = plan_next(p, 0);
    assert_int_equal(s.action, PLAN_PAUSE);
    expect_run(p, s.until, 0, 2, 0, 3);
    assert_int_equal(plan_next(p, usual.lease).action, PLAN_RELEASE); /* the lease is over */
    plan_free(&p);
}

static void a_gap_starts_over_unless_fresh(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 9, 3);
    reserve(
        p, "q", "5 1 1\na\n8 1 1\nb\n", 0); /* right after the release a gap means that messages are gone */
    expect_run(p, 0, 0, 2, 3, 9);
    plan_delivered(p);
    reserve(p, "q", "9 1 1\nc\n", 0);
    expect_run(p, 0, 0, 1, 9, 10);
    plan_delivered(p);
    reserve(p, "q", "11 1 1\nd\n", 0); /* 10 may be with another process of this name */
    assert_int_equal(plan_next(p, 0).action, PLAN_RELEASE);
    plan_free(&p);
}

static void another_queue_under_the_same_address_starts_over(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 9, 3);
    reserve(p, "other", "9 1 1\na\n", 0);
    assert_int_equal(plan_next(p, 0).action, PLAN_RELEASE);
    plan_free(&p);
}

static void an_old_copy_is_looked_at_twice(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 4, 9);
    assert_int_equal(plan_next(p, 0).action, PLAN_RELEASE);
    plan_released(p, BYTES_LITERAL("q"), 12); /* it had only moved on meanwhile */
    assert_int_equal(plan_next(p, 0).action, PLAN_ASK);
    plan_free(&p);
    p = begun(&usual, 4, 9);
    plan_released(p, BYTES_LITERAL("q"), 8);
    assert_int_equal(plan_next(p, 0).action, PLAN_OLD_COPY);
    plan_free(&p);
}

static void poison_is_buried_before_what_follows_is_delivered(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "q", "1 1 1\na\n2 1 3\nb\nc\n3 1 0\n\n4 1 1\nd\n", 0);
    expect_run(p, 0, 0, 1, 0, 2);
    plan_delivered(p);
    for (size_t i = 1; i <= 2; i++) {
        struct plan_step s = plan_next(p, 0);
        assert_int_equal(s.action, PLAN_BURY);
        assert_int_equal(s.first, i);
        plan_buried(p);
    }
    expect_run(p, 0, 3, 1, 2, 5);
    plan_delivered(p);
    assert_true(bytes_equal_str(plan_acks(p), "1:1,4"));
    plan_free(&p);
}

/* A destination that refuses every run which holds message `bad`. */
static unsigned tries_to_find(size_t n, size_t bad)
{
    struct plan *p = begun(&usual, 1, 0);
    struct buf framed = {0};
    for (size_t i = 1; i <= n; i++)
        buf_printf(&framed, "%zu 1 1\nx\n", i);
    buf_append_char(&framed, '\0');
    reserve(p, "q", framed.ptr, 0);
    buf_free(&framed);
    unsigned tries = 0;
    size_t buried = SIZE_MAX;
    for (struct plan_step s; (s = plan_next(p, 0)).action != PLAN_RESERVE; tries++) {
        if (s.action == PLAN_BURY) {
            buried = s.first;
            assert_string_equal(plan_batch(p)->messages[s.first].reason, "413 line-too-large");
            plan_buried(p);
        } else if (s.first <= bad && bad < s.first + s.count) {
            plan_refused(p, "413 line-too-large");
        } else {
            plan_delivered(p);
        }
    }
    assert_int_equal(buried, bad);
    assert_int_equal(plan_mark(p), bad < n - 1 ? n + 1 : n > 1 ? n : 0);
    plan_free(&p);
    return tries;
}

static void halving_finds_the_poison(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 33; n++)
        for (size_t bad = 0; bad < n; bad++)
            assert_in_range(tries_to_find(n, bad), 1, 14);
    assert_in_range(tries_to_find(1000, 777), 1, 24);
}

static void runs_are_bounded_in_bytes(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.max_bytes = 6;
    struct plan *p = begun(&config, 1, 0);
    reserve(p, "q", "1 1 2\naa\n2 1 2\nbb\n3 1 2\ncc\n4 1 9\nddddddddd\n", 0);
    expect_run(p, 0, 0, 2, 0, 3);
    plan_delivered(p);
    expect_run(p, 0, 2, 1, 3, 4);
    plan_delivered(p);
    expect_run(p, 0, 3, 1, 4, 5);
    plan_free(&p);
}

static void stopping_acknowledges_and_releases(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "q", "1 1 1\na\n2 1 3\nb\nc\n", 0);
    plan_stop(p);
    plan_delivered(p);
    assert_int_equal(plan_next(p, 0).action, PLAN_ACK);
    assert_true(bytes_equal_str(plan_acks(p), "1:1"));
    plan_acknowledged(p);
    assert_int_equal(plan_next(p, 0).action, PLAN_RELEASE);
    plan_released(p, BYTES_LITERAL("q"), 3);
    assert_int_equal(plan_next(p, 0).action, PLAN_STOPPED);
    plan_free(&p);
}

/* ---- a world in which everything fails ----
 *
 * A model of a queue (ids, one lease holder's messages, buried ones) and of a stream with its mark. Requests are done
 * and their replies lost, or not done; leases run out; the reader is forgotten and started again. Whatever happens the
 * stream must hold every good message once, in order, and what is bad must be buried. */
#define WORLD_MESSAGES 60

struct world {
    struct {
        enum { READY, LEASED, BURIED, GONE } state;
        bool bad;
    } queue[WORLD_MESSAGES + 1]; /* by id */
    uint64_t lease;
    uint64_t put; /* ids up to here are there */
    uint64_t mark;
    uint64_t stream[WORLD_MESSAGES * 2];
    size_t in_stream;
    unsigned trouble; /* percent */
};

static unsigned dice(void)
{
    return (unsigned)(rand() % 100);
}

static void world_release(struct world *w)
{
    for (uint64_t id = 1; id <= w->put; id++)
        if (w->queue[id].state == LEASED)
            w->queue[id].state = READY;
}

static void world_ack(struct world *w, struct bytes acks)
{
    uint64_t numbers[2] = {0};
    size_t at = 0;
    while (at < acks.len && acks.ptr[at] != ':')
        numbers[0] = numbers[0] * 10 + (uint64_t)(acks.ptr[at++] - '0');
    if (numbers[0] != w->lease)
        return;
    for (at++; at < acks.len; at++) {
        numbers[0] = numbers[1] = 0;
        int which = 0;
        for (; at < acks.len && acks.ptr[at] != ','; at++)
            if (acks.ptr[at] == '-')
                which = 1;
            else
                numbers[which] = numbers[which] * 10 + (uint64_t)(acks.ptr[at] - '0');
        for (uint64_t id = numbers[0]; id <= (which ? numbers[1] : numbers[0]); id++)
            if (w->queue[id].state == LEASED)
                w->queue[id].state = GONE;
    }
}

static void world_reserve(struct world *w, struct buf *framed)
{
    w->lease++;
    for (uint64_t id = 1; id <= w->put; id++)
        if (w->queue[id].state == READY) {
            w->queue[id].state = LEASED;
            buf_printf(framed, "%d 1 1\nx\n", (int)id);
            if (dice() < 10)
                break;
        }
}

/* 200, 409 or 400. */
static int world_publish(struct world *w, const struct batch *b, const struct plan_step *s)
{
    for (size_t i = s->first; i < s->first + s->count; i++)
        if (w->queue[b->messages[i].id].bad)
            return 400;
    if (w->mark >= s->next)
        return 200;
    if (w->mark != s->mark)
        return 409;
    for (size_t i = s->first; i < s->first + s->count; i++)
        w->stream[w->in_stream++] = b->messages[i].id;
    w->mark = s->next;
    return 200;
}

static void world_deliver(struct world *w, struct plan *p, const struct plan_step *s, bool lost, usec_t now)
{
    int answer = world_publish(w, plan_batch(p), s);
    if (lost)
        plan_faulted(p, PLAN_DESTINATION, now);
    else if (answer == 200)
        plan_delivered(p);
    else if (answer == 409)
        plan_conflict(p);
    else
        plan_refused(p, "400");
}

static void world_queue(struct world *w, struct plan *p, const struct plan_step *s, bool lost, usec_t now)
{
    struct buf framed = {0};
    struct batch b = {0};
    if (s->action == PLAN_RELEASE)
        world_release(w);
    if (s->action == PLAN_RESERVE || s->action == PLAN_ACK)
        world_ack(w, plan_acks(p));
    if (s->action == PLAN_RESERVE)
        world_reserve(w, &framed);
    uint64_t id = s->action == PLAN_BURY ? plan_batch(p)->messages[s->first].id : 0;
    bool held = id && w->queue[id].state == LEASED && plan_batch(p)->lease == w->lease;
    if (held)
        w->queue[id].state = BURIED;
    if (lost)
        plan_faulted(p, PLAN_QUEUE, now);
    else if (s->action == PLAN_RELEASE)
        plan_released(p, BYTES_LITERAL("q"), w->put + 1);
    else if (s->action == PLAN_ACK)
        plan_acknowledged(p);
    else if (s->action == PLAN_BURY && held)
        plan_buried(p);
    else if (s->action == PLAN_BURY)
        plan_lease_lost(p);
    else if (batch_parse(buf_bytes(&framed), w->lease, &b))
        plan_reserved(p, BYTES_LITERAL("q"), &b, now);
    buf_free(&framed);
}

static usec_t world_step(struct world *w, struct plan *p, usec_t now)
{
    bool lost = dice() < w->trouble;
    struct plan_step s = plan_next(p, now);
    assert_int_not_equal(s.action, PLAN_OLD_COPY);
    if (s.action == PLAN_PAUSE)
        return s.until;
    if (lost && dice() < 50) /* it did not even arrive */
        plan_faulted(
            p, s.action == PLAN_DELIVER || s.action == PLAN_ASK ? PLAN_DESTINATION : PLAN_QUEUE, now);
    else if (s.action == PLAN_DELIVER)
        world_deliver(w, p, &s, lost, now);
    else if (s.action == PLAN_ASK)
        plan_asked(p, w->mark);
    else
        world_queue(w, p, &s, lost, now);
    return now + 1000;
}

static void world_check(const struct world *w)
{
    size_t at = 0;
    for (uint64_t id = 1; id <= WORLD_MESSAGES; id++) {
        assert_int_equal(w->queue[id].state, w->queue[id].bad ? BURIED : GONE);
        if (!w->queue[id].bad)
            assert_int_equal(w->stream[at++], id);
    }
    assert_int_equal(w->in_stream, at);
}

static bool world_settled(const struct world *w)
{
    for (uint64_t id = 1; id <= WORLD_MESSAGES; id++)
        if (id > w->put || w->queue[id].state == READY || w->queue[id].state == LEASED)
            return false;
    return true;
}

static void exactly_once_in_a_world_that_fails(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 2000; seed++) {
        srand(seed);
        struct world w = {.trouble = seed % 40};
        for (uint64_t id = 1; id <= WORLD_MESSAGES; id++)
            w.queue[id].bad = dice() < seed % 20;
        struct plan *p = plan_new(&usual);
        usec_t now = 0;
        while (!world_settled(&w)) {
            if (w.put < WORLD_MESSAGES && dice() < 30)
                w.put++;
            if (dice() < w.trouble / 8)
                world_release(&w); /* the leases have run out */
            if (dice() < w.trouble / 8) {
                plan_free(&p); /* kill -9 */
                p = plan_new(&usual);
            }
            now = world_step(&w, p, now);
        }
        world_check(&w);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backoff_grows_to_its_bound_and_forgets),
        cmocka_unit_test(backoff_of_two_differs),
        cmocka_unit_test(a_batch_is_read_as_framed),
        cmocka_unit_test(acks_are_ranges),
        cmocka_unit_test(what_is_under_the_mark_is_only_acknowledged),
        cmocka_unit_test(a_fault_repeats_the_same_run_later),
        cmocka_unit_test(a_gap_starts_over_unless_fresh),
        cmocka_unit_test(another_queue_under_the_same_address_starts_over),
        cmocka_unit_test(an_old_copy_is_looked_at_twice),
        cmocka_unit_test(poison_is_buried_before_what_follows_is_delivered),
        cmocka_unit_test(halving_finds_the_poison),
        cmocka_unit_test(runs_are_bounded_in_bytes),
        cmocka_unit_test(stopping_acknowledges_and_releases),
        cmocka_unit_test(exactly_once_in_a_world_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
