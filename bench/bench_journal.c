/* bench_journal: appends of 450-byte lines, 100 a batch, compared with bare loops that write the same bytes in the same commit
 * sizes; opening a long journal; memory. Each round measures all of them in turn. Journal and bare loop alternate every SLICE
 * bytes, so that other load on the machine meets both, unless a pause would help the journal. Nothing is pinned.
 *
 *     bench_journal DIRECTORY [ROUNDS [PART]]     PART of a name: only those
 */
#include "base/bytes.h"
#include "base/clock.h"
#include "base/io.h"
#include "journal/journal.h"
#include "base/log.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#define LINE 450
#define LINES 100
#define BATCH ((size_t)LINE * LINES)
#define TOTAL ((uint64_t)128 << 20)
#define SLICE ((uint64_t)32 << 20)
#define FILE_SIZE ((uint64_t)64 << 20)
#define COMMITS_MAX 65536
#define ROUNDS_MAX 25
#define BURST ((uint64_t)48 << 20) /* fits in one segment */
#define LONG_JOURNAL ((uint64_t)1 << 30)

static char batch[BATCH];
static char dir[1024];

/* Sizes of the journal's commits, which the bare loop repeats: bytes of batches between two syncs. Zeros, headers and tables
 * do not count: only a frame begins with a checksum and a length. */
static struct io_ops counting;
static pthread_mutex_t counting_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t commits[COMMITS_MAX], unsynced;
static size_t n_commits;

static ssize_t counting_pwrite(int fd, const void *p, size_t n, off_t at)
{
    ssize_t did = pwrite(fd, p, n, at);
    pthread_mutex_lock(&counting_lock);
    if (n >= BATCH && memcmp(p, (char[12]){0}, 12) != 0)
        unsynced += (uint32_t)n;
    pthread_mutex_unlock(&counting_lock);
    return did;
}

static void count_commit(void)
{
    pthread_mutex_lock(&counting_lock);
    if (unsynced && n_commits < COMMITS_MAX)
        commits[n_commits++] = unsynced;
    unsynced = 0;
    pthread_mutex_unlock(&counting_lock);
}

static int counting_fdatasync(int fd)
{
    count_commit();
    return fdatasync(fd);
}

static void clear_directory(void)
{
    char command[8192];
    snprintf(command, sizeof command, "rm -rf '%s/j' '%s'/bare.*", dir, dir);
    if (system(command) != 0)
        exit(1);
}

static double since(usec_t start)
{
    return (double)(clock_monotonic() - start) / USEC_PER_SEC;
}

struct appender {
    struct journal_set *set;
    struct journal *j;
    uint64_t left; /* bytes to append yet, of all appenders */
    unsigned under_way;
    bool trims;
};

static void append_next(struct appender *a);

static void appended(const struct journal_commit *c, void *arg)
{
    struct appender *a = arg;
    a->under_way--;
    if (c->result != JOURNAL_OK) {
        fprintf(stderr, "bench_journal: %s\n", journal_strerror(c->result));
        exit(1);
    }
    if (a->left)
        append_next(a);
}

static void append_next(struct appender *a)
{
    struct bytes lines[LINES];
    struct journal_append append = {.pieces = lines, .n_pieces = LINES};
    for (size_t i = 0; i < LINES; i++)
        lines[i] = bytes_of(batch + i * LINE, LINE);
    a->left -= a->left < BATCH ? a->left : BATCH;
    a->under_way++;
    if (journal_append(a->j, &append, clock_wall(), appended, a, NULL) != JOURNAL_OK)
        exit(1);
}

static int notify_fd;

static void notify(void *arg)
{
    (void)arg;
    (void)!write(notify_fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void append_all(struct appender *a, uint64_t bytes, unsigned appenders)
{
    uint64_t drained;
    a->left = bytes;
    while (appenders-- > 0)
        append_next(a);
    while (a->under_way) {
        (void)!read(notify_fd, &drained, sizeof drained);
        journal_set_poll(a->set);
        if (a->trims)
            journal_trim(a->j, journal_committed_end(a->j));
    }
}

static struct appender begin(int64_t sync_ms, bool trims)
{
    char path[4200], error[512];
    struct appender a = {.trims = trims};
    struct journal_set_config sc = {.sync_ms = sync_ms, .notify = notify};
    struct journal_config jc = {.dir = path};
    snprintf(path, sizeof path, "%s/j", dir);
    a.set = journal_set_new(&sc);
    if (journal_open(a.set, &jc, &a.j, error, sizeof error) != JOURNAL_OK) {
        fprintf(stderr, "bench_journal: %s\n", error);
        exit(1);
    }
    return a;
}

enum life { TRIMMED, KEPT, BURSTS, NEW };

/* Brings a journal into its usual state: a trimmed one has a file to recycle; after a pause the next file holds zeros. */
static void get_going(struct appender *a, int64_t sync_ms, unsigned appenders, enum life life)
{
    if (sync_ms < 0) {
        append_all(a, BATCH, appenders);
    } else if (life == BURSTS) {
        append_all(a, 70 << 20, appenders);
        usleep(1500000);
        append_all(a, 8 << 20, appenders);
    } else {
        append_all(a, 2 * FILE_SIZE, appenders);
    }
}

struct bare {
    int fd;
    unsigned files;
    enum life life;
    char *bytes;
    size_t max;
    uint64_t at;
};

static void write_zeros(int fd)
{
    static const char zero[1 << 20];
    for (uint64_t at = 0; at < FILE_SIZE; at += sizeof zero)
        if (pwrite(fd, zero, sizeof zero, (off_t)at) < 0)
            exit(1);
    if (fsync(fd) != 0)
        exit(1);
}

static void bare_next_file(struct bare *b)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/bare.%u", dir, b->files++);
    if (b->fd >= 0)
        close(b->fd);
    b->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (b->fd < 0)
        exit(1);
    if (b->life != NEW)
        write_zeros(b->fd);
    b->at = 0;
}

static struct bare bare_begin(enum life life)
{
    struct bare b = {.fd = -1, .life = life};
    if (life != KEPT)
        bare_next_file(&b);
    return b;
}

static void bare_room(struct bare *b, size_t n)
{
    if (n <= b->max)
        return;
    b->bytes = mem_realloc(b->bytes, n);
    memset(b->bytes, 'x', n);
    b->max = n;
}

/* Repeats the sizes of the journal's last commits. A journal that never pauses has no prepared file; then the bare loop fills
 * its files with zeros too. */
static void bare_synced(struct bare *b)
{
    for (size_t i = 0; i < n_commits; i++) {
        bool ends = b->fd < 0 || b->at + commits[i] > FILE_SIZE;
        if (ends && b->life == KEPT)
            bare_next_file(b);
        b->at = ends ? 0 : b->at;
        bare_room(b, commits[i]);
        if (pwrite(b->fd, b->bytes, commits[i], (off_t)b->at) != (ssize_t)commits[i] || fdatasync(b->fd) != 0)
            exit(1);
        b->at += commits[i];
    }
}

static void bare_writev(struct bare *b, uint64_t bytes)
{
    struct iovec lines[LINES];
    for (int i = 0; i < LINES; i++)
        lines[i] = (struct iovec){batch + (size_t)i * LINE, LINE};
    for (uint64_t done = 0; done < bytes; done += BATCH)
        if (writev(b->fd, lines, LINES) != (ssize_t)BATCH)
            exit(1);
}

static void bare_end(struct bare *b)
{
    close(b->fd);
    free(b->bytes);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *values, size_t n)
{
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, n * sizeof *values);
    qsort(sorted, n, sizeof *sorted, ascending);
    return sorted[n / 2];
}

struct comparison {
    const char *name;
    int64_t sync_ms;
    unsigned appenders;
    enum life life;
    double wanted;
    uint64_t total, slice;
    double ours[ROUNDS_MAX], bare[ROUNDS_MAX], ratio[ROUNDS_MAX], size[ROUNDS_MAX];
};

static struct comparison comparisons[] = {
    {"sync=0, 1 appender, trimmed", 0, 1, TRIMMED, 0.7, TOTAL, SLICE, {0}, {0}, {0}, {0}},
    {"sync=0, 8 appenders, trimmed", 0, 8, TRIMMED, 0.85, TOTAL, SLICE, {0}, {0}, {0}, {0}},
    {"sync=0, 64 appenders, trimmed", 0, 64, TRIMMED, 0.85, TOTAL, SLICE, {0}, {0}, {0}, {0}},
    {"sync=0, 1 appender, bursts", 0, 1, BURSTS, 0.7, BURST, BURST, {0}, {0}, {0}, {0}},
    {"sync=0, 8 appenders, bursts", 0, 8, BURSTS, 0.85, BURST, BURST, {0}, {0}, {0}, {0}},
    {"sync=0, 64 appenders, bursts", 0, 64, BURSTS, 0.85, BURST, BURST, {0}, {0}, {0}, {0}},
    {"sync=0, 1 appender, kept", 0, 1, KEPT, 0.7, TOTAL, TOTAL, {0}, {0}, {0}, {0}},
    {"sync=0, 8 appenders, kept", 0, 8, KEPT, 0.85, TOTAL, TOTAL, {0}, {0}, {0}, {0}},
    {"sync=0, 64 appenders, kept", 0, 64, KEPT, 0.85, TOTAL, TOTAL, {0}, {0}, {0}, {0}},
    {"never, 1 appender", JOURNAL_SYNC_NEVER, 1, KEPT, 0.5, TOTAL, SLICE, {0}, {0}, {0}, {0}},
    {"never, 8 appenders", JOURNAL_SYNC_NEVER, 8, KEPT, 0.5, TOTAL, SLICE, {0}, {0}, {0}, {0}},
    {"never, 64 appenders", JOURNAL_SYNC_NEVER, 64, KEPT, 0.5, TOTAL, SLICE, {0}, {0}, {0}, {0}},
};
#define COMPARISONS (sizeof comparisons / sizeof *comparisons)

static double journal_slice(const struct comparison *c, struct appender *a)
{
    n_commits = 0;
    usec_t start = clock_monotonic();
    append_all(a, c->slice, c->appenders);
    return since(start);
}

static double bare_slice(const struct comparison *c, struct bare *b)
{
    usec_t start = clock_monotonic();
    if (c->sync_ms < 0)
        bare_writev(b, c->slice);
    else
        bare_synced(b);
    return since(start);
}

/* Measures the two loops without their preparation. A journal that would write zeros while idle is closed before the bare loop's
 * turn. */
static void compare(struct comparison *c, size_t round)
{
    double ours = 0, bare = 0;
    size_t count = 0;
    clear_directory();
    struct appender a = begin(c->sync_ms, c->life == TRIMMED);
    struct bare b = bare_begin(c->sync_ms < 0 ? NEW : c->life);
    get_going(&a, c->sync_ms, c->appenders, c->life);
    for (uint64_t done = 0; done < c->total; done += c->slice) {
        ours += journal_slice(c, &a);
        count += n_commits;
        if (c->slice == c->total)
            journal_set_free(&a.set);
        bare += bare_slice(c, &b);
    }
    journal_set_free(&a.set);
    bare_end(&b);
    c->ours[round] = (double)c->total / ours;
    c->bare[round] = (double)c->total / bare;
    c->ratio[round] = bare / ours;
    c->size[round] = count ? (double)c->total / (double)count / 1024 : 0;
}

static void print_comparison(const struct comparison *c, size_t rounds)
{
    printf("%-31s %7.0f MB/s  bare %7.0f MB/s  a sync of %5.0f KiB  ratio %.2f (asked: %.2f)\n", c->name,
        median(c->ours, rounds) / 1e6, median(c->bare, rounds) / 1e6, median(c->size, rounds),
        median(c->ratio, rounds), c->wanted);
}

static void grow_to(uint64_t bytes)
{
    struct appender a = begin(JOURNAL_SYNC_NEVER, false);
    append_all(&a, bytes - journal_committed_end(a.j), 8);
    journal_set_free(&a.set);
}

static void open_long(uint64_t bytes, size_t rounds)
{
    double seconds[ROUNDS_MAX];
    size_t heap = 0;
    grow_to(bytes);
    for (size_t i = 0; i < rounds; i++) {
        malloc_trim(0);
        size_t before = mallinfo2().uordblks;
        usec_t start = clock_monotonic();
        struct appender a = begin(0, false);
        seconds[i] = since(start);
        heap = mallinfo2().uordblks - before;
        journal_set_free(&a.set);
    }
    printf("opening %4.0f MiB, warm           %.3f s (asked for 1 GiB: 0.5), %zu KiB of heap while open\n",
        (double)bytes / (1 << 20), median(seconds, rounds), heap / 1024);
}

int main(int argc, char **argv)
{
    size_t rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 5;
    const char *part = argc > 3 ? argv[3] : "";
    if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX || (notify_fd = eventfd(0, EFD_CLOEXEC)) < 0)
        return 64;
    snprintf(dir, sizeof dir, "%s", argv[1]);
    memset(batch, 'c', sizeof batch);
    log_init("bench_journal", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    counting = io_system;
    counting.pwrite = counting_pwrite;
    counting.fdatasync = counting_fdatasync;
    io = &counting;
    for (size_t i = 0; i < rounds; i++)
        for (size_t k = 0; k < COMPARISONS; k++)
            if (strstr(comparisons[k].name, part))
                compare(&comparisons[k], i);
    for (size_t k = 0; k < COMPARISONS; k++)
        if (strstr(comparisons[k].name, part))
            print_comparison(&comparisons[k], rounds);
    clear_directory();
    if (strstr("opening", part)) {
        open_long(LONG_JOURNAL / 16, rounds);
        open_long(LONG_JOURNAL, rounds);
    }
    clear_directory();
    return 0;
}
