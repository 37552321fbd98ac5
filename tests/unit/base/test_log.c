#include "support/cm.h"
#include "base/log.h"
#include <stdio.h>
#include <unistd.h>

/* What the calls in between wrote to standard error. */
static int saved, ends[2];

static void capture(void)
{
    fflush(stderr);
    assert_int_equal(pipe(ends), 0);
    saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
}

static const char *captured(void)
{
    static char text[4096];
    dup2(saved, STDERR_FILENO);
    close(saved);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void test_text(void **state)
{
    (void)state;
    log_init("queue", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    capture();
    log_info("it\nhappened", LOG_S("bare", "a-b"), LOG_S("spaced", "a b"),
        LOG_B("odd", bytes_of("\"=\n\0", 4)), LOG_U("n", UINT64_MAX), LOG_I("i", -1), LOG_F("f", 0.5),
        LOG_S("none", ""));
    const char *line = captured();
    assert_non_null(strstr(line, "Z info queue it happened bare=a-b spaced=\"a b\" odd=\"\\\"=\\n\\u0000\" "
                                 "n=18446744073709551615 i=-1 f=0.5 none=\"\"\n"));
    assert_int_equal(strlen(line), strcspn(line, "\n") + 1);
}

static void test_levels(void **state)
{
    uint64_t before = log_count(LOG_LEVEL_WARN);
    (void)state;
    log_init("queue", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    capture();
    log_warn("unseen");
    log_error("seen");
    const char *line = captured();
    assert_null(strstr(line, "unseen"));
    assert_non_null(strstr(line, " error queue seen\n"));
    assert_int_equal(log_count(LOG_LEVEL_WARN), before + 1);
}

static void test_json(void **state)
{
    (void)state;
    log_init("queue", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    capture();
    log_info("a \"message\"", LOG_S("k", "v\x01"), LOG_U("n", 3), LOG_F("inf", 1e308 * 10));
    const char *line = captured();
    assert_non_null(strstr(line,
        "\"level\":\"info\",\"part\":\"queue\",\"message\":\"a \\\"message\\\"\",\"k\":\"v\\u0001\","
        "\"n\":3,\"inf\":\"not finite\"}\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text), cmocka_unit_test(test_levels), cmocka_unit_test(test_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
