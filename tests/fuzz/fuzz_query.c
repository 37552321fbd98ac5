/* Any text as the parameters of a request to the API: refused with a detail, or a span of hours within the bounds. */
#include "api/query.h"
#include "counts/records.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config_text[] =
    "[input]\ntime = t\n[total u]\nkey = l\nlabel = user\n[total all]\nkey = \"x\"\n"
    "[subtotal c.u]\nkey = c\nlabel = country\n";

static void check(const struct query_context *context, enum query_kind kind, const struct url_query *params)
{
    struct query q;
    struct query_error error = {0};
    if (query_parse(context, kind, params, &q, &error) != 0) {
        assert(error.status >= 400 && error.status < 500 && error.code && error.detail[0]);
        return;
    }
    struct query copy;
    query_copy(&copy, &q);
    assert(strcmp(query_counter(&copy)->ns, query_counter(&q)->ns) == 0 &&
           (context->accepts_former || !q.is_former));
    assert(q.total && 0 <= q.from && q.from + !q.is_so_far <= q.to && q.to <= HOUR_END);
    assert(!q.compares || (0 <= q.before_from && q.before_from + !q.is_so_far <= q.before_to));
    assert(q.limit <= QUERY_LIMIT_MAX && q.calendar.week_start >= 0 && q.calendar.week_start < 7);
    assert(q.n_values != 1 && q.n_values <= QUERY_SERIES_MAX && q.top <= QUERY_SERIES_MAX);
    assert((q.n_values == 0 && q.top == 0) || (kind == QUERY_SERIES && (q.top == 0 || q.n_values == 0)));
    for (size_t i = 0; i < q.n_values; i++)
        assert(query_value(&copy, i).len > 0);
    assert(query_value(&q, q.n_values).ptr == NULL || q.n_values == 0);
    int64_t start = units_start(&q.calendar, q.from), next = units_next(&q.calendar, start);
    assert(next > start && units_back(&q.calendar, next, 1) == start);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct query_context context = {.max_rows = 1000, .now = 1332633600};
    struct url_query params;
    if (!context.counters) {
        static struct config *config; /* never freed, like the counters */
        struct counters *counters;
        struct error error;
        if (config_parse("c", bytes_str(config_text), &config, &error) != 0 ||
            counters_read(config, &counters, &error) != 0)
            abort();
        context.counters = counters;
    }
    if (url_query_parse(bytes_of(data, size), &params) != 0)
        return 0;
    for (int former = 0; former < 2; former++) {
        context.accepts_former = former;
        check(&context, QUERY_SERIES, &params);
        check(&context, QUERY_BREAKDOWN, &params);
    }
    url_query_free(&params);
    return 0;
}
