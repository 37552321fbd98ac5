#include "support/cm.h"
#include "config/config.h"
#include <stdio.h>
#include <unistd.h>

static struct config *parse(const char *text)
{
    struct config *c = NULL;
    struct error error;
    if (config_parse("x.conf", bytes_str(text), &c, &error) != 0)
        fail_msg("%s", error.text);
    return c;
}

static void refuse(struct bytes text, const char *message)
{
    struct config *c = NULL;
    struct error error;
    assert_int_equal(config_parse("x.conf", text, &c, &error), -1);
    assert_string_equal(error.text, message);
    assert_null(c);
}

static void test_reads_sections_and_lines(void **state)
{
    struct config *c =
        parse("\xEF\xBB\xBF; a comment\n[input]\ntime = t   ; inline\r\n\n[sortdb]\n[sortdb two]\nport:1\n"
              "[total all]\nkey = \"all\"");
    (void)state;
    assert_int_equal(c->n_sections, 4);
    const struct config_section *s = config_section(c, "input", "");
    assert_int_equal(s->line, 2);
    assert_string_equal(config_value(s, "time"), "t");
    assert_int_equal(s->entries[0].line, 3);
    assert_int_equal(config_section(c, "sortdb", "")->n_entries, 0);
    assert_string_equal(config_value(config_section(c, "sortdb", "two"), "port"), "1");
    assert_string_equal(config_value(config_section(c, "total", "all"), "key"), "\"all\"");
    assert_null(config_section(c, "total", "u"));
    assert_null(config_value(s, "port"));
    config_free(&c);
    assert_null(c);
}

static void test_refuses_by_line(void **state)
{
    char text[CONFIG_LINE_MAX + 100];
    (void)state;
    refuse(bytes_str("[total u]\nkey = l\n[input]\n[total u]\n"),
        "x.conf:4: section [total u] is repeated, first in line 1");
    refuse(bytes_str("[input]\ntime = t\ntime = u\n"), "x.conf:3: time is repeated, first in line 2");
    refuse(bytes_str("[pubsub]\ndata-dir = a\ndata_dir = b\n"),
        "x.conf:3: data_dir is repeated, first in line 2");
    refuse(bytes_str("[inputs]\n"), "x.conf:1: unknown section [inputs] (did you mean [input]?)");
    refuse(bytes_str("time = t\n"), "x.conf:1: time comes before any [section]");
    refuse(bytes_str("[input]\ntime\n"), "x.conf:2: expected a [section], a `key = value` or a comment");
    refuse(bytes_str("[input\n"), "x.conf:1: the section has no closing ]");
    refuse(bytes_str("[total ;]\n"), "x.conf:1: the section has no closing ]");
    refuse(bytes_str("[input] time = t\n"), "x.conf:1: there is text after the ] of the section");
    refuse(bytes_str("[]\n"), "x.conf:1: unknown section []");
    refuse(bytes_str("[total a b]\n"), "x.conf:1: section [total a b] has more words than a kind and a name");
    refuse(bytes_str("[input]\n= t\n"), "x.conf:2: the key before = is missing");
    refuse(
        bytes_str("[input]\ntime = t\n more\n"), "x.conf:3: a setting must begin at the start of its line");
    refuse(bytes_of("[input]\nti\0e = t\n", 17), "x.conf:2: the line contains a NUL byte");
    snprintf(text, sizeof text, "[input]\ntime = %0*d\n", CONFIG_LINE_MAX, 1);
    refuse(bytes_str(text), "x.conf:2: the line is longer than 1000 bytes");
}

static void test_longest_line_arrives_whole(void **state)
{
    char text[CONFIG_LINE_MAX + 100];
    (void)state;
    snprintf(text, sizeof text, "[input]\ntime = %0*d\nskip_if = x\n", CONFIG_LINE_MAX - 7, 1);
    struct config *c = parse(text);
    const struct config_section *s = config_section(c, "input", "");
    assert_int_equal(strlen(config_value(s, "time")), CONFIG_LINE_MAX - 7);
    assert_string_equal(config_value(s, "skip_if"), "x");
    config_free(&c);
}

static void test_a_file_that_is_not_there(void **state)
{
    struct config *c = NULL;
    struct error error;
    (void)state;
    assert_int_equal(config_read("/nowhere/x.conf", &c, &error), -1);
    assert_string_equal(error.text, "cannot read /nowhere/x.conf: No such file or directory");
}

static void test_reads_a_pipe(void **state)
{
    struct config *c = NULL;
    struct error error;
    char path[64];
    int fds[2];
    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "[sortdb]\n", 9), 9);
    close(fds[1]);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fds[0]);
    assert_int_equal(config_read(path, &c, &error), 0);
    assert_non_null(config_section(c, "sortdb", ""));
    config_free(&c);
    close(fds[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads_sections_and_lines),
        cmocka_unit_test(test_refuses_by_line), cmocka_unit_test(test_longest_line_arrives_whole),
        cmocka_unit_test(test_a_file_that_is_not_there), cmocka_unit_test(test_reads_a_pipe)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
