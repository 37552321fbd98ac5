/* bench_sorted: opening a sorted file, and finding its keys in random order, in process: what a /get costs beside HTTP. The
 * file is in the page cache.
 *
 *     bench_sorted [RECORDS]
 */
#include "base/clock.h"
#include "archive/sorted_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOKUPS 1000000
#define KEY_STEP UINT64_C(7919) /* between the numbers in keys, so that there are keys to miss */

static void write_lines(FILE *f, uint64_t records)
{
    for (uint64_t i = 0; i < records; i++)
        fprintf(f, "u|%012" PRIu64 ",c413:2 c41l:5 c41m:1%*s\n", i * KEY_STEP, (int)(i % 120), "");
}

static uint64_t find_all(const struct sorted_file *f, uint64_t records, uint64_t miss)
{
    uint64_t found = 0, random = 88172645463325252u;
    for (int i = 0; i < LOOKUPS; i++) {
        char key[32];
        struct sorted_span line;
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        int n = snprintf(key, sizeof(key), "u|%012" PRIu64, random % records * KEY_STEP + miss);
        found += sorted_find(&f->text, bytes_of(key, (size_t)n), &line) && mapping_is_whole(f->mapping);
    }
    return found;
}

static void measure(const struct sorted_file *f, uint64_t records, uint64_t miss)
{
    usec_t began = clock_monotonic();
    uint64_t found = find_all(f, records, miss);
    printf("%s: %.2f us a lookup (%" PRIu64 " found)\n", miss ? "misses" : "hits",
        (double)(clock_monotonic() - began) / LOOKUPS, found);
}

int main(int argc, char **argv)
{
    char path[] = "/tmp/bench-sorted-XXXXXX", error[SORTED_FILE_ERROR_TEXT];
    uint64_t records = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f || records == 0)
        return 1;
    write_lines(f, records);
    fclose(f);
    struct sorted_file *file = NULL;
    struct sorted_file_config config = {.path = path, .separator = ',', .unique_keys = true};
    usec_t began = clock_monotonic();
    enum sorted_file_result r = sorted_file_open(&config, &file, error);
    if (r == SORTED_FILE_OK) {
        uint64_t bytes = file->text.text.len;
        printf("opened and checked: %.0f MB/s (%" PRIu64 " records, %" PRIu64 " bytes)\n",
            (double)bytes / (double)(clock_monotonic() - began), records, bytes);
        measure(file, records, 0);
        measure(file, records, 1);
        sorted_file_close(&file);
    }
    unlink(path);
    return r != SORTED_FILE_OK;
}
