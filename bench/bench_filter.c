/* bench_filter: what pubsub_filtered does with a line, in process: two fields dropped, one hashed.
 *
 *     bench_filter FILE [ROUNDS]     a file of events, one a line: ../shared's clicks, or what clickgen made
 */
#include "base/clock.h"
#include "streams/filter/line_filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LEAST_LINES 400000 /* a round goes through the file until it has had as many */

static void read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "r");
    size_t n;
    do {
        buf_reserve(out, 1 << 20);
        n = f != NULL ? fread(out->ptr + out->len, 1, 1 << 20, f) : 0;
        out->len += n;
    } while (n > 0);
    if (f != NULL)
        fclose(f);
}

static size_t filter_all(struct line_filter *f, struct bytes text, struct buf *out)
{
    size_t lines = 0;
    const char *at = text.ptr, *end = text.ptr + text.len, *lf;
    while (at < end && (lf = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        if (out->len > 1 << 20)
            buf_clear(out);
        line_filter_apply(f, bytes_of(at, (size_t)(lf - at)), out);
        at = lf + 1;
        lines++;
    }
    return lines;
}

/* Processor time of this thread, which other load on the machine does not change. */
static usec_t cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * USEC_PER_SEC + t.tv_nsec / 1000;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    struct buf text = {0}, out = {0};
    double rates[100];
    if (argc < 2 || rounds < 1 || rounds > 100)
        return 64;
    read_file(argv[1], &text);
    struct hash_key *key = hash_key_of(BYTES_LITERAL("0123456789abcdef0123456789abcdef"));
    struct line_filter *f =
        line_filter_new(&(struct line_filter_spec){.drop = "a,ll", .hash = "g", .key = key}, NULL);
    for (int r = 0; r < rounds && text.len > 0; r++) {
        usec_t began = cpu_time();
        size_t lines = 0;
        while (lines < LEAST_LINES)
            lines += filter_all(f, buf_bytes(&text), &out);
        rates[r] = (double)lines * USEC_PER_SEC / (double)(cpu_time() - began);
    }
    qsort(rates, (size_t)rounds, sizeof *rates, by_value);
    printf("filter: two fields dropped, one hashed: %.0f lines/s of CPU time (median of %d)\n",
        rates[rounds / 2], rounds);
    line_filter_free(&f);
    hash_key_free(&key);
    buf_free(&text);
    buf_free(&out);
    return text.len > 0;
}
