/* answer_cache: random range queries over a growing world have the answers of a new evaluation, and reuse steps. */
#include "support/cm.h"

#include "metricdb/answer_cache.h"
#include "promql/promql_json.h"
#include "support/promql_world.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#define BEGIN INT64_C(1700000040000)
#define LATE 60000
#define INSTANCES 5

static struct promql_world world;
static int64_t newest;
static uint64_t epoch;
static double counters[INSTANCES];

static int64_t closed(void *context, uint64_t *now)
{
    assert_ptr_equal(context, &world);
    *now = epoch;
    return newest - LATE;
}

static void begin(int64_t width)
{
    world_free(&world);
    world = (struct promql_world){.width = width};
    newest = BEGIN;
    epoch = 1;
}

/* Samples of all series, some of which begin late or have gaps. */
static void add_samples(int n)
{
    char name[60];
    for (; n > 0; n--) {
        newest += 10000 + random() % 3;
        for (int i = 0; i < INSTANCES; i++) {
            counters[i] = random() % 50 == 0 ? 0 : counters[i] + (double)(random() % 100);
            snprintf(name, sizeof name, "a{job=\"%c\",instance=\"%d\"}", "xy"[i % 2], i);
            if (random() % 20 > i && newest > BEGIN + i * 300000)
                world_add(&world, name, newest, counters[i]);
        }
    }
}

/* A new series with a sample in closed time. */
static void add_late(void)
{
    static int n;
    char name[60];
    int64_t at = newest - LATE - 1 - random() % 900000;
    snprintf(name, sizeof name, "a{job=\"late\",instance=\"%d\"}", n++);
    world_add(&world, name, at, 5);
    epoch++;
}

static struct buf json_of(const struct promql_result *result)
{
    struct buf out = {0};
    promql_json(&out, SIZE_MAX, result);
    for (size_t i = 0; i < result->n_warnings; i++)
        buf_append_str(&out, result->warnings[i]);
    return out;
}

/* Returns the number of reused steps. */
static size_t check(struct answer_cache *c, const char *text, const struct promql_request *request)
{
    struct error error;
    struct metric_source source = world_source(&world);
    struct promql_result fresh = {0};
    struct cached_answer *answer;
    struct promql *query = promql_parse(bytes_str(text), &error);
    assert_non_null(query);
    assert_int_equal(promql_evaluate(query, &source, request, &fresh, &error), PROMQL_OK);
    source.closed = closed;
    assert_int_equal(
        answer_cache_evaluate(c, bytes_str(text), query, &source, request, &answer, &error), PROMQL_OK);
    struct buf expected = json_of(&fresh), found = json_of(cached_answer_result(answer));
    if (!bytes_equal(buf_bytes(&expected), buf_bytes(&found)))
        fail_msg("%s from %lld to %lld by %lld:\n%.*s\n%.*s", text, (long long)request->start,
            (long long)request->end, (long long)request->step, (int)expected.len, expected.ptr,
            (int)found.len, found.ptr);
    size_t reused = cached_answer_reused(answer);
    answer_cache_release(c, &answer);
    promql_result_free(&fresh);
    promql_free(&query);
    buf_free(&expected);
    buf_free(&found);
    return reused;
}

static const char *const queries[] = {"a", "rate(a[5m])", "sum by (job) (rate(a[2m]))", "topk(1, a)",
    "a offset 1m", "max_over_time(a[3m])", "delta(a[4m])", "max_over_time(sum(a)[5m:1m])", "absent(b)", "1",
    "a > 100", "time()", "a @ end()", "a offset -1m"};
#define N_STEPWISE (sizeof queries / sizeof *queries - 2)

static size_t run_random(struct answer_cache *c, int rounds)
{
    static const int64_t steps[] = {10000, 60000, 97000};
    size_t reused = 0;
    for (int i = 0; i < rounds; i++) {
        add_samples((int)(random() % 8));
        if (random() % 100 == 0)
            add_late();
        int64_t step = steps[random() % 3];
        struct promql_request r = {.step = step, .start = BEGIN + random() % 5 * step};
        r.end = random() % 2 ? newest : r.start + random() % 60 * step + random() % 2 * 500;
        if (r.end >= r.start)
            reused += check(c, queries[(size_t)random() % (sizeof queries / sizeof *queries)], &r);
    }
    return reused;
}

static void test_random_queries(void **state)
{
    static const int64_t widths[] = {1, 10000, 60000};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct answer_cache *c = answer_cache_new(8 << 20);
        begin(widths[i]);
        add_samples(100);
        assert_true(run_random(c, 600) > 10000);
        answer_cache_free(&c);
    }
    world_free(&world);
}

static void test_which_steps_are_reused(void **state)
{
    (void)state;
    struct answer_cache *c = answer_cache_new(8 << 20);
    begin(10000);
    add_samples(200);
    struct promql_request r = {.start = BEGIN, .end = newest, .step = 60000};
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        assert_int_equal(check(c, queries[i], &r), 0);
        /* The last whole minute that is closed ends the steps that are reused. */
        size_t reused = i < N_STEPWISE ? (size_t)((newest - LATE) / 60000 - BEGIN / 60000) : 0;
        assert_int_equal(check(c, queries[i], &r), reused);
    }
    r.start += 600000;
    assert_true(check(c, "a", &r) > 0);
    r.start += 10000;
    assert_int_equal(check(c, "a", &r), 0);
    epoch++;
    r.start -= 10000;
    assert_int_equal(check(c, "a", &r), 0);
    answer_cache_free(&c);
    world_free(&world);
}

static void test_bounded_memory(void **state)
{
    (void)state;
    struct answer_cache *c = answer_cache_new(100000), *small = answer_cache_new(1000);
    begin(1);
    add_samples(100);
    for (int i = 0; i < 100; i++) {
        run_random(c, 3);
        assert_true(answer_cache_bytes(c) <= 100000);
    }
    assert_true(answer_cache_bytes(c) > 0);
    struct answer_cache *one = answer_cache_new(100000);
    check(one, "sum(a)", &(struct promql_request){.start = BEGIN, .end = newest, .step = 10000});
    size_t points = (size_t)(newest - BEGIN) / 10000 + 1;
    assert_in_range(
        answer_cache_bytes(one), 16 * points, 16 * points + 20000); /* not the values of the series */
    answer_cache_free(&one);
    struct promql_request r = {.start = BEGIN, .end = newest, .step = 60000};
    check(small, "a", &r);
    assert_int_equal(check(small, "a", &r), 0);
    assert_int_equal(answer_cache_bytes(small), 0);
    answer_cache_free(&small);
    answer_cache_free(&c);
    world_free(&world);
}

/* Small answers of long queries: what is counted is at least what they take. */
static void test_texts_and_blocks_are_counted(void **state)
{
    enum { N = 100, PADDED = 2000 };
    (void)state;
    char text[PADDED + 20];
    struct answer_cache *c = answer_cache_new(8 << 20);
    begin(10000);
    add_samples(100);
    struct promql_request r = {.start = BEGIN, .end = newest, .step = 60000};
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < N; i++) {
        snprintf(text, sizeof text, "%-*s + %d", PADDED, "sum(a)", i);
        check(c, text, &r);
        assert_true(check(c, text, &r) > 0);
    }
    size_t taken = mallinfo2().uordblks - before;
    assert_true(answer_cache_bytes(c) > N * PADDED);
    assert_true(answer_cache_bytes(c) > taken / 4 * 3);
    answer_cache_free(&c);
    world_free(&world);
}

int main(void)
{
    srandom(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_queries),
        cmocka_unit_test(test_which_steps_are_reused),
        cmocka_unit_test(test_bounded_memory),
        cmocka_unit_test(test_texts_and_blocks_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
