/* mark_reader: the verdicts of the files of a spamfilter, while the files appear, change and are replaced. */
#include "support/cm.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include "base/io.h"
#include "filter/mark_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct world {
    char dir[64], marks[80], log[88], exceptions[96];
    struct filter *writer;
    struct mark_reader *reader;
    struct stats *stats;
    struct error error;
};

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    make_test_dir(w->dir, sizeof w->dir);
    snprintf(w->marks, sizeof w->marks, "%s/marks", w->dir);
    snprintf(w->log, sizeof w->log, "%s/marks.log", w->dir);
    snprintf(w->exceptions, sizeof w->exceptions, "%s/exceptions", w->dir);
    w->stats = stats_new("test");
    w->reader = mark_reader_new(w->dir, w->stats);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    filter_close(&w->writer);
    mark_reader_free(&w->reader);
    stats_free(&w->stats);
    remove_tree(w->dir);
    free(w);
    return 0;
}

/* Adds a mark and syncs, as spamfilter does. */
static void add(struct world *w, const char *mark)
{
    struct filter_config config = {.path = w->marks, .capacity = 100, .rate = 0.0001};
    if (!w->writer)
        assert_int_equal(filter_open(&config, &w->writer, &w->error), FILTER_OK);
    uint64_t next = filter_sequence(w->writer) + 1;
    assert_int_equal(filter_add(w->writer, bytes_str(mark), next, next, &w->error), FILTER_OK);
    assert_int_equal(filter_sync(w->writer, &w->error), FILTER_OK);
}

static void allow(struct world *w, const char *lines)
{
    assert_int_equal(io_replace_file(w->exceptions, bytes_str(lines), IO_PRIVATE_MODE), 0);
}

static void expect(struct world *w, const char *link, const char *mark)
{
    struct bytes match = mark_reader_match(w->reader, bytes_str(link));
    if (!bytes_equal_str(match, mark))
        fail_msg("%s: %.*s instead of %s", link, (int)match.len, match.ptr, mark);
}

/* The reader looks at the files once a second. */
static void wait_for(struct world *w, const char *link, const char *mark)
{
    for (usec_t end = 0; is_early(&end); clock_sleep(20 * USEC_PER_MSEC))
        if (bytes_equal_str(mark_reader_match(w->reader, bytes_str(link)), mark))
            return;
    expect(w, link, mark);
}

static bool wait_for_problem(struct world *w, const char *part)
{
    for (usec_t end = 0; is_early(&end); clock_sleep(20 * USEC_PER_MSEC)) {
        const char *problem = mark_reader_problem(w->reader);
        if (part ? problem && strstr(problem, part) : !problem)
            return true;
    }
    return false;
}

static uint64_t count(struct world *w, const char *name, const char *labels)
{
    return stats_read(stats_counter(w->stats, name, labels, ""));
}

static void test_the_most_specific_decides(void **state)
{
    struct world *w = *state;
    add(w, "bad.example");
    add(w, "ok.bad.example/x");
    add(w, "both.example");
    allow(w, "ok.bad.example\nboth.example");
    expect(w, "https://www.BAD.example:8443/a?b", "bad.example");
    expect(w, "ok.bad.example/y", "");
    expect(w, "ok.bad.example/x/y", "ok.bad.example/x");
    expect(w, "both.example", "");
    expect(w, "good.example", "");
    assert_null(mark_reader_problem(w->reader));
    assert_int_equal(count(w, "links_checked_total", NULL), 5);
    assert_int_equal(count(w, "links_marked_total", NULL), 2);
}

static void test_missing_files_stop_nothing(void **state)
{
    struct world *w = *state;
    expect(w, "bad.example", "");
    const char *problem = mark_reader_problem(w->reader);
    assert_non_null(problem);
    assert_non_null(strstr(problem, "links are not checked: "));
    assert_non_null(strstr(problem, w->marks));
    assert_int_equal(count(w, "links_unchecked_total", "reason=\"marks\""), 1);
    add(w, "bad.example");
    wait_for(w, "bad.example", "bad.example");
    assert_null(mark_reader_problem(w->reader));
    filter_close(&w->writer); /* spamfilter ends */
    expect(w, "bad.example", "bad.example");
    assert_int_equal(unlink(w->marks), 0);
    assert_true(wait_for_problem(w, "checked with an older state of the marks: "));
    expect(w, "bad.example", "bad.example");
    add(w, "worse.example");
    wait_for(w, "worse.example", "worse.example");
    expect(w, "bad.example", "");
    assert_true(wait_for_problem(w, NULL));
}

static void test_damaged_marks_are_not_used(void **state)
{
    struct world *w = *state;
    assert_int_equal(io_replace_file(w->marks, BYTES_LITERAL("no filter"), IO_PRIVATE_MODE), 0);
    expect(w, "bad.example", "");
    assert_true(wait_for_problem(w, "links are not checked: "));
    unlink(w->marks);
    assert_int_equal(mkdir(w->exceptions, 0700), 0);
    add(w, "bad.example");
    assert_true(wait_for_problem(w, w->exceptions));
    expect(w, "bad.example", ""); /* an exception could apply */
    assert_int_equal(rmdir(w->exceptions), 0);
    wait_for(w, "bad.example", "bad.example");
}

/* Both are new since the reader has looked last. */
static void test_no_mark_comes_before_its_exception(void **state)
{
    struct world *w = *state;
    add(w, "other.example");
    for (int i = 0; i < 3; i++) {
        char name[32], line[34];
        snprintf(name, sizeof name, "bad%d.example", i);
        snprintf(line, sizeof line, "%s\n", name);
        expect(w, name, "");
        allow(w, line);
        add(w, name);
        expect(w, name, "");
        allow(w, "");
        wait_for(w, name, name);
    }
}

static void test_a_load_replaces_the_marks(void **state)
{
    struct world *w = *state;
    char old[80];
    snprintf(old, sizeof old, "%s/old", w->dir);
    add(w, "bad.example");
    allow(w, "ok.worse.example\n");
    wait_for(w, "bad.example", "bad.example");
    filter_close(&w->writer);
    assert_int_equal(rename(w->marks, old), 0);
    unlink(w->log);
    add(w, "worse.example");
    wait_for(w, "bad.example", "");
    expect(w, "worse.example", "worse.example");
    expect(w, "ok.worse.example", "");
}

static void test_any_bytes_may_be_a_link(void **state)
{
    struct world *w = *state;
    static char text[URL_TEXT_MAX + 2];
    add(w, "bad.example");
    expect(w, "good.example", "");
    const char head[] = "http://bad.example/";
    memset(text, 'a', sizeof text);
    memcpy(text, head, sizeof head - 1);
    struct bytes longest = mark_reader_match(w->reader, bytes_of(text, URL_TEXT_MAX));
    assert_true(bytes_equal_str(longest, "bad.example"));
    const struct bytes others[] = {bytes_of(text, URL_TEXT_MAX + 1), BYTES_NONE,
        BYTES_LITERAL("\xff\xfe\x80"), BYTES_LITERAL("http://\0bad.example"), BYTES_LITERAL("/path"),
        BYTES_LITERAL("mailto:a@bad.example")};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(mark_reader_match(w->reader, others[i]).len, 0);
    assert_int_equal(count(w, "links_unchecked_total", "reason=\"link\""), sizeof others / sizeof *others);
    expect(w, "http://bad.example/\xff\xfe", "bad.example");
}

static void test_a_mark_is_a_json_string(void **state)
{
    (void)state;
    struct buf out = {0};
    mark_member_append(BYTES_LITERAL("a.example/\"\\"), &out);
    buf_append_char(&out, ' ');
    mark_member_append(BYTES_NONE, &out);
    assert_true(bytes_equal_str(buf_bytes(&out), "\"marked\":\"a.example/\\\"\\\\\" \"marked\":null"));
    buf_free(&out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_most_specific_decides),
        TEST(test_missing_files_stop_nothing),
        TEST(test_damaged_marks_are_not_used),
        TEST(test_no_mark_comes_before_its_exception),
        TEST(test_a_load_replaces_the_marks),
        TEST(test_any_bytes_may_be_a_link),
        TEST(test_a_mark_is_a_json_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
