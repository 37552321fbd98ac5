#include "support/cm.h"
#include "readers/reader_plan.h"
#include <stdio.h>
#include <stdlib.h>

static const struct plan_config usual = {
    .lines = true,
    .lease = 10 * USEC_PER_SEC,
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

static void released(struct plan *p, uint64_t next_id, uint64_t epoch)
{
    plan_released(p, &(struct plan_queue){BYTES_LITERAL("q"), next_id, epoch, BYTES_NONE, 0});
}

static struct plan_step next(struct plan *p, enum plan_lane lane, usec_t now)
{
    return plan_next(p, lane, now);
}

static void expect(struct plan *p, enum plan_lane lane, usec_t now, enum plan_action action)
{
    assert_int_equal(next(p, lane, now).action, action);
}

static void give(struct plan *p, const char *queue, const char *framed, usec_t now)
{
    struct batch b;
    assert_true(batch_parse(bytes_str(framed), 1, &b));
    plan_reserved(p, bytes_str(queue), &b, &(struct plan_accepted){0}, now);
}

static void reserve(struct plan *p, const char *framed)
{
    expect(p, PLAN_QUEUE, 0, PLAN_RESERVE);
    give(p, "q", framed, 0);
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

/* Released and fenced. */
static struct plan *begun(const struct plan_config *config, uint64_t next_id, uint64_t mark)
{
    struct plan *p = plan_new(config);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    released(p, next_id, 5);
    assert_int_equal(plan_epoch(p), 5);
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_asked(p, mark, BYTES_NONE);
    if (mark >> PLAN_FENCE_BITS > next_id)
        return p;
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    expect_run(p, 0, 0, 0, mark, mark ? mark + 1 : PLAN_MARK(1, 1));
    plan_delivered(p);
    return p;
}

static void fails(struct plan *p, enum plan_lane lane, usec_t now)
{
    plan_faulted(p, lane, now, -1);
}

static void what_is_under_the_mark_is_only_acknowledged(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 9, PLAN_MARK(5, 0));
    reserve(p, "3 1 1\na\n4 1 1\nb\n5 1 1\nc\n6 1 1\nd\n");
    expect_run(p, 0, 2, 2, PLAN_MARK(5, 1), PLAN_MARK(7, 0));
    plan_delivered(p);
    struct plan_step s = next(p, PLAN_QUEUE, 0);
    assert_int_equal(s.action, PLAN_RESERVE);
    assert_true(s.wait);
    assert_true(bytes_equal_str(plan_acks(p), "1:3-6"));
    plan_free(&p);
}

static void the_next_batch_is_reserved_meanwhile(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n2 1 1\nb\n");
    expect_run(p, 0, 0, 2, PLAN_MARK(1, 1), PLAN_MARK(3, 0));
    struct plan_step s = next(p, PLAN_QUEUE, 0);
    assert_int_equal(s.action, PLAN_RESERVE);
    assert_false(s.wait);
    give(p, "q", "3 1 1\nc\n", 0);
    expect(p, PLAN_QUEUE, 0, PLAN_PAUSE);
    plan_delivered(p);
    expect_run(p, 0, 0, 1, PLAN_MARK(3, 0), PLAN_MARK(4, 0));
    s = next(p, PLAN_QUEUE, 0);
    assert_int_equal(s.action, PLAN_RESERVE);
    assert_true(bytes_equal_str(plan_acks(p), "1:1-2"));
    plan_delivered(p); /* while those acks are on their way */
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    give(p, "q", "", 0);
    assert_true(bytes_equal_str(plan_acks(p), "1:3"));
    plan_free(&p);
}

static void acks_that_came_due_meanwhile_did_not_ride(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n");
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    expect(p, PLAN_QUEUE, 0, PLAN_RESERVE);
    plan_delivered(p);
    give(p, "q", "", 0);
    expect(p, PLAN_QUEUE, 0, PLAN_RESERVE);
    assert_true(bytes_equal_str(plan_acks(p), "1:1"));
    plan_free(&p);
}

static void nothing_ahead_sends_the_acks_alone(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n");
    reserve(p, "2 1 1\nb\n");
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    plan_delivered(p);
    reserve(p, ""); /* took the acks of 1 along */
    assert_int_equal(plan_acks(p).len, 0);
    expect_run(p, 0, 0, 1, PLAN_MARK(2, 0), PLAN_MARK(3, 0));
    expect(p, PLAN_QUEUE, 0, PLAN_PAUSE); /* it is not asked again and again */
    plan_delivered(p);
    struct plan_step s = next(p, PLAN_QUEUE, 0);
    assert_true(s.action == PLAN_RESERVE && s.wait);
    plan_free(&p);
}

static void a_fault_repeats_the_same_run_later(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n2 1 1\nb\n");
    for (int i = 0; i < 5; i++) {
        expect_run(p, 0, 0, 2, PLAN_MARK(1, 1), PLAN_MARK(3, 0));
        fails(p, PLAN_DESTINATION, -1000 * USEC_PER_SEC); /* long ago: no pause left */
    }
    expect_run(p, 0, 0, 2, PLAN_MARK(1, 1), PLAN_MARK(3, 0));
    fails(p, PLAN_DESTINATION, 0);
    struct plan_step s = next(p, PLAN_DESTINATION, 0);
    assert_int_equal(s.action, PLAN_PAUSE);
    expect_run(p, s.until, 0, 2, PLAN_MARK(1, 1), PLAN_MARK(3, 0));
    plan_faulted(p, PLAN_DESTINATION, 0, 77); /* the destination knows how long */
    assert_int_equal(next(p, PLAN_DESTINATION, 0).until, 77);
    expect(p, PLAN_QUEUE, usual.lease, PLAN_RELEASE); /* the lease is over */
    plan_free(&p);
}

static void leases_are_extended_while_the_destination_takes_its_time(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n");
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    reserve(p, "");
    for (usec_t now = 0; now < 10 * usual.lease;) {
        struct plan_step s = next(p, PLAN_QUEUE, now);
        assert_int_equal(s.action, PLAN_PAUSE);
        assert_true(s.until > now && s.until < now + usual.lease / 2);
        now = s.until;
        s = next(p, PLAN_QUEUE, now);
        assert_int_equal(s.action, PLAN_TOUCH);
        assert_int_equal(s.lease, 1);
        plan_touched(p);
    }
    plan_delivered(p);
    plan_free(&p);
}

static void a_lost_lease_starts_over_once_the_run_is_answered(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n");
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    expect(p, PLAN_QUEUE, usual.lease / 2, PLAN_TOUCH);
    plan_lease_lost(p);
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    plan_delivered(p);
    expect(p, PLAN_QUEUE, 0, PLAN_ACK);
    plan_free(&p);
}

static void a_gap_starts_over_unless_fresh(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 9, PLAN_MARK(3, 0));
    reserve(p, "5 1 1\na\n8 1 1\nb\n"); /* right after the release a gap means that messages are gone */
    expect_run(p, 0, 0, 2, PLAN_MARK(3, 1), PLAN_MARK(9, 0));
    plan_delivered(p);
    reserve(p, "9 1 1\nc\n");
    expect_run(p, 0, 0, 1, PLAN_MARK(9, 0), PLAN_MARK(10, 0));
    plan_delivered(p);
    reserve(p, "11 1 1\nd\n"); /* 10 may be with another process of this name */
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    plan_free(&p);
}

static void another_queue_under_the_same_address_starts_over(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 9, PLAN_MARK(3, 0));
    expect(p, PLAN_QUEUE, 0, PLAN_RESERVE);
    give(p, "other", "9 1 1\na\n", 0);
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    plan_free(&p);
}

static void an_old_copy_is_looked_at_twice(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 4, PLAN_MARK(9, 0));
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    released(p, 12, 6); /* it had only moved on meanwhile */
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_free(&p);
    p = begun(&usual, 4, PLAN_MARK(9, 0));
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    released(p, 8, 6);
    expect(p, PLAN_QUEUE, 0, PLAN_OLD_COPY);
    plan_free(&p);
}

#define A "aaaaaaaaaa111111"
#define B "bbbbbbbbbb222222"
#define C "cccccccccc333333"
#define SHORT_A "aaaaaaaaaa"
#define SHORT_B "bbbbbbbbbb"
#define SHORT_C "cccccccccc"

static void released_with(struct plan *p, uint64_t next_id, const char *openings)
{
    plan_released(p, &(struct plan_queue){BYTES_LITERAL("q"), next_id, 5, bytes_str(openings), 0});
}

/* A plan that has asked for a mark, beside a queue of these openings. */
static struct plan *asked(uint64_t next_id, const char *openings, uint64_t mark_id, const char *opening)
{
    struct plan *p = plan_new(&usual);
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    released_with(p, next_id, openings);
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_asked(p, PLAN_MARK(mark_id, 0), bytes_str(opening));
    return p;
}

static void a_mark_of_another_opening_is_an_old_copy_whatever_its_number(void **state)
{
    (void)state;
    /* The original went on in B from 10 on. The copy has given out as many ids. */
    struct plan *p = asked(40, "1:" A ", 10:" C, 20, SHORT_B SHORT_A);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    released_with(p, 50, "1:" A ", 10:" C);
    expect(p, PLAN_QUEUE, 0, PLAN_OLD_COPY);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    struct plan_old_copy copy = plan_old_copy(p);
    assert_int_equal(copy.mark_id, 20);
    assert_true(copy.is_exact);
    assert_int_equal(copy.own_from, 10);
    assert_string_equal(copy.opening, SHORT_B SHORT_A);
    plan_free(&p);
    p = asked(40, "1:" A ", 10:" C, 20, SHORT_B);
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    released_with(p, 50, "1:" A ", 10:" C);
    expect(p, PLAN_QUEUE, 0, PLAN_OLD_COPY);
    assert_false(plan_old_copy(p).is_exact);
    assert_int_equal(plan_old_copy(p).own_from, 1);
    plan_free(&p);
}

static void messages_that_the_destination_lost_end_the_plan(void **state)
{
    (void)state;
    struct plan *p = asked(40, "1:" A, 20, SHORT_A);
    expect(p, PLAN_DESTINATION, 0, PLAN_DELIVER);
    plan_delivered(p);
    assert_int_equal(plan_mark_id(p), 20);
    expect(p, PLAN_QUEUE, 0, PLAN_RESERVE);
    plan_destination_behind(p, 31);
    expect(p, PLAN_QUEUE, 0, PLAN_OLD_DESTINATION);
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    assert_int_equal(plan_acked_below(p), 31);
    plan_free(&p);
}

/* It was started again between the release and the question, and another process has published. */
static void a_queue_that_was_only_started_again_is_no_old_copy(void **state)
{
    (void)state;
    struct plan *p = asked(10, "1:" A, 12, SHORT_B SHORT_A);
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    released_with(p, 12, "1:" A ", 10:" B);
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_free(&p);
}

static void marks_without_a_history_are_compared_as_numbers(void **state)
{
    static const struct {
        const char *openings, *opening;
        uint64_t mark_id;
        bool goes_on;
    } cases[] = {{"", "", 10, true}, {"", SHORT_B, 10, true}, {"1:" A, "", 10, true}, {"1:" A, "", 11, false},
        {"8:" A, SHORT_B, 8, true}, {"8:" A, SHORT_B, 9, false}, {"1:" A, SHORT_A, 10, true},
        {"1:" A, SHORT_B, 1, true}, {"no list", SHORT_B, 10, true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan *p = asked(10, cases[i].openings, cases[i].mark_id, cases[i].opening);
        struct plan_step s = next(p, PLAN_DESTINATION, 0);
        assert_int_equal(s.action, cases[i].goes_on ? PLAN_DELIVER : PLAN_WAIT);
        plan_free(&p);
    }
}

static void a_delivery_names_the_openings_below_its_mark(void **state)
{
    (void)state;
    struct plan *p = asked(12, "1:" A ", 10:" B, 5, SHORT_A);
    struct plan_step s = next(p, PLAN_DESTINATION, 0);
    assert_string_equal(s.opening, SHORT_A);
    plan_delivered(p);
    reserve(p, "8 1 1\na\n9 1 1\nb\n10 1 1\nc\n11 1 1\nd\n");
    s = next(p, PLAN_DESTINATION, 0);
    assert_int_equal(s.next, PLAN_MARK(12, 0));
    assert_string_equal(s.opening, SHORT_B SHORT_A);
    plan_refused(p, "413");
    s = next(p, PLAN_DESTINATION, 0);
    assert_int_equal(s.next, PLAN_MARK(10, 0));
    assert_string_equal(s.opening, SHORT_A);
    plan_free(&p);
    p = asked(1, "1:" A, 0, "");
    assert_string_equal(next(p, PLAN_DESTINATION, 0).opening, "");
    plan_free(&p);
}

static void marks_that_are_not_ours_or_at_their_end_stop_it(void **state)
{
    (void)state;
    static const struct {
        uint64_t mark;
        enum plan_action end;
    } ends[] = {{17, PLAN_FOREIGN_MARK}, {PLAN_MARK(3, (1 << PLAN_FENCE_BITS) - 1), PLAN_MARKS_USED_UP}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct plan *p = plan_new(&usual);
        expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
        released(p, 20, 1);
        expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
        plan_asked(p, ends[i].mark, BYTES_NONE);
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        expect(p, PLAN_QUEUE, 0, ends[i].end);
        plan_free(&p);
    }
    struct plan *p = begun(&usual, 20, 0);
    reserve(p, "17592186044415 1 1\na\n");
    expect(p, PLAN_QUEUE, 0, PLAN_MARKS_USED_UP);
    plan_free(&p);
}

/* Somebody fenced between our question and our fence, or our own fence came through and its answer was lost: either way
 * the mark is asked again, and only a fence that was stored counts. */
static void a_fence_counts_only_when_it_was_stored(void **state)
{
    (void)state;
    struct plan *p = plan_new(&usual);
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    released(p, 9, 1);
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_asked(p, PLAN_MARK(4, 0), BYTES_NONE);
    expect_run(p, 0, 0, 0, PLAN_MARK(4, 0), PLAN_MARK(4, 1));
    plan_conflict(p, 0);
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_asked(p, PLAN_MARK(4, 1), BYTES_NONE);
    expect_run(p, 0, 0, 0, PLAN_MARK(4, 1), PLAN_MARK(4, 2));
    fails(p, PLAN_DESTINATION, -1000 * USEC_PER_SEC);
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    expect(p, PLAN_DESTINATION, 0, PLAN_ASK);
    plan_asked(p, PLAN_MARK(4, 2), BYTES_NONE);
    expect_run(p, 0, 0, 0, PLAN_MARK(4, 2), PLAN_MARK(4, 3));
    plan_delivered(p);
    expect(p, PLAN_QUEUE, 0, PLAN_RESERVE);
    plan_free(&p);
}

static void nothing_is_buried_while_a_delivery_may_still_arrive(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n");
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    fails(p, PLAN_DESTINATION, -1000 * USEC_PER_SEC);
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    plan_refused(p, "413");
    reserve(p, "");
    expect(p, PLAN_QUEUE, 0, PLAN_PAUSE);
    expect_run(p, 0, 0, 0, PLAN_MARK(1, 1), PLAN_MARK(1, 2));
    plan_delivered(p);
    expect(p, PLAN_QUEUE, 0, PLAN_BURY);
    plan_free(&p);
}

static void one_conflict_after_another_slows_down(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    usec_t now = 0;
    for (int i = 0; i < 8; i++) {
        expect(p, PLAN_QUEUE, now, PLAN_RESERVE);
        give(p, "q", "1 1 1\na\n", now);
        expect_run(p, now, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
        plan_conflict(p, now);
        expect(p, PLAN_QUEUE, now, PLAN_RELEASE);
        released(p, 1, 7);
        struct plan_step s = next(p, PLAN_DESTINATION, now);
        if (s.action == PLAN_PAUSE) {
            now = s.until;
            s = next(p, PLAN_DESTINATION, now);
        }
        assert_int_equal(s.action, PLAN_ASK);
        plan_asked(p, 0, BYTES_NONE);
        next(p, PLAN_DESTINATION, now);
        plan_delivered(p);
    }
    assert_in_range(now, usual.backoff_min * 60, usual.backoff_min * 130);
    plan_free(&p);
}

static void the_superseded_one_waits_longer_each_time(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    usec_t now = 0;
    for (int i = 0; i < 6; i++) {
        expect(p, PLAN_QUEUE, now, PLAN_RESERVE);
        plan_superseded(p, now);
        struct plan_step s = next(p, PLAN_QUEUE, now);
        assert_int_equal(s.action, PLAN_PAUSE);
        assert_in_range(s.until - now, usual.backoff_min / 2 << i, usual.backoff_min << i);
        now = s.until;
        expect(p, PLAN_QUEUE, now, PLAN_RELEASE);
        released(p, 1, 7);
        expect(p, PLAN_DESTINATION, now, PLAN_ASK);
        plan_asked(p, 0, BYTES_NONE);
        next(p, PLAN_DESTINATION, now);
        plan_delivered(p);
    }
    plan_free(&p);
}

static void poison_is_buried_before_what_follows_is_delivered(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n2 1 3\nb\nc\n3 1 0\n\n4 1 1\nd\n");
    reserve(p, "");
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    plan_delivered(p);
    for (size_t i = 1; i <= 2; i++) {
        expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
        struct plan_step s = next(p, PLAN_QUEUE, 0);
        assert_int_equal(s.action, PLAN_BURY);
        assert_int_equal(s.first, i);
        plan_buried(p);
    }
    expect_run(p, 0, 3, 1, PLAN_MARK(2, 0), PLAN_MARK(5, 0));
    plan_delivered(p);
    assert_true(bytes_equal_str(plan_acks(p), "1:1,4"));
    plan_free(&p);
}

/* A destination that refuses every run which holds message `bad`. */
static unsigned tries_to_find(size_t n, size_t bad)
{
    struct plan_config config = usual;
    config.items = n + 1;
    struct plan *p = begun(&config, 1, 0);
    struct buf framed = {0};
    for (size_t i = 1; i <= n; i++)
        buf_printf(&framed, "%zu 1 1\nx\n", i);
    buf_append_char(&framed, '\0');
    reserve(p, framed.ptr);
    buf_free(&framed);
    unsigned tries = 0;
    uint64_t mark = PLAN_MARK(1, 1); /* of begun */
    size_t buried = SIZE_MAX;
    for (struct plan_step s; (s = next(p, PLAN_QUEUE, 0)).action != PLAN_RESERVE; tries++) {
        if (s.action == PLAN_BURY) {
            buried = s.first;
            assert_string_equal(plan_batch(p)->messages[s.first].reason, "413 line-too-large");
            plan_buried(p);
            continue;
        }
        s = next(p, PLAN_DESTINATION, 0);
        if (s.first <= bad && bad < s.first + s.count)
            plan_refused(p, "413 line-too-large");
        else {
            mark = s.next;
            plan_delivered(p);
        }
    }
    assert_int_equal(buried, bad);
    assert_int_equal(mark >> PLAN_FENCE_BITS, bad < n - 1 ? n + 1 : n > 1 ? n : 1);
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

static void runs_are_bounded(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.max_bytes = 6;
    struct plan *p = begun(&config, 1, 0);
    reserve(p, "1 1 2\naa\n2 1 2\nbb\n3 1 2\ncc\n4 1 9\nddddddddd\n5 1 0\n\n");
    expect_run(p, 0, 0, 2, PLAN_MARK(1, 1), PLAN_MARK(3, 0));
    plan_delivered(p);
    expect_run(p, 0, 2, 1, PLAN_MARK(3, 0), PLAN_MARK(4, 0));
    plan_delivered(p);
    expect_run(p, 0, 3, 1, PLAN_MARK(4, 0), PLAN_MARK(5, 0));
    plan_free(&p);
}

static void stopping_acknowledges_and_releases(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n2 1 3\nb\nc\n");
    reserve(p, "");
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    plan_stop(p);
    expect(p, PLAN_QUEUE, 0, PLAN_PAUSE); /* until the lease is to be extended */
    plan_delivered(p);
    expect(p, PLAN_QUEUE, 0, PLAN_ACK);
    assert_true(bytes_equal_str(plan_acks(p), "1:1"));
    plan_acknowledged(p);
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    released(p, 3, 9);
    expect(p, PLAN_QUEUE, 0, PLAN_STOPPED);
    plan_free(&p);
}

static void stopping_fences_what_was_left_without_an_answer(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n");
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    plan_stop(p);
    fails(p, PLAN_DESTINATION, 0);
    expect_run(p, 0, 0, 0, PLAN_MARK(1, 1), PLAN_MARK(1, 2));
    expect(p, PLAN_QUEUE, 0, PLAN_WAIT);
    fails(p, PLAN_DESTINATION, 0); /* once: it must come to an end */
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    fails(p, PLAN_QUEUE, 0);
    expect(p, PLAN_QUEUE, 0, PLAN_STOPPED);
    plan_free(&p);
}

/* Stopped with one message of three with the destination, and two in a second lease. */
static struct plan *stopped_in_a_run(void)
{
    struct plan_config config = usual;
    struct batch second;
    config.max_bytes = 1;
    struct plan *p = begun(&config, 1, 0);
    reserve(p, "1 1 1\na\n2 1 1\nb\n3 1 1\nd\n");
    expect(p, PLAN_QUEUE, 0, PLAN_RESERVE);
    assert_true(batch_parse(BYTES_LITERAL("4 1 1\ne\n5 1 1\nf\n"), 2, &second));
    plan_reserved(p, BYTES_LITERAL("q"), &second, &(struct plan_accepted){0}, 0);
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    plan_stop(p);
    expect(p, PLAN_QUEUE, 0, PLAN_PAUSE);
    return p;
}

static void a_lease_lost_in_a_stop_is_left(void **state)
{
    (void)state;
    struct plan *p = stopped_in_a_run();
    expect(p, PLAN_QUEUE, usual.lease / 2, PLAN_TOUCH);
    plan_lease_lost(p);
    expect(p, PLAN_QUEUE, usual.lease, PLAN_WAIT);
    plan_delivered(p);
    expect(p, PLAN_QUEUE, usual.lease, PLAN_ACK);
    plan_free(&p);
}

/* The lane's next try, which is not before a pause. */
static usec_t tried_again(struct plan *p, usec_t now, enum plan_action action)
{
    struct plan_step s = next(p, PLAN_QUEUE, now);
    assert_int_equal(s.action, PLAN_PAUSE);
    assert_in_range(s.until, now + 1, now + usual.backoff_max);
    expect(p, PLAN_QUEUE, s.until, action);
    return s.until;
}

/* Whatever fails meanwhile: a run that is done is acknowledged. */
static void a_stop_tries_again_what_the_queue_does_not_answer(void **state)
{
    (void)state;
    struct plan *p = stopped_in_a_run();
    usec_t now = usual.lease / 2;
    expect(p, PLAN_QUEUE, now, PLAN_TOUCH);
    fails(p, PLAN_QUEUE, now);
    now = tried_again(p, now, PLAN_TOUCH);
    fails(p, PLAN_QUEUE, now);
    plan_delivered(p);
    now = tried_again(p, now, PLAN_ACK);
    assert_true(bytes_equal_str(plan_acks(p), "1:1"));
    plan_acknowledged(p);
    expect(p, PLAN_QUEUE, now, PLAN_RELEASE);
    fails(p, PLAN_QUEUE, now);
    expect(p, PLAN_QUEUE, now, PLAN_STOPPED);
    plan_free(&p);
}

/* Of three messages of one lease the first is done, the second with the destination. */
static void a_stop_acknowledges_at_once_what_is_done(void **state)
{
    (void)state;
    struct plan_config config = usual;
    config.max_bytes = 1;
    struct plan *p = begun(&config, 1, 0);
    reserve(p, "1 1 1\na\n2 1 1\nb\n3 1 1\nc\n");
    reserve(p, "");
    expect(p, PLAN_DESTINATION, 0, PLAN_DELIVER);
    plan_delivered(p);
    expect(p, PLAN_DESTINATION, 0, PLAN_DELIVER);
    plan_stop(p);
    expect(p, PLAN_QUEUE, 0, PLAN_ACK);
    assert_true(bytes_equal_str(plan_acks(p), "1:1"));
    plan_delivered(p); /* while that is on its way */
    expect(p, PLAN_DESTINATION, 0, PLAN_WAIT);
    plan_acknowledged(p);
    expect(p, PLAN_QUEUE, 0, PLAN_ACK);
    assert_true(bytes_equal_str(plan_acks(p), "1:2"));
    plan_acknowledged(p);
    expect(p, PLAN_QUEUE, 0, PLAN_RELEASE);
    plan_free(&p);
}

/* The mark shows which messages are done, so a stop need not wait for the queue. */
static void a_stop_tries_to_acknowledge_once(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n");
    expect_run(p, 0, 0, 1, PLAN_MARK(1, 1), PLAN_MARK(2, 0));
    plan_stop(p);
    plan_delivered(p);
    expect(p, PLAN_QUEUE, 0, PLAN_ACK);
    fails(p, PLAN_QUEUE, 0);
    expect(p, PLAN_QUEUE, 0, PLAN_STOPPED);
    plan_free(&p);
}

/* The queue was away for a moment: a long run shall not lose its lease for that. */
static void a_touch_that_fails_is_tried_again_while_the_run_lasts(void **state)
{
    (void)state;
    struct plan *p = begun(&usual, 1, 0);
    reserve(p, "1 1 1\na\n");
    expect(p, PLAN_DESTINATION, 0, PLAN_DELIVER);
    usec_t now = usual.lease / 2;
    expect(p, PLAN_QUEUE, now, PLAN_TOUCH);
    fails(p, PLAN_QUEUE, now);
    now = tried_again(p, now, PLAN_TOUCH);
    plan_touched(p);
    assert_int_equal(next(p, PLAN_QUEUE, now).until, now + usual.lease / 3);
    plan_delivered(p);
    expect(p, PLAN_QUEUE, now, PLAN_ACK);
    plan_free(&p);
}

#define LATER ((usec_t)1000000000) /* a time of the destination that is later than the queue's */

static struct plan *stating(uint64_t next_id)
{
    struct plan_config config = usual;
    config.states = true;
    struct plan *p = begun(&config, next_id, 0);
    plan_destination_time(p, LATER, false);
    return p;
}

static void reserve_before(struct plan *p, const char *framed, usec_t before, uint64_t last_id, usec_t now)
{
    struct batch b;
    struct plan_step s = next(p, PLAN_QUEUE, now);
    assert_int_equal(s.action, PLAN_RESERVE);
    assert_true(batch_parse(bytes_str(framed), 1, &b));
    plan_reserved(p, BYTES_LITERAL("q"), &b, &(struct plan_accepted){before, last_id}, now);
}

static void expect_state(struct plan *p, usec_t now, usec_t time)
{
    struct plan_step s = next(p, PLAN_DESTINATION, now);
    assert_int_equal(s.action, PLAN_STATE);
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
    struct plan *p = stating(1);
    reserve_before(p, "1 1 1\na\n2 1 1\nb\n", 7000, 2, 0);
    expect_run_until(p, 7000);
    reserve_before(p, "3 1 1\nc\n", 8000, 9, 0); /* more are in the queue */
    expect_run_until(p, 0);
    plan_free(&p);
}

static void a_watermark_is_the_earlier_time_of_both_clocks(void **state)
{
    (void)state;
    struct plan *p = stating(1);
    plan_destination_time(p, 6000, false);
    reserve_before(p, "1 1 1\na\n", 7000, 1, 0);
    expect_run_until(p, 6000);
    expect(p, PLAN_QUEUE, 0, PLAN_RESERVE);
    plan_destination_time(p, 6500, false); /* after the reserve was sent, so not a time before its answer */
    struct batch b;
    assert_true(batch_parse(BYTES_LITERAL("2 1 1\na\n"), 1, &b));
    plan_reserved(p, BYTES_LITERAL("q"), &b, &(struct plan_accepted){7500, 2}, 0);
    expect_run_until(p, 6000);
    reserve_before(p, "3 1 1\na\n", 7600, 3, 0);
    expect_run_until(p, 6500);
    plan_free(&p);
}

static void a_clock_that_was_set_back_begins_an_era(void **state)
{
    (void)state;
    struct plan *p = stating(1);
    reserve_before(p, "1 1 1\na\n", 7000, 1, 0);
    plan_destination_time(p, 500, true); /* the time before may be later than what is accepted from now on */
    expect_run_until(p, 0);
    reserve_before(p, "2 1 1\na\n", 7000, 2, 0);
    expect_run_until(p, 500);
    expect(p, PLAN_QUEUE, 0, PLAN_RESERVE);
    plan_destination_time(p, 300, true); /* while the queue is asked */
    struct batch b;
    assert_true(batch_parse(BYTES_LITERAL("3 1 1\na\n"), 1, &b));
    plan_reserved(p, BYTES_LITERAL("q"), &b, &(struct plan_accepted){7500, 3}, 0);
    expect_run_until(p, 0);
    plan_free(&p);
}

static void an_idle_reader_states_every_second(void **state)
{
    (void)state;
    struct plan *p = stating(1);
    expect_state(p, AT(5), 0); /* nothing is known, but the reader is alive */
    reserve_before(p, "", 7000, 0, AT(5.1));
    expect(p, PLAN_DESTINATION, AT(5.2), PLAN_PAUSE);
    expect(p, PLAN_DESTINATION, AT(5.6), PLAN_STATE);
    expect(p, PLAN_QUEUE, AT(5.6), PLAN_WAIT); /* for the time in the answer */
    plan_stated(p);
    expect(p, PLAN_DESTINATION, AT(6.5), PLAN_PAUSE);
    expect_state(p, AT(6.6), 0);
    reserve_before(p, "", 9000, 4, AT(7)); /* a message is leased by another */
    expect_state(p, AT(8), 0);
    plan_free(&p);
}

static void times_are_dropped_when_ids_or_clocks_change(void **state)
{
    (void)state;
    struct plan *p = stating(1);
    reserve_before(p, "1 1 1\na\n", 7000, 2, 0);
    expect_run_until(p, 0);
    reserve_before(p, "2 1 1\na\n", 0, 0, 0); /* a message is delayed */
    expect_run_until(p, 0);
    reserve_before(p, "3 1 1\na\n", 8000, 4, 0);
    expect_run_until(p, 0);
    reserve_before(p, "4 1 1\na\n", 500, 5, 0); /* the queue's clock was set back */
    expect_run_until(p, 0);
    reserve_before(p, "5 1 1\na\n", 600, 6, 0);
    expect_run_until(p, 500);
    plan_free(&p);
}

static void a_fenced_reader_states_nothing(void **state)
{
    (void)state;
    struct plan *p = stating(1);
    reserve_before(p, "", 7000, 0, AT(2));
    expect(p, PLAN_DESTINATION, AT(3), PLAN_STATE);
    plan_conflict(p, AT(3));
    expect(p, PLAN_DESTINATION, AT(3), PLAN_WAIT);
    expect(p, PLAN_QUEUE, AT(3), PLAN_RELEASE);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backoff_grows_to_its_bound_and_forgets),
        cmocka_unit_test(backoff_of_two_differs),
        cmocka_unit_test(a_batch_is_read_as_framed),
        cmocka_unit_test(acks_are_ranges),
        cmocka_unit_test(what_is_under_the_mark_is_only_acknowledged),
        cmocka_unit_test(the_next_batch_is_reserved_meanwhile),
        cmocka_unit_test(acks_that_came_due_meanwhile_did_not_ride),
        cmocka_unit_test(nothing_ahead_sends_the_acks_alone),
        cmocka_unit_test(a_fault_repeats_the_same_run_later),
        cmocka_unit_test(leases_are_extended_while_the_destination_takes_its_time),
        cmocka_unit_test(a_lost_lease_starts_over_once_the_run_is_answered),
        cmocka_unit_test(a_gap_starts_over_unless_fresh),
        cmocka_unit_test(another_queue_under_the_same_address_starts_over),
        cmocka_unit_test(an_old_copy_is_looked_at_twice),
        cmocka_unit_test(a_mark_of_another_opening_is_an_old_copy_whatever_its_number),
        cmocka_unit_test(messages_that_the_destination_lost_end_the_plan),
        cmocka_unit_test(a_queue_that_was_only_started_again_is_no_old_copy),
        cmocka_unit_test(marks_without_a_history_are_compared_as_numbers),
        cmocka_unit_test(a_delivery_names_the_openings_below_its_mark),
        cmocka_unit_test(marks_that_are_not_ours_or_at_their_end_stop_it),
        cmocka_unit_test(a_fence_counts_only_when_it_was_stored),
        cmocka_unit_test(nothing_is_buried_while_a_delivery_may_still_arrive),
        cmocka_unit_test(one_conflict_after_another_slows_down),
        cmocka_unit_test(the_superseded_one_waits_longer_each_time),
        cmocka_unit_test(poison_is_buried_before_what_follows_is_delivered),
        cmocka_unit_test(halving_finds_the_poison),
        cmocka_unit_test(runs_are_bounded),
        cmocka_unit_test(stopping_acknowledges_and_releases),
        cmocka_unit_test(stopping_fences_what_was_left_without_an_answer),
        cmocka_unit_test(a_lease_lost_in_a_stop_is_left),
        cmocka_unit_test(a_stop_tries_again_what_the_queue_does_not_answer),
        cmocka_unit_test(a_stop_acknowledges_at_once_what_is_done),
        cmocka_unit_test(a_stop_tries_to_acknowledge_once),
        cmocka_unit_test(a_touch_that_fails_is_tried_again_while_the_run_lasts),
        cmocka_unit_test(a_watermark_rides_on_the_run_that_reaches_it),
        cmocka_unit_test(a_watermark_is_the_earlier_time_of_both_clocks),
        cmocka_unit_test(a_clock_that_was_set_back_begins_an_era),
        cmocka_unit_test(an_idle_reader_states_every_second),
        cmocka_unit_test(times_are_dropped_when_ids_or_clocks_change),
        cmocka_unit_test(a_fenced_reader_states_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
