/* bench_sorted: gets in process: the cost of a /get without HTTP, beside LMDB and cdb with the same records. Also opening a sorted
 * file. All files are in the page cache. Each round measures the processor time of all of them, with the same keys in random order.
 *
 *     bench_sorted DIRECTORY [ROUNDS [RECORDS]]
 */
#include "archive/sorted_file.h"
#include "base/clock.h"
#include "load.h"
#include "sorted_peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LOOKUPS 1000000
#define SLICE                                                                                                \
    20000 /* gets; millrace and the peers take turns, so that other load on the machine meets all of them */
#define KEY_TEXT 24
#define PEERS_MAX 4
#define ROUNDS_MAX 25
#define HOURS 8 /* of each user */

static char path[1024];
static char keys[LOOKUPS][KEY_TEXT];           /* in the order of the gets */
static double took[PEERS_MAX + 2][ROUNDS_MAX]; /* us: hits, misses, the peers */
static double ratio[PEERS_MAX][ROUNDS_MAX];
static struct sorted_file *file;

/* Record i; with `miss`, a key between records. */
static int print_key(uint64_t i, bool miss, char out[KEY_TEXT])
{
    return snprintf(out, KEY_TEXT, "c.u|user%08" PRIu64 ".c3%c%c", i / HOURS % 100000000, miss ? 'i' : 'h',
        "0123456789abcdef"[i % HOURS]);
}

static int write_lines(uint64_t records)
{
    char key[KEY_TEXT];
    FILE *f = fopen(path, "w");
    if (!f)
        return -1;
    for (uint64_t i = 0; i < records; i++) {
        print_key(i, false, key);
        fprintf(f, "%s,JP:1 US:2\n", key);
    }
    return fclose(f);
}

static void make_keys(uint64_t records, bool miss)
{
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < LOOKUPS; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        print_key(random % records, miss, keys[i]);
    }
}

static bool find_line(struct bytes key, struct bytes *value)
{
    struct sorted_span line;
    if (!sorted_find(&file->text, key, &line) || !mapping_is_whole(file->mapping))
        return false;
    *value = bytes_of(file->text.text.ptr + line.begin + key.len + 1, line.end - line.begin - key.len - 2);
    return true;
}

static double processor_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Processor time of some gets, in microseconds. Reads each value. */
static double measure(find_value *find, int first, int n, bool expected)
{
    static const struct bytes value_of_all = {"JP:1 US:2", 9};
    uint64_t wrong = 0;
    double began = processor_us();
    for (int i = first; i < first + n; i++) {
        struct bytes value = BYTES_NONE;
        bool found = find(bytes_of(keys[i], strlen(keys[i])), &value);
        wrong += found != expected || (found && !bytes_equal(value, value_of_all));
    }
    if (wrong)
        printf("%" PRIu64 " wrong answers\n", wrong);
    return processor_us() - began;
}

static int open_file(void)
{
    struct error error;
    struct sorted_file_config config = {.path = path, .separator = ',', .unique_keys = true};
    usec_t began = clock_monotonic();
    if (sorted_file_open(&config, &file, &error) != SORTED_FILE_OK)
        return fprintf(stderr, "%s\n", error.text), -1;
    uint64_t bytes = file->text.text.len;
    printf("opened, checked and indexed: %.0f MB/s (%" PRIu64 " records, %" PRIu64 " bytes)\n",
        (double)bytes / (double)(clock_monotonic() - began), file->records, bytes);
    return 0;
}

static void run(int rounds, uint64_t records, size_t peers)
{
    for (int r = 0; r < rounds; r++) {
        make_keys(records, true);
        took[1][r] = measure(find_line, 0, LOOKUPS, false) / LOOKUPS;
        make_keys(records, false);
        for (int i = 0; i < LOOKUPS; i += SLICE) {
            took[0][r] += measure(find_line, i, SLICE, true) / LOOKUPS;
            for (size_t k = 0; k < peers; k++)
                took[2 + k][r] += measure(sorted_peers[k].find, i, SLICE, true) / LOOKUPS;
        }
        for (size_t k = 0; k < peers; k++)
            ratio[k][r] = took[2 + k][r] / took[0][r];
    }
    printf("get: %.3f us; a miss %.3f us\n", load_median(took[0], (size_t)rounds),
        load_median(took[1], (size_t)rounds));
    for (size_t k = 0; k < peers; k++)
        printf("%s: %.3f us, ratio %.2f\n", sorted_peers[k].name, load_median(took[2 + k], (size_t)rounds),
            load_median(ratio[k], (size_t)rounds));
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    uint64_t records = argc > 3 ? strtoull(argv[3], NULL, 10) : 10000000;
    char peer_paths[PEERS_MAX][1100];
    size_t peers = 0;
    if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX || records == 0)
        return 64;
    snprintf(path, sizeof(path), "%s/sorted.csv", argv[1]);
    if (write_lines(records) != 0 || open_file() != 0)
        return 1;
    for (; sorted_peers[peers].name; peers++) {
        snprintf(
            peer_paths[peers], sizeof(peer_paths[peers]), "%s/sorted.%s", argv[1], sorted_peers[peers].name);
        if (sorted_peers[peers].load(peer_paths[peers], file->text.text, records) != 0)
            return fprintf(stderr, "%s failed\n", sorted_peers[peers].name), 1;
    }
    run(rounds, records, peers);
    for (size_t i = 0; i < peers; i++)
        sorted_peers[i].close(peer_paths[i]);
    sorted_file_close(&file);
    unlink(path);
    return 0;
}
