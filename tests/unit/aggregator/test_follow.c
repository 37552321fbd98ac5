/* What following a stream rests on: lines out of pieces. */
#include "support/cm.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_out_however_they_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
