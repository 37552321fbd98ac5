#include "support/cm.h"
#include "base/log.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
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
    capture();
    log_init("queue", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
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
    capture();
    log_init("queue", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
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
    capture();
    log_init("queue", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_info("a \"message\"", LOG_S("k", "v\x01"), LOG_U("n", 3), LOG_F("inf", 1e308 * 10));
    const char *line = captured();
    assert_non_null(strstr(line,
        "\"level\":\"info\",\"part\":\"queue\",\"message\":\"a \\\"message\\\"\",\"k\":\"v\\u0001\","
        "\"n\":3,\"inf\":\"not finite\"}\n"));
}

/* Logs until three lines did not fit. Returns their number. */
static uint64_t overfill(void)
{
    uint64_t before = log_dropped();
    for (int i = 0; i < 100000 && log_dropped() < before + 3; i++)
        log_info("a line", LOG_I("i", i));
    return log_dropped() - before;
}

static size_t drain(int fd, char *text, size_t size)
{
    size_t len = 0;
    ssize_t n;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (len < size - 1 && (n = read(fd, text + len, size - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    return len;
}

static void check_slow_reader(void)
{
    static char text[1 << 22];
    log_init("queue", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    assert_int_equal(overfill(), 3);
    drain(ends[0], text, sizeof text);
    assert_null(strstr(text, "were dropped"));
    log_info("again");
    drain(ends[0], text, sizeof text);
    assert_non_null(strstr(text, " warn queue lines of the log were dropped"));
    assert_non_null(strstr(text, " lines=3\n"));
    assert_non_null(strstr(text, " info queue again\n"));
    log_info("once");
    drain(ends[0], text, sizeof text);
    assert_null(strstr(text, "were dropped"));
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[0]);
}

#define LONG_LINE 30000
#define LONG_LINES 200

static void log_long_lines(char c)
{
    char value[LONG_LINE + 1];
    memset(value, c, LONG_LINE);
    value[LONG_LINE] = '\0';
    log_init("queue", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    for (int i = 0; i < LONG_LINES; i++)
        log_info("long", LOG_S("value", value));
}

/* Two processes log long lines to one file. */
static void test_a_shared_file(void **state)
{
    static char line[2 * LONG_LINE];
    char path[] = "/tmp/millrace-log-XXXXXX", run[LONG_LINE + 1];
    int fd = mkostemp(path, O_APPEND), lines = 0;
    (void)state;
    assert_true(fd >= 0);
    unlink(path);
    saved = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    pid_t child = fork();
    log_long_lines(child == 0 ? 'a' : 'b');
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    dup2(saved, STDERR_FILENO);
    close(saved);
    FILE *f = fdopen(fd, "r");
    assert_non_null(f);
    rewind(f);
    for (; fgets(line, sizeof line, f); lines++) {
        const char *value = strstr(line, " info queue long value=");
        assert_non_null(value);
        value += strlen(" info queue long value=");
        memset(run, value[0], LONG_LINE);
        run[LONG_LINE] = '\0';
        assert_int_equal(strncmp(value, run, LONG_LINE), 0);
        assert_string_equal(value + LONG_LINE, "\n");
    }
    assert_int_equal(lines, 2 * LONG_LINES);
    fclose(f);
}

static void test_a_pipe_that_is_full(void **state)
{
    (void)state;
    capture();
    check_slow_reader();
}

static void test_a_socket_that_is_full(void **state)
{
    (void)state;
    fflush(stderr);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    check_slow_reader();
}

static void test_a_reader_that_has_ended(void **state)
{
    (void)state;
    uint64_t before = log_dropped();
    signal(SIGPIPE, SIG_IGN);
    capture();
    log_init("queue", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    close(ends[0]);
    log_info("for no reader");
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(log_dropped(), before + 1);
}

/* A line of which only the beginning fitted is ended before the next line. */
static void test_a_cut_line(void **state)
{
    static char text[1 << 22], big[1 << 20];
    (void)state;
    memset(big, 'x', sizeof big - 1);
    capture();
    log_init("queue", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_info("big", LOG_S("value", big));
    size_t len = drain(ends[0], text, sizeof text);
    assert_in_range(len, 1, sizeof big - 1);
    log_info("next");
    drain(ends[0], text, sizeof text);
    assert_int_equal(text[0], '\n');
    assert_non_null(strstr(text, " lines=1\n"));
    assert_non_null(strstr(text, " info queue next\n"));
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_levels),
        cmocka_unit_test(test_json), cmocka_unit_test(test_a_shared_file),
        cmocka_unit_test(test_a_pipe_that_is_full), cmocka_unit_test(test_a_socket_that_is_full),
        cmocka_unit_test(test_a_reader_that_has_ended), cmocka_unit_test(test_a_cut_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
