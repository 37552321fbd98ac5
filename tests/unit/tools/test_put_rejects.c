/* put_rejects: reports of lines that the queue refuses: the first with its place, then their number, at most once a minute. */
#include "support/cm.h"
#include "support/test_dir.h"
#include "tools/put/put_rejects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64], path[sizeof dir + 8], reasons[sizeof path + 8];
static struct put_rejects rejects;
static int usual_stderr;
static FILE *said;

/* Standard error goes into a file meanwhile. */
static int set_up(void **state)
{
    (void)state;
    make_test_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/rejects", dir);
    snprintf(reasons, sizeof reasons, "%s.reasons", path);
    said = tmpfile();
    assert_non_null(said);
    usual_stderr = dup(STDERR_FILENO);
    assert_true(dup2(fileno(said), STDERR_FILENO) >= 0);
    assert_int_equal(put_rejects_open(&rejects, &(struct reject_file){.path = path}), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dup2(usual_stderr, STDERR_FILENO);
    close(usual_stderr);
    fclose(said);
    unlink(path);
    unlink(reasons);
    return rmdir(dir);
}

/* Since it was asked last. */
static const char *what_was_said(void)
{
    static char text[2000];
    fflush(stderr);
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = '\0';
    assert_int_equal(ftruncate(fileno(said), 0), 0);
    rewind(said);
    return text;
}

static void assert_said(const char *words)
{
    const char *text = what_was_said();
    if (strstr(text, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, text);
}

static void assert_silent(void)
{
    assert_string_equal(what_was_said(), "");
}

static void refuse(usec_t now)
{
    const struct put_batch_refusal refusal = {
        .line = BYTES_LITERAL("long"), .why = BYTES_LITERAL("too-large")};
    assert_int_equal(put_rejects_add(&rejects, &refusal, "a.log", 17, now), 0);
}

static void test_their_number_is_told_once_a_minute(void **state)
{
    const usec_t minute = PUT_REJECTS_REPORT_EVERY, start = 5 * minute;
    (void)state;
    refuse(start);
    assert_said("the line at byte 17 of a.log (4 bytes) cannot be posted: too-large");
    for (int i = 0; i < 41; i++)
        refuse(start + minute - 1);
    put_rejects_report(&rejects, start + minute - 1, false);
    assert_silent();
    put_rejects_report(&rejects, start + minute, false);
    assert_said("42 refused lines are in");
    put_rejects_report(&rejects, start + 3 * minute, false);
    assert_silent();
    refuse(start + 3 * minute);
    assert_said("43 refused lines");
    refuse(start + 4 * minute - 1);
    assert_silent();
    put_rejects_report(&rejects, start + 4 * minute - 1, true);
    assert_said("44 refused lines");
    put_rejects_report(&rejects, start + 9 * minute, true);
    assert_silent();
}

static void test_the_first_is_told_once(void **state)
{
    (void)state;
    refuse(1);
    assert_said("a.log");
    put_rejects_report(&rejects, 2 * PUT_REJECTS_REPORT_EVERY, false);
    put_rejects_report(&rejects, 2 * PUT_REJECTS_REPORT_EVERY, true);
    assert_silent();
}

static void test_each_has_its_reason(void **state)
{
    const struct put_batch_refusal other = {.line = BYTES_LITERAL("b"), .why = BYTES_LITERAL("no time")};
    char lines[2][200] = {"", ""}, text[32] = "";
    (void)state;
    FILE *f = fopen(reasons, "re");
    assert_null(f); /* only with a refused line */
    refuse(1);
    assert_int_equal(put_rejects_add(&rejects, &other, "b.log", 5, 1), 0);
    f = fopen(reasons, "re");
    assert_non_null(f);
    assert_non_null(fgets(lines[0], sizeof lines[0], f));
    assert_non_null(fgets(lines[1], sizeof lines[1], f));
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    assert_string_equal(lines[0] + strlen("2026-01-01T00:00:00Z"), " a.log, byte 17: too-large\n");
    assert_string_equal(lines[1] + strlen("2026-01-01T00:00:00Z"), " b.log, byte 5: no time\n");
    f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fread(text, 1, sizeof text, f), strlen("long\nb\n"));
    assert_string_equal(text, "long\nb\n");
    fclose(f);
    assert_said("kept in ");
}

static void test_one_that_is_passed_over_is_told_each_time(void **state)
{
    (void)state;
    assert_int_equal(put_rejects_skip(&rejects, "b.log", 5, (UINT64_C(1) << 33) + 7), 0);
    assert_said("the line at byte 5 of b.log is too long to be read (8589934599 bytes");
    assert_int_equal(put_rejects_skip(&rejects, "b.log", 99, 0), 0);
    assert_said("the line at byte 99 of b.log is too long to be read (no line feed in 67108864 bytes)");
    assert_int_equal(put_rejects_skip(&rejects, "b.log", 99, 1 << 27), 0);
    assert_said("the line at byte 99 of b.log");
    put_rejects_report(&rejects, 1, false);
    assert_silent();
    put_rejects_report(&rejects, 1, true);
    assert_said("2 lines that were too long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_their_number_is_told_once_a_minute, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_first_is_told_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_each_has_its_reason, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_that_is_passed_over_is_told_each_time, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
