#include "support/cm.h"

#include "sortdb/sortdb_settings.h"

static const struct options_spec spec = {
    .program = "sortdb", .summary = "test", .rows = {settings_rows, NULL}};

static struct options *parse(const char *first, const char *second)
{
    struct options *o;
    char *argv[] = {(char *)(uintptr_t) "sortdb", (char *)(uintptr_t)first, (char *)(uintptr_t)second, NULL};
    assert_int_equal(options_parse(&spec, second ? 3 : first ? 2 : 1, argv, &o), OPTIONS_OK);
    return o;
}

static void separates(const char *argument, char want)
{
    struct error error;
    struct generation_source source;
    struct options *o = parse("--db-file=f", argument);
    assert_int_equal(settings_read_source(o, &source, &error), 0);
    assert_string_equal(source.db_file, "f");
    assert_int_equal(source.separator, want);
    options_free(&o);
}

static void refuses(const char *first, const char *second, const char *want)
{
    struct error error;
    struct options *o = parse(first, second);
    assert_int_equal(settings_check(o, &error), -1);
    if (!strstr(error.text, want))
        fail_msg("%s lacks %s", error.text, want);
    options_free(&o);
}

static void separators_by_name_or_as_they_are(void **state)
{
    (void)state;
    separates(NULL, '\t');
    separates("--field-separator=\\t", '\t');
    separates("--field-separator=comma", ',');
    separates("--field-separator=pipe", '|');
    separates("--field-separator=space", ' ');
    separates("--field-separator=:", ':');
    refuses("--db-file=f", "--field-separator=ab", "--field-separator: ab is not one character");
    refuses("--db-file=f", "--field-separator=\n", "not one character");
}

static void one_thing_is_served(void **state)
{
    (void)state;
    refuses(NULL, NULL, "neither archive nor db_file");
    refuses("--db-file=f", "--archive=a", "both archive and db_file");
}

static void an_archive_has_its_own_separator(void **state)
{
    struct error error;
    struct generation_source source;
    struct options *o = parse("--archive=a", "--field-separator=comma");
    (void)state;
    assert_int_equal(settings_read_source(o, &source, &error), 0);
    assert_string_equal(source.archive, "a");
    options_free(&o);
    refuses("--archive=a", "--field-separator=tab", "always uses a comma");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(separators_by_name_or_as_they_are),
        cmocka_unit_test(one_thing_is_served),
        cmocka_unit_test(an_archive_has_its_own_separator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
