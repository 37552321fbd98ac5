#include "simplequeue/queue/removed_bits.h"

#include "base/io.h"
#include "journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define FILE_NAME "gone"
#define MAGIC "mrgone 1"
#define BLOCK 4096 /* the first block holds the magic and the journal's id */
#define BLOCK_IDS ((uint64_t)8 * BLOCK)

/* Returns 1 if it has read a block, 0 at the file's end, -1 with errno. Skips holes, because ids may lie far apart. */
static int read_block(int fd, off_t *at, unsigned char block[BLOCK])
{
    off_t data = lseek(fd, *at, SEEK_DATA);
    if (data < 0 && errno == ENXIO)
        return 0;
    *at = data < 0 ? *at : data / BLOCK * BLOCK;
    memset(block, 0, BLOCK);
    ssize_t n = io->pread(fd, block, BLOCK, *at);
    return n > 0 ? 1 : (int)n;
}

int removed_bits_read(
    const char *dir, const char *journal, struct id_ranges *out, char *error, size_t error_size)
{
    char path[PATH_MAX], header[sizeof MAGIC + JOURNAL_ID_TEXT], want[sizeof MAGIC + JOURNAL_ID_TEXT];
    unsigned char block[BLOCK];
    snprintf(path, sizeof path, "%s/" FILE_NAME, dir);
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0 && errno == ENOENT)
        return 0;
    int n = snprintf(want, sizeof want, MAGIC "%s", journal);
    ssize_t got = fd < 0 ? -1 : io->pread(fd, header, (size_t)n, 0);
    int more = got < 0 ? -1 : got == n && memcmp(header, want, (size_t)n) == 0;
    for (off_t at = BLOCK; more > 0 && (more = read_block(fd, &at, block)) > 0; at += BLOCK) {
        uint64_t base = ((uint64_t)at / BLOCK - 1) * BLOCK_IDS;
        for (size_t i = base == 0; i < BLOCK_IDS; i++) /* no message has id 0 */
            if (block[i / 8] >> i % 8 & 1)
                id_ranges_add(out, base + i);
    }
    int why = errno;
    if (fd >= 0)
        io->close(fd);
    if (more < 0)
        snprintf(error, error_size, "cannot read %s: %s", path, strerror(why));
    errno = why;
    return more;
}

void removed_bits_delete(const char *dir)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" FILE_NAME, dir);
    (void)io->unlink(path);
}
