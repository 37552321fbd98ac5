#include "support/cm.h"
#include "readers/reader_plan.h"
#include <stdio.h>
#include <stdlib.h>

#define LONG_AGO (-1000 * USEC_PER_SEC)

static const struct plan_config usual = {
    .lines = true,
    .backoff_min = 10 * USEC_PER_MSEC,
    .backoff_max = USEC_PER_SEC,
    .seed = 7,
};

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

static void followed(struct plan *p, bool is_takeover)
{
    plan_followed(p, &(struct plan_queue){BYTES_LITERAL("q"), 5, is_takeover, BYTES_NONE, 0});
}

static struct plan_step next(struct plan *p, enum plan_lane lane, usec_t now)
{
    return plan_next(p, lane, now);
}

static void expect(struct plan *p, enum plan_lane lane, usec_t now, enum plan_action action)
{
    assert_int_equal(next(p, lane, now).action, action);
}

static void give(struct plan *p, const char *framed, usec_t now)
{
    struct batch b;
    assert_true(batch_parse(bytes_str(framed), 0, &b));
    plan_read(p, &b, &(struct plan_accepted){0}, now);
    assert_true(b.n == 0 && !b.messages);
}

static void read_batch(struct plan *p, const char *framed)
{
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    give(p, framed, 0);
}

static void expect_read_at(struct plan *p, usec_t now, uint64_t mark, uint64_t from, bool wait)
{
    struct plan_step s = next(p, PLAN_QUEUE, now);
    assert_int_equal(s.action, PLAN_READ);
    assert_int_equal(s.mark, mark);
    assert_int_equal(s.from, from);
    assert_int_equal(s.wait, wait);
}

static void expect_read(struct plan *p, uint64_t mark, uint64_t from, bool wait)
{
    expect_read_at(p, 0, mark, from, wait);
}

static void expect_run(
    struct plan *p, usec_t now, size_t first, size_t count, uint64_t mark, uint64_t next_mark)
{
    struct plan_step s = next(p, PLAN_DESTINATION, now);
    assert_int_equal(s.action, PLAN_DELIVER);
    assert_int_equal(s.first, first);
    assert_int_equal(s.count, count);
    assert_int_equal(s.mark, mark);
    assert_int_equal(s.next, next_mark);
}

/* The mark is known. */
static void follow_and_ask(struct plan *p, bool is_takeover, uint64_t mark)
{
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    expect(p, PLAN_QUEUE, 0, PLAN_FOLLOW);
    followed(p, is_takeover);
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_asked(p, mark, BYTES_NONE);
}

/* At work, with the mark 1 if the destination had none. The queue has accepted the mark, and has no message yet. */
static struct plan *begun(const struct plan_config *config, uint64_t mark)
{
    struct plan *p = plan_new(config);
    assert_string_equal(plan_queue_id(p), "");
    follow_and_ask(p, false, mark);
    assert_string_equal(plan_queue_id(p), "q");
    assert_int_equal(plan_number(p), 5);
    if (mark == 0) {
        expect_run(p, 0, 0, 0, 0, 1);
        plan_delivered(p);
    }
    read_batch(p, "");
    return p;
}

/* With message 1 under way to the destination. */
static struct plan *delivering(void)
{
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n");
    expect_run(p, 0, 0, 1, 1, 2);
    return p;
}

static void fails(struct plan *p, enum plan_lane lane, usec_t now)
{
    plan_faulted(p, lane, now, -1);
}

static void expect_restart(struct plan *p)
{
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    expect(p, PLAN_QUEUE, 0, PLAN_FOLLOW);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
}

static void expect_stopped(struct plan *p)
{
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    expect(p, PLAN_QUEUE, 0, PLAN_STOPPED);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
}

static void expect_unfollow(struct plan *p, uint64_t mark)
{
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    struct plan_step s = next(p, PLAN_QUEUE, 0);
    assert_int_equal(s.action, PLAN_UNFOLLOW);
    assert_int_equal(s.mark, mark);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    assert_false(plan_has_unfollowed(p));
    plan_unfollowed(p);
    expect_stopped(p);
    assert_true(plan_has_unfollowed(p));
}

static void messages_below_the_mark_are_only_settled(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 5);
    assert_int_equal(plan_mark(p), 5);
    expect_read(p, 5, 0, true);
    give(p, "3 1 1\na\n4 1 1\nb\n5 1 1\nc\n6 1 1\nd\n", 0);
    expect_run(p, 0, 2, 2, 5, 7);
    plan_delivered(p);
    assert_int_equal(plan_mark(p), 7);
    expect_read(p, 7, 7, true);
    plan_free(&p);
}

static void the_next_batch_is_read_while_one_is_delivered(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n2 1 1\nb\n");
    expect_run(p, 0, 0, 2, 1, 3);
    expect_read(p, 1, 3, false);
    give(p, "3 1 1\nc\n4 1 1\nd\n5 1 1\ne\n", 0);
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    plan_delivered(p);
    expect_run(p, 0, 0, 3, 3, 6);
    expect_read(p, 3, 6, false);
    plan_delivered(p); /* during this read */
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    give(p, "", 0);
    expect_read(p, 6, 6, true);
    plan_free(&p);
}

/* A read that finds no more is not repeated until the batch is delivered. */
static void a_short_batch_means_that_the_queue_has_no_more(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.items = 2;
    struct plan *p = begun(&config, 0);
    read_batch(p, "1 1 1\na\n");
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    expect_run(p, 0, 0, 1, 1, 2);
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    plan_delivered(p);
    expect_read(p, 2, 2, true);
    give(p, "2 1 1\na\n3 1 1\nb\n", 0);
    expect_run(p, 0, 0, 2, 2, 4);
    expect_read(p, 2, 4, false);
    give(p, "", 0);
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    plan_delivered(p);
    read_batch(p, "4 1 1\na\n5 1 1\nb\n");
    read_batch(p, "6 1 1\nc\n");
    expect_run(p, 0, 0, 2, 4, 6);
    plan_delivered(p);
    expect_read(p, 6, 7, false); /* more may have come since the short batch */
    plan_free(&p);
}

static void a_fault_repeats_the_same_run_later(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n2 1 1\nb\n");
    for (int i = 0; i < 5; i++) {
        expect_run(p, 0, 0, 2, 1, 3);
        fails(p, PLAN_DESTINATION, LONG_AGO); /* no pause left */
    }
    expect_run(p, 0, 0, 2, 1, 3);
    fails(p, PLAN_DESTINATION, 0);
    struct plan_step s = next(p, PLAN_DESTINATION, 0);
    assert_int_equal(s.action, PLAN_PAUSE);
    assert_in_range(s.until, usual.backoff_min << 4, usual.backoff_min << 5);
    expect_run(p, s.until, 0, 2, 1, 3);
    plan_faulted(p, PLAN_DESTINATION, 0, 0);
    expect_run(p, 0, 0, 2, 1, 3);
    plan_faulted(p, PLAN_DESTINATION, 0, 77); /* the destination states the wait */
    s = next(p, PLAN_DESTINATION, 76);
    assert_int_equal(s.action, PLAN_PAUSE);
    assert_int_equal(s.until, 77);
    expect_run(p, 77, 0, 2, 1, 3);
    plan_delivered(p);
    read_batch(p, "3 1 1\na\n");
    expect_run(p, 0, 0, 1, 3, 4); /* without a pause */
    fails(p, PLAN_DESTINATION, 0);
    assert_in_range(next(p, PLAN_DESTINATION, 0).until, 1, usual.backoff_min);
    plan_free(&p);
}

static void a_fault_of_the_queue_repeats_the_same_read(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n2 1 1\nb\n");
    expect_run(p, 0, 0, 2, 1, 3);
    expect_read(p, 1, 3, false);
    fails(p, PLAN_QUEUE, 0);
    struct plan_step s = next(p, PLAN_QUEUE, 0);
    assert_int_equal(s.action, PLAN_PAUSE);
    expect_read_at(p, s.until, 1, 3, false);
    fails(p, PLAN_QUEUE, LONG_AGO);
    plan_delivered(p);
    expect_read(p, 3, 3, true); /* the settled messages of the lost read, too */
    give(p, "3 1 1\nc\n", 0);   /* it was sent in the lost reply */
    expect_run(p, 0, 0, 1, 3, 4);
    plan_free(&p);
}

/* Their removal failed or was lost. */
static void messages_that_are_sent_again_below_the_mark_are_done(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n2 1 1\nb\n");
    expect_run(p, 0, 0, 2, 1, 3);
    plan_delivered(p);
    expect_read(p, 3, 3, true);
    give(p, "1 1 1\na\n", 0);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    expect_read(p, 3, 3, true);
    give(p, "1 1 1\na\n2 1 0\n\n3 1 1\nc\n", 0); /* nor is 2 poison */
    expect_run(p, 0, 2, 1, 3, 4);
    plan_free(&p);
}

static void a_batch_of_messages_that_the_plan_has_starts_over(void **state)
{
    static const char *const batches[] = {"2 1 1\nb\n3 1 1\nc\n", "1 1 1\na\n", "2 1 0\n\n"};
    (void)state;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct plan *p = begun(&usual, 0);
        read_batch(p, "1 1 1\na\n2 1 1\nb\n");
        expect_run(p, 0, 0, 2, 1, 3);
        read_batch(p, batches[i]);
        expect(p, PLAN_QUEUE, 0, PLAN_WAIT); /* until the run is answered */
        plan_delivered(p);
        expect_restart(p);
        followed(p, false);
        expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
        plan_asked(p, 3, BYTES_NONE);
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        expect_read(p, 3, 0, false); /* nothing is known any more */
        give(p, "3 1 1\nc\n", 0);
        expect_run(p, 0, 0, 1, 3, 4);
        plan_free(&p);
    }
}

/* The plan starts over as soon as this read is answered. */
static void a_batch_that_is_read_too_late_is_dropped(void **state)
{
    (void)state;
    struct plan *p = delivering();
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    plan_conflict(p, 0);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    give(p, "2 1 1\nb\n", 0);
    assert_int_equal(plan_batch(p)->n, 1);
    expect_restart(p);
    assert_int_equal(plan_batch(p)->n, 0);
    plan_free(&p);
}

/* So that the destination knows this producer. */
static void a_queue_without_a_mark_gets_one_before_its_messages(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.states = true;
    struct plan *p = plan_new(&config);
    follow_and_ask(p, false, 0);
    expect_read(p, 0, 0, false); /* meanwhile */
    give(p, "1 1 1\na\n2 1 1\nb\n", 0);
    expect_run(p, 0, 0, 0, 0, 1);
    fails(p, PLAN_DESTINATION, LONG_AGO);
    expect_run(p, 0, 0, 0, 0, 1);
    plan_delivered(p);
    expect_run(p, 0, 0, 2, 1, 3);
    plan_free(&p);
}

#define A "0136d2f3a000aaaaaaaaaaaa"
#define B "0136d2f3b000bbbbbbbbbbbb"

/* A plan that has asked for a mark, beside a queue whose latest message is of this opening. */
static struct plan *asked(const char *latest, uint64_t mark, const char *opening)
{
    struct plan *p = plan_new(&usual);
    expect(p, PLAN_QUEUE, 0, PLAN_FOLLOW);
    plan_followed(p, &(struct plan_queue){BYTES_LITERAL("q"), 5, false, bytes_str(latest), 0});
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_asked(p, mark, bytes_str(opening));
    return p;
}

static void a_mark_of_another_history_ends_the_plan(void **state)
{
    (void)state;
    for (int stopping = 0; stopping < 2; stopping++) {
        struct plan *p = asked(B, 20, A);
        struct plan_step s = next(p, PLAN_QUEUE, 0);
        assert_int_equal(s.action, PLAN_READ);
        assert_int_equal(s.mark, 20);
        assert_string_equal(s.opening, A);
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        if (stopping)
            plan_stop(p);
        plan_other_history(p);
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        expect(p, PLAN_QUEUE, 0, PLAN_OLD_COPY);
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        assert_int_equal(plan_mark(p), 20);
        assert_string_equal(plan_opening(p), A);
        plan_free(&p);
    }
}

static void messages_that_the_destination_lost_end_the_plan(void **state)
{
    (void)state;
    for (int stopping = 0; stopping < 2; stopping++) {
        struct plan *p = asked(A, 20, A);
        expect(p, PLAN_QUEUE, 0, PLAN_READ);
        if (stopping)
            plan_stop(p);
        plan_destination_behind(p, 31);
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        expect(p, PLAN_QUEUE, 0, PLAN_OLD_DESTINATION);
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        assert_int_equal(plan_acked_below(p), 31);
        assert_int_equal(plan_mark(p), 20);
        plan_free(&p);
    }
}

static void give_of(struct plan *p, const char *framed, const char *opening)
{
    struct batch b;
    assert_true(batch_parse(bytes_str(framed), 0, &b));
    snprintf(b.opening, sizeof b.opening, "%s", opening);
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    plan_read(p, &b, &(struct plan_accepted){0}, 0);
}

/* Of the reply with the messages, and the next READ states it. */
static void a_delivery_states_the_opening_of_its_messages(void **state)
{
    (void)state;
    struct plan *p = asked(B, 8, A);
    give_of(p, "8 1 1\na\n9 1 1\nb\n", A);
    assert_string_equal(next(p, PLAN_DESTINATION, 0).opening, A);
    give_of(p, "10 1 1\nc\n", B);
    plan_delivered(p);
    assert_string_equal(next(p, PLAN_DESTINATION, 0).opening, B);
    assert_string_equal(plan_opening(p), A);
    plan_delivered(p);
    struct plan_step s = next(p, PLAN_QUEUE, 0);
    assert_int_equal(s.mark, 11);
    assert_string_equal(s.opening, B);
    plan_free(&p);
    p = asked(A, 0, "");
    assert_string_equal(next(p, PLAN_DESTINATION, 0).opening, A); /* of the first mark */
    plan_free(&p);
}

/* An operator has set it. */
static void a_mark_without_an_opening_gets_one(void **state)
{
    (void)state;
    struct plan *p = asked(B, 11, "");
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT); /* until the queue has accepted it */
    read_batch(p, "11 1 1\na\n");
    struct plan_step s = next(p, PLAN_DESTINATION, 0);
    assert_int_equal(s.action, PLAN_DELIVER);
    assert_int_equal(s.count, 0);
    assert_int_equal(s.mark, 11);
    assert_int_equal(s.next, 11);
    assert_string_equal(s.opening, B);
    fails(p, PLAN_DESTINATION, LONG_AGO);
    expect_run(p, 0, 0, 0, 11, 11);
    plan_delivered(p);
    expect_run(p, 0, 0, 1, 11, 12);
    plan_free(&p);
    p = asked("", 11, ""); /* there is none to store */
    read_batch(p, "");
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    plan_free(&p);
}

/* Asked again, with a message delivered if `delivers`. */
static void conflict_and_restart(struct plan *p, usec_t *now, uint64_t mark, bool delivers)
{
    expect(p, PLAN_QUEUE, *now, PLAN_READ);
    give(p, "1 1 1\na\n", *now);
    if (delivers) {
        expect_run(p, *now, 0, 1, mark, 2);
        plan_delivered(p);
        expect(p, PLAN_QUEUE, *now, PLAN_READ);
        give(p, "2 1 1\na\n", *now);
    }
    expect(p, PLAN_DESTINATION, *now, PLAN_DELIVER);
    plan_conflict(p, *now);
    expect(p, PLAN_QUEUE, *now, PLAN_FOLLOW);
    followed(p, false);
    struct plan_step s = next(p, PLAN_DESTINATION, *now);
    if (s.action == PLAN_PAUSE) {
        *now = s.until;
        s = next(p, PLAN_DESTINATION, *now);
    }
    assert_int_equal(s.action, PLAN_ASK);
    plan_asked(p, 0, BYTES_NONE);
    expect_run(p, *now, 0, 0, 0, 1);
    plan_delivered(p); /* an empty delivery is no progress */
}

static void one_conflict_after_another_slows_down(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    usec_t now = 0;
    conflict_and_restart(p, &now, 1, false);
    assert_int_equal(now, 0); /* a single one is not waited for */
    for (int i = 0; i < 7; i++)
        conflict_and_restart(p, &now, 1, false);
    assert_in_range(now, usual.backoff_min * 60, usual.backoff_min * 130);
    usec_t before = now;
    conflict_and_restart(p, &now, 1, true);
    assert_int_equal(now, before);
    plan_free(&p);
}

/* The plan follows again and reads at once. */
static void follow_and_work(struct plan *p, usec_t now)
{
    expect(p, PLAN_QUEUE, now, PLAN_FOLLOW);
    followed(p, true);
    expect(p, PLAN_DESTINATION, now, PLAN_ASK);
    plan_asked(p, 1, BYTES_NONE);
}

static usec_t expect_pause(struct plan *p, enum plan_lane lane, usec_t now)
{
    struct plan_step s = next(p, lane, now);
    assert_int_equal(s.action, PLAN_PAUSE);
    return s.until;
}

static void the_superseded_one_waits_longer_each_time(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    usec_t now = 1;
    for (int i = 0; i < 6; i++) {
        if (i % 2) { /* in a read or in a bury */
            expect(p, PLAN_QUEUE, now, PLAN_READ);
            give(p, "1 1 0\n\n", now);
            expect(p, PLAN_QUEUE, now, PLAN_BURY);
        } else {
            expect(p, PLAN_QUEUE, now, PLAN_READ);
        }
        plan_superseded(p, now);
        expect(p, PLAN_DESTINATION, now, PLAN_WAIT);
        usec_t until = expect_pause(p, PLAN_QUEUE, now);
        assert_in_range(until - now, usual.backoff_min / 2 << i, usual.backoff_min << i);
        now = until;
        follow_and_work(p, now);
    }
    plan_free(&p);
}

static void one_that_has_worked_long_enough_waits_briefly_again(void **state)
{
    (void)state;
    const usec_t worked[] = {usual.backoff_max - 1, usual.backoff_max};
    for (int i = 0; i < 2; i++) {
        struct plan *p = begun(&usual, 0);
        usec_t now = 1;
        for (int turn = 0; turn < 4; turn++) {
            expect(p, PLAN_QUEUE, now, PLAN_READ);
            plan_superseded(p, now);
            now = expect_pause(p, PLAN_QUEUE, now);
            follow_and_work(p, now);
        }
        expect(p, PLAN_QUEUE, now, PLAN_READ);
        give(p, "", now);
        now += worked[i];
        expect(p, PLAN_QUEUE, now, PLAN_READ);
        give(p, "", now);
        expect(p, PLAN_QUEUE, now, PLAN_READ);
        plan_superseded(p, now);
        usec_t until = expect_pause(p, PLAN_QUEUE, now);
        assert_in_range(until - now, usual.backoff_min / 2 << (i ? 0 : 4), usual.backoff_min << (i ? 0 : 4));
        plan_free(&p);
    }
}

/* The time in which the plan did not follow is no work. */
static void the_time_of_work_begins_with_a_read(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    usec_t now = 1;
    expect(p, PLAN_QUEUE, now, PLAN_READ);
    give(p, "", now);
    expect(p, PLAN_QUEUE, now, PLAN_READ);
    plan_superseded(p, now);
    now += usual.backoff_max;
    follow_and_work(p, now);
    expect(p, PLAN_QUEUE, now, PLAN_READ);
    give(p, "", now);
    expect(p, PLAN_QUEUE, now, PLAN_READ);
    plan_superseded(p, now);
    assert_in_range(expect_pause(p, PLAN_QUEUE, now) - now, usual.backoff_min + 1, usual.backoff_min * 2);
    plan_free(&p);
}

static void a_superseded_plan_starts_over_once_the_run_is_answered(void **state)
{
    (void)state;
    struct plan *p = delivering();
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    plan_superseded(p, LONG_AGO);
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    plan_delivered(p);
    expect_restart(p);
    plan_free(&p);
}

static void poison_is_buried_before_what_follows_is_delivered(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n2 1 3\nb\nc\n3 1 0\n\n4 1 1\nd\n");
    expect_run(p, 0, 0, 1, 1, 2);
    plan_delivered(p);
    static const char *const reasons[] = {"contains a line feed", "empty"};
    for (size_t i = 1; i <= 2; i++) {
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        struct plan_step s = next(p, PLAN_QUEUE, 0);
        assert_int_equal(s.action, PLAN_BURY);
        assert_int_equal(s.first, i);
        assert_string_equal(plan_batch(p)->messages[i].reason, reasons[i - 1]);
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        plan_buried(p);
    }
    expect_run(p, 0, 3, 1, 2, 5);
    plan_delivered(p);
    expect_read(p, 5, 5, true);
    plan_free(&p);
}

static void only_lines_are_checked(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.lines = false;
    struct plan *p = begun(&config, 0);
    read_batch(p, "1 1 3\nb\nc\n2 1 0\n\n");
    expect_run(p, 0, 0, 2, 1, 3);
    plan_free(&p);
}

static void poison_of_the_next_batch_waits_for_its_turn(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n");
    read_batch(p, "2 1 0\n\n");
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    expect_run(p, 0, 0, 1, 1, 2);
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    plan_delivered(p);
    struct plan_step s = next(p, PLAN_QUEUE, 0);
    assert_int_equal(s.action, PLAN_BURY);
    assert_int_equal(s.first, 0);
    plan_buried(p);
    expect_read(p, 2, 3, true); /* a buried message raises no mark */
    plan_free(&p);
}

static void a_bury_that_fails_is_repeated(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 0\n\n");
    expect(p, PLAN_QUEUE, 0, PLAN_BURY);
    fails(p, PLAN_QUEUE, 0);
    usec_t until = expect_pause(p, PLAN_QUEUE, 0);
    expect(p, PLAN_QUEUE, until, PLAN_BURY);
    plan_free(&p);
}

static void a_bury_that_is_lost_starts_over(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 0\n\n2 1 1\na\n");
    expect(p, PLAN_QUEUE, 0, PLAN_BURY);
    plan_bury_lost(p);
    expect_restart(p);
    followed(p, false);
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_asked(p, 1, BYTES_NONE);
    expect_read(p, 1, 0, false);
    give(p, "2 1 1\na\n", 0);
    expect_run(p, 0, 0, 1, 1, 3);
    plan_free(&p);
}

/* Returns the number of steps until message `bad` is buried and the others are delivered. The destination refuses
 * each run that contains `bad`. */
static unsigned tries_to_find(size_t n, size_t bad)
{
    struct plan_config config = usual;
    config.items = n + 1;
    struct plan *p = begun(&config, 0);
    struct buf framed = {0};
    for (size_t i = 1; i <= n; i++)
        buf_printf(&framed, "%zu 1 1\nx\n", i);
    buf_append_char(&framed, '\0');
    read_batch(p, framed.ptr);
    buf_free(&framed);
    unsigned tries = 0;
    uint64_t mark = 1; /* of begun */
    size_t buried = SIZE_MAX;
    for (struct plan_step s; (s = next(p, PLAN_QUEUE, 0)).action != PLAN_READ; tries++) {
        if (s.action == PLAN_BURY) {
            buried = s.first;
            assert_string_equal(plan_batch(p)->messages[s.first].reason, "413 line-too-large");
            plan_buried(p);
            continue;
        }
        s = next(p, PLAN_DESTINATION, 0);
        assert_int_equal(s.mark, mark);
        if (s.first <= bad && bad < s.first + s.count)
            plan_refused(p, "413 line-too-large");
        else {
            mark = s.next;
            plan_delivered(p);
        }
    }
    assert_int_equal(buried, bad);
    assert_int_equal(mark, bad < n - 1 ? n + 1 : n);
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

static void refused_runs_are_halved_until_their_end_is_passed(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n2 1 1\nb\n3 1 1\nc\n4 1 1\nd\n5 1 1\ne\n6 1 1\nf\n7 1 1\ng\n8 1 1\nh\n");
    expect_run(p, 0, 0, 8, 1, 9);
    plan_refused(p, "413");
    expect_run(p, 0, 0, 4, 1, 5);
    plan_refused(p, "413");
    read_batch(p, "9 1 1\ni\n10 1 1\nj\n11 1 1\nk\n"); /* which changes nothing */
    for (size_t i = 0; i < 8; i += 2) { /* it was refused as a whole, but all parts are accepted */
        expect_run(p, 0, i, 2, i + 1, i + 3);
        plan_delivered(p);
    }
    expect_run(p, 0, 0, 3, 9, 12);
    plan_free(&p);
}

/* Each run has at most four messages. */
static void halving_ends_where_the_refused_run_ends(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.max_bytes = 8;
    struct plan *p = begun(&config, 0);
    for (uint64_t id = 1; id <= 9; id += 8) {
        struct buf framed = {0};
        for (unsigned i = 0; i < 8; i++)
            buf_printf(&framed, "%u 1 1\nx\n", (unsigned)id + i);
        buf_append_char(&framed, '\0');
        read_batch(p, framed.ptr);
        buf_free(&framed);
        for (size_t i = 0; i < 8; i += 4) {
            expect_run(p, 0, i, 4, id + i, id + i + 4);
            plan_refused(p, "413");
            expect_run(p, 0, i, 2, id + i, id + i + 2);
            plan_delivered(p);
            expect_run(p, 0, i + 2, 2, id + i + 2, id + i + 4);
            plan_delivered(p);
        }
    }
    plan_free(&p);
}

/* A run that was halved says nothing about the rest after the poison, nor about messages that are read later. */
static void found_poison_ends_the_halving(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n2 1 1\nb\n3 1 1\nc\n4 1 1\nd\n5 1 1\ne\n6 1 1\nf\n7 1 1\ng\n8 1 1\nh\n");
    for (size_t count = 8; count > 0; count /= 2) {
        expect_run(p, 0, 0, count, 1, count + 1);
        plan_refused(p, "413");
    }
    expect(p, PLAN_QUEUE, 0, PLAN_BURY);
    plan_buried(p);
    expect_run(p, 0, 1, 7, 1, 9);
    plan_free(&p);
    p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n2 1 1\nb\n3 1 1\nc\n4 1 1\nd\n");
    expect_run(p, 0, 0, 4, 1, 5);
    plan_refused(p, "413");
    expect_run(p, 0, 0, 2, 1, 3);
    plan_conflict(p, 0);
    follow_and_work(p, 0);
    read_batch(p, "1 1 1\na\n2 1 1\nb\n3 1 1\nc\n4 1 1\nd\n5 1 1\ne\n");
    expect_run(p, 0, 0, 5, 1, 6);
    plan_free(&p);
}

static void runs_are_bounded(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.max_bytes = 6;
    struct plan *p = begun(&config, 0);
    read_batch(p, "1 1 2\naa\n2 1 2\nbb\n3 1 2\ncc\n4 1 9\nddddddddd\n5 1 0\n\n");
    expect_run(p, 0, 0, 2, 1, 3);
    plan_delivered(p);
    expect_run(p, 0, 2, 1, 3, 4);
    plan_delivered(p);
    expect_run(p, 0, 3, 1, 4, 5);
    plan_free(&p);
}

static void stopping_settles_and_ends_the_following(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n2 1 3\nb\nc\n");
    expect_run(p, 0, 0, 1, 1, 2);
    plan_stop(p);
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    plan_delivered(p);
    assert_int_equal(plan_batch(p)->n, 2);
    expect_unfollow(p, 2); /* without burying the poison */
    assert_int_equal(plan_batch(p)->n, 0);
    plan_free(&p);
}

/* Stops during the step of the queue's lane. */
static void a_stop_waits_for_the_queue(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    expect_read(p, 1, 0, true);
    plan_stop(p);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    plan_cancelled(p, PLAN_QUEUE);
    expect_unfollow(p, 1);
    plan_free(&p);
    p = begun(&usual, 0);
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    plan_stop(p);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    give(p, "1 1 1\na\n", 0);
    expect_unfollow(p, 1);
    plan_free(&p);
    p = begun(&usual, 0);
    read_batch(p, "1 1 0\n\n2 1 1\na\n");
    expect(p, PLAN_QUEUE, 0, PLAN_BURY);
    plan_stop(p);
    plan_buried(p);
    expect_unfollow(p, 1);
    plan_free(&p);
}

/* The next delivery is a message that has been read. */
static struct plan *with_a_message(uint64_t mark, bool is_takeover)
{
    struct plan *p = plan_new(&usual);
    follow_and_ask(p, is_takeover, mark);
    read_batch(p, "7 1 1\na\n8 1 1\nb\n");
    return p;
}

static void a_delivery_without_an_answer_keeps_the_following(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan *p = with_a_message(7, false);
        expect_run(p, 0, 0, 2, 7, 9);
        if (i == 0)
            plan_stop(p);
        fails(p, PLAN_DESTINATION, i == 1 ? 0 : LONG_AGO);
        if (i == 2) { /* a later refusal says nothing about the first try */
            expect_run(p, 0, 0, 2, 7, 9);
            plan_refused(p, "413");
        }
        if (i > 0)
            plan_stop(p);
        expect_stopped(p);
        plan_free(&p);
    }
}

/* A FOLLOW does not end earlier deliveries. */
static void a_delivery_without_an_answer_is_remembered(void **state)
{
    (void)state;
    struct plan *p = with_a_message(7, false);
    expect_run(p, 0, 0, 2, 7, 9);
    fails(p, PLAN_DESTINATION, LONG_AGO);
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    plan_superseded(p, LONG_AGO);
    follow_and_ask(p, false, 7);
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    plan_stop(p);
    plan_cancelled(p, PLAN_QUEUE);
    expect_stopped(p);
    plan_free(&p);
}

static void a_stored_delivery_ends_earlier_ones(void **state)
{
    (void)state;
    struct plan *p = with_a_message(7, true);
    expect_run(p, 0, 0, 2, 7, 9);
    fails(p, PLAN_DESTINATION, LONG_AGO);
    expect_run(p, 0, 0, 2, 7, 9);
    plan_delivered(p);
    plan_stop(p);
    expect_unfollow(p, 9);
    plan_free(&p);
}

static void steps_without_messages_need_no_answer(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.states = true;
    struct plan *p = plan_new(&config);
    follow_and_ask(p, false, 0);
    expect_run(p, 0, 0, 0, 0, 1);
    plan_stop(p);
    fails(p, PLAN_DESTINATION, 0);
    expect_unfollow(p, 0);
    plan_free(&p);
    p = begun(&config, 7);
    expect(p, PLAN_DESTINATION, USEC_PER_SEC, PLAN_STATE);
    plan_stop(p);
    fails(p, PLAN_DESTINATION, 0);
    expect_unfollow(p, 7);
    plan_free(&p);
    p = with_a_message(7, false);
    expect_run(p, 0, 0, 2, 7, 9);
    plan_stop(p);
    plan_refused(p, "413"); /* an answer, too */
    expect_unfollow(p, 7);
    plan_free(&p);
}

static void a_takeover_keeps_the_following_until_a_delivery_is_stored(void **state)
{
    (void)state;
    struct plan *p = with_a_message(7, true);
    plan_stop(p);
    expect_stopped(p);
    plan_free(&p);
    p = with_a_message(7, true);
    expect_run(p, 0, 0, 2, 7, 9);
    plan_stop(p);
    plan_delivered(p);
    expect_unfollow(p, 9);
    plan_free(&p);
    p = plan_new(&usual);
    follow_and_ask(p, true, 0);
    expect_run(p, 0, 0, 0, 0, 1);
    plan_delivered(p); /* it has raised the mark */
    plan_stop(p);
    expect_unfollow(p, 0);
    plan_free(&p);
}

static void storing_only_an_opening_ends_no_earlier_delivery(void **state)
{
    (void)state;
    struct plan *p = plan_new(&usual);
    expect(p, PLAN_QUEUE, 0, PLAN_FOLLOW);
    plan_followed(p, &(struct plan_queue){BYTES_LITERAL("q"), 5, true, BYTES_LITERAL(A), 0});
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_asked(p, 7, BYTES_NONE);
    read_batch(p, "");
    expect_run(p, 0, 0, 0, 7, 7);
    plan_stop(p);
    plan_delivered(p);
    expect_stopped(p);
    plan_free(&p);
}

/* Another process has changed the mark. */
static void a_conflict_keeps_the_following_until_a_delivery_is_stored(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan *p = with_a_message(7, false);
        expect_run(p, 0, 0, 2, 7, 9);
        if (i == 0)
            plan_stop(p);
        plan_conflict(p, 0);
        if (i > 0) {
            follow_and_ask(p, false, 8);
            read_batch(p, "8 1 1\nb\n");
            expect_run(p, 0, 0, 1, 8, 9);
            plan_stop(p);
        }
        if (i == 1)
            plan_refused(p, "413");
        if (i == 2) {
            plan_delivered(p);
            expect_unfollow(p, 9);
        } else {
            expect_stopped(p);
        }
        plan_free(&p);
    }
}

static void an_unfollow_that_fails_is_not_repeated(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    plan_stop(p);
    expect(p, PLAN_QUEUE, 0, PLAN_UNFOLLOW);
    fails(p, PLAN_QUEUE, 0);
    expect_stopped(p);
    plan_free(&p);
}

static void a_stop_before_the_work(void **state)
{
    (void)state;
    struct plan *p = plan_new(&usual);
    plan_stop(p);
    expect_stopped(p); /* the queue was not followed */
    plan_free(&p);
    for (int i = 0; i < 3; i++) {
        p = plan_new(&usual);
        expect(p, PLAN_QUEUE, 0, PLAN_FOLLOW);
        plan_stop(p);
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        if (i == 0)
            plan_cancelled(p, PLAN_QUEUE);
        else if (i == 1)
            fails(p, PLAN_QUEUE, 0);
        else
            followed(p, false);
        if (i < 2)
            expect_stopped(p);
        else
            expect_unfollow(p, 0);
        plan_free(&p);
    }
}

static void a_stop_while_the_mark_is_asked_for(void **state)
{
    static const struct {
        bool is_takeover, fails;
        uint64_t mark;
    } cases[] = {{false, false, 7}, {false, true, 0}, {true, false, 7}, {true, true, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan *p = plan_new(&usual);
        expect(p, PLAN_QUEUE, 0, PLAN_FOLLOW);
        followed(p, cases[i].is_takeover);
        expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
        plan_stop(p);
        expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
        if (cases[i].fails)
            fails(p, PLAN_DESTINATION, 0);
        else
            plan_asked(p, cases[i].mark, BYTES_NONE);
        if (cases[i].is_takeover)
            expect_stopped(p);
        else
            expect_unfollow(p, 0); /* the queue has not accepted the mark */
        plan_free(&p);
    }
}

/* The number of the former follow is still valid, but the plan no longer settles by it. */
static void a_stop_before_the_plan_follows_again(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    read_batch(p, "1 1 1\na\n2 1 0\n\n");
    expect_run(p, 0, 0, 1, 1, 2);
    plan_delivered(p);
    expect(p, PLAN_QUEUE, 0, PLAN_BURY);
    plan_bury_lost(p);
    expect_restart(p);
    fails(p, PLAN_QUEUE, 0);
    plan_stop(p);
    expect_stopped(p);
    assert_false(plan_has_unfollowed(p));
    plan_free(&p);
}

static void a_stop_ends_a_pause(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 0);
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    fails(p, PLAN_QUEUE, 0);
    expect(p, PLAN_QUEUE, 0, PLAN_PAUSE);
    plan_stop(p);
    expect_unfollow(p, 1);
    plan_free(&p);
    p = begun(&usual, 0);
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    plan_stop(p);
    fails(p, PLAN_QUEUE, 0); /* the pause would begin in the stop */
    expect_unfollow(p, 1);
    plan_free(&p);
    p = plan_new(&usual);
    expect(p, PLAN_QUEUE, 0, PLAN_FOLLOW);
    fails(p, PLAN_QUEUE, 0);
    expect(p, PLAN_QUEUE, 0, PLAN_PAUSE);
    plan_stop(p);
    expect_stopped(p);
    plan_free(&p);
}

/* Another process follows the queue, or it must be followed again. */
static void a_superseded_plan_has_no_following_to_end(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan *p = begun(&usual, 0);
        expect(p, PLAN_QUEUE, 0, PLAN_READ);
        if (i == 0)
            plan_stop(p);
        plan_superseded(p, i == 2 ? LONG_AGO : 0);
        if (i == 1)
            expect(p, PLAN_QUEUE, 0, PLAN_PAUSE);
        if (i == 2)
            follow_and_ask(p, false, 1);
        plan_stop(p);
        if (i < 2)
            expect_stopped(p);
        else
            expect_unfollow(p, 0);
        plan_free(&p);
    }
}

#define LATER ((usec_t)1000000000) /* a time of the destination that is later than the queue's */

static struct plan *stating(void)
{
    struct plan_config config = usual;
    config.states = true;
    struct plan *p = begun(&config, 0);
    plan_destination_time(p, LATER, false);
    return p;
}

static void read_before(struct plan *p, const char *framed, usec_t before, uint64_t last_id, usec_t now)
{
    struct batch b;
    struct plan_step s = next(p, PLAN_QUEUE, now);
    assert_int_equal(s.action, PLAN_READ);
    assert_true(batch_parse(bytes_str(framed), 1, &b));
    plan_read(p, &b, &(struct plan_accepted){before, last_id}, now);
}

static void expect_state(struct plan *p, usec_t now, usec_t time)
{
    struct plan_step s = next(p, PLAN_DESTINATION, now);
    assert_int_equal(s.action, PLAN_STATE);
    assert_int_equal(s.mark, plan_mark(p));
    assert_int_equal(s.watermark, time);
    plan_stated(p);
}

/* The run that begins with the reserved message. */
static void expect_run_until(struct plan *p, usec_t time)
{
    struct plan_step s = next(p, PLAN_DESTINATION, 0);
    assert_int_equal(s.action, PLAN_DELIVER);
    assert_int_equal(s.watermark, time);
    plan_delivered(p);
}

#define AT(SECONDS) ((usec_t)(SECONDS * (double)USEC_PER_SEC))

static void a_watermark_rides_on_the_run_that_reaches_it(void **state)
{
    (void)state;
    struct plan *p = stating();
    read_before(p, "1 1 1\na\n2 1 1\nb\n", 7000, 2, 0);
    expect_run_until(p, 7000);
    read_before(p, "3 1 1\nc\n", 8000, 9, 0); /* more are in the queue */
    expect_run_until(p, 0);
    plan_free(&p);
}

static void a_watermark_is_the_earlier_time_of_both_clocks(void **state)
{
    (void)state;
    struct plan *p = stating();
    plan_destination_time(p, 6000, false);
    read_before(p, "1 1 1\na\n", 7000, 1, 0);
    expect_run_until(p, 6000);
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    plan_destination_time(p, 6500, false); /* after the reserve was sent, so not a time before its answer */
    struct batch b;
    assert_true(batch_parse(BYTES_LITERAL("2 1 1\na\n"), 1, &b));
    plan_read(p, &b, &(struct plan_accepted){7500, 2}, 0);
    expect_run_until(p, 6000);
    read_before(p, "3 1 1\na\n", 7600, 3, 0);
    expect_run_until(p, 6500);
    plan_free(&p);
}

static void a_run_states_the_latest_time_that_it_reaches(void **state)
{
    (void)state;
    struct plan *p = stating();
    read_before(p, "1 1 1\na\n", 7000, 2, 0);
    expect_run_until(p, 0);
    read_before(p, "2 1 1\nb\n", 8000, 2, 0);
    expect_run_until(p, 8000);
    plan_free(&p);
}

/* Each batch is read while the queue already has more. */
static void the_watermark_rises_although_there_is_always_a_backlog(void **state)
{
    (void)state;
    struct plan *p = stating();
    read_before(p, "1 1 1\na\n", 7000, 2, 0);
    read_before(p, "2 1 1\nb\n", 8000, 3, 0);
    expect_run_until(p, 0);
    read_before(p, "3 1 1\nc\n", 9000, 9, 0);
    expect_run_until(p, 7000);
    read_before(p, "4 1 1\nd\n", 9500, 9, 0);
    expect_run_until(p, 0);
    plan_free(&p);
    p = stating();
    read_before(p, "1 1 1\na\n", 7000, 1, 0);
    read_before(p, "2 1 1\nb\n", 8000, 2, 0);
    expect_run_until(p, 7000);
    read_before(p, "3 1 1\nc\n", 9000, 9, 0);
    expect_run_until(p, 8000);
    expect_run_until(p, 0);
    plan_free(&p);
}

static void times_are_dropped_when_the_queue_is_followed_again(void **state)
{
    (void)state;
    struct plan *p = stating();
    read_before(p, "", 7000, 0, 0);
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    plan_superseded(p, LONG_AGO);
    follow_and_ask(p, true, 1);
    read_batch(p, "");
    expect_state(p, AT(5), 0);
    plan_free(&p);
}

static void an_empty_delivery_states_nothing(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.states = true;
    struct plan *p = plan_new(&config);
    follow_and_ask(p, false, 0);
    expect_run(p, AT(5), 0, 0, 0, 1);
    plan_delivered(p);
    expect(p, PLAN_DESTINATION, AT(5), PLAN_WAIT); /* until the queue has accepted the mark */
    read_batch(p, "");
    expect_state(p, AT(5), 0);
    plan_free(&p);
}

static void a_clock_that_was_set_back_begins_an_era(void **state)
{
    (void)state;
    struct plan *p = stating();
    read_before(p, "1 1 1\na\n", 7000, 1, 0);
    plan_destination_time(p, 500, true); /* the time before may be later than what is accepted from now on */
    expect_run_until(p, 0);
    read_before(p, "2 1 1\na\n", 7000, 2, 0);
    expect_run_until(p, 500);
    expect(p, PLAN_QUEUE, 0, PLAN_READ);
    plan_destination_time(p, 300, true); /* while the queue is asked */
    struct batch b;
    assert_true(batch_parse(BYTES_LITERAL("3 1 1\na\n"), 1, &b));
    plan_read(p, &b, &(struct plan_accepted){7500, 3}, 0);
    expect_run_until(p, 0);
    plan_free(&p);
}

static void an_idle_reader_states_every_second(void **state)
{
    (void)state;
    struct plan *p = stating();
    expect_state(p, AT(5), 0); /* nothing is known, but the reader is alive */
    read_before(p, "", 7000, 0, AT(5.1));
    expect(p, PLAN_DESTINATION, AT(5.2), PLAN_PAUSE);
    expect(p, PLAN_DESTINATION, AT(5.6), PLAN_STATE);
    expect(p, PLAN_QUEUE, AT(5.6), PLAN_WAIT); /* for the time in the answer */
    plan_stated(p);
    expect(p, PLAN_DESTINATION, AT(6.5), PLAN_PAUSE);
    expect_state(p, AT(6.6), 0);
    read_before(p, "", 9000, 4, AT(7)); /* a message is still in the queue */
    expect_state(p, AT(8), 0);
    read_before(p, "", 10000, 1, AT(8)); /* the message with the mark's id */
    expect_state(p, AT(9), 0);
    plan_free(&p);
}

static void times_are_dropped_when_ids_or_clocks_change(void **state)
{
    (void)state;
    struct plan *p = stating();
    read_before(p, "1 1 1\na\n", 7000, 2, 0);
    expect_run_until(p, 0);
    read_before(p, "2 1 1\na\n", 0, 0, 0); /* a message is delayed */
    expect_run_until(p, 0);
    read_before(p, "3 1 1\na\n", 8000, 4, 0);
    expect_run_until(p, 0);
    read_before(p, "4 1 1\na\n", 500, 5, 0); /* the queue's clock was set back */
    expect_run_until(p, 0);
    read_before(p, "5 1 1\na\n", 600, 6, 0);
    expect_run_until(p, 500);
    plan_free(&p);
}

static void a_reader_in_conflict_states_nothing(void **state)
{
    (void)state;
    struct plan *p = stating();
    read_before(p, "", 7000, 0, AT(2));
    expect(p, PLAN_DESTINATION, AT(3), PLAN_STATE);
    plan_conflict(p, AT(3));
    expect(p, PLAN_DESTINATION, AT(3), PLAN_WAIT);
    expect(p, PLAN_QUEUE, AT(3), PLAN_FOLLOW);
    plan_free(&p);
}

/* A plan whose destination may lose messages for 100 s, with the mark 3 and the message 3 stored at 10 s. */
static struct plan *forgetful(bool hands_over)
{
    struct plan_config config = usual;
    config.states = true;
    config.hand_over = hands_over;
    config.settle_after = 100 * USEC_PER_SEC;
    struct plan *p = plan_new(&config);
    follow_and_ask(p, false, 3);
    expect_read_at(p, 0, 3, 3, false); /* what the destination has is not read again */
    give(p, "3 1 1\na\n", 0);
    expect_run(p, 10 * USEC_PER_SEC, 0, 1, 3, 4);
    plan_delivered(p);
    return p;
}

static void expect_settle(struct plan *p, usec_t now, uint64_t settle)
{
    struct plan_step s = next(p, PLAN_QUEUE, now);
    assert_int_equal(s.action, PLAN_READ);
    assert_int_equal(s.settle, settle);
    assert_int_equal(s.mark, 4);
    give(p, "", now);
}

static void state_at(struct plan *p, usec_t now)
{
    expect(p, PLAN_DESTINATION, now, PLAN_STATE);
    plan_stated(p);
}

static void ask_at(struct plan *p, usec_t now, uint64_t mark)
{
    expect(p, PLAN_DESTINATION, now, PLAN_ASK);
    plan_destination_has(p, 0, mark);
    plan_asked(p, mark, BYTES_LITERAL("o"));
}

/* The destination had the mark 3 before the delivery at 10 s, and the mark 4 before the statement at 20 s. */
static void a_mark_is_settled_after_it_was_asked_for_again(void **state)
{
    (void)state;
    struct plan *p = forgetful(false);
    expect_settle(p, 15 * USEC_PER_SEC, 0);
    state_at(p, 20 * USEC_PER_SEC);
    state_at(p, 109 * USEC_PER_SEC);
    expect_settle(p, 110 * USEC_PER_SEC, 0);
    ask_at(p, 111 * USEC_PER_SEC, 4);
    expect_settle(p, 500 * USEC_PER_SEC, 3); /* time alone settles nothing */
    ask_at(p, 501 * USEC_PER_SEC, 4);
    expect_settle(p, 502 * USEC_PER_SEC, 4);
    state_at(p, 503 * USEC_PER_SEC);
    plan_free(&p);
}

/* A repetition of lost messages may be lost again. */
static void messages_that_are_young_at_the_destination_are_not_settled(void **state)
{
    (void)state;
    struct plan *p = forgetful(false);
    state_at(p, 20 * USEC_PER_SEC);
    expect(p, PLAN_DESTINATION, 500 * USEC_PER_SEC, PLAN_ASK);
    assert_int_equal(plan_due(p), 4);
    plan_destination_has(p, 0, 3);
    plan_asked(p, 4, BYTES_LITERAL("o"));
    expect_settle(p, 501 * USEC_PER_SEC, 3);
    ask_at(p, 600 * USEC_PER_SEC, 4);
    expect_settle(p, 601 * USEC_PER_SEC, 4);
    plan_free(&p);
}

/* The next process learns from the destination where an earlier one has settled. */
static void a_new_plan_knows_what_was_settled(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.states = true;
    config.settle_after = 100 * USEC_PER_SEC;
    struct plan *p = plan_new(&config);
    expect(p, PLAN_QUEUE, 0, PLAN_FOLLOW);
    followed(p, true);
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    assert_int_equal(plan_due(p), 0);
    plan_destination_has(p, 40, 60);
    plan_asked(p, 70, BYTES_LITERAL("o"));
    assert_int_equal(plan_unsettled(p), 30);
    struct plan_step s = next(p, PLAN_QUEUE, 0);
    assert_int_equal(s.settle, 40);
    assert_int_equal(s.mark, 70);
    plan_free(&p);
}

/* A delivery of the former follower may be stored at any time, and has messages before the id that was next at the FOLLOW. */
static void the_follow_ends_behind_what_an_earlier_follower_read(void **state)
{
    (void)state;
    for (int is_behind = 0; is_behind < 2; is_behind++) {
        struct plan_config config = usual;
        config.states = true;
        config.hand_over = true;
        config.settle_after = 100 * USEC_PER_SEC;
        struct plan *p = plan_new(&config);
        expect(p, PLAN_QUEUE, 0, PLAN_FOLLOW);
        plan_followed(p, &(struct plan_queue){BYTES_LITERAL("q"), 5, true, BYTES_NONE, is_behind ? 4 : 5});
        expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
        plan_asked(p, 3, BYTES_LITERAL("o"));
        expect_read_at(p, 0, 3, 3, false);
        give(p, "3 1 1\na\n", 0);
        expect_run(p, 0, 0, 1, 3, 4);
        plan_delivered(p);
        expect(p, PLAN_QUEUE, 0, is_behind ? PLAN_WAIT : PLAN_READ); /* it reads on, or hands over */
        plan_free(&p);
    }
}

/* The destination's position before the READ bounds the time that the READ has shown. */
static void a_watermark_names_the_position_before_its_read(void **state)
{
    (void)state;
    struct plan *p = forgetful(false);
    plan_destination_position(p, 77);
    plan_destination_time(p, 7000, false);
    expect(p, PLAN_QUEUE, AT(20), PLAN_READ);
    plan_destination_position(p, 88);
    plan_read(p, &(struct batch){0}, &(struct plan_accepted){6000, 0}, AT(20));
    struct plan_step s = next(p, PLAN_DESTINATION, AT(21));
    assert_int_equal(s.action, PLAN_STATE);
    assert_int_equal(s.watermark, 6000);
    assert_int_equal(s.watermark_after, 77);
    plan_free(&p);
}

static void a_mark_that_the_destination_lost_is_not_settled(void **state)
{
    (void)state;
    struct plan *p = forgetful(false);
    state_at(p, 20 * USEC_PER_SEC);
    ask_at(p, 500 * USEC_PER_SEC, 3);
    expect(p, PLAN_QUEUE, 501 * USEC_PER_SEC, PLAN_FOLLOW);
    plan_followed(p, &(struct plan_queue){BYTES_LITERAL("q"), 6, true, BYTES_NONE, 0});
    expect(p, PLAN_DESTINATION, 502 * USEC_PER_SEC, PLAN_ASK);
    plan_asked(p, 3, BYTES_NONE);
    expect_read_at(p, 502 * USEC_PER_SEC, 3, 3, false);
    give(p, "3 1 1\na\n", 502 * USEC_PER_SEC);
    expect_run(p, 503 * USEC_PER_SEC, 0, 1, 3, 4);
    plan_delivered(p);
    expect_settle(p, 504 * USEC_PER_SEC, 3);
    state_at(p, 504 * USEC_PER_SEC);
    state_at(p, 602 * USEC_PER_SEC);
    expect_settle(p, 603 * USEC_PER_SEC, 3);
    ask_at(p, 605 * USEC_PER_SEC, 4);
    expect_settle(p, 606 * USEC_PER_SEC, 4);
    plan_free(&p);
}

static void a_follow_of_another_process_begins_the_time_again(void **state)
{
    (void)state;
    struct plan *p = forgetful(false);
    state_at(p, 20 * USEC_PER_SEC);
    expect(p, PLAN_DESTINATION, 90 * USEC_PER_SEC, PLAN_STATE);
    plan_faulted(p, PLAN_DESTINATION, 90 * USEC_PER_SEC, 0);
    expect(p, PLAN_QUEUE, 91 * USEC_PER_SEC, PLAN_FOLLOW);
    plan_followed(p, &(struct plan_queue){BYTES_LITERAL("q"), 7, true, BYTES_NONE, 0}); /* another had 6 */
    expect(p, PLAN_DESTINATION, 91 * USEC_PER_SEC, PLAN_ASK);
    plan_asked(p, 4, BYTES_LITERAL("o"));
    expect_settle(p, 92 * USEC_PER_SEC, 0);
    state_at(p, 92 * USEC_PER_SEC);
    state_at(p, 191 * USEC_PER_SEC);
    expect_settle(p, 191 * USEC_PER_SEC, 0);
    ask_at(p, 193 * USEC_PER_SEC, 4);
    expect_settle(p, 193 * USEC_PER_SEC, 4);
    plan_free(&p);
}

/* The consumers may have what the queue has no more: the first mark shows them the hole, if they have not. */
static void after_a_loss_of_settled_messages_the_mark_is_what_was_settled(void **state)
{
    (void)state;
    struct plan *p = forgetful(false);
    ask_at(p, 111 * USEC_PER_SEC, 4);
    expect_settle(p, 111 * USEC_PER_SEC, 3);
    expect(p, PLAN_DESTINATION, 115 * USEC_PER_SEC, PLAN_STATE);
    plan_conflict(p, 115 * USEC_PER_SEC);
    expect(p, PLAN_QUEUE, 115 * USEC_PER_SEC, PLAN_FOLLOW);
    plan_followed(p, &(struct plan_queue){BYTES_LITERAL("q"), 6, true, BYTES_NONE, 0});
    expect(p, PLAN_DESTINATION, 115 * USEC_PER_SEC, PLAN_ASK);
    plan_asked(p, 2, BYTES_NONE);
    struct plan_step s = next(p, PLAN_QUEUE, 115 * USEC_PER_SEC);
    assert_int_equal(s.mark, 2);
    assert_int_equal(s.settle, 2); /* a READ settles nothing after its mark */
    plan_destination_behind(p, 31);
    expect(p, PLAN_QUEUE, 120 * USEC_PER_SEC, PLAN_FOLLOW);
    plan_followed(p, &(struct plan_queue){BYTES_LITERAL("q"), 7, true, BYTES_NONE, 0});
    expect(p, PLAN_DESTINATION, 120 * USEC_PER_SEC, PLAN_ASK);
    plan_asked(p, 0, BYTES_NONE);
    expect_read_at(p, 120 * USEC_PER_SEC, 31, 31, false);
    give(p, "40 1 1\na\n", 120 * USEC_PER_SEC);
    expect_run(p, 121 * USEC_PER_SEC, 0, 1, 31, 41);
    plan_free(&p);
}

static void a_stop_with_unsettled_messages_keeps_the_follow(void **state)
{
    (void)state;
    struct plan *p = forgetful(false);
    plan_stop(p);
    expect(p, PLAN_QUEUE, 20 * USEC_PER_SEC, PLAN_STOPPED);
    assert_false(plan_has_unfollowed(p));
    plan_free(&p);
}

static void a_plan_that_hands_over_waits_and_stops(void **state)
{
    (void)state;
    struct plan *p = forgetful(true);
    expect(p, PLAN_QUEUE, 20 * USEC_PER_SEC, PLAN_WAIT); /* it reads no more */
    state_at(p, 20 * USEC_PER_SEC);
    ask_at(p, 121 * USEC_PER_SEC, 4);
    struct plan_step s = next(p, PLAN_QUEUE, 122 * USEC_PER_SEC);
    assert_int_equal(s.action, PLAN_UNFOLLOW);
    assert_int_equal(s.settle, 4);
    plan_unfollowed(p);
    expect(p, PLAN_QUEUE, 122 * USEC_PER_SEC, PLAN_STOPPED);
    plan_free(&p);
}

/* Until a delivery is stored, or the queue shows that no earlier delivery has a message of it. */
static void a_hand_over_after_a_takeover_reads_on(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.hand_over = true;
    for (int is_empty = 0; is_empty < 2; is_empty++) {
        struct plan *p = plan_new(&config);
        follow_and_ask(p, true, 3);
        if (is_empty) { /* first paused with message 3, then empty */
            for (uint64_t last = 3; last > 1; last--) {
                struct batch none = {0};
                expect(p, PLAN_QUEUE, 0, PLAN_READ);
                plan_read(p, &none, &(struct plan_accepted){1, last}, 0);
            }
        } else {
            read_batch(p, "3 1 1\na\n");
        }
        if (!is_empty) {
            expect_run(p, 0, 0, 1, 3, 4);
            plan_delivered(p);
        }
        expect_unfollow(p, is_empty ? 3 : 4);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backoff_grows_to_its_bound_and_forgets),
        cmocka_unit_test(backoff_of_two_differs),
        cmocka_unit_test(a_batch_is_read_as_framed),
        cmocka_unit_test(messages_below_the_mark_are_only_settled),
        cmocka_unit_test(the_next_batch_is_read_while_one_is_delivered),
        cmocka_unit_test(a_short_batch_means_that_the_queue_has_no_more),
        cmocka_unit_test(a_fault_repeats_the_same_run_later),
        cmocka_unit_test(a_fault_of_the_queue_repeats_the_same_read),
        cmocka_unit_test(messages_that_are_sent_again_below_the_mark_are_done),
        cmocka_unit_test(a_batch_of_messages_that_the_plan_has_starts_over),
        cmocka_unit_test(a_batch_that_is_read_too_late_is_dropped),
        cmocka_unit_test(a_queue_without_a_mark_gets_one_before_its_messages),
        cmocka_unit_test(a_mark_of_another_history_ends_the_plan),
        cmocka_unit_test(messages_that_the_destination_lost_end_the_plan),
        cmocka_unit_test(a_delivery_states_the_opening_of_its_messages),
        cmocka_unit_test(a_mark_without_an_opening_gets_one),
        cmocka_unit_test(one_conflict_after_another_slows_down),
        cmocka_unit_test(the_superseded_one_waits_longer_each_time),
        cmocka_unit_test(one_that_has_worked_long_enough_waits_briefly_again),
        cmocka_unit_test(the_time_of_work_begins_with_a_read),
        cmocka_unit_test(a_superseded_plan_starts_over_once_the_run_is_answered),
        cmocka_unit_test(poison_is_buried_before_what_follows_is_delivered),
        cmocka_unit_test(only_lines_are_checked),
        cmocka_unit_test(poison_of_the_next_batch_waits_for_its_turn),
        cmocka_unit_test(a_bury_that_fails_is_repeated),
        cmocka_unit_test(a_bury_that_is_lost_starts_over),
        cmocka_unit_test(halving_finds_the_poison),
        cmocka_unit_test(refused_runs_are_halved_until_their_end_is_passed),
        cmocka_unit_test(halving_ends_where_the_refused_run_ends),
        cmocka_unit_test(found_poison_ends_the_halving),
        cmocka_unit_test(runs_are_bounded),
        cmocka_unit_test(stopping_settles_and_ends_the_following),
        cmocka_unit_test(a_stop_waits_for_the_queue),
        cmocka_unit_test(a_delivery_without_an_answer_keeps_the_following),
        cmocka_unit_test(a_delivery_without_an_answer_is_remembered),
        cmocka_unit_test(a_stored_delivery_ends_earlier_ones),
        cmocka_unit_test(steps_without_messages_need_no_answer),
        cmocka_unit_test(a_takeover_keeps_the_following_until_a_delivery_is_stored),
        cmocka_unit_test(storing_only_an_opening_ends_no_earlier_delivery),
        cmocka_unit_test(a_conflict_keeps_the_following_until_a_delivery_is_stored),
        cmocka_unit_test(an_unfollow_that_fails_is_not_repeated),
        cmocka_unit_test(a_stop_before_the_work),
        cmocka_unit_test(a_stop_while_the_mark_is_asked_for),
        cmocka_unit_test(a_stop_before_the_plan_follows_again),
        cmocka_unit_test(a_stop_ends_a_pause),
        cmocka_unit_test(a_superseded_plan_has_no_following_to_end),
        cmocka_unit_test(a_watermark_rides_on_the_run_that_reaches_it),
        cmocka_unit_test(a_watermark_is_the_earlier_time_of_both_clocks),
        cmocka_unit_test(a_run_states_the_latest_time_that_it_reaches),
        cmocka_unit_test(the_watermark_rises_although_there_is_always_a_backlog),
        cmocka_unit_test(times_are_dropped_when_the_queue_is_followed_again),
        cmocka_unit_test(an_empty_delivery_states_nothing),
        cmocka_unit_test(a_clock_that_was_set_back_begins_an_era),
        cmocka_unit_test(an_idle_reader_states_every_second),
        cmocka_unit_test(times_are_dropped_when_ids_or_clocks_change),
        cmocka_unit_test(a_reader_in_conflict_states_nothing),
        cmocka_unit_test(a_mark_is_settled_after_it_was_asked_for_again),
        cmocka_unit_test(a_mark_that_the_destination_lost_is_not_settled),
        cmocka_unit_test(messages_that_are_young_at_the_destination_are_not_settled),
        cmocka_unit_test(a_new_plan_knows_what_was_settled),
        cmocka_unit_test(the_follow_ends_behind_what_an_earlier_follower_read),
        cmocka_unit_test(a_watermark_names_the_position_before_its_read),
        cmocka_unit_test(a_follow_of_another_process_begins_the_time_again),
        cmocka_unit_test(after_a_loss_of_settled_messages_the_mark_is_what_was_settled),
        cmocka_unit_test(a_stop_with_unsettled_messages_keeps_the_follow),
        cmocka_unit_test(a_plan_that_hands_over_waits_and_stops),
        cmocka_unit_test(a_hand_over_after_a_takeover_reads_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
