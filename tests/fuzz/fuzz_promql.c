/* Any bytes as an expression, evaluated over a few series, instantly and as a range. An error names a place in the text; the memory of an
 * evaluation stays within its limit; and an instant answer is the answer of a range of one step, but for the order. */
#include "promql/promql_json.h"
#include "support/fuzz_copy.h"
#include "support/promql_world.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct promql_world world;

static void load_world(void)
{
    world.width = 1;
    world_load(&world, "a{x=\"1\",y=\"p\"}", "0+1x20 stale 3 NaN 5", 15000);
    world_load(&world, "a{x=\"2\",y=\"q\"}", "5 _ 4 3x10 -1 Inf", 15000);
    world_load(&world, "b{x=\"1\"}", "1x30", 15000);
    world_load(&world, "h{le=\"1\"}", "0+1x30", 15000);
    world_load(&world, "h{le=\"+Inf\"}", "0+3x30", 15000);
}

static bool stop_at_last(void *context)
{
    return --*(int *)context < 0;
}

static size_t evaluate(const struct promql *query, int64_t end, int64_t step)
{
    struct metric_source source = world_source(&world);
    int polls = 100;
    struct promql_request r = {.start = 240000,
        .end = end,
        .step = step,
        .max_bytes = 4 << 20,
        .stop = stop_at_last,
        .context = &polls};
    struct promql_result result;
    struct error error = {0};
    struct buf json = {0};
    size_t n = SIZE_MAX;
    if (promql_evaluate(query, &source, &r, &result, &error) == PROMQL_OK) {
        promql_json(&json, SIZE_MAX, &result);
        assert(bytes_is_utf8(buf_bytes(&json)));
        n = result.n_series;
    } else {
        assert(error.text[0] && !result.memory);
    }
    promql_result_free(&result);
    buf_free(&json);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error = {0};
    if (world.n == 0)
        load_world();
    char *copy = fuzz_copy(bytes_of(data, size));
    struct promql *query = promql_parse(bytes_of(copy, size), &error);
    free(copy);
    assert(query || strstr(error.text, ": parse error: "));
    if (query) {
        size_t instant = evaluate(query, 240000, 0), range = evaluate(query, 240000, 1000);
        assert(promql_type(query) > PROMQL_VECTOR || instant == range);
        evaluate(query, 300000, 15000);
        world.width = 40000; /* buckets with several samples */
        evaluate(query, 300000, 15000);
        world.width = 1;
        promql_free(&query);
    }
    return 0;
}
