#include "journal/journal_openings.h"

#include "base/byte_order.h"
#include "base/bytes.h"
#include "base/io.h"
#include "base/random_id.h"
#include "base/xxh3.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* A slot contains the opening's sequence number (from 1), the first number that it assigned, its id, and a checksum
 * that depends on the slot's index. */
#define SLOT ((size_t)32)
#define RING (OPENINGS_MAX * SLOT)

static uint64_t checksum(const char *slot, size_t place)
{
    return XXH3_64bits_withSeed(slot, SLOT - 8, place);
}

static void read_ring(struct openings *o, const char *ring)
{
    for (size_t place = 0; place < OPENINGS_MAX; place++) {
        const char *slot = ring + place * SLOT;
        uint64_t sequence = get_le64(slot);
        if (get_le64(slot + 24) == checksum(slot, place) && sequence % OPENINGS_MAX == place &&
            sequence > o->sequence)
            o->sequence = sequence;
    }
    uint64_t oldest = o->sequence < OPENINGS_MAX
                          ? 1
                          : o->sequence - OPENINGS_MAX + 2; /* the oldest slot is for the next opening */
    for (uint64_t sequence = oldest; sequence <= o->sequence; sequence++) {
        size_t place = sequence % OPENINGS_MAX;
        const char *slot = ring + place * SLOT;
        if (get_le64(slot) != sequence || get_le64(slot + 24) != checksum(slot, place))
            continue;
        struct opening *at = &o->list[o->n++];
        at->first = get_le64(slot + 8);
        snprintf(at->id, sizeof at->id, "%016llx", (unsigned long long)get_le64(slot + 16));
    }
}

/* The new opening replaces one that assigned no number, so that restarts without traffic push no opening out of the
 * ring. If a crash interrupted the creation of the file, the file is too short. */
static int load_and_add(struct openings *o, int fd, const char *dir, uint64_t next)
{
    char ring[RING] = {0}, slot[SLOT], id[RANDOM_ID_SIZE];
    ssize_t n = io->pread(fd, ring, RING, 0);
    if (n < 0 || (n < (ssize_t)RING && io_write_all(fd, ring, RING, 0) != 0))
        return -1;
    read_ring(o, ring);
    bool replaces = o->n > 0 && o->list[o->n - 1].first == next;
    struct opening *new = &o->list[replaces ? o->n - 1 : o->n++];
    o->sequence += !replaces;
    random_id(id);
    new->first = next;
    memcpy(new->id, id, OPENING_ID_TEXT - 1);
    put_le64(slot, o->sequence);
    put_le64(slot + 8, next);
    put_le64(slot + 16, strtoull(new->id, NULL, 16));
    put_le64(slot + 24, checksum(slot, o->sequence % OPENINGS_MAX));
    if (io_write_all(fd, slot, SLOT, (off_t)(o->sequence % OPENINGS_MAX * SLOT)) != 0 || io->fsync(fd) != 0)
        return -1;
    return n < (ssize_t)RING ? io_sync_dir(dir) : 0;
}

struct openings *openings_open(const char *dir, uint64_t next)
{
    struct openings *o = mem_zalloc(sizeof *o);
    char *path = mem_printf("%s/" OPENINGS_FILE, dir);
    int fd = io->open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, IO_PRIVATE_MODE);
    free(path);
    bool done = fd >= 0 && load_and_add(o, fd, dir, next) == 0;
    int why = errno;
    if (fd >= 0)
        io->close(fd);
    if (!done)
        openings_free(&o);
    errno = why;
    return o;
}

bool openings_exist(const char *dir)
{
    struct stat st;
    char *path = mem_printf("%s/" OPENINGS_FILE, dir);
    bool exist = stat(path, &st) == 0 && st.st_size >= (off_t)RING;
    free(path);
    return exist;
}

void openings_forget_after(struct buf *ring, uint64_t next)
{
    for (size_t place = 0; (place + 1) * SLOT <= ring->len && place < OPENINGS_MAX; place++) {
        char *slot = ring->ptr + place * SLOT;
        if (get_le64(slot + 24) == checksum(slot, place) && get_le64(slot + 8) > next)
            memset(slot, 0, SLOT);
    }
}
