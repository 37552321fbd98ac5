#include "support/cm.h"

#include "http/server/http_origin.h"

struct request {
    const char *host, *origin, *fetch_site, *allowed;
    enum http_refusal verdict;
};

static struct bytes header(const char *value)
{
    return value ? bytes_str(value) : BYTES_NONE;
}

static void judge_all(const struct request *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        enum http_refusal got =
            http_origin_judge(header(r[i].host), header(r[i].origin), header(r[i].fetch_site), r[i].allowed);
        if (got != r[i].verdict)
            fail_msg("row %zu: %d, not %d", i, (int)got, (int)r[i].verdict);
    }
}

#define JUDGE(...)                                                                                           \
    judge_all(                                                                                               \
        (struct request[]){__VA_ARGS__}, sizeof((struct request[]){__VA_ARGS__}) / sizeof(struct request))

static void test_programs_without_a_page(void **state)
{
    (void)state;
    JUDGE({"127.0.0.1:8080", NULL, NULL, NULL, HTTP_REFUSED_NOT},
        {"127.0.0.1", NULL, NULL, NULL, HTTP_REFUSED_NOT}, {"[::1]:8080", NULL, NULL, NULL, HTTP_REFUSED_NOT},
        {"[::1]", NULL, NULL, NULL, HTTP_REFUSED_NOT}, {"localhost:8080", NULL, NULL, NULL, HTTP_REFUSED_NOT},
        {"LOCALHOST", NULL, NULL, NULL, HTTP_REFUSED_NOT},
        {"queue.localhost:1", NULL, NULL, NULL, HTTP_REFUSED_NOT},
        {"queuehost:8080", NULL, NULL, NULL, HTTP_REFUSED_NOT},
        {"10.0.0.7:80", NULL, NULL, NULL, HTTP_REFUSED_NOT}, {NULL, NULL, NULL, NULL, HTTP_REFUSED_NOT});
}

static void test_a_name_that_dns_could_point_here(void **state)
{
    (void)state;
    JUDGE({"evil.example:8080", NULL, NULL, NULL, HTTP_REFUSED_FOREIGN_HOST},
        {"evil.notlocalhost", NULL, NULL, NULL, HTTP_REFUSED_FOREIGN_HOST},
        {"local.", NULL, NULL, NULL, HTTP_REFUSED_FOREIGN_HOST},
        {"localhost.evil.example", NULL, NULL, NULL, HTTP_REFUSED_FOREIGN_HOST},
        {"127.0.0.1.evil.example", NULL, NULL, NULL, HTTP_REFUSED_FOREIGN_HOST},
        {"0x7f000001.example", NULL, NULL, NULL, HTTP_REFUSED_FOREIGN_HOST},
        {"", NULL, NULL, NULL, HTTP_REFUSED_FOREIGN_HOST},
        {"[::1", NULL, NULL, NULL, HTTP_REFUSED_FOREIGN_HOST},
        {":8080", NULL, NULL, NULL, HTTP_REFUSED_FOREIGN_HOST},
        {"evil.example", "http://evil.example", NULL, NULL, HTTP_REFUSED_FOREIGN_HOST});
}

static void test_names_that_are_allowed(void **state)
{
    (void)state;
    JUDGE({"stats.example:8080", NULL, NULL, "a.example, stats.example", HTTP_REFUSED_NOT},
        {"STATS.example", NULL, NULL, "a.example stats.EXAMPLE", HTTP_REFUSED_NOT},
        {"b.example", NULL, NULL, "a.example,stats.example", HTTP_REFUSED_FOREIGN_HOST},
        {"evil.example", "http://evil.example", "cross-site", "*", HTTP_REFUSED_NOT},
        {"127.0.0.1:1", "https://stats.example:9", "cross-site", "stats.example", HTTP_REFUSED_NOT},
        {"127.0.0.1:1", "https://evil.example", NULL, "stats.example", HTTP_REFUSED_FOREIGN_PAGE});
}

static void test_pages(void **state)
{
    (void)state;
    JUDGE({"127.0.0.1:8088", "http://127.0.0.1:8088", "same-origin", NULL, HTTP_REFUSED_NOT},
        {"127.0.0.1:8088", "http://127.0.0.1:3000", "same-site", NULL, HTTP_REFUSED_FOREIGN_PAGE},
        {"127.0.0.1:8088", "http://evil.example", "cross-site", NULL, HTTP_REFUSED_FOREIGN_PAGE},
        {"127.0.0.1:8088", "null", "cross-site", NULL, HTTP_REFUSED_FOREIGN_PAGE},
        {"127.0.0.1:8088", "", NULL, NULL, HTTP_REFUSED_FOREIGN_PAGE},
        {NULL, "null", NULL, NULL, HTTP_REFUSED_FOREIGN_PAGE},
        {"127.0.0.1:8088", NULL, "cross-site", NULL, HTTP_REFUSED_FOREIGN_PAGE},
        {"127.0.0.1:8088", NULL, "same-site", NULL, HTTP_REFUSED_FOREIGN_PAGE},
        {"127.0.0.1:8088", NULL, "none", NULL, HTTP_REFUSED_NOT},
        {"127.0.0.1:8088", NULL, "same-origin", NULL, HTTP_REFUSED_NOT});
}

static void test_peers_on_this_host(void **state)
{
    (void)state;
    static const char *const local[] = {
        "unix", "127.0.0.1:5", "127.8.9.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5"};
    static const char *const remote[] = {"", "unix:5", "10.0.0.1:5", "128.0.0.1:5", "0.0.0.0:5", "[::]:5",
        "[::2]:5", "[::ffff:10.0.0.1]:5", "[fe80::1]:5", "localhost:5", "[127.0.0.1"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        assert_true(http_origin_peer_is_local(local[i]));
    for (size_t i = 0; i < sizeof remote / sizeof remote[0]; i++)
        assert_false(http_origin_peer_is_local(remote[i]));
}

static void test_lists_of_hosts(void **state)
{
    (void)state;
    assert_true(http_origin_hosts_valid(NULL));
    assert_true(http_origin_hosts_valid("a.example, b-c.example ::1 *"));
    assert_false(http_origin_hosts_valid("http://a.example"));
    assert_false(http_origin_hosts_valid("a.example:8080"));
    assert_false(http_origin_hosts_valid("*.example"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_without_a_page),
        cmocka_unit_test(test_a_name_that_dns_could_point_here),
        cmocka_unit_test(test_names_that_are_allowed),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_peers_on_this_host),
        cmocka_unit_test(test_lists_of_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
