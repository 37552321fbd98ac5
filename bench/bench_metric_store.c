/* bench_metric_store: the store of metricdb in process: samples a second, bytes a sample, cuts, and reads.
 *
 *     bench_metric_store DIR [SERIES [CUTS [INTERVAL [FILE]]]]    DIR: an empty directory
 *
 * The series are like those of hosts, 500 a host, one sample in INTERVAL s (default 10): 4 of 10 constant, 2 small counters, a counter of
 * bytes, one of hundredths, 2 gauges. All have one name. CUTS of 10 minutes are made (default 157: the first day is in one block). FILE gets
 * the same samples in OpenMetrics, for promtool tsdb create-blocks-from openmetrics. */
#include "base/clock.h"
#include "metricdb/store/sample_store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BEGIN INT64_C(1700000000000)
#define RESOLUTION 10000
#define CUT 600 /* seconds */
#define HOST 500

struct named {
    char host[32], device[32], mode[16];
    struct metric_label labels[5];
    double value;
};

struct bench {
    struct sample_store *s;
    int series, cuts, interval;
    struct named *all;
    FILE *copy;
    usec_t add_time, cut_time;
};

/* Processor time of this thread, which other load on the machine does not change. */
static usec_t cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * USEC_PER_SEC + t.tv_nsec / 1000;
}

static double next_value(int series, double v)
{
    switch (series % 10) {
    case 0:
    case 1:
    case 2:
    case 3:
        return v;
    case 4:
    case 5:
        return v + (double)(random() % 20);
    case 6:
        return v + (double)(random() % 5000000);
    case 7:
        return round(v * 100 + (double)(random() % 1000)) / 100;
    case 8:
        return random() % 8 < 6 ? v : (double)(random() % 100);
    default:
        return (double)(random() % 100000) * 4096;
    }
}

static void name_all(struct bench *b)
{
    b->all = mem_zalloc((size_t)b->series * sizeof *b->all);
    for (int i = 0; i < b->series; i++) {
        struct named *n = &b->all[i];
        snprintf(n->device, sizeof n->device, "device%d", i % HOST / 4);
        snprintf(n->host, sizeof n->host, "host%d:9100", i / HOST);
        snprintf(n->mode, sizeof n->mode, "m%d", i % 4);
        n->labels[0] =
            (struct metric_label){BYTES_LITERAL("__name__"), BYTES_LITERAL("node_operations_total")};
        n->labels[1] = (struct metric_label){BYTES_LITERAL("device"), bytes_str(n->device)};
        n->labels[2] = (struct metric_label){BYTES_LITERAL("instance"), bytes_str(n->host)};
        n->labels[3] = (struct metric_label){BYTES_LITERAL("job"), BYTES_LITERAL("node")};
        n->labels[4] = (struct metric_label){BYTES_LITERAL("mode"), bytes_str(n->mode)};
    }
}

static void add_step(struct bench *b, int step)
{
    struct stream_cursor cursor = {"bench", "", (uint64_t)step + 1};
    int64_t at = BEGIN + step * INT64_C(1000) * b->interval;
    for (int i = 0; i < b->series; i++) {
        struct named *n = &b->all[i];
        n->value = next_value(i, n->value);
        if (b->copy)
            fprintf(b->copy,
                "node_operations_total{device=\"%s\",instance=\"%s\",job=\"node\",mode=\"%s\"} %.17g %lld\n",
                n->device, n->host, n->mode, n->value, (long long)(at / 1000));
    }
    usec_t from = cpu_time();
    sample_store_begin(b->s);
    for (int i = 0; i < b->series; i++)
        sample_store_add(b->s, &(struct sample){b->all[i].labels, 5, at, b->all[i].value, false});
    sample_store_end(b->s, &cursor);
    b->add_time += cpu_time() - from;
}

static void add_all(struct bench *b)
{
    struct error error;
    for (int step = 0; step < b->cuts * CUT / b->interval; step++) {
        add_step(b, step);
        if ((step + 1) * b->interval % CUT != 0)
            continue;
        usec_t from = cpu_time();
        if (sample_store_cut(b->s, 1, 0, &error) != 0) {
            fprintf(stderr, "%s\n", error.text);
            exit(1);
        }
        b->cut_time += cpu_time() - from;
        sample_store_settle(b->s);
    }
}

/* Reads all buckets of a host. */
static void read_host(struct bench *b, int64_t max_width)
{
    struct label_matcher matcher = {MATCH_EQUAL, BYTES_LITERAL("instance"), BYTES_LITERAL("host0:9100")};
    struct metric_request request = {.matchers = &matcher,
        .n_matchers = 1,
        .to = INT64_MAX,
        .max_width = max_width,
        .max_series = SIZE_MAX,
        .max_buckets = SIZE_MAX};
    struct metric_source source = sample_store_source(b->s);
    struct metric_selection selection;
    struct error error;
    size_t buckets = 0;
    usec_t from = cpu_time();
    if (source.select(source.context, &request, &selection, &error) != METRIC_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    for (size_t i = 0; i < selection.n_series; i++)
        buckets += selection.series[i].n_buckets;
    printf("read %zu series, %zu buckets of %lld s: %.1f ms\n", selection.n_series, buckets,
        (long long)max_width / 1000, (double)(cpu_time() - from) / 1000);
    metric_selection_free(&selection);
}

int main(int argc, char **argv)
{
    static const int64_t widths[] = {10000, 60000, 3600000};
    struct bench b = {.series = argc > 2 ? atoi(argv[2]) : 1000,
        .cuts = argc > 3 ? atoi(argv[3]) : 157,
        .interval = argc > 4 ? atoi(argv[4]) : 10};
    struct sample_store_config config = {.dir = argc > 1 ? argv[1] : "",
        .resolution = RESOLUTION,
        .open_bytes = SIZE_MAX,
        .series_max = SIZE_MAX};
    struct sample_store_stats stats;
    struct error error;
    if (argc < 2 || b.series < 1 || b.cuts < 1 || b.interval < 1 || CUT % b.interval != 0) {
        fputs("usage: bench_metric_store DIR [SERIES [CUTS [INTERVAL [FILE]]]]\n", stderr);
        return 64;
    }
    b.s = sample_store_open(&config, &error);
    if (!b.s || (argc > 5 && !(b.copy = fopen(argv[5], "w")))) {
        fprintf(stderr, "%s\n", b.s ? argv[5] : error.text);
        return 1;
    }
    name_all(&b);
    add_all(&b);
    double samples = (double)b.series * b.cuts * CUT / b.interval;
    printf("add: %.0f samples a second of processor\ncut of %d series: %.1f ms of processor\n",
        samples / ((double)b.add_time / USEC_PER_SEC), b.series, (double)b.cut_time / 1000 / b.cuts);
    sample_store_stats(b.s, &stats);
    printf("memory: %.0f bytes a series after a cut\n", (double)stats.open_bytes / b.series);
    for (int i = 0; i < SAMPLE_STORE_WIDTHS; i++)
        printf("buckets of %lld s: %llu blocks, %llu bytes, %.2f bytes a bucket\n",
            (long long)stats.widths[i].width / 1000, (unsigned long long)stats.widths[i].blocks,
            (unsigned long long)stats.widths[i].bytes,
            (double)stats.widths[i].bytes / (double)stats.widths[i].buckets);
    for (int i = 0; i < 3; i++)
        read_host(&b, widths[i]);
    if (b.copy)
        fputs("# EOF\n", b.copy);
    if (b.copy && fclose(b.copy) != 0)
        return 1;
    sample_store_close(&b.s);
    free(b.all);
    return 0;
}
