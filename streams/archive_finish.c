#include "archive_finish.h"

#include "io.h"
#include "packer.h"
#include "xxh3.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_STEP ((size_t)256 << 10)

static const char *const suffixes[] = {"", ".gz", ".zst"};
static const char *const compression_names[] = {"none", "gzip", "zstd"};

const char *archive_suffix(enum archive_compression c)
{
    return suffixes[c];
}

static const char *path_of(struct buf *out, const char *name, const char *suffix, const char *more)
{
    buf_clear(out);
    buf_printf(out, "%s%s%s", name, suffix, more);
    return out->ptr;
}

void archive_part_path(const char *name, struct buf *out)
{
    path_of(out, name, "", ".part");
}

bool archive_name_is_taken(const char *name)
{
    static const char *const names[] = {"", ".gz", ".zst", ".part", ".manifest.json"};
    struct buf path = {0};
    bool taken = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        taken = taken || access(path_of(&path, name, names[i], ""), F_OK) == 0;
    buf_free(&path);
    return taken;
}

/* What one finishing works with. */
struct finish {
    const struct archive_finish_spec *spec;
    struct buf part, fresh, packed, text;
    int in, out; /* -1: not open */
    uint64_t lines, stored;
    XXH3_state_t *hash;
    char *error;
};

static int fail_system(struct finish *f, const char *path)
{
    int saved = errno;
    snprintf(f->error, ARCHIVE_ERROR_TEXT, "%s: %s", path, strerror(saved));
    errno = saved;
    return -1;
}

static int fail_content(struct finish *f, const char *what)
{
    snprintf(f->error, ARCHIVE_ERROR_TEXT, "%s: %s", f->part.ptr, what);
    errno = EIO;
    return -1;
}

/* Into the packed file, when there is one. */
static int put(struct finish *f, struct packer *packer, struct bytes piece, bool last)
{
    if (f->out < 0)
        return 0;
    buf_clear(&f->packed);
    if (packer_add(packer, piece, last, &f->packed) != 0)
        return fail_content(f, "it cannot be compressed");
    if (io_write_all(f->out, f->packed.ptr, f->packed.len, (off_t)f->stored) != 0)
        return fail_system(f, f->fresh.ptr);
    f->stored += f->packed.len;
    return 0;
}

static int copy(struct finish *f, struct packer *packer)
{
    uint64_t length = f->spec->file->length, at = 0;
    buf_reserve(&f->text, READ_STEP);
    while (at < length) {
        size_t want = length - at < READ_STEP ? (size_t)(length - at) : READ_STEP;
        ssize_t n = io->pread(f->in, f->text.ptr, want, (off_t)at);
        if (n < 0)
            return fail_system(f, f->part.ptr);
        if (n == 0)
            return fail_content(f, "it is shorter than what was written to it");
        struct bytes piece = bytes_of(f->text.ptr, (size_t)n);
        XXH3_64bits_update(f->hash, piece.ptr, piece.len);
        f->lines += bytes_count_lines(piece);
        at += (uint64_t)n;
        if (put(f, packer, piece, false) != 0)
            return -1;
    }
    if (f->lines != f->spec->file->lines)
        return fail_content(f, "it holds another number of lines than were written to it");
    return put(f, packer, BYTES_NONE, true);
}

static int open_files(struct finish *f)
{
    const struct archive_finish_spec *spec = f->spec;
    f->in = io->open(f->part.ptr, O_RDONLY | O_CLOEXEC, 0);
    if (f->in < 0)
        return fail_system(f, f->part.ptr);
    f->stored = spec->compression == ARCHIVE_PLAIN ? spec->file->length : 0;
    if (spec->compression == ARCHIVE_PLAIN)
        return 0;
    path_of(&f->fresh, spec->file->name, suffixes[spec->compression], ".new");
    f->out = io->open(f->fresh.ptr, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return f->out < 0 ? fail_system(f, f->fresh.ptr) : 0;
}

static int pack(struct finish *f)
{
    struct packer *packer = packer_new(f->spec->compression);
    int rc = open_files(f);
    if (rc == 0)
        rc = copy(f, packer);
    if (rc == 0 && f->out >= 0 && io->fdatasync(f->out) != 0)
        rc = fail_system(f, f->fresh.ptr);
    int saved = errno;
    if (f->in >= 0)
        io->close(f->in);
    if (f->out >= 0)
        io->close(f->out);
    packer_free(&packer);
    errno = saved;
    return rc;
}

static void print_manifest(const struct finish *f, struct buf *out)
{
    const struct archive_file_state *file = f->spec->file;
    const char *slash = strrchr(file->name, '/');
    struct buf name = {0};
    path_of(&name, slash != NULL ? slash + 1 : file->name, suffixes[f->spec->compression], "");
    buf_append_str(out, "{\"format\":1,\"file\":");
    buf_append_json(out, bytes_str(name.ptr));
    buf_printf(out,
        ",\"stream\":\"%s\",\"id\":\"%s\",\"first\":\"%" PRIu64 "\",\"end\":\"%" PRIu64
        "\",\n\"lines\":\"%" PRIu64 "\",\"bytes\":\"%" PRIu64
        "\",\"xxh3\":\"%016llx\",\"compression\":\"%s\",\"stored_bytes\":\"%" PRIu64 "\"}\n",
        f->spec->stream, f->spec->id, file->first, file->end, file->lines, file->length,
        (unsigned long long)XXH3_64bits_digest(f->hash), compression_names[f->spec->compression], f->stored);
    buf_free(&name);
}

static int write_manifest(struct finish *f)
{
    struct buf text = {0}, path = {0}, fresh = {0};
    path_of(&path, f->spec->file->name, "", ".manifest.json");
    path_of(&fresh, f->spec->file->name, "", ".manifest.json.new");
    print_manifest(f, &text);
    int fd = io->open(fresh.ptr, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int rc = fd >= 0 && io_write_all(fd, text.ptr, text.len, 0) == 0 && io->fdatasync(fd) == 0 &&
                     io->rename(fresh.ptr, path.ptr) == 0
                 ? 0
                 : fail_system(f, fresh.ptr);
    int saved = errno;
    if (fd >= 0)
        io->close(fd);
    buf_free(&text);
    buf_free(&path);
    buf_free(&fresh);
    errno = saved;
    return rc;
}

static int sync_directory(struct finish *f)
{
    return io_sync_parent(f->part.ptr) == 0 ? 0 : fail_system(f, f->part.ptr);
}

/* The finished name is there already: an earlier try got so far, perhaps one that was asked for another compression, and
 * perhaps one that was killed before the name was durable. It is of this file, since a name is given only when none of those
 * it may take is in use. */
static bool has_name(struct finish *f)
{
    struct buf final = {0};
    bool there = false;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        there = there || access(path_of(&final, f->spec->file->name, suffixes[i], ""), F_OK) == 0;
    buf_free(&final);
    return there;
}

/* Durably: the state that is written next knows it no more, so nobody would remove it if it came back. One that is gone may have
 * been removed by a life that was killed before that was durable; or it was never made, perhaps its directory neither. */
static int remove_part(struct finish *f)
{
    bool gone = io->unlink(f->part.ptr) == 0 || errno == ENOENT;
    bool safe = gone && (io_sync_parent(f->part.ptr) == 0 || errno == ENOENT);
    return safe ? 0 : fail_system(f, f->part.ptr);
}

/* What was packed in vain gives its room back. */
static void remove_packed(struct finish *f)
{
    int saved = errno;
    if (f->fresh.len > 0)
        io->unlink(f->fresh.ptr);
    errno = saved;
}

/* The manifest's name is made durable before the file's: rename keeps its order on no file system that promises none. */
static int give_name(struct finish *f)
{
    bool plain = f->spec->compression == ARCHIVE_PLAIN;
    struct buf final = {0};
    path_of(&final, f->spec->file->name, suffixes[f->spec->compression], "");
    int rc = write_manifest(f) == 0 && sync_directory(f) == 0 ? 0 : -1;
    if (rc == 0 && io->rename(plain ? f->part.ptr : f->fresh.ptr, final.ptr) != 0)
        rc = fail_system(f, final.ptr);
    if (rc == 0)
        rc = sync_directory(f);
    if (rc == 0 && !plain)
        rc = remove_part(f);
    buf_free(&final);
    return rc;
}

bool archive_is_want(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENFILE || error == ENOMEM;
}

int archive_finish(const struct archive_finish_spec *spec, bool *wanting, char error[ARCHIVE_ERROR_TEXT])
{
    struct finish f = {.spec = spec, .in = -1, .out = -1, .error = error};
    int rc;
    f.hash = XXH3_createState();
    if (f.hash == NULL)
        abort();
    XXH3_64bits_reset(f.hash);
    archive_part_path(spec->file->name, &f.part);
    if (has_name(&f))
        rc = sync_directory(&f) == 0 ? remove_part(&f) : -1;
    else if (spec->file->length == 0)
        rc = remove_part(&f);
    else
        rc = pack(&f) == 0 ? give_name(&f) : -1;
    if (rc != 0)
        remove_packed(&f);
    *wanting = rc != 0 && archive_is_want(errno);
    XXH3_freeState(f.hash);
    buf_free(&f.part);
    buf_free(&f.fresh);
    buf_free(&f.packed);
    buf_free(&f.text);
    return rc;
}
