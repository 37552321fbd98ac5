/* bench_count: counting in process, from lines to a committed slice, beside the bare loop: the same lines parsed, interned,
 * added in one table and sorted once, in memory.
 *
 *     bench_count CONFIG FILE [ROUNDS] [EVENTS]     a file of events, one a line; repeated until EVENTS are counted
 *
 * Both are measured by the processor time of all threads, so that a busy machine changes little. Prints the median of the
 * rounds. */
#include "aggregator/aggregate.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID "0123456789abcdef0123456789abcdef"
#define CHUNK_BYTES (256 << 10) /* about what a read of a stream gives */
#define ROUNDS_MAX 100

static struct counters *counters;
static struct buf text;
static uint64_t events;

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_count: %s\n", what);
    exit(1);
}

static void read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    size_t n;
    need(f != NULL, path);
    do {
        buf_reserve(&text, 1 << 20);
        n = fread(text.ptr + text.len, 1, 1 << 20, f);
        text.len += n;
    } while (n > 0);
    fclose(f);
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Walks the lines until so many were given. */
static void each_line(void (*take)(void *arg, struct bytes line), void (*pause)(void *arg), void *arg)
{
    const char *at = text.ptr, *end = text.ptr + text.len, *paused = at;
    for (uint64_t n = 0; n < events; n++) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        take(arg, bytes_of(at, (size_t)(lf - at)));
        at = lf + 1 < end ? lf + 1 : text.ptr;
        if (at < paused || at - paused > CHUNK_BYTES) {
            paused = at;
            pause(arg);
        }
    }
}

static void bare_line(void *arg, struct bytes line)
{
    const char *reason;
    tally_line(arg, line, &reason);
}

static void bare_pause(void *arg)
{
    (void)arg;
}

static double bare_loop(size_t *counts)
{
    double start = cpu_seconds();
    struct tally *t = tally_new(counters, SIZE_MAX);
    struct count_source *sources[BATCH_SOURCES];
    each_line(bare_line, bare_pause, t);
    batch_sources(tally_batch(t), counters, &(struct count_range){0}, sources);
    *counts = count_table_counts(tally_batch(t)->table);
    double taken = cpu_seconds() - start;
    for (int i = 0; i < BATCH_SOURCES; i++)
        count_source_close(&sources[i]);
    tally_free(&t);
    return taken;
}

/* Bytes that the process has had written to disks. */
static double written_bytes(void)
{
    char line[128];
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "r");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "write_bytes: %llu", &n) == 1)
            break;
    if (f)
        fclose(f);
    return (double)n;
}

static double slice_bytes(const char *dir)
{
    char path[128];
    struct stat st;
    snprintf(path, sizeof(path), "%s/slices/0000000001.db", dir);
    return stat(path, &st) == 0 ? (double)st.st_size : 0;
}

static void notify(void *arg)
{
    (void)arg;
}

static double memory_bytes, written_ratio;

static void take_line(void *arg, struct bytes line)
{
    aggregate_take_line(arg, 0, line);
}

/* What the loop does between two reads of the stream. */
static void turn(void *arg)
{
    struct aggregate_numbers n;
    do {
        aggregate_poll(arg, clock_monotonic());
        aggregate_tick(arg, clock_monotonic());
        if (aggregate_is_full(arg))
            usleep(200);
    } while (aggregate_is_full(arg));
    aggregate_numbers(arg, &n);
    memory_bytes = (double)n.memory > memory_bytes ? (double)n.memory : memory_bytes;
}

static double to_slice(const char *dir)
{
    static const char *const streams[] = {"clicks"};
    const struct aggregate_config c = {.dir = dir,
        .counters = counters,
        .streams = streams,
        .n_streams = 1,
        .flush_interval = 2 * USEC_PER_SEC,
        .max_memory = 256 << 20,
        .notify = notify};
    char error[SLICE_ERROR_TEXT] = "";
    struct aggregate *a;
    double start = cpu_seconds(), before = written_bytes();
    need(aggregate_open(&c, clock_wall(), &a, error) == SLICE_OK, error);
    aggregate_begin_stream(a, 0, ID, 0);
    each_line(take_line, turn, a);
    while (!aggregate_is_clean(a)) {
        aggregate_flush(a, clock_monotonic());
        usleep(200);
        aggregate_poll(a, clock_monotonic());
    }
    double taken = cpu_seconds() - start;
    aggregate_close(&a);
    written_ratio = (written_bytes() - before) / slice_bytes(dir);
    return taken;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void read_config(const char *path)
{
    struct config *config = NULL;
    struct config_error e;
    need(config_read(path, &config, &e) == 0 && counters_read(config, &counters, &e) == 0, e.text);
    config_free(&config);
}

int main(int argc, char **argv)
{
    double bare[ROUNDS_MAX], ours[ROUNDS_MAX], ratio[ROUNDS_MAX];
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    size_t counts = 0;
    need(argc > 2 && rounds > 0 && rounds <= ROUNDS_MAX, "usage: bench_count CONFIG FILE [ROUNDS] [EVENTS]");
    read_config(argv[1]);
    read_file(argv[2]);
    events = argc > 4 ? strtoull(argv[4], NULL, 10) : 1000000;
    for (int i = 0; i < rounds; i++) {
        char dir[] = "bench-count-XXXXXX", command[64];
        need(mkdtemp(dir) != NULL, "cannot make a directory");
        bare[i] = (double)events / bare_loop(&counts);
        ours[i] = (double)events / to_slice(dir);
        ratio[i] = ours[i] / bare[i];
        snprintf(command, sizeof(command), "rm -r %s", dir);
        need(system(command) == 0, "cannot remove the directory");
    }
    qsort(bare, (size_t)rounds, sizeof(*bare), by_value);
    qsort(ours, (size_t)rounds, sizeof(*ours), by_value);
    qsort(ratio, (size_t)rounds, sizeof(*ratio), by_value);
    printf("%llu events, %zu counters, %zu different counts\n", (unsigned long long)events,
        counters->n_totals + counters->n_subtotals, counts);
    printf("to a committed slice %.0f events a processor second, bare loop %.0f, ratio %.2f\n",
        ours[rounds / 2], bare[rounds / 2], ratio[rounds / 2]);
    printf("batches and texts at most %.0f MB; written to disk %.1f times the slice's file\n",
        memory_bytes / 1e6, written_ratio);
    counters_free(&counters);
    buf_free(&text);
    return 0;
}
