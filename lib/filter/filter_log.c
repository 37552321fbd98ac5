#include "filter/filter_log.h"

#include "base/io.h"
#include "base/xxh3.h"

#include <stdlib.h>

#define MAGIC "MRFILLOG" /* the version is that of the header */

/* The head of a log. The header follows, then the places of all runs, then their bytes. */
struct head {
    char magic[8];
    uint64_t base, n_runs;
    uint64_t checksum;
};

struct place {
    uint64_t at, len;
};

#define FIXED (sizeof(struct head) + sizeof(struct filter_header))

uint64_t filter_log_bytes(uint64_t blocks)
{
    return FIXED + blocks * (sizeof(struct place) + FILTER_BLOCK);
}

/* Continues a checksum with further bytes. */
static uint64_t extend(uint64_t sum, const void *bytes, size_t n)
{
    return n > 0 ? XXH3_64bits_withSeed(bytes, n, sum) : sum;
}

static struct iovec part_of(const void *bytes, size_t n)
{
    return (struct iovec){(void *)(uintptr_t)bytes, n};
}

int filter_log_write(int fd, const struct filter_log *log)
{
    struct head head = {.magic = {0}, .base = log->base, .n_runs = log->n};
    struct place *places = mem_alloc((log->n + 1) * sizeof *places);
    struct iovec *parts = mem_alloc((log->n + 3) * sizeof *parts);
    size_t n = 0;
    memcpy(head.magic, MAGIC, sizeof head.magic);
    parts[n++] = part_of(&head, sizeof head);
    parts[n++] = part_of(log->header, sizeof *log->header);
    if (log->n > 0)
        parts[n++] = part_of(places, log->n * sizeof *places);
    for (size_t i = 0; i < log->n; i++) {
        places[i] = (struct place){log->runs[i].at, log->runs[i].len};
        parts[n++] = part_of(log->runs[i].bytes, log->runs[i].len);
    }
    head.checksum = extend(0, &head, offsetof(struct head, checksum));
    for (size_t i = 1; i < n; i++)
        head.checksum = extend(head.checksum, parts[i].iov_base, parts[i].iov_len);
    int r = io_write_parts(fd, parts, n, 0);
    free(parts);
    free(places);
    return r == 0 ? io->fdatasync(fd) : -1;
}

/* Sets the runs if they fit into `bytes` and into the layers. */
static bool read_runs(struct bytes bytes, uint64_t n, struct filter_log *out)
{
    const struct place *places = (const void *)(bytes.ptr + FIXED);
    uint64_t left = bytes.len - FIXED, first = filter_header_place(out->header, 0),
             end = filter_header_place(out->header, out->header->n_layers);
    if (n > left / sizeof *places)
        return false;
    const char *from = (const char *)(places + n);
    left -= n * sizeof *places;
    for (uint64_t i = 0; i < n; i++) {
        struct filter_run run = {places[i].at, places[i].len, from};
        if (run.len > left || run.len % FILTER_BLOCK != 0 || run.at % FILTER_BLOCK != 0 || run.at < first ||
            run.at > end || run.len > end - run.at)
            return false;
        *ARRAY_ADD(out->runs, out->n, out->room) = run;
        from += run.len;
        left -= run.len;
    }
    return true;
}

static uint64_t checksum_of(struct bytes bytes, const struct filter_log *log)
{
    uint64_t sum = extend(0, bytes.ptr, offsetof(struct head, checksum));
    sum = extend(sum, log->header, sizeof *log->header);
    sum = extend(sum, bytes.ptr + FIXED, log->n * sizeof(struct place));
    for (size_t i = 0; i < log->n; i++)
        sum = extend(sum, log->runs[i].bytes, log->runs[i].len);
    return sum;
}

bool filter_log_read(struct bytes bytes, const struct filter_identity *identity, struct filter_log *out)
{
    const struct head *head = (const void *)bytes.ptr;
    *out = (struct filter_log){0};
    if (bytes.len < FIXED || memcmp(head->magic, MAGIC, sizeof head->magic) != 0)
        return false;
    out->base = head->base;
    out->header = (const void *)(head + 1);
    return memcmp(&out->header->identity, identity, sizeof *identity) == 0 &&
           filter_header_check(out->header, "log", NULL) == FILTER_OK &&
           read_runs(bytes, head->n_runs, out) && checksum_of(bytes, out) == head->checksum;
}
