/* Runs files in the language of Prometheus' tests (support/promql_world.h):  promql_files [--width=MILLISECONDS] FILE... */
#include "support/promql_world.h"

#include <stdio.h>
#include <stdlib.h>

static bool read_file(const char *path, struct buf *text)
{
    char piece[4096];
    size_t n;
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        buf_append(text, piece, n);
    fclose(f);
    return true;
}

int main(int argc, char **argv)
{
    size_t failed = 0;
    int64_t width = 1;
    for (int i = 1; i < argc; i++) {
        struct promql_world world = {0};
        struct world_report report = {0};
        struct buf text = {0};
        if (strncmp(argv[i], "--width=", 8) == 0) {
            width = atoll(argv[i] + 8);
            continue;
        }
        world.width = width;
        if (!read_file(argv[i], &text)) {
            perror(argv[i]);
            return 1;
        }
        world_run(&world, argv[i], buf_bytes(&text), &report);
        printf("%s: %zu passed, %zu skipped, %zu failed\n%.*s%.*s", argv[i], report.passed, report.n_skipped,
            report.failed, (int)report.skipped.len, report.skipped.len ? report.skipped.ptr : "",
            (int)report.failures.len, report.failures.len ? report.failures.ptr : "");
        failed += report.failed;
        world_free(&world);
        buf_free(&text);
        buf_free(&report.skipped);
        buf_free(&report.failures);
    }
    return failed > 0;
}
