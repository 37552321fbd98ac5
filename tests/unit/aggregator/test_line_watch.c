/* line_watch: sums, reasons and first lines of a window that moves. */
#include "aggregator/line_watch.h"
#include "support/cm.h"

#include <stdio.h>

static void reject(struct line_watch *w, const char *reason, uint64_t offset)
{
    struct rejects_entry e = {.name = BYTES_LITERAL("clicks"),
        .offset = offset,
        .reason = bytes_str(reason),
        .line = BYTES_LITERAL("{\"a\":\x01}")};
    line_watch_reject(w, &e);
}

static void the_window_moves(void **state)
{
    struct slice_tally all = {0};
    struct buf text = {0};
    (void)state;
    struct line_watch *w = line_watch_new(0);
    line_watch_describe(w, &text);
    assert_int_equal(text.len, 0);
    for (int second = 0; second < 100; second++) {
        all.events += 10;
        if (second == 3) {
            reject(w, "bad", 33);
            reject(w, "bad", 44);
            all.rejected += 2;
        }
        line_watch_tick(w, second * USEC_PER_SEC + 1, &all);
        struct slice_tally sum = line_watch_sum(w);
        assert_in_range(
            sum.events, second < 59 ? 10 * (second + 1) : 590, second < 59 ? 10 * (second + 1) : 600);
        assert_int_equal(sum.rejected, second >= 3 && second < 62 ? 2 : 0);
    }
    assert_null(line_watch_reason(w, 0));
    assert_int_equal(line_watch_sum(w).rejected, 0);
    line_watch_tick(w, 1000 * USEC_PER_SEC, &all);
    assert_int_equal(line_watch_sum(w).events, 0);
    reject(w, "again", 55);
    all.rejected++;
    line_watch_tick(w, 1000 * USEC_PER_SEC + 1, &all);
    line_watch_describe(w, &text);
    assert_string_equal(text.ptr, "0 events counted, 1 line rejected in the last minute: again; first at "
                                  "offset 55 of clicks: `{\"a\":?}`");
    line_watch_hide_lines(w);
    buf_clear(&text);
    line_watch_describe(w, &text);
    assert_string_equal(text.ptr, "0 events counted, 1 line rejected in the last minute: again");
    reject(w, "again", 66);
    all.rejected++;
    line_watch_tick(w, 1000 * USEC_PER_SEC + 2, &all);
    assert_int_equal(line_watch_sum(w).rejected, 2);
    assert_int_equal(line_watch_reason(w, 0)->lines, 2);
    assert_int_equal(line_watch_reason(w, 0)->offset, 66);
    buf_free(&text);
    line_watch_free(&w);
}

static void the_description_adds_up(void **state)
{
    struct slice_tally all = {.events = 4, .rejected = 5};
    struct buf text = {0};
    (void)state;
    struct line_watch *w = line_watch_new(0);
    for (int i = 0; i < 5; i++)
        reject(w, i < 2 ? "one" : "two", (uint64_t)i);
    line_watch_tick(w, 1, &all);
    line_watch_describe(w, &text);
    assert_string_equal(text.ptr,
        "4 events counted, 5 lines rejected in the last minute: 2 one, 3 two; such as "
        "offset 2 of clicks: `{\"a\":?}`");
    buf_free(&text);
    line_watch_free(&w);
}

static void many_reasons_share_the_last(void **state)
{
    char reason[300] = "";
    uint64_t lines = 0;
    (void)state;
    struct line_watch *w = line_watch_new(0);
    for (int i = 0; i < 20; i++) {
        snprintf(reason, sizeof reason, "reason %d", i);
        reject(w, reason, 1);
    }
    memset(reason, 'x', sizeof reason - 1);
    reject(w, reason, 1);
    for (size_t i = 0; i < LINE_WATCH_REASONS; i++)
        lines += line_watch_reason(w, i)->lines;
    assert_int_equal(lines, 21);
    assert_null(line_watch_reason(w, LINE_WATCH_REASONS));
    assert_string_equal(line_watch_reason(w, LINE_WATCH_REASONS - 1)->text, LINE_WATCH_OTHER);
    line_watch_free(&w);
    w = line_watch_new(0);
    reject(w, reason, 7);
    reject(w, reason, 8);
    assert_int_equal(line_watch_reason(w, 0)->lines, 2);
    assert_int_equal(strlen(line_watch_reason(w, 0)->text), sizeof line_watch_reason(w, 0)->text - 1);
    line_watch_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_window_moves),
        cmocka_unit_test(the_description_adds_up),
        cmocka_unit_test(many_reasons_share_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
