/* metadata: types, help texts and units of hostile comments; bounds; metrics that change. */
#include "support/cm.h"

#include "scraper/metadata.h"

#include <string.h>

static const char *text_of(struct buf *b)
{
    buf_append_char(b, '\0');
    return b->ptr;
}

static void expect(struct metadata *m, const char *metric, uint64_t limit, const char *data)
{
    struct buf out = {0}, whole = {0};
    buf_printf(&whole, "{\"status\":\"success\",\"data\":{%s}}\n", data);
    metadata_print(m, bytes_str(metric), limit, &out);
    assert_string_equal(text_of(&out), text_of(&whole));
    buf_free(&out);
    buf_free(&whole);
}

#define ONE(name, type, help, unit)                                                                          \
    "\"" name "\":[{\"type\":\"" type "\",\"help\":\"" help "\",\"unit\":\"" unit "\"}]"

static void read(struct metadata **m, const char *page)
{
    metadata_read(m, bytes_str(page));
}

static void texts_of_comments(void **state)
{
    struct metadata *m = NULL;
    (void)state;
    expect(m, "", 10, "");
    read(&m, "# HELP a_seconds Time  of a, in \xC3\xA9\n# TYPE a_seconds gauge\n# UNIT a_seconds "
             "seconds\na_seconds 1\n"
             "#\t HELP \t b:c\thelp\t\n#TYPE b:c counter\n# EOF\n");
    expect(m, "", 10,
        ONE("a_seconds", "gauge", "Time  of a, in \xC3\xA9", "seconds") "," ONE(
            "b:c", "counter", "help", ""));
    expect(m, "b:c", 10, ONE("b:c", "counter", "help", ""));
    expect(m, "b", 10, "");
    expect(m, "", 1, ONE("a_seconds", "gauge", "Time  of a, in \xC3\xA9", "seconds"));
    expect(m, "", 0, "");
    metadata_free(&m);
    assert_null(m);
}

static void metrics_change(void **state)
{
    struct metadata *m = NULL;
    (void)state;
    read(&m, "# TYPE a counter\n# HELP a first\n");
    read(&m, "# TYPE a gauge\n");
    expect(m, "", 10, ONE("a", "gauge", "first", ""));
    read(&m, "# HELP a\n");
    expect(m, "", 10, ONE("a", "gauge", "", ""));
    metadata_free(&m);
}

static void hostile_comments(void **state)
{
    struct metadata *m = NULL;
    (void)state;
    read(&m, "#\n# \n# HELP\n# HELP \n# HELP 1\"} x\n# HELP a{b=\"c\"} x\n# HELP a\xFF x\n# anything\n #HELP "
             "a x\n# help a x\nHELP a x\n");
    metadata_read(&m, bytes_of("# HELP a\0b x\n# HELP a x", 23)); /* the last line ends early */
    expect(m, "", 10, ONE("a", "unknown", "x", ""));
    read(&m, "# HELP a \\\\n \\n \\x \\\" \"} \\\n");
    expect(m, "", 10, ONE("a", "unknown", "\\\\n \\n \\\\x \\\" \\\"} \\\\", ""));
    metadata_read(&m, bytes_of("# HELP a x\0y\xFF\n", 14));
    expect(m, "", 10, ONE("a", "unknown", "x", ""));
    metadata_free(&m);
}

static void bounds(void **state)
{
    struct metadata *m = NULL;
    struct buf page = {0}, data = {0};
    (void)state;
    for (int i = 0; i <= METADATA_NAMES_MAX; i++)
        buf_printf(&page, "# TYPE n%d gauge\n", i);
    metadata_read(&m, buf_bytes(&page));
    read(&m, "# TYPE more gauge\n# TYPE n0 counter\n");
    buf_printf(&data, ONE("n%d", "gauge", "", ""), METADATA_NAMES_MAX - 1);
    expect(m, "n9999", 10, text_of(&data));
    expect(m, "n10000", 10, "");
    expect(m, "more", 10, "");
    expect(m, "n0", 10, ONE("n0", "counter", "", ""));
    metadata_free(&m);

    char text[METADATA_TEXT_MAX + 2] = "";
    memset(text, 'x', METADATA_TEXT_MAX + 1);
    buf_clear(&page);
    buf_printf(&page, "# HELP %s y\n# HELP %s y\n# HELP a %s\n", text, text + 1, text);
    metadata_read(&m, buf_bytes(&page));
    buf_clear(&data);
    buf_printf(&data, ONE("%s", "unknown", "y", "") "," ONE("a", "unknown", "%s", ""), text + 1, text + 1);
    expect(m, "", 10, text_of(&data));
    metadata_free(&m);
    buf_free(&page);
    buf_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_comments),
        cmocka_unit_test(metrics_change),
        cmocka_unit_test(hostile_comments),
        cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
