#include "simplequeue/queue/gone.h"

#include "base/io.h"
#include "journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_NAME "gone"
#define MAGIC "mrgone 1"
#define HEADER (sizeof MAGIC - 1 + JOURNAL_ID_TEXT - 1)

struct gone {
    int fd; /* -1: there is no file */
    char *dir, *path;
    char header[HEADER];
    bool synced;
    bool named;         /* the header is written */
    bool settled;       /* the file's name is durable */
    uint64_t reserved;  /* blocks below are allocated, as far as they were asked for */
    uint64_t forgotten; /* blocks below were given back */
    unsigned char block[GONE_BLOCK];
};

/* Of the block that holds the id's bit; the first of the file is the header's. */
static uint64_t block_of(uint64_t id)
{
    return 1 + id / GONE_BLOCK_IDS;
}

static off_t place_of(uint64_t block)
{
    return (off_t)(block * GONE_BLOCK);
}

/* What is behind the file's end is zeros as well. */
static int read_block(struct gone *g, uint64_t block)
{
    ssize_t n = io->pread(g->fd, g->block, GONE_BLOCK, place_of(block));
    if (n < 0)
        return -1;
    memset(g->block + n, 0, GONE_BLOCK - (size_t)n);
    return 0;
}

static int read_header(struct gone *g)
{
    if (read_block(g, 0) != 0)
        return -1;
    g->named = memcmp(g->block, g->header, HEADER) == 0;
    return g->named ? 0 : io->ftruncate(g->fd, 0);
}

struct gone *gone_open(const char *dir, const char *journal, bool synced, char *error, size_t error_size)
{
    struct buf path = {0};
    struct gone *g = mem_zalloc(sizeof *g);
    buf_printf(&path, "%s/" FILE_NAME, dir);
    g->dir = mem_strdup(dir);
    g->path = mem_strdup(path.ptr);
    buf_free(&path);
    g->synced = synced;
    memcpy(g->header, MAGIC, sizeof MAGIC - 1);
    memcpy(g->header + sizeof MAGIC - 1, journal, JOURNAL_ID_TEXT - 1);
    g->fd = io->open(g->path, O_RDWR | O_CLOEXEC, 0);
    if (g->fd < 0 ? errno != ENOENT : read_header(g) != 0) {
        snprintf(error, error_size, "%s: %s", g->path, strerror(errno));
        gone_free(&g);
    }
    return g;
}

void gone_free(struct gone **gp)
{
    struct gone *g = *gp;
    if (!g)
        return;
    if (g->fd >= 0)
        io->close(g->fd);
    free(g->dir);
    free(g->path);
    free(g);
    *gp = NULL;
}

static int make(struct gone *g)
{
    if (g->fd < 0)
        g->fd = io->open(g->path, O_RDWR | O_CREAT | O_CLOEXEC, IO_PRIVATE_MODE);
    if (g->fd < 0)
        return -1;
    g->named = g->named || io_write_all(g->fd, g->header, HEADER, 0) == 0;
    return g->named ? 0 : -1;
}

int gone_reserve(struct gone *g, uint64_t first, uint64_t last)
{
    uint64_t from = block_of(first), end = block_of(last) + 1;
    if (from < g->reserved)
        from = g->reserved;
    if (from >= end)
        return 0;
    if (make(g) != 0)
        return -1;
    if (io_allocate(g->fd, 0, place_of(from), place_of(end - from)) != 0 &&
        (errno == ENOSPC || errno == EDQUOT))
        return -1;
    g->reserved = end;
    return 0;
}

static bool is_set(const struct gone *g, size_t i)
{
    return g->block[i / 8] >> i % 8 & 1;
}

/* Ids that are all of one block. What is so already is not written: to take back needs no room. */
static int write_in_block(struct gone *g, struct id_range ids, bool on)
{
    uint64_t block = block_of(ids.first);
    size_t first = (size_t)(ids.first % GONE_BLOCK_IDS), last = (size_t)(ids.last % GONE_BLOCK_IDS);
    if (read_block(g, block) != 0)
        return -1;
    bool changed = false;
    for (size_t i = first; i <= last; i++) {
        changed |= is_set(g, i) != on;
        g->block[i / 8] = (unsigned char)((g->block[i / 8] & ~(1u << i % 8)) | (unsigned)on << i % 8);
    }
    return !changed ? 0
                    : io_write_all(g->fd, g->block + first / 8, last / 8 - first / 8 + 1,
                          place_of(block) + (off_t)(first / 8));
}

static int write_range(struct gone *g, struct id_range ids, bool on)
{
    for (uint64_t from = ids.first; from <= ids.last;) {
        uint64_t end = (from / GONE_BLOCK_IDS + 1) * GONE_BLOCK_IDS - 1;
        struct id_range part = {from, end < ids.last ? end : ids.last};
        if (write_in_block(g, part, on) != 0)
            return -1;
        from = part.last + 1;
    }
    return 0;
}

static int write_all(struct gone *g, const struct id_ranges *ids)
{
    if (make(g) != 0)
        return -1;
    for (size_t i = 0; i < ids->n; i++)
        if (write_range(g, ids->at[i], true) != 0)
            return -1;
    if (!g->synced)
        return 0;
    if (io->fdatasync(g->fd) != 0 || (!g->settled && io_sync_dir(g->dir) != 0))
        return -1;
    g->settled = true;
    return 0;
}

int gone_set(struct gone *g, const struct id_ranges *ids)
{
    if (write_all(g, ids) == 0)
        return 0;
    int why = errno;
    for (size_t i = 0; g->named && i < ids->n; i++)
        (void)write_range(g, ids->at[i], false);
    errno = why;
    return -1;
}

static void each_of_block(const struct gone *g, uint64_t block, uint64_t from,
    void (*each)(struct id_range range, void *arg), void *arg)
{
    uint64_t base = (block - 1) * GONE_BLOCK_IDS;
    for (size_t i = from > base ? (size_t)(from - base) : 0, first; i < GONE_BLOCK_IDS; i++) {
        if (!is_set(g, i))
            continue;
        for (first = i; i + 1 < GONE_BLOCK_IDS && is_set(g, i + 1); i++)
            ;
        each((struct id_range){base + first, base + i}, arg);
    }
}

/* The next block from `block` on that was ever written, if the file system tells; 0 behind the last. */
static uint64_t next_block(const struct gone *g, uint64_t block)
{
    off_t at = lseek(g->fd, place_of(block), SEEK_DATA), end = lseek(g->fd, 0, SEEK_END);
    if (at >= 0)
        return (uint64_t)at / GONE_BLOCK;
    return errno == ENXIO || place_of(block) >= end ? 0 : block;
}

int gone_each(struct gone *g, uint64_t from, void (*each)(struct id_range range, void *arg), void *arg)
{
    if (g->fd < 0)
        return 0;
    for (uint64_t block = block_of(from); (block = next_block(g, block)); block++) {
        if (read_block(g, block) != 0)
            return -1;
        each_of_block(g, block, from, each, arg);
    }
    return 0;
}

void gone_forget(struct gone *g, uint64_t id)
{
    uint64_t from = g->forgotten ? g->forgotten : 1, end = block_of(id);
    if (g->fd < 0 || end <= from)
        return;
    io_allocate(g->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place_of(from), place_of(end - from));
    g->forgotten = end;
}
