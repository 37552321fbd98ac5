#include "streams/archive/archive_finish.h"

#include "base/errno_class.h"
#include "base/io.h"
#include "base/log.h"
#include "base/xxh3.h"
#include "streams/archive/compressor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_STEP ((size_t)256 << 10)

struct finish {
    const struct archive_finish_spec *spec;
    enum archive_compression compression; /* of what is being published */
    struct buf packed, summary_path;      /* paths beside the staged file */
    struct buf identity, summary;         /* parts of the manifest */
    char *error;
};

/* A dangling symbolic link exists too: its name is taken. */
static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static const char *path_of(struct buf *out, const char *name, const char *suffix)
{
    buf_clear(out);
    buf_printf(out, "%s%s", name, suffix);
    return out->ptr;
}

static int fail_system(struct finish *f, const char *path)
{
    int saved = errno;
    snprintf(f->error, ARCHIVE_ERROR_TEXT, "%s: %s", path, strerror(saved));
    errno = saved;
    return -1;
}

static int fail_content(struct finish *f, const char *path, const char *what)
{
    snprintf(f->error, ARCHIVE_ERROR_TEXT, "%s: %s", path, what);
    errno = EIO;
    return -1;
}

/* A rename between two directories is durable once both are synced. If another program has deleted one, it needs no sync. */
static int sync_rename(struct finish *f)
{
    const struct archive_file_state *file = f->spec->file;
    if (io_sync_parent(file->name) != 0 && errno != ENOENT)
        return fail_system(f, file->name);
    return io_sync_parent(file->staged) == 0 || errno == ENOENT ? 0 : fail_system(f, file->staged);
}

static int write_synced(struct finish *f, const char *path, struct bytes text)
{
    int fd = io->open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool done = fd >= 0 && io_write_all(fd, text.ptr, text.len, 0) == 0 && io->fdatasync(fd) == 0;
    int rc = done ? 0 : fail_system(f, path), saved = errno;
    if (fd >= 0)
        io->close(fd);
    errno = saved;
    return rc;
}

/* Reads the staged file once: hashes and counts its lines and, with a compressor, writes the packed file. */
static int copy(struct finish *f, int in, int out, struct compressor *c, XXH3_state_t *hash)
{
    const struct archive_file_state *file = f->spec->file;
    uint64_t at = 0, lines = 0, stored = 0;
    struct buf text = {0}, packed = {0};
    int rc = 0;
    buf_reserve(&text, READ_STEP);
    while (rc == 0) {
        size_t want = file->length - at < READ_STEP ? (size_t)(file->length - at) : READ_STEP;
        ssize_t n = want > 0 ? io->pread(in, text.ptr, want, (off_t)at) : 0;
        struct bytes piece = bytes_of(text.ptr, n > 0 ? (size_t)n : 0);
        if (n < 0)
            rc = fail_system(f, file->staged);
        else if (n == 0 && want > 0)
            rc = fail_content(f, file->staged, "shorter than its length in the state");
        XXH3_64bits_update(hash, piece.ptr, piece.len);
        lines += bytes_count_lines(piece);
        at += piece.len;
        buf_clear(&packed);
        if (rc == 0 && out >= 0 && compressor_add(c, piece, want == 0, &packed) != 0)
            rc = fail_content(f, file->staged, "compression failed");
        if (rc == 0 && io_write_all(out, packed.ptr, packed.len, (off_t)stored) != 0)
            rc = fail_system(f, f->packed.ptr);
        stored += packed.len;
        if (want == 0)
            break;
    }
    if (rc == 0 && lines != file->lines)
        rc = fail_content(f, file->staged, "its number of lines is not that in the state");
    buf_clear(&f->summary);
    archive_manifest_summary(buf_bytes(&f->identity), XXH3_64bits_digest(hash), f->compression,
        out >= 0 ? stored : file->length, &f->summary);
    int saved = errno;
    buf_free(&text);
    buf_free(&packed);
    errno = saved;
    return rc;
}

/* Describes the staged file in f->summary and, for compression, writes the packed file. */
static int pack(struct finish *f)
{
    const struct archive_file_state *file = f->spec->file;
    bool plain = f->compression == ARCHIVE_PLAIN;
    struct compressor *c = plain ? NULL : compressor_new(f->compression);
    XXH3_state_t *hash = XXH3_createState();
    int in = io->open(file->staged, O_RDONLY | O_CLOEXEC, 0), out = -1;
    int rc = in >= 0 ? 0 : fail_system(f, file->staged);
    if (hash == NULL)
        abort();
    XXH3_64bits_reset(hash);
    if (rc == 0 && !plain) {
        out = io->open(f->packed.ptr, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        rc = out >= 0 ? 0 : fail_system(f, f->packed.ptr);
    }
    if (rc == 0)
        rc = copy(f, in, out, c, hash);
    if (rc == 0 && out >= 0 && io->fdatasync(out) != 0)
        rc = fail_system(f, f->packed.ptr);
    int saved = errno;
    if (in >= 0)
        io->close(in);
    if (out >= 0)
        io->close(out);
    compressor_free(&c);
    XXH3_freeState(hash);
    errno = saved;
    return rc;
}

static bool is_published(const char *name)
{
    struct buf path = {0};
    bool found = false;
    for (int i = 0; i < ARCHIVE_COMPRESSIONS; i++)
        found = found || exists(path_of(&path, name, archive_suffixes[i]));
    buf_free(&path);
    return found;
}

/* Publishes the data as NAME, its manifest first. Returns 1 if NAME is taken. */
static int publish_as(struct finish *f, const char *from, const char *name)
{
    struct buf target = {0}, manifest = {0}, fresh = {0}, text = {0};
    path_of(&target, name, archive_suffixes[f->compression]);
    path_of(&manifest, name, ".manifest.json");
    path_of(&fresh, f->spec->file->staged, ".manifest");
    archive_manifest_print(target.ptr, buf_bytes(&f->summary), &text);
    bool own = archive_manifest_has_identity(manifest.ptr, buf_bytes(&f->identity));
    int rc = is_published(name) || (!own && exists(manifest.ptr));
    bool unmanifest =
        rc == 1 && own; /* an earlier attempt named the manifest before another file took NAME */
    if (rc == 0)
        rc = write_synced(f, fresh.ptr, buf_bytes(&text));
    if (rc == 0 && (own ? io->rename(fresh.ptr, manifest.ptr) : io->rename_new(fresh.ptr, manifest.ptr)) != 0)
        rc = errno == EEXIST ? 1 : fail_system(f, manifest.ptr);
    if (rc == 0)
        rc = sync_rename(f);
    if (rc == 0 && io->rename_new(from, target.ptr) != 0) {
        rc = errno == EEXIST ? 1 : fail_system(f, target.ptr);
        unmanifest = rc == 1;
    }
    if (unmanifest && io->unlink(manifest.ptr) != 0 && errno != ENOENT)
        rc = fail_system(f, manifest.ptr);
    int saved = errno;
    buf_free(&target);
    buf_free(&manifest);
    buf_free(&fresh);
    buf_free(&text);
    errno = saved;
    return rc;
}

/* The first write made the target directory, but a cleaner may have deleted it since, because it was empty. */
static int publish(struct finish *f, const char *from)
{
    const char *plain_name = f->spec->file->name;
    char directory[PATH_MAX];
    struct buf name = {0};
    int rc = 1;
    io_parent_of(plain_name, directory);
    if (!exists(directory) && io_make_dirs(directory) != 0)
        return fail_system(f, plain_name);
    for (unsigned n = 0; rc == 1; n++) {
        buf_clear(&name);
        buf_printf(&name, n == 0 ? "%s" : "%s.%u", plain_name, n);
        rc = publish_as(f, from, name.ptr);
    }
    if (rc == 0)
        rc = sync_rename(f);
    if (rc == 0 && (f->compression != ARCHIVE_PLAIN || f->spec->retried)) {
        io->unlink(f->summary_path.ptr);
        io->unlink(f->packed.ptr); /* left by an earlier attempt */
    }
    int saved = errno;
    buf_free(&name);
    errno = saved;
    return rc;
}

/* Continues an attempt that was interrupted after it had deleted or published the staged file. */
static int resume(struct finish *f)
{
    const struct archive_file_state *file = f->spec->file;
    bool packed = exists(f->packed.ptr), summary = archive_manifest_read(f->summary_path.ptr, &f->summary);
    if (packed && !summary)
        return fail_system(f, f->summary_path.ptr);
    if (packed) {
        f->compression = archive_summary_compression(buf_bytes(&f->summary));
        return publish(f, f->packed.ptr);
    }
    if (!is_published(file->name))
        log_warn("file was published and moved away, or its staged file was deleted",
            LOG_S("path", file->name), LOG_U("first", file->first), LOG_U("end", file->end),
            LOG_U("lines", file->lines));
    /* The summary is needed until the rename is durable. */
    if (sync_rename(f) != 0)
        return -1;
    io->unlink(f->summary_path.ptr);
    return 0;
}

/* Packs and publishes the staged file. */
static int finish_staged(struct finish *f)
{
    const char *staged = f->spec->file->staged;
    bool plain = f->compression == ARCHIVE_PLAIN;
    int rc = pack(f);
    /* Once the staged file is deleted, the packed file is the only copy. So the summary must be as durable by then. */
    if (rc == 0 && !plain)
        rc = write_synced(f, f->summary_path.ptr, buf_bytes(&f->summary));
    if (rc == 0 && !plain &&
        (io_sync_parent(staged) != 0 || io->unlink(staged) != 0 || io_sync_parent(staged) != 0))
        rc = fail_system(f, staged);
    if (rc == 0)
        return publish(f, plain ? staged : f->packed.ptr);
    if (!plain && exists(staged)) {
        int saved = errno;
        io->unlink(f->packed.ptr); /* other files may need its space */
        errno = saved;
    }
    return -1;
}

int archive_finish(const struct archive_finish_spec *spec, bool *shortage, char error[ARCHIVE_ERROR_TEXT])
{
    const struct archive_file_state *file = spec->file;
    struct finish f = {.spec = spec, .compression = spec->compression, .error = error};
    int rc = 0;
    path_of(&f.packed, file->staged, ".packed");
    path_of(&f.summary_path, file->staged, ".summary");
    archive_manifest_identity(spec->stream, spec->id, file, &f.identity);
    if (file->length == 0) {
        /* An interrupted attempt may have deleted the file without syncing its directory. */
        bool gone = io->unlink(file->staged) == 0 || errno == ENOENT;
        if (!gone || (io_sync_parent(file->staged) != 0 && errno != ENOENT))
            rc = fail_system(&f, file->staged);
    } else if (spec->retried && !exists(file->staged)) {
        rc = resume(&f);
    } else {
        rc = finish_staged(&f);
    }
    *shortage = rc != 0 && errno_is_shortage(errno);
    buf_free(&f.packed);
    buf_free(&f.summary_path);
    buf_free(&f.identity);
    buf_free(&f.summary);
    return rc;
}
