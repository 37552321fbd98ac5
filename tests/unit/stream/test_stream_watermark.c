/* The time up to which a stream is complete, out of pubsub's answer. */
#include "support/cm.h"

#include "stream/stream_watermark.h"

#define HEAD "{\"stream\":\"s\",\"id\":\"0123456789abcdef0123456789abcdef\",\"end\":\"42\",\"producers\":["

static struct producer_times *times;

static struct stream_watermark read_all(const char *producers)
{
    struct stream_watermark w;
    struct buf text = {0};
    buf_printf(&text, HEAD "%s]}", producers);
    assert_true(stream_watermark_read(buf_bytes(&text), 100 * USEC_PER_SEC, times, &w));
    assert_string_equal(w.id, "0123456789abcdef0123456789abcdef");
    assert_int_equal(w.end, 42);
    buf_free(&text);
    return w;
}

#define PRODUCER(NAME, UNTIL, SILENT)                                                                        \
    "{\"producer\":\"" NAME "\",\"until\":" UNTIL ",\"until_restored\":false,\"silent_seconds\":" SILENT "}"

static void the_least_counts(void **state)
{
    (void)state;
    struct stream_watermark w = read_all("");
    assert_true(w.until == STREAM_WATERMARK_NONE && !w.producer[0]);
    w = read_all(PRODUCER("a", "20.5", "1.5") "," PRODUCER("b", "20.25", "0") "," PRODUCER("c", "21", "0.0"));
    assert_int_equal(w.until, 20250000);
    assert_string_equal(w.producer, "b");
    w = read_all(PRODUCER("a", "20.5", "1.5") "," PRODUCER("old", "1", "100.5"));
    assert_string_equal(w.producer, "a");
    w = read_all(PRODUCER("a", "20.5", "1.5") "," PRODUCER("b", "null", "0"));
    assert_int_equal(w.until, 0);
    assert_string_equal(w.producer, "b");
}

#define RESTORED(NAME, UNTIL)                                                                                \
    "{\"producer\":\"" NAME "\",\"until\":" UNTIL ",\"until_restored\":true,\"silent_seconds\":0}"

/* Of another producer it is not known, whatever the least time was. */
static void a_restored_time_does_not_lower_the_last_one_of_the_same_producer(void **state)
{
    (void)state;
    struct stream_watermark w = read_all(RESTORED("a", "3"));
    assert_int_equal(w.until, 3 * USEC_PER_SEC);
    (void)read_all(PRODUCER("a", "20", "0"));
    for (int i = 0; i < 2; i++) {
        w = read_all(RESTORED("a", "15"));
        assert_int_equal(w.until, 20 * USEC_PER_SEC);
        assert_string_equal(w.producer, "a");
    }
    assert_int_equal(read_all(RESTORED("a", "25")).until, 25 * USEC_PER_SEC);
    assert_int_equal(read_all(RESTORED("a", "15") "," RESTORED("b", "22")).until, 22 * USEC_PER_SEC);
    assert_int_equal(read_all(PRODUCER("a", "15", "0") "," RESTORED("b", "21")).until, 15 * USEC_PER_SEC);
    assert_int_equal(read_all(RESTORED("b", "21")).until, 22 * USEC_PER_SEC);
    assert_int_equal(read_all(RESTORED("a", "1")).until, USEC_PER_SEC); /* it was not in the last answer */
}

/* pubsub has dropped the time, or the stream was restored from an older copy. */
static void a_last_time_of_lines_that_are_lost_does_not_count(void **state)
{
    (void)state;
    struct stream_watermark w;
    (void)read_all(PRODUCER("a", "20", "0"));
    assert_int_equal(read_all(RESTORED("a", "null")).until, 0);
    assert_int_equal(read_all(RESTORED("a", "null")).until, 0);
    (void)read_all(PRODUCER("a", "20", "0"));
    static const char shorter[] =
        "{\"id\":\"0123456789abcdef0123456789abcdef\",\"end\":\"41\",\"producers\":[" RESTORED(
            "a", "15") "]}";
    assert_true(stream_watermark_read(bytes_str(shorter), 100 * USEC_PER_SEC, times, &w));
    assert_int_equal(w.until, 15 * USEC_PER_SEC);
}

#define MARKED(RESTORED, UNTIL, MARK)                                                                        \
    "{\"producer\":\"a\",\"mark\":\"" MARK "\",\"until\":" UNTIL ",\"until_restored\":" RESTORED             \
    ",\"silent_seconds\":0}"

/* After a lower mark, the lines are missing that were there when the last time was stated. */
static void a_restored_time_below_a_lower_mark_counts(void **state)
{
    (void)state;
    (void)read_all(MARKED("false", "20", "700"));
    assert_int_equal(read_all(MARKED("true", "15", "700")).until, 20 * USEC_PER_SEC);
    assert_int_equal(read_all(MARKED("true", "15", "699")).until, 15 * USEC_PER_SEC);
}

static int set_up(void **state)
{
    (void)state;
    times = producer_times_new();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    producer_times_free(&times);
    return 0;
}

/* Part of an answer must not pass for all of it: then a producer that holds completeness back could be missing. */
static void other_answers_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "{}", "[]", "{\"id\":\"x\",\"producers\":[]}",
        "{\"id\":\"x\",\"end\":\"1\"}", "{\"id\":\"\",\"end\":\"1\",\"producers\":[]}",
        "{\"id\":\"0123456789abcdef0123456789abcdef0\",\"end\":\"1\",\"producers\":[]}", HEAD "1]}",
        HEAD "{}]}", HEAD PRODUCER("a", "-1", "0") "]}", HEAD PRODUCER("a", "1e300", "0") "]}",
        HEAD PRODUCER("a", "1", "null") "]}", HEAD PRODUCER("a", "\"1\"", "0") "]}",
        HEAD PRODUCER("a b", "1", "0") "]}", HEAD PRODUCER("", "1", "0") "]}",
        HEAD "{\"producer\":\"a\",\"silent_seconds\":1}]}", HEAD PRODUCER("a", "1", "0") "}"};
    struct stream_watermark w;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(stream_watermark_read(bytes_str(bad[i]), USEC_PER_SEC, times, &w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_least_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_restored_time_does_not_lower_the_last_one_of_the_same_producer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_last_time_of_lines_that_are_lost_does_not_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_restored_time_below_a_lower_mark_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_answers_are_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
