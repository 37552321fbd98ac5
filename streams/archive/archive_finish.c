#include "streams/archive/archive_finish.h"

#include "base/work_thread.h"
#include "base/errno_class.h"
#include "base/io.h"
#include "base/log.h"
#include "base/xxh3.h"
#include "streams/archive/archive_part.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#define OUTPUT_STEP ((size_t)128 << 10)
#define GZIP_WINDOW (15 + 16) /* zlib's window bits; zlib writes a gzip header if 16 is added */
#define ZSTD_CHECKSUM 1
#define MANIFEST_MAX ((size_t)8 << 10) /* a manifest has about 300 bytes and the file's name */
#define READ_STEP ((size_t)256 << 10)
#define THREADS 4 /* for a disk, several concurrent syncs cost little more than one sync */
#define RETRY (1 * USEC_PER_SEC)
#define RETRY_MAX (30 * USEC_PER_SEC)

static const char *const compression_names[ARCHIVE_COMPRESSIONS] = {"none", "gzip", "zstd"};
const char *const archive_suffixes[] = {"", ".gz", ".zst"};

static bool contains(struct bytes text, struct bytes part)
{
    return text.len > 0 && memmem(text.ptr, text.len, part.ptr, part.len);
}

struct compressor {
    enum archive_compression compression;
    z_stream gzip;
    ZSTD_CCtx *zstd;
};

static void compressor_begin(struct compressor *p, enum archive_compression c)
{
    *p = (struct compressor){.compression = c};
    if (c == ARCHIVE_GZIP &&
        deflateInit2(&p->gzip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    if (c == ARCHIVE_ZSTD) {
        p->zstd = ZSTD_createCCtx();
        if (!p->zstd)
            abort();
        ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_checksumFlag, ZSTD_CHECKSUM);
    }
}

static void compressor_end(struct compressor *p)
{
    if (p->compression == ARCHIVE_GZIP)
        deflateEnd(&p->gzip);
    ZSTD_freeCCtx(p->zstd);
}

/* Compresses `piece` and appends the compressed bytes that zlib returns, or all remaining compressed bytes if `last` is
 * true. Returns -1 if zlib fails. */
static int add_gzip(struct compressor *p, struct bytes piece, bool last, struct buf *out)
{
    p->gzip.next_in = (Bytef *)(uintptr_t)piece.ptr;
    p->gzip.avail_in = (uInt)piece.len;
    int rc;
    do {
        buf_reserve(out, OUTPUT_STEP);
        p->gzip.next_out = (Bytef *)out->ptr + out->len;
        p->gzip.avail_out = OUTPUT_STEP;
        rc = deflate(&p->gzip, last ? Z_FINISH : Z_NO_FLUSH);
        out->len += OUTPUT_STEP - p->gzip.avail_out;
    } while (rc == Z_OK && (p->gzip.avail_in > 0 || p->gzip.avail_out == 0 || last));
    return rc == Z_OK || rc == Z_BUF_ERROR || rc == Z_STREAM_END ? 0 : -1;
}

static int add_zstd(struct compressor *p, struct bytes piece, bool last, struct buf *out)
{
    ZSTD_inBuffer in = {piece.ptr, piece.len, 0};
    size_t left;
    do {
        buf_reserve(out, OUTPUT_STEP);
        ZSTD_outBuffer to = {out->ptr + out->len, OUTPUT_STEP, 0};
        left = ZSTD_compressStream2(p->zstd, &to, &in, last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left))
            return -1;
        out->len += to.pos;
    } while (last ? left > 0 : in.pos < in.size);
    return 0;
}

struct finish {
    const struct archive_finish_spec *spec;
    enum archive_compression compression; /* compression of the published file */
    struct buf packed, summary_path;      /* paths of STAGED.packed and STAGED.summary */
    struct buf identity;                  /* the part of the manifest's text that identifies the lines */
    struct buf summary;                   /* the part of the manifest's text after the file's name */
    struct error *error;
};

/* Returns true also for a dangling symbolic link, because no file can be created under the link's name. */
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

static int fail_content(struct finish *f, const char *path, const char *what)
{
    errno = EIO;
    return error_set(f->error, -1, "%s: %s", path, what);
}

/* Syncs both directories of a rename, which makes the rename durable. A directory that another program has deleted
 * needs no sync. */
static int sync_rename(struct finish *f)
{
    const struct archive_file_state *file = f->spec->file;
    if (io_sync_parent(file->name) != 0 && errno != ENOENT)
        return error_errno(f->error, -1, file->name);
    return io_sync_parent(file->staged) == 0 || errno == ENOENT ? 0 : error_errno(f->error, -1, file->staged);
}

static int write_synced(struct finish *f, const char *path, struct bytes text)
{
    int fd = io->open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool done = fd >= 0 && io_write_all(fd, text.ptr, text.len, 0) == 0 && io->fdatasync(fd) == 0;
    int rc = done ? 0 : error_errno(f->error, -1, path), saved = errno;
    if (fd >= 0)
        io->close(fd);
    errno = saved;
    return rc;
}

/* Reads the staged file once, writes the file's description into f->summary and, with compression, writes
 * STAGED.packed. */
static int pack(struct finish *f)
{
    const struct archive_file_state *file = f->spec->file;
    bool plain = f->compression == ARCHIVE_PLAIN;
    struct compressor c;
    XXH3_state_t *hash = XXH3_createState();
    uint64_t at = 0, lines = 0, stored = 0;
    struct buf text = {0}, packed = {0};
    if (!hash)
        abort();
    XXH3_64bits_reset(hash);
    compressor_begin(&c, f->compression);
    buf_reserve(&text, READ_STEP);
    int in = io->open(file->staged, O_RDONLY | O_CLOEXEC, 0), out = -1;
    int rc = in >= 0 ? 0 : error_errno(f->error, -1, file->staged);
    if (rc == 0 && !plain) {
        out = io->open(f->packed.ptr, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        rc = out >= 0 ? 0 : error_errno(f->error, -1, f->packed.ptr);
    }
    for (bool last = false; rc == 0 && !last;) {
        size_t want = file->length - at < READ_STEP ? (size_t)(file->length - at) : READ_STEP;
        ssize_t n = want > 0 ? io->pread(in, text.ptr, want, (off_t)at) : 0;
        struct bytes piece = bytes_of(text.ptr, n > 0 ? (size_t)n : 0);
        last = want == 0;
        if (n < 0)
            rc = error_errno(f->error, -1, file->staged);
        else if (n == 0 && !last)
            rc = fail_content(f, file->staged, "the file is shorter than the state records");
        XXH3_64bits_update(hash, piece.ptr, piece.len);
        lines += bytes_count_lines(piece);
        at += piece.len;
        buf_clear(&packed);
        if (rc == 0 && !plain &&
            (f->compression == ARCHIVE_GZIP ? add_gzip : add_zstd)(&c, piece, last, &packed) != 0)
            rc = fail_content(f, file->staged, "compression failed");
        if (rc == 0 && !plain && io_write_all(out, packed.ptr, packed.len, (off_t)stored) != 0)
            rc = error_errno(f->error, -1, f->packed.ptr);
        stored += packed.len;
    }
    if (rc == 0 && lines != file->lines)
        rc = fail_content(f, file->staged, "the number of lines differs from the state");
    buf_clear(&f->summary);
    buf_append_bytes(&f->summary, buf_bytes(&f->identity));
    buf_printf(&f->summary,
        ",\"xxh3\":\"%016" PRIx64 "\",\"compression\":\"%s\",\"stored_bytes\":\"%" PRIu64 "\"}\n",
        XXH3_64bits_digest(hash), compression_names[f->compression], plain ? file->length : stored);
    if (rc == 0 && !plain && io->fdatasync(out) != 0)
        rc = error_errno(f->error, -1, f->packed.ptr);
    int saved = errno;
    if (in >= 0)
        io->close(in);
    if (out >= 0)
        io->close(out);
    compressor_end(&c);
    XXH3_freeState(hash);
    buf_free(&text);
    buf_free(&packed);
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

/* Publishes the manifest and then the data under the name `name`. Returns 1 if another file has this name. */
static int publish_as(struct finish *f, const char *from, const char *name)
{
    struct buf target = {0}, manifest = {0}, fresh = {0}, text = {0}, old = {0};
    path_of(&target, name, archive_suffixes[f->compression]);
    path_of(&manifest, name, ".manifest.json");
    path_of(&fresh, f->spec->file->staged, ".manifest");
    const char *slash = strrchr(target.ptr, '/');
    buf_append_str(&text, "{\"format\":2,\"file\":");
    buf_append_json(&text, bytes_str(slash ? slash + 1 : target.ptr));
    buf_append_bytes(&text, buf_bytes(&f->summary));
    bool own = io_read_file(manifest.ptr, MANIFEST_MAX, &old) == 0 &&
               contains(buf_bytes(&old), buf_bytes(&f->identity));
    int rc = is_published(name) || (!own && exists(manifest.ptr));
    bool unmanifest =
        rc == 1 && own; /* an earlier attempt published the manifest, and then another file got the name */
    if (rc == 0)
        rc = write_synced(f, fresh.ptr, buf_bytes(&text));
    if (rc == 0 && (own ? io->rename(fresh.ptr, manifest.ptr) : io->rename_new(fresh.ptr, manifest.ptr)) != 0)
        rc = errno == EEXIST ? 1 : error_errno(f->error, -1, manifest.ptr);
    if (rc == 0)
        rc = sync_rename(f);
    if (rc == 0 && io->rename_new(from, target.ptr) != 0) {
        rc = errno == EEXIST ? 1 : error_errno(f->error, -1, target.ptr);
        unmanifest = rc == 1;
    }
    if (unmanifest && io->unlink(manifest.ptr) != 0 && errno != ENOENT)
        rc = error_errno(f->error, -1, manifest.ptr);
    int saved = errno;
    buf_free(&target);
    buf_free(&manifest);
    buf_free(&fresh);
    buf_free(&text);
    buf_free(&old);
    errno = saved;
    return rc;
}

/* Publishes the file under the first free name. Creates the target directory if another program has deleted the
 * directory. */
static int publish(struct finish *f, const char *from)
{
    const char *plain_name = f->spec->file->name;
    char directory[PATH_MAX];
    struct buf name = {0};
    int rc = 1;
    io_parent_of(plain_name, directory);
    if (!exists(directory) && io_make_dirs(directory) != 0)
        return error_errno(f->error, -1, plain_name);
    for (unsigned n = 0; rc == 1; n++) {
        buf_clear(&name);
        buf_printf(&name, n == 0 ? "%s" : "%s.%u", plain_name, n);
        rc = publish_as(f, from, name.ptr);
    }
    if (rc == 0)
        rc = sync_rename(f);
    if (rc == 0 && (f->compression != ARCHIVE_PLAIN || f->spec->retried)) {
        io->unlink(f->summary_path.ptr);
        io->unlink(f->packed.ptr); /* an earlier attempt may have left STAGED.packed */
    }
    int saved = errno;
    buf_free(&name);
    errno = saved;
    return rc;
}

/* Continues an attempt that was interrupted after the staged file was deleted or published. */
static int resume(struct finish *f)
{
    const struct archive_file_state *file = f->spec->file;
    bool packed = exists(f->packed.ptr),
         summary = io_read_file(f->summary_path.ptr, MANIFEST_MAX, &f->summary) == 0 && f->summary.len > 0;
    if (packed && !summary)
        return error_errno(f->error, -1, f->summary_path.ptr);
    if (packed) {
        bool gzip = contains(buf_bytes(&f->summary), BYTES_LITERAL("\"compression\":\"gzip\""));
        bool zstd = contains(buf_bytes(&f->summary), BYTES_LITERAL("\"compression\":\"zstd\""));
        f->compression = gzip ? ARCHIVE_GZIP : zstd ? ARCHIVE_ZSTD : ARCHIVE_PLAIN;
        return publish(f, f->packed.ptr);
    }
    if (!is_published(file->name))
        log_warn("file was published and moved away, or its staged file was deleted",
            LOG_S("path", file->name), LOG_U("first", file->first), LOG_U("end", file->end),
            LOG_U("lines", file->lines));
    /* The rename must be durable before the summary is deleted. If a crash undoes the rename, the next attempt needs
     * the summary. */
    if (sync_rename(f) != 0)
        return -1;
    io->unlink(f->summary_path.ptr);
    return 0;
}

/* Publishes the staged file, after compressing the file if configured. */
static int finish_staged(struct finish *f)
{
    const char *staged = f->spec->file->staged;
    bool plain = f->compression == ARCHIVE_PLAIN;
    int rc = pack(f);
    /* The summary must be durable before the staged file is deleted. After the deletion, the manifest can only be
     * written from the summary. */
    if (rc == 0 && !plain)
        rc = write_synced(f, f->summary_path.ptr, buf_bytes(&f->summary));
    if (rc == 0 && !plain &&
        (io_sync_parent(staged) != 0 || io->unlink(staged) != 0 || io_sync_parent(staged) != 0))
        rc = error_errno(f->error, -1, staged);
    if (rc == 0)
        return publish(f, plain ? staged : f->packed.ptr);
    if (!plain && exists(staged)) {
        int saved = errno;
        io->unlink(f->packed.ptr); /* frees the space for other files */
        errno = saved;
    }
    return -1;
}

int archive_finish(const struct archive_finish_spec *spec, bool *shortage, struct error *error)
{
    const struct archive_file_state *file = spec->file;
    struct finish f = {.spec = spec, .compression = spec->compression, .error = error};
    int rc = 0;
    path_of(&f.packed, file->staged, ".packed");
    path_of(&f.summary_path, file->staged, ".summary");
    bool known = file->opening[0] != '\0';
    buf_printf(&f.identity,
        ",\"stream\":\"%s\",\"id\":\"%s%s%s\",\"first\":\"%" PRIu64 "\",\"end\":\"%" PRIu64
        "\",\n\"lines\":\"%" PRIu64 "\",\"bytes\":\"%" PRIu64 "\"",
        spec->stream, spec->id, known ? "\",\"opening\":\"" : "", file->opening, file->first, file->end,
        file->lines, file->length);
    if (file->length == 0) {
        /* The directory is synced even if the file is missing, because an interrupted attempt may have deleted the file
         * without a sync. */
        bool gone = io->unlink(file->staged) == 0 || errno == ENOENT;
        if (!gone || (io_sync_parent(file->staged) != 0 && errno != ENOENT))
            rc = error_errno(error, -1, file->staged);
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

struct attempt {
    struct work_thread *thread;
    struct archive_finish_spec spec;
    char id[STREAM_ID_TEXT];
    struct archive_finished result; /* .part is NULL while no attempt is in progress */
};

struct archive_finisher {
    const char *stream;
    enum archive_compression compression;
    struct attempt attempts[THREADS];
    usec_t pause, due; /* while attempts fail: pause between attempts, and time of the next attempt */
};

static void run(void *ctx, void *attempt)
{
    struct attempt *a = attempt;
    (void)ctx;
    a->result.error.code = archive_finish(&a->spec, &a->result.shortage, &a->result.error);
}

struct archive_finisher *archive_finisher_new(
    const char *stream, enum archive_compression compression, void (*done)(void *arg), void *arg)
{
    struct archive_finisher *f = mem_zalloc(sizeof *f);
    f->stream = stream;
    f->compression = compression;
    for (int i = 0; i < THREADS; i++) {
        f->attempts[i].thread =
            work_thread_new(&(struct work_thread_config){.run = run, .notify = done, .notify_arg = arg});
        if (!f->attempts[i].thread)
            abort();
    }
    return f;
}

void archive_finisher_free(struct archive_finisher **f)
{
    if (!*f)
        return;
    for (int i = 0; i < THREADS; i++)
        work_thread_free(&(*f)->attempts[i].thread);
    free(*f);
    *f = NULL;
}

void archive_finisher_start(struct archive_finisher *f, struct archive_part *const *parts, size_t n,
    const char *id, bool at_once, usec_t now)
{
    size_t busy = 0;
    for (int i = 0; i < THREADS; i++)
        busy += f->attempts[i].result.part != NULL;
    for (int i = 0; i < THREADS && now >= f->due && (f->pause == 0 || busy == 0); i++) {
        struct attempt *a = &f->attempts[i];
        struct archive_part *p = NULL;
        for (size_t k = 0; k < n && !a->result.part; k++) {
            struct archive_part *q = parts[k];
            bool due = now >= q->finish_at || (at_once && f->compression == ARCHIVE_PLAIN);
            /* After a failed attempt, the next file is the shortest file, because a short file needs the least space.
             * An operator can free space by removing published files. */
            bool better = !p || (f->pause > 0 && q->state.length < p->state.length);
            /* Files with the same name are published in order, except files that a shortage delays. */
            bool behind = false;
            for (size_t m = 0; m < k && !behind; m++)
                behind = strcmp(parts[m]->state.name, q->state.name) == 0 && !parts[m]->shortage;
            if (q->stage == PART_SETTLED && due && better && !behind)
                p = q;
        }
        if (!p)
            continue;
        p->stage = PART_FINISHING;
        memcpy(a->id, id, sizeof a->id);
        a->result.part = p;
        a->spec = (struct archive_finish_spec){.file = &p->state,
            .stream = f->stream,
            .id = a->id,
            .compression = f->compression,
            .retried = p->tried};
        work_thread_start(a->thread, a);
        busy++;
    }
}

static void wait_longer(usec_t now, usec_t *pause, usec_t *until)
{
    usec_t next = *pause == 0 ? RETRY : 2 * *pause;
    *pause = next < RETRY_MAX ? next : RETRY_MAX;
    *until = now + *pause;
}

struct archive_finished archive_finisher_collect(struct archive_finisher *f, usec_t now)
{
    for (int i = 0; i < THREADS; i++) {
        struct attempt *a = &f->attempts[i];
        struct archive_part *p = a->result.part;
        if (!p || !work_thread_done(a->thread))
            continue;
        struct archive_finished result = a->result;
        a->result.part = NULL;
        p->tried = true;
        p->stage = PART_SETTLED;
        free(p->shortage);
        p->shortage = result.error.code == 0 ? NULL : mem_strdup(result.error.text);
        if (result.error.code == 0)
            f->pause = f->due = 0;
        else
            wait_longer(now, &p->finish_pause, &p->finish_at);
        /* The condition `now >= f->due` prevents that several concurrent failures each lengthen the pause. */
        if (result.error.code != 0 && now >= f->due)
            wait_longer(now, &f->pause, &f->due);
        return result;
    }
    return (struct archive_finished){.part = NULL};
}
