/* targets: files in Prometheus' form, slots and shards. */
#include "support/cm.h"

#include "scraper/targets.h"

#include <stdio.h>
#include <stdlib.h>

static const struct target_defaults defaults = {
    .job = "j", .path = "/metrics", .interval = 60000, .timeout = 10000};

static void check(const char *text, size_t n, const char *const *ids)
{
    struct target_list list = {0};
    struct error error = {0};
    if (targets_read(bytes_str(text), &defaults, &list, &error) != 0)
        fail_msg("%s: %s", text, error.text);
    struct share share = {0};
    share_set_shard(&share, 1, 1);
    targets_select(&list, &share);
    share_free(&share);
    assert_int_equal(list.n, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(list.all[i]->id, ids[i]);
    targets_free(&list);
}

static void check_refused(const char *text, const char *why)
{
    struct target_list list = {0};
    struct error error = {0};
    assert_int_equal(targets_read(bytes_str(text), &defaults, &list, &error), -1);
    assert_string_equal(error.text, why);
    targets_free(&list);
}

static void files(void **state)
{
    (void)state;
    check("[]", 0, NULL);
    check("[{\"targets\":[]},{}]", 0, NULL);
    check("[{\"targets\":[\"b:1\",\"a\",\"b:1\"]},{\"targets\":[\"[::1]:2\"],\"labels\":{\"rack\":\"4\","
          "\"job\":\"x\",\"__meta_y\":\"z\",\"e\":\"\"}}]",
        3,
        (const char *const[]){
            "http://[::1]:2/metrics {\"instance\":\"[::1]:2\",\"job\":\"x\",\"rack\":\"4\"}",
            "http://a/metrics {\"instance\":\"a\",\"job\":\"j\"}",
            "http://b:1/metrics {\"instance\":\"b:1\",\"job\":\"j\"}"});
    check("[{\"targets\":[\"a:1\"],\"labels\":{\"__metrics_path__\":\"/probe\",\"__param_module\":\"a "
          "b\",\"__param_t\":\"&\",\"instance\":\"i\"}}]",
        1, (const char *const[]){"http://a:1/probe?module=a%20b&t=%26 {\"instance\":\"i\",\"job\":\"j\"}"});
    check("[{\"targets\":[\"unix:/run/x.sock\"]}]", 1,
        (const char *const[]){"unix:/run/x.sock/metrics {\"instance\":\"unix:/run/x.sock\",\"job\":\"j\"}"});
}

static void intervals(void **state)
{
    (void)state;
    struct target_list list = {0};
    struct error error;
    assert_int_equal(
        targets_read(bytes_str("[{\"targets\":[\"a:1\"],\"labels\":{\"__scrape_interval__\":\"5s\"}},"
                               "{\"targets\":[\"b:1\"],\"labels\":{\"__scrape_timeout__\":\"1500ms\"}}]"),
            &defaults, &list, &error),
        0);
    assert_int_equal(list.all[0]->interval, 5000);
    assert_int_equal(list.all[0]->timeout, 5000);
    assert_int_equal(list.all[1]->interval, 60000);
    assert_int_equal(list.all[1]->timeout, 1500);
    targets_free(&list);
}

static void refused_files(void **state)
{
    (void)state;
    check_refused("", "not a list of groups in JSON");
    check_refused("{}", "not a list of groups in JSON");
    check_refused("[{\"targets\":[\"a:1\"]}", "not a list of groups in JSON");
    check_refused("[{},{\"targets\":\"a:1\"}]", "group 2: `targets` is not a list");
    check_refused("[{\"targets\":[1]}]", "group 1: a target is not a text");
    check_refused(
        "[{\"targets\":[\"http://a:1/\"]}]", "group 1: \"http://a:1/\" is not an address HOST:PORT");
    check_refused(
        "[{\"targets\":[\"a:1\\r\\nX: y\"]}]", "group 1: \"a:1\r\nX: y\" is not an address HOST:PORT");
    check_refused("[{\"targets\":[\"a:b\"]}]", "group 1: \"a:b\" is not an address HOST:PORT");
    check_refused(
        "[{\"targets\":[\"a:1\"],\"labels\":{\"a-b\":\"1\"}}]", "group 1: a label has an invalid name");
    check_refused(
        "[{\"targets\":[\"a:1\"],\"labels\":{\"a\":1}}]", "group 1: the value of a label is not a text");
    check_refused(
        "[{\"targets\":[\"a:1\"],\"labels\":{\"a\":\"1\",\"a\":\"2\"}}]", "group 1: a label occurs twice");
    check_refused("[{\"targets\":[\"a:1\"],\"labels\":{\"__scheme__\":\"https\"}}]",
        "group 1: __scheme__ is https; only http is possible");
    check_refused("[{\"targets\":[\"a:1\"],\"labels\":{\"__metrics_path__\":\"/a b\"}}]",
        "group 1: __metrics_path__ is not a path that begins with /");
    struct target_list list = {0};
    struct error error;
    assert_int_equal(
        targets_read(bytes_str("[{\"targets\":[\"a:1\"],\"labels\":{\"__scrape_interval__\":\"10ms\"}}]"),
            &defaults, &list, &error),
        -1);
    assert_non_null(strstr(error.text, "__scrape_interval__"));
    targets_free(&list);
}

static struct target *make(int i)
{
    char address[40];
    struct error error;
    snprintf(address, sizeof address, "host%d:9100", i);
    struct target *t = target_new(bytes_str(address), NULL, 0, &defaults, &error);
    assert_non_null(t);
    return t;
}

/* A target's slots are an interval apart and spread over the interval. */
static void slots(void **state)
{
    (void)state;
    int quarters[4] = {0};
    for (int i = 0; i < 1000; i++) {
        struct target *t = make(i);
        int64_t slot = target_slot(t, 1732977600000);
        assert_in_range(1732977600000 - slot, 0, 59999);
        assert_int_equal(target_slot(t, slot), slot);
        assert_int_equal(target_slot(t, slot - 1), slot - 60000);
        assert_int_equal(target_slot(t, slot + 59999), slot);
        assert_true(target_slot(t, -1) <= -1 && target_slot(t, -1) > -60001);
        quarters[(1732977600000 - slot) / 15000]++;
        target_release(t);
    }
    for (int i = 0; i < 4; i++)
        assert_in_range(quarters[i], 180, 320);
}

static void select_shard(bool *in, unsigned shard, unsigned n_shards)
{
    struct target_list list = {0};
    for (int i = 0; i < 1000; i++) {
        struct target *t = make(i);
        targets_add(&list, t);
        target_release(t);
    }
    struct share share = {0};
    share_set_shard(&share, shard, n_shards);
    targets_select(&list, &share);
    share_free(&share);
    for (int i = 0; i < 1000; i++) {
        struct target *t = make(i);
        in[i] = false;
        for (size_t k = 0; k < list.n; k++)
            in[i] = in[i] || strcmp(list.all[k]->id, t->id) == 0;
        target_release(t);
    }
    targets_free(&list);
}

/* Each target is in one shard. A fourth shard takes targets of each other one, and moves no target between them. */
static void shards(void **state)
{
    (void)state;
    bool of_three[3][1000], of_four[4][1000];
    for (unsigned i = 0; i < 3; i++)
        select_shard(of_three[i], i + 1, 3);
    for (unsigned i = 0; i < 4; i++)
        select_shard(of_four[i], i + 1, 4);
    int moved = 0;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(of_three[0][i] + of_three[1][i] + of_three[2][i], 1);
        assert_int_equal(of_four[0][i] + of_four[1][i] + of_four[2][i] + of_four[3][i], 1);
        for (int k = 0; k < 3; k++)
            assert_true(of_four[3][i] || of_three[k][i] == of_four[k][i]);
        moved += of_four[3][i];
    }
    assert_in_range(moved, 180, 320);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),
        cmocka_unit_test(intervals),
        cmocka_unit_test(refused_files),
        cmocka_unit_test(slots),
        cmocka_unit_test(shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
