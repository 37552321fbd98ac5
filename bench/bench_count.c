/* bench_count: counting in process, from lines to a committed slice.
 *
 *     bench_count CONFIG FILE [ROUNDS] [EVENTS] [BATCH] [reads]
 *
 * FILE has one event a line and is repeated until EVENTS are counted. After each BATCH events, or after 256 KiB, the loop does
 * the same work as between two reads of a stream; BATCH 0: only after 256 KiB. With `reads` it also looks up counts meanwhile, and
 * measures the memory of the process.
 *
 * Both are measured by the processor time of all threads, so that a busy machine changes little. Prints the median of the
 * rounds. */
#include "aggregator/aggregate.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID "0123456789abcdef0123456789abcdef"
#define CHUNK_BYTES (256 << 10) /* about the size of one read of a stream */
#define ROUNDS_MAX 100

static struct counters *counters;
static struct bytes text;
static uint64_t events, batch;

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_count: %s\n", what);
    exit(1);
}

/* Mapped: the pages of the file are not memory of the process (anonymous_bytes). */
static void map_file(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    need(fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0, path);
    const char *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    need(at != MAP_FAILED && at[st.st_size - 1] == '\n', path);
    text = bytes_of(at, (size_t)st.st_size);
    close(fd);
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
        if (batch ? n % batch == 0 : at < paused || at - paused > CHUNK_BYTES) {
            paused = at;
            pause(arg);
        }
    }
}

/* The number after `name` in a file of /proc/self. */
static double proc_number(const char *file, const char *name)
{
    char line[128];
    unsigned long long n = 0;
    FILE *f = fopen(file, "r");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, name, strlen(name)) == 0)
            n = strtoull(line + strlen(name), NULL, 10);
    if (f)
        fclose(f);
    return (double)n;
}

static double written_bytes(void)
{
    return proc_number("/proc/self/io", "write_bytes:");
}

static double anonymous_bytes(void)
{
    return 1024 * proc_number("/proc/self/status", "RssAnon:");
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

static double memory_bytes, before_bytes, process_bytes, written_ratio;
static usec_t slowest_read;
static bool reads;

static void read_one(const struct reads_layers *layers, const struct reads_query *query)
{
    struct reads_answer answer = {0};
    struct reads *r = reads_new(query);
    reads_begin(r, layers, true);
    need(reads_run(r, &answer) == 0, answer.error.text);
    reads_free(&r);
    reads_answer_free(&answer);
}

/* A get of one key, and a page of records from a random place on, as a client asks while events come. */
static void read_some(struct aggregate *a)
{
    struct reads_layers layers;
    char from[32];
    snprintf(from, sizeof(from), "h.u|%ld", random());
    usec_t start = clock_monotonic();
    need(aggregate_layers(a, 0, &layers) == AGGREGATE_AFTER_OK, "no layers");
    read_one(&layers, &(struct reads_query){.keys = &(struct bytes){from, strlen(from)}, .n_keys = 1});
    read_one(
        &layers, &(struct reads_query){
                     .prefix = BYTES_LITERAL("h.u|"), .start = bytes_str(from), .bounds.max_records = 1000});
    usec_t taken = clock_monotonic() - start;
    slowest_read = taken > slowest_read ? taken : slowest_read;
}

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
    static unsigned turns;
    if (++turns % 32 || !reads)
        return;
    double now = anonymous_bytes() - before_bytes;
    process_bytes = now > process_bytes ? now : process_bytes;
    read_some(arg);
}

static double to_slice(const char *dir)
{
    static const char *const streams[] = {"clicks"};
    struct minute_ring *minutes = minute_ring_new(64 << 20);
    const struct aggregate_config c = {.dir = dir,
        .counters = counters,
        .streams = streams,
        .n_streams = 1,
        .flush_interval = 2 * USEC_PER_SEC,
        .max_memory = 256 << 20,
        .minutes = minutes,
        .notify = notify};
    struct error error;
    struct aggregate *a;
    before_bytes = anonymous_bytes();
    double start = cpu_seconds(), before = written_bytes();
    need(aggregate_open(&c, clock_wall(), &a, &error) == SLICE_OK, error.text);
    aggregate_begin_stream(a, 0, ID, 0);
    each_line(take_line, turn, a);
    while (!aggregate_is_clean(a)) {
        aggregate_flush(a, clock_monotonic());
        usleep(200);
        aggregate_poll(a, clock_monotonic());
    }
    double taken = cpu_seconds() - start;
    aggregate_close(&a);
    minute_ring_free(&minutes);
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
    struct error e;
    need(config_read(path, &config, &e) == 0 && counters_read(config, &counters, &e) == 0, e.text);
    config_free(&config);
}

int main(int argc, char **argv)
{
    double ours[ROUNDS_MAX];
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    need(argc > 2 && rounds > 0 && rounds <= ROUNDS_MAX,
        "usage: bench_count CONFIG FILE [ROUNDS] [EVENTS] [BATCH] [reads]");
    read_config(argv[1]);
    map_file(argv[2]);
    events = argc > 4 ? strtoull(argv[4], NULL, 10) : 1000000;
    batch = argc > 5 ? strtoull(argv[5], NULL, 10) : 0;
    reads = argc > 6;
    for (int i = 0; i < rounds; i++) {
        char dir[] = "bench-count-XXXXXX", command[64];
        need(mkdtemp(dir) != NULL, "cannot make a directory");
        ours[i] = (double)events / to_slice(dir);
        snprintf(command, sizeof(command), "rm -r %s", dir);
        need(system(command) == 0, "cannot remove the directory");
    }
    qsort(ours, (size_t)rounds, sizeof(*ours), by_value);
    printf("%llu events, %zu counters\n", (unsigned long long)events,
        counters->n_totals + counters->n_subtotals);
    printf("to a committed slice %.0f events a processor second\n", ours[rounds / 2]);
    printf(
        "memory of batches and texts: at most %.0f MB; bytes written to disk: %.1f times the slice's file\n",
        memory_bytes / 1e6, written_ratio);
    if (reads)
        printf("the process's own memory grew by at most %.0f MB; the slowest of its reads took %.0f ms\n",
            process_bytes / 1e6, (double)slowest_read / 1e3);
    counters_free(&counters);
    return 0;
}
