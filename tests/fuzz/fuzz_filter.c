/* Any bytes as a filter's file and its log: refused with a reason, or a filter that checks, changes and opens again.
 *
 * The first byte: 1 makes the header valid, 2 makes the log valid. The second byte: 64 KiB of the file. The header and the
 * log follow. */
#include "base/byte_order.h"
#include "base/io.h"
#include "base/xxh3.h"
#include "filter/filter.h"
#include "support/fuzz_file.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PAGE ((size_t)4096)
#define IDENTITY 24
#define LOG_HEAD 32
#define LARGEST (1 << 22)

static int allocate(int fd, int mode, off_t at, off_t n)
{
    if (at <= LARGEST && n <= LARGEST)
        return io_system.fallocate(fd, mode, at, n);
    errno = ENOSPC;
    return -1;
}

static void put_right(char *page)
{
    memcpy(page, "MRFILTER\1\0\0", 12);
    put_le64(page + PAGE - 8, XXH3_64bits(page, PAGE - 8));
}

/* The log's checksum is of each part, with the checksum before as its seed. */
static void put_log_right(struct buf *log, const char *identity)
{
    if (log->len < LOG_HEAD + PAGE)
        return;
    char *page = log->ptr + LOG_HEAD;
    memcpy(log->ptr, "MRFILLOG", 8);
    memcpy(page, identity, IDENTITY);
    put_le64(page + PAGE - 8, XXH3_64bits(page, PAGE - 8));
    uint64_t sum = XXH3_64bits_withSeed(log->ptr, LOG_HEAD - 8, 0), n = get_le64(log->ptr + 16);
    sum = XXH3_64bits_withSeed(page, PAGE, sum);
    const char *table = page + PAGE, *end = log->ptr + log->len;
    if (n > (uint64_t)(end - table) / 16)
        return;
    if (n > 0)
        sum = XXH3_64bits_withSeed(table, n * 16, sum);
    const char *from = table + n * 16;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t len = get_le64(table + i * 16 + 8);
        if (len > (uint64_t)(end - from))
            return;
        if (len > 0)
            sum = XXH3_64bits_withSeed(from, len, sum);
        from += len;
    }
    put_le64(log->ptr + LOG_HEAD - 8, sum);
}

static void write_log(const char *path, const struct buf *log)
{
    char *name = mem_printf("%s.log", path);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, log->ptr, log->len) != (ssize_t)log->len || close(fd) != 0)
        abort();
    free(name);
}

static struct filter *open_file(const char *path, bool must)
{
    struct filter_config config = {.path = path, .capacity = 100, .rate = 0.01};
    struct filter *f;
    struct error error = {0};
    enum filter_result r = filter_open(&config, &f, &error);
    assert((r == FILTER_OK) == (f != NULL) && (f || error.text[0]) && (f || !must));
    return f;
}

static void use(const char *path)
{
    struct bytes text = BYTES_LITERAL("text");
    struct error error;
    struct filter *f = open_file(path, false);
    if (!f)
        return;
    (void)filter_check(f, text);
    struct filter_stats s = filter_stats(f);
    for (size_t i = 0; i < s.layers; i++)
        (void)filter_layer_stats(f, i);
    uint64_t next = filter_sequence(f) + 1;
    if (filter_add(f, text, filter_last_id(f), next, &error) == FILTER_OK)
        assert(filter_check(f, text));
    (void)filter_remove(f, text, 0, filter_sequence(f) + 1, &error);
    uint64_t sequence = filter_sequence(f);
    bool is_synced = filter_sync(f, &error) == FILTER_OK;
    filter_close(&f);
    f = open_file(path, is_synced);
    assert(!is_synced || filter_sequence(f) == sequence);
    filter_close(&f);
    if (is_synced)
        assert(filter_open_reader(path, &f, &error) == FILTER_OK);
    filter_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct io_ops ops;
    static char page[PAGE];
    struct buf log = {0};
    if (size < 2)
        return 0;
    ops = io_system;
    ops.fallocate = allocate;
    io = &ops;
    size_t n = size - 2 < PAGE ? size - 2 : PAGE;
    memset(page, 0, PAGE);
    memcpy(page, data + 2, n);
    if (data[0] & 1)
        put_right(page);
    buf_append(&log, data + 2 + n, size - 2 - n);
    if (data[0] & 2)
        put_log_right(&log, page);
    const char *path = fuzz_file(bytes_of(page, n));
    if (data[1] > 0 && truncate(path, (off_t)data[1] << 16) != 0)
        abort();
    write_log(path, &log);
    buf_free(&log);
    use(path);
    return 0;
}
