/* What following a stream rests on: lines out of pieces, and until when all is counted. */
#include "support/cm.h"

#include "stream/watermark.h"
#include "base/line_splitter.h"

static struct buf seen;

/* Whatever the runs are, their lines. */
static void on_lines(void *arg, struct bytes run)
{
    (void)arg;
    assert_int_equal(run.ptr[run.len - 1], '\n');
    for (size_t i = 0; i < run.len; i++)
        buf_append_char(&seen, run.ptr[i] == '\n' ? '|' : run.ptr[i]);
}

static void on_overlong(void *arg, struct bytes head, uint64_t length)
{
    (void)arg;
    buf_printf(&seen, "(%.*s %u)|", (int)head.len, head.ptr, (unsigned)length);
}

static void lines_come_out_however_they_are_cut(void **state)
{
    (void)state;
    struct bytes text = BYTES_LITERAL("one\n\nthree\nfourfive\nsix\nunfinished");
    for (size_t cut = 1; cut <= text.len; cut++) {
        struct line_splitter s = {.max_line = 5, .lines = on_lines, .overlong = on_overlong};
        buf_clear(&seen);
        for (size_t at = 0; at < text.len; at += cut)
            line_splitter_feed(&s, bytes_of(text.ptr + at, at + cut < text.len ? cut : text.len - at));
        assert_true(bytes_equal_str(buf_bytes(&seen), "one||three|(fourf 8)|six|"));
        line_splitter_reset(&s);
        line_splitter_feed(&s, BYTES_LITERAL("new\n"));
        assert_true(bytes_equal_str(buf_bytes(&seen), "one||three|(fourf 8)|six|new|"));
        line_splitter_free(&s);
    }
    buf_free(&seen);
}

static void observe(struct watermark *w, usec_t boot, uint64_t first, uint64_t second)
{
    watermark_observe(w, (struct watermark_time){{boot, 2 * boot}, 3 * boot}, (uint64_t[]){first, second});
}

static usec_t moment(struct watermark *w, const uint64_t *offsets)
{
    struct watermark_time until = watermark_complete_until(w, offsets);
    assert_int_equal(until.at.trusted, 2 * until.at.boot);
    assert_int_equal(until.until, 3 * until.at.boot);
    return until.at.boot;
}

static void complete_until_moves_on_under_lag_and_never_falls(void **state)
{
    (void)state;
    struct watermark *c = watermark_new(2);
    uint64_t at[2] = {0, 0};
    assert_int_equal(moment(c, at), 0);
    observe(c, 100, 10, 0);
    observe(c, 101, 20, 5);
    observe(c, 102, 30, 5);
    assert_int_equal(moment(c, at), 0);
    at[0] = 10;
    assert_int_equal(moment(c, at), 100);
    at[0] = 30;
    assert_int_equal(moment(c, at), 100);
    at[1] = 5;
    assert_int_equal(moment(c, at), 102);
    assert_int_equal(watermark_stream_end(c, 0), 30);
    observe(c, 103, 40, 5);
    assert_int_equal(moment(c, at), 102);
    watermark_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_out_however_they_are_cut),
        cmocka_unit_test(complete_until_moves_on_under_lag_and_never_falls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
