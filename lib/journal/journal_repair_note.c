#include "journal/journal_repair_note.h"

#include "base/io.h"
#include "base/xxh3.h"

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

/* A note is valid if encoding it again gives the same bytes. */
static bool note_decode(struct bytes text, struct repair_note *n)
{
    char copy[NOTE_BYTES_MAX + 1], stage[16];
    struct buf again = {0};
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = 0;
    int got = sscanf(copy,
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

char *repair_note_path(const char *dir, const char *suffix)
{
    struct buf b = {0};
    buf_printf(&b, "%s/repair%s", dir, suffix);
    buf_append_char(&b, 0);
    return b.ptr;
}

/* Bytes of the file; -1 with errno. */
static ssize_t read_text(const char *path, char text[NOTE_BYTES_MAX])
{
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    ssize_t n = io->pread(fd, text, NOTE_BYTES_MAX, 0);
    int saved = errno;
    io->close(fd);
    errno = saved;
    return n;
}

enum journal_result repair_note_read(
    const char *dir, struct repair_note *n, bool *there, char *error, size_t error_size)
{
    char text[NOTE_BYTES_MAX], *path = repair_note_path(dir, "");
    enum journal_result r = JOURNAL_OK;
    unsigned version = 0;
    ssize_t len = read_text(path, text);
    *there = len >= 0;
    if (len < 0 && errno != ENOENT) {
        snprintf(error, error_size, "%s: cannot read: %s", path, strerror(errno));
        r = JOURNAL_IO;
    } else if (len >= 0 && !note_decode(bytes_of(text, (size_t)len), n)) {
        text[len < NOTE_BYTES_MAX ? len : NOTE_BYTES_MAX - 1] = 0;
        bool newer = sscanf(text, "millrace journal repair %u", &version) == 1 && version > NOTE_VERSION;
        r = newer ? JOURNAL_NEWER : JOURNAL_DAMAGED;
        snprintf(error, error_size, "%s: %s", path,
            newer ? "written by a newer version of millrace" : "damaged; a repair did not write this");
    }
    free(path);
    return r;
}

static int write_file(const char *path, struct bytes bytes)
{
    int fd = io->open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, IO_PRIVATE_MODE);
    if (fd < 0)
        return -1;
    int bad = io_write_all(fd, bytes.ptr, bytes.len, 0) != 0 || io->fsync(fd) != 0;
    int saved = errno;
    io->close(fd);
    errno = saved;
    return bad ? -1 : 0;
}

int repair_note_write(const char *dir, int dir_fd, const struct repair_note *n)
{
    char *fresh = repair_note_path(dir, ".new"), *path = repair_note_path(dir, "");
    struct buf text = {0};
    note_encode(n, &text);
    bool failed =
        write_file(fresh, buf_bytes(&text)) != 0 || io->rename(fresh, path) != 0 || io->fsync(dir_fd) != 0;
    int system = errno;
    buf_free(&text);
    free(fresh);
    free(path);
    errno = system;
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
