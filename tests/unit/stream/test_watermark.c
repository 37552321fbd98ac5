/* The time up to which a stream is complete, out of pubsub's statements. */
#include "support/cm.h"

#include "stream/watermark.h"

static struct stream_statement statement(usec_t until, uint64_t end, usec_t now)
{
    return (struct stream_statement){.until = until, .end = end, .now = now};
}

static void state(struct watermark *w, usec_t until, uint64_t end, usec_t now)
{
    struct stream_statement s = statement(until, end, now);
    watermark_state(w, &s);
}

static void a_statement_is_printed_and_read(void **unused)
{
    static const struct stream_statement all[] = {{.until = 1, .now = 1},
        {.until = 1332633600250000, .now = 1332633601000000, .end = UINT64_MAX, .producer = "web1"},
        {.now = 7, .end = 42, .producer = "-", .is_restored = true}};
    (void)unused;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct stream_statement got;
        struct buf text = {0};
        stream_statement_append(&all[i], &text);
        assert_true(stream_statement_read(buf_bytes(&text), &got));
        assert_true(got.until == all[i].until && got.now == all[i].now && got.end == all[i].end);
        assert_string_equal(got.producer, all[i].producer);
        assert_int_equal(got.is_restored, all[i].is_restored);
        buf_free(&text);
    }
}

static void other_texts_are_refused(void **unused)
{
    static const char *const bad[] = {"", "1", "1 2", "1 2 ", "1 2 x", "1 x 3", "x 2 3", "-1 2 3",
        "1 2 3 a b", "1 2 3 restored restored x", "1 2 3  restored", "1 2 3 /",
        "1 2 3 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    struct stream_statement s;
    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(stream_statement_read(bytes_str(bad[i]), &s));
}

static void a_statement_counts_once_its_end_is_reached(void **unused)
{
    struct watermark w = {0};
    (void)unused;
    assert_int_equal(watermark_until(&w, 100), 0);
    state(&w, 50, 10, 60);
    assert_int_equal(watermark_until(&w, 9), 0);
    assert_int_equal(watermark_until(&w, 10), 50);
    state(&w, 0, 5, 61); /* not known: changes nothing */
    assert_int_equal(watermark_until(&w, 10), 50);
}

static void it_advances_although_processing_lags(void **unused)
{
    struct watermark w = {0};
    (void)unused;
    for (uint64_t i = 1; i <= 10; i++)
        state(&w, (usec_t)(10 * i), 100 * i, (usec_t)(10 * i));
    assert_int_equal(watermark_until(&w, 99), 0);
    assert_int_equal(watermark_until(&w, 999), 10);
    state(&w, 110, 1100, 110); /* replaces the newest, not the oldest */
    assert_int_equal(watermark_until(&w, 1000), 100);
    assert_int_equal(watermark_until(&w, 1100), 110);
}

static void it_falls_with_the_truth_but_not_with_a_restart(void **unused)
{
    struct watermark w = {0};
    (void)unused;
    state(&w, 50, 0, 60);
    assert_int_equal(watermark_until(&w, 0), 50);
    struct stream_statement restored = statement(40, 0, 61);
    restored.is_restored = true;
    watermark_state(&w, &restored);
    assert_int_equal(watermark_until(&w, 0), 50);
    state(&w, 40, 0, 62); /* a producer has become known, or its clock was set back */
    assert_int_equal(watermark_until(&w, 0), 40);
}

static void times_fall_with_pubsubs_clock(void **unused)
{
    struct watermark w = {0};
    (void)unused;
    state(&w, 3400, 10, 3600);
    assert_int_equal(watermark_until(&w, 10), 3400);
    state(&w, 3500, 20, 3700);
    state(&w, 3750, 30, 3800);
    struct stream_statement corrected = {
        .end = 30, .now = 500, .at = 5}; /* set back by 3305, with 5 since the statement before */
    watermark_state(&w, &corrected);
    assert_int_equal(watermark_until(&w, 10), 95);
    assert_int_equal(watermark_until(&w, 20), 195);
    assert_int_equal(watermark_until(&w, 30), 445);
    struct stream_statement next = {.until = 490, .end = 40, .now = 501, .at = 6};
    watermark_state(&w, &next);
    assert_int_equal(watermark_until(&w, 40), 490);
}

static void a_stored_time_after_pubsubs_present_says_nothing(void **unused)
{
    struct watermark w = {.until = 70};
    (void)unused;
    state(&w, 0, 0, 80);
    assert_int_equal(watermark_until(&w, 0), 70);
    w = (struct watermark){.until = 90};
    state(&w, 0, 0, 80);
    assert_int_equal(watermark_until(&w, 0), 0);
}

static void what_is_not_reached_can_be_forgotten(void **unused)
{
    struct watermark w = {0};
    (void)unused;
    state(&w, 50, 10, 60);
    assert_int_equal(watermark_until(&w, 10), 50);
    state(&w, 60, 20, 70);
    state(&w, 70, 30, 80);
    watermark_forget(&w);
    assert_int_equal(watermark_until(&w, 1000), 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_statement_is_printed_and_read),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(a_statement_counts_once_its_end_is_reached),
        cmocka_unit_test(it_advances_although_processing_lags),
        cmocka_unit_test(it_falls_with_the_truth_but_not_with_a_restart),
        cmocka_unit_test(times_fall_with_pubsubs_clock),
        cmocka_unit_test(a_stored_time_after_pubsubs_present_says_nothing),
        cmocka_unit_test(what_is_not_reached_can_be_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
