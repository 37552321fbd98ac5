/* bench_compact: merges a day of new counts into an archive, beside `LC_ALL=C sort -m` of the same lines.
 *
 *     bench_compact DIRECTORY [MILLIONS [ROUNDS]]
 *
 * MILLIONS of new counts (default 5) are merged into ten times as many, of the same users. Both write a new file and sync it. Prints
 * MB of input a second, and MB a second of processor time, medians of alternating rounds: the compactor with one thread and with two,
 * over two shards, and sort. */
#include "base/clock.h"
#include "compactor/run.h"
#include "counts/slice.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNTERS "total u key = l\nsubtotal c.u key = c\n"
#define COUNTS_OF_HOUR 3 /* JP:1 US:2 and the total */
#define EVENTS_OF_HOUR 3
#define OLD_DAYS 25
#define OLD_HOURS 4
#define NEW_HOURS 10
#define WAYS 3

static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
static struct error error;

/* All subtotals by user and hour, then all totals. */
struct users {
    struct count_source base; /* first */
    unsigned n, user;
    unsigned first_day, days, hours, hour;
    bool totals;
    unsigned value;
    char key[64], name[8];
};

static void print_hour(const struct users *s, unsigned hour, char out[8])
{
    snprintf(out, 8, "c3%c%c", digits[s->first_day + hour / s->hours], digits[hour % s->hours]);
}

static enum count_next next_record(struct count_source *base)
{
    struct users *s = (struct users *)base;
    char hour[8];
    int n;
    if (s->user == s->n && s->totals)
        return COUNT_END;
    if (s->user == s->n) {
        s->user = 0;
        s->totals = true;
    }
    if (s->totals) {
        n = snprintf(s->key, sizeof s->key, "u|u%010u,", s->user++);
    } else {
        print_hour(s, s->hour++, hour);
        n = snprintf(s->key, sizeof s->key, "c.u|u%010u.%s,", s->user, hour);
        if (s->hour == s->days * s->hours) {
            s->hour = 0;
            s->user++;
        }
    }
    s->value = 0;
    base->key = bytes_of(s->key, (size_t)n);
    return s->totals && s->user > s->n ? COUNT_END : COUNT_FOUND;
}

static enum count_next next_value(struct count_source *base)
{
    struct users *s = (struct users *)base;
    if (s->value == (s->totals ? s->days * s->hours : 2))
        return COUNT_END;
    if (s->totals)
        print_hour(s, s->value, s->name);
    else
        snprintf(s->name, sizeof s->name, "%s", s->value ? "US" : "JP");
    base->name = bytes_str(s->name);
    base->count = s->totals ? EVENTS_OF_HOUR : s->value + 1;
    s->value++;
    return COUNT_FOUND;
}

static struct users users_of(unsigned n, unsigned first_day, unsigned days, unsigned hours)
{
    static const struct count_source_kind kind = {next_record, next_value, NULL, NULL};
    return (struct users){.base.kind = &kind, .n = n, .first_day = first_day, .days = days, .hours = hours};
}

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_compact: %s: %s\n", what, error.text);
    exit(1);
}

static void shell(const char *command)
{
    need(system(command) == 0, command);
}

static void make_slice(unsigned n)
{
    struct users users = users_of(n, OLD_DAYS + 1, 1, NEW_HOURS);
    struct count_source *sources[] = {&users.base};
    struct slice_cursor cursor = {.stream = "clicks", .id = "c0ffee"};
    struct slice_config config = {.path = "slices/0000000001.db",
        .number = 1,
        .counters_text = COUNTERS,
        .cursors = &cursor,
        .n_cursors = 1};
    struct slice_batch batch = {.sources = sources,
        .n_sources = 1,
        .cursors = &cursor,
        .n_cursors = 1,
        .tally.events = (uint64_t)n * NEW_HOURS * EVENTS_OF_HOUR,
        .seal = true};
    struct slice_written written;
    struct slice *slice;
    struct error why;
    need(slice_open(&config, &slice, &why) == SLICE_OK, "slice");
    cursor.offset = 1000;
    need(slice_commit(slice, &batch, &written, &why) == SLICE_OK, "slice");
    slice_close(&slice);
}

static void write_text(const char *path, unsigned n)
{
    struct users users = users_of(n, OLD_DAYS + 1, 1, NEW_HOURS);
    struct count_source *sources[] = {&users.base};
    struct count_merge *m = count_merge_new(sources, 1);
    struct buf line = {0};
    FILE *f = fopen(path, "w");
    need(f != NULL, path);
    while (count_merge_next_record(m) == COUNT_FOUND) {
        buf_clear(&line);
        count_merge_print(m, &line);
        fwrite(line.ptr, 1, line.len, f);
    }
    need(fclose(f) == 0, path);
    buf_free(&line);
    count_merge_free(&m);
}

static uint64_t open_slice;

static enum compact_result look(void *arg, uint64_t *open, bool *is_empty, struct error *text)
{
    (void)arg, (void)text;
    *open = open_slice;
    *is_empty = true;
    return COMPACT_OK;
}

static enum compact_result reload(
    void *arg, uint64_t generation, uint64_t content, bool *served, struct error *text)
{
    (void)arg, (void)text, (void)generation, (void)content;
    *served = false;
    return COMPACT_OK;
}

static const struct run_control control = {.look = look, .reload = reload};

static void compact(unsigned threads, const struct count_sources *added)
{
    struct run_outcome out;
    struct run_spec spec = {.archive = "archive",
        .slices = "slices",
        .shards = 2,
        .keep = 2,
        .now = 1,
        .threads = threads,
        .parts = added,
        .n_parts = added ? 1 : 0,
        .control = &control};
    need(run_compact(&spec, &out, &error) == COMPACT_OK, "compact");
    need(out.published, "nothing published");
}

static void sort_merge(void)
{
    shell("LC_ALL=C sort -m archive/000000000001/shard-*.csv new.csv -o sorted.csv");
    int fd = open("sorted.csv", O_RDONLY);
    need(fd >= 0 && fsync(fd) == 0, "sorted.csv");
    close(fd);
}

static double size_of(const char *path)
{
    struct stat st;
    need(stat(path, &st) == 0, path);
    return (double)st.st_size;
}

/* Microseconds of processor time, of this process and of the programs that it ran. */
static double processor_time(void)
{
    double sum = 0;
    static const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    for (int i = 0; i < 2; i++) {
        struct rusage u;
        getrusage(whose[i], &u);
        sum += (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    }
    return sum;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
    static const char *const ways[WAYS] = {"compact, 1 thread", "compact, 2 threads", "sort -m"};
    double millions = argc > 2 ? atof(argv[2]) : 5;
    int rounds = argc > 3 ? atoi(argv[3]) : 3;
    unsigned n = (unsigned)(millions * 1e6 / NEW_HOURS / COUNTS_OF_HOUR);
    double *rates[WAYS], *efforts[WAYS];
    need(argc > 1 && rounds > 0 && n > 0 && chdir(argv[1]) == 0,
        "bench_compact DIRECTORY [MILLIONS [ROUNDS]]");
    shell("rm -rf archive slices && mkdir archive slices");
    struct users old = users_of(n, 1, OLD_DAYS, OLD_HOURS);
    struct count_source *sources[] = {&old.base};
    open_slice = 1;
    compact(1, &(struct count_sources){sources, 1});
    make_slice(n);
    write_text("new.csv", n);
    open_slice = 2;
    double bytes = size_of("archive/000000000001/shard-0-of-2.csv") +
                   size_of("archive/000000000001/shard-1-of-2.csv") + size_of("new.csv");
    for (int way = 0; way < WAYS; way++) {
        rates[way] = calloc((size_t)rounds, sizeof(double));
        efforts[way] = calloc((size_t)rounds, sizeof(double));
    }
    for (int round = 0; round < rounds; round++) {
        for (int way = 0; way < WAYS; way++) {
            usec_t began = clock_monotonic();
            double spent = processor_time();
            if (way < 2)
                compact((unsigned)way + 1, NULL);
            else
                sort_merge();
            rates[way][round] = bytes / (double)(clock_monotonic() - began);
            efforts[way][round] = bytes / (processor_time() - spent);
            shell("rm -rf sorted.csv archive/000000000002 && ln -sfn 000000000001 archive/current");
        }
    }
    for (int way = 0; way < WAYS; way++) {
        qsort(rates[way], (size_t)rounds, sizeof(double), compare);
        qsort(efforts[way], (size_t)rounds, sizeof(double), compare);
        printf("%-20s %6.0f MB/s, of processor time %6.0f MB/s\n", ways[way], rates[way][rounds / 2],
            efforts[way][rounds / 2]);
        free(rates[way]);
        free(efforts[way]);
    }
    return 0;
}
