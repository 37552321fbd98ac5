#include "journal/journal_repair_note.h"

#include "base/io.h"
#include "base/xxh3.h"
#include "journal/journal_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NOTE_BYTES_MAX 1024
#define NOTE_VERSION 1u

static const char *const stages[] = {"moving", "moved", "done"};

static void note_encode(const struct repair_note *n, struct buf *out)
{
    buf_printf(out,
        "millrace journal repair %u\n"
        "stage %s\n"
        "damaged %" PRIu64 " %" PRIu64 "\n"
        "kept %" PRIu64 " %" PRIu64 "\n"
        "lost %" PRIu64 "\n"
        "below %" PRIu64 "\n"
        "aside %s\n",
        NOTE_VERSION, stages[n->stage], n->sequence, n->cut_at, n->first, n->end, n->lost, n->below,
        n->aside);
    buf_printf(out, "checksum %016" PRIx64 "\n", (uint64_t)XXH3_64bits(out->ptr, out->len));
}

/* A note is valid if encoding it again gives the same bytes. `text` ends with a NUL behind its length. */
static bool note_decode(struct bytes text, struct repair_note *n)
{
    char stage[16];
    struct buf again = {0};
    int got = sscanf(text.ptr,
        "millrace journal repair %*u\nstage %15s\ndamaged %" SCNu64 " %" SCNu64 "\nkept %" SCNu64 " %" SCNu64
        "\nlost %" SCNu64 "\nbelow %" SCNu64 "\naside %127s",
        stage, &n->sequence, &n->cut_at, &n->first, &n->end, &n->lost, &n->below, n->aside);
    if (got != 8)
        return false;
    for (n->stage = REPAIR_MOVING; n->stage < REPAIR_DONE && strcmp(stage, stages[n->stage]) != 0;)
        n->stage++;
    note_encode(n, &again);
    bool same = bytes_equal(buf_bytes(&again), text) && !strchr(n->aside, '/');
    buf_free(&again);
    return same;
}

enum journal_result repair_note_read(
    const char *dir, struct repair_note *n, bool *there, char *error, size_t error_size)
{
    char text[NOTE_BYTES_MAX + 1], *path = dir_path(dir, REPAIR_NOTE_NAME);
    enum journal_result r = JOURNAL_OK;
    unsigned version = 0;
    int fd = file_open(path);
    ssize_t len = fd >= 0 ? file_read(fd, text, NOTE_BYTES_MAX, 0) : -1;
    int system = errno;
    if (fd >= 0)
        io->close(fd);
    *there = len >= 0;
    text[len > 0 ? len : 0] = 0;
    if (len < 0 && system != ENOENT) {
        snprintf(error, error_size, "%s: cannot read: %s", path, strerror(system));
        r = JOURNAL_IO;
    } else if (len >= 0 && !note_decode(bytes_of(text, (size_t)len), n)) {
        bool newer = sscanf(text, "millrace journal repair %u", &version) == 1 && version > NOTE_VERSION;
        r = newer ? JOURNAL_NEWER : JOURNAL_DAMAGED;
        snprintf(error, error_size, "%s: %s", path,
            newer ? "written by a newer version of millrace" : "damaged: not the state of a repair");
    }
    free(path);
    return r;
}

int repair_note_write(const char *dir, int dir_fd, const struct repair_note *n)
{
    char *fresh = dir_path(dir, REPAIR_NOTE_NAME ".new"), *path = dir_path(dir, REPAIR_NOTE_NAME);
    struct buf text = {0};
    note_encode(n, &text);
    int fd = io->open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, IO_PRIVATE_MODE);
    bool failed = fd < 0 || io_write_all(fd, text.ptr, text.len, 0) != 0 || io->fsync(fd) != 0;
    int system = errno;
    if (fd >= 0)
        io->close(fd);
    errno = system;
    failed = failed || io->rename(fresh, path) != 0 || io->fsync(dir_fd) != 0;
    buf_free(&text);
    free(fresh);
    free(path);
    return failed ? -1 : 0;
}

enum journal_result repair_note_check(const char *dir, char *error, size_t error_size)
{
    struct repair_note n;
    bool there;
    enum journal_result r = repair_note_read(dir, &n, &there, error, error_size);
    if (r != JOURNAL_OK || !there || n.stage == REPAIR_DONE)
        return r;
    snprintf(error, error_size, "%s: a repair was interrupted; run it again", dir);
    return JOURNAL_DAMAGED;
}
