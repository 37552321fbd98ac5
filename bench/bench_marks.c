/* bench_marks: checks of a text a second of processor time, in process, in one thread.
 *
 *     bench_marks [MEMBERS [ROUNDS]]     in millions (default 10); rounds of four million checks (default 5)
 *
 *   filter     lib/filter: a mapped file, 1 % false positives, five layers, each twice as large as the one before
 *   dablooms   the method of bitly's dablooms, written anew: five equal layers, 4-bit counters, each layer split between its
 *              hash functions, which all come from one pair of hashes; the rates of the layers decrease by 0.9
 *   table      the texts in an open hash table in memory, which is exact
 *
 * Prints for each: checks a second of members and of other texts (median, millions), bytes a member, and the others that
 * were found. With the filter: seconds to open the file. */
#include "base/clock.h"
#include "filter/filter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RATE 0.01
#define CHECKS 4000000
#define LAYERS 5
#define ROUNDS_MAX 100

struct text {
    char bytes[31];
    unsigned char len;
};

static struct text *members;
static size_t n_members;
static struct text *wanted; /* CHECKS texts, half of them members: first these, then the others */

static struct text text_of(const char *prefix, size_t i)
{
    struct text t = {{0}, 0};
    t.len = (unsigned char)snprintf(t.bytes, sizeof t.bytes, "%s%zu.example/page", prefix, i);
    return t;
}

static uint64_t next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (*state ^ *state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ z >> 31;
}

static void make_texts(void)
{
    uint64_t state = 1;
    members = mem_alloc(n_members * sizeof *members);
    for (size_t i = 0; i < n_members; i++)
        members[i] = text_of("site", i);
    wanted = mem_alloc(CHECKS * sizeof *wanted);
    for (size_t i = 0; i < CHECKS; i++)
        wanted[i] = i < CHECKS / 2 ? members[next(&state) % n_members] : text_of("other", i);
}

/* A set of texts. `check` is called for each text. */
struct kind {
    const char *name;
    void (*make)(void);
    bool (*check)(const struct text *t);
    uint64_t (*bytes)(void);
};

static char path[64], log_path[80];
static struct filter *filter;

static void die(const struct error *error)
{
    fprintf(stderr, "bench_marks: %s\n", error->text);
    exit(1);
}

static void make_filter(void)
{
    struct filter_config config = {.path = path, .capacity = n_members / 31 + 1, .rate = RATE};
    struct error error;
    if (filter_open(&config, &filter, &error) != FILTER_OK)
        die(&error);
    for (size_t i = 0; i < n_members; i++)
        if (filter_add(filter, bytes_of(members[i].bytes, members[i].len), i, i + 1, &error) != FILTER_OK)
            die(&error);
    if (filter_sync(filter, &error) != FILTER_OK)
        die(&error);
    filter_close(&filter);
    usec_t start = clock_monotonic();
    if (filter_open(&config, &filter, &error) != FILTER_OK)
        die(&error);
    printf("filter opened in %.6f s\n", (double)(clock_monotonic() - start) / 1e6);
}

static bool check_filter(const struct text *t)
{
    return filter_check(filter, bytes_of(t->bytes, t->len));
}

static uint64_t filter_bytes(void)
{
    return filter_stats(filter).bytes;
}

/* A layer of dablooms: `functions` arrays of `width` counters. */
static struct old_layer {
    unsigned functions;
    uint32_t width;
    unsigned char *counters;
} old_layers[LAYERS];

static uint64_t scramble(uint64_t h)
{
    h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 33;
}

/* Eight bytes a step, as murmur's. */
static uint64_t hash(const struct text *t)
{
    uint64_t h = 97 ^ t->len, word;
    size_t i = 0;
    for (; i + 8 <= t->len; i += 8) {
        memcpy(&word, t->bytes + i, 8);
        h = scramble(h ^ word);
    }
    word = 0;
    memcpy(&word, t->bytes + i, t->len - i);
    return scramble(h ^ word);
}

static uint64_t old_counter(const struct old_layer *l, uint64_t h, unsigned i)
{
    return (uint64_t)i * l->width + ((uint32_t)h + i * (uint32_t)(h >> 32)) % l->width;
}

static void make_old(void)
{
    size_t capacity = n_members / LAYERS + 1;
    for (size_t k = 0; k < LAYERS; k++) {
        double rate = RATE * pow(0.9, (double)k + 1);
        struct old_layer *l = &old_layers[k];
        l->functions = (unsigned)ceil(log2(1 / rate));
        l->width = (uint32_t)ceil((double)capacity * fabs(log(rate)) / (l->functions * pow(log(2), 2)));
        l->counters = mem_zalloc((size_t)l->functions * l->width / 2 + 1);
    }
    for (size_t m = 0; m < n_members; m++) {
        const struct old_layer *l = &old_layers[m / capacity];
        uint64_t h = hash(&members[m]);
        for (unsigned i = 0; i < l->functions; i++) {
            uint64_t at = old_counter(l, h, i);
            l->counters[at / 2] += (unsigned char)(1 << (at % 2 * 4));
        }
    }
}

static bool old_layer_has(const struct old_layer *l, uint64_t h)
{
    for (unsigned i = 0; i < l->functions; i++) {
        uint64_t at = old_counter(l, h, i);
        if ((l->counters[at / 2] >> (at % 2 * 4) & 15) == 0)
            return false;
    }
    return true;
}

static bool check_old(const struct text *t)
{
    uint64_t h = hash(t);
    for (size_t k = LAYERS; k-- > 0;)
        if (old_layer_has(&old_layers[k], h))
            return true;
    return false;
}

static uint64_t old_bytes(void)
{
    uint64_t n = 0;
    for (size_t k = 0; k < LAYERS; k++)
        n += (uint64_t)old_layers[k].functions * old_layers[k].width / 2;
    return n;
}

static uint32_t *slots; /* number of the member, from 1; 0: free */
static size_t n_slots;

static size_t slot_of(const struct text *t)
{
    size_t at = hash(t) & (n_slots - 1);
    while (slots[at] > 0 && memcmp(&members[slots[at] - 1], t, sizeof *t) != 0)
        at = (at + 1) & (n_slots - 1);
    return at;
}

static void make_table(void)
{
    for (n_slots = 1; n_slots < 2 * n_members;)
        n_slots *= 2;
    slots = mem_zalloc(n_slots * sizeof *slots);
    for (size_t i = 0; i < n_members; i++)
        slots[slot_of(&members[i])] = (uint32_t)i + 1;
}

static bool check_table(const struct text *t)
{
    return slots[slot_of(t)] > 0;
}

static uint64_t table_bytes(void)
{
    return n_slots * sizeof *slots + n_members * sizeof *members;
}

/* Processor time, in seconds: a busy machine must not change the rates. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median of millions of checks a second, and the texts found in the last round. */
static double measure(const struct kind *kind, const struct text *texts, size_t n, int rounds, size_t *found)
{
    double rates[ROUNDS_MAX];
    for (int r = 0; r < rounds; r++) {
        double start = now();
        *found = 0;
        for (size_t i = 0; i < n; i++)
            *found += kind->check(&texts[i]);
        rates[r] = (double)n / 1e6 / (now() - start);
    }
    qsort(rates, (size_t)rounds, sizeof *rates, compare);
    return rates[rounds / 2];
}

int main(int argc, char **argv)
{
    static const struct kind kinds[] = {{"filter", make_filter, check_filter, filter_bytes},
        {"dablooms", make_old, check_old, old_bytes}, {"table", make_table, check_table, table_bytes}};
    double millions = argc > 1 ? atof(argv[1]) : 10;
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    if (millions <= 0 || millions > 1000 || rounds < 1 || rounds > ROUNDS_MAX)
        return 64;
    n_members = (size_t)(millions * 1e6);
    snprintf(path, sizeof path, "marks-%d.filter", (int)getpid());
    snprintf(log_path, sizeof log_path, "%s.log", path);
    make_texts();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t n = CHECKS / 2, found, false_found;
        kinds[k].make();
        double of_members = measure(&kinds[k], wanted, n, rounds, &found);
        double of_others = measure(&kinds[k], wanted + n, n, rounds, &false_found);
        if (found != n)
            return 1;
        printf("%-8s members %5.2f M/s, others %5.2f M/s, %5.2f bytes a member, %.3f %% false positives\n",
            kinds[k].name, of_members, of_others, (double)kinds[k].bytes() / (double)n_members,
            100.0 * (double)false_found / (double)n);
    }
    filter_close(&filter);
    unlink(path);
    unlink(log_path);
    return 0;
}
