/* Answers expressions over samples, for tests/daemons/test_promql.py. Standard input has lines of two forms (times in milliseconds):
 *     add SERIES TIME VALUE          the series without spaces
 *     query START END STEP EXPRESSION
 * Each query prints a line: the answer as JSON, or {"error":"..."}.   promql_query [WIDTH_OF_BUCKETS] */
#include "support/promql_world.h"

#include "promql/promql_json.h"

#include <stdio.h>
#include <stdlib.h>

static void answer(struct promql_world *w, struct promql_request *request, struct bytes expression)
{
    struct metric_source source = world_source(w);
    struct promql_result result = {0};
    struct error error;
    struct buf out = {0};
    struct promql *query = promql_parse(expression, &error);
    if (query && promql_evaluate(query, &source, request, &result, &error) == PROMQL_OK) {
        promql_json(&out, SIZE_MAX, &result);
    } else {
        buf_append_str(&out, "{\"error\":");
        buf_append_json(&out, bytes_str(error.text));
        buf_append_char(&out, '}');
    }
    printf("%.*s\n", (int)out.len, out.ptr);
    fflush(stdout);
    buf_free(&out);
    promql_result_free(&result);
    promql_free(&query);
}

int main(int argc, char **argv)
{
    struct promql_world world = {.width = argc > 1 ? atoll(argv[1]) : 1};
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct bytes rest = bytes_without_line_end(bytes_of(line, (size_t)n)), word = bytes_take_word(&rest);
        struct promql_request request = {0};
        if (bytes_equal_str(word, "add")) {
            char *series = bytes_dup(bytes_take_word(&rest)), *value;
            int64_t time = 0;
            bytes_to_i64(bytes_take_word(&rest), &time);
            value = bytes_dup(rest);
            world_add(&world, series, time, strtod(value, NULL));
            free(series);
            free(value);
        } else if (bytes_equal_str(word, "query") && bytes_to_i64(bytes_take_word(&rest), &request.start) &&
                   bytes_to_i64(bytes_take_word(&rest), &request.end) &&
                   bytes_to_i64(bytes_take_word(&rest), &request.step)) {
            answer(&world, &request, rest);
        }
    }
    free(line);
    world_free(&world);
    return 0;
}
