#include "streams/archive/archive_finish.h"

#include "base/io.h"
#include "base/log.h"
#include "streams/archive/compressor.h"
#include "base/xxh3.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_STEP ((size_t)256 << 10)
#define COMPRESSIONS 3

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

/* A link to what is not there too: no rename and no making of a new file goes past it. */
static bool is_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

bool archive_name_is_taken(const char *name)
{
    static const char *const names[] = {"", ".gz", ".zst", ".part", ".manifest.json"};
    struct buf path = {0};
    bool taken = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        taken = taken || is_there(path_of(&path, name, names[i], ""));
    buf_free(&path);
    return taken;
}

/* What one finishing works with. */
struct finish {
    const struct archive_finish_spec *spec;
    struct buf part, fresh, packed, text;
    struct buf
        name; /* what it is finished as: the file's, or with a number behind it where others have that */
    struct archive_manifest manifest;
    int in, out;      /* -1: not open */
    bool irrevocable; /* the packed file is all there is of it, or may be */
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
static int put(struct finish *f, struct compressor *compressor, struct bytes piece, bool last)
{
    if (f->out < 0)
        return 0;
    buf_clear(&f->packed);
    if (compressor_add(compressor, piece, last, &f->packed) != 0)
        return fail_content(f, "it cannot be compressed");
    if (io_write_all(f->out, f->packed.ptr, f->packed.len, (off_t)f->manifest.stored) != 0)
        return fail_system(f, f->fresh.ptr);
    f->manifest.stored += f->packed.len;
    return 0;
}

static int copy(struct finish *f, struct compressor *compressor)
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
        f->manifest.lines += bytes_count_lines(piece);
        at += (uint64_t)n;
        if (put(f, compressor, piece, false) != 0)
            return -1;
    }
    if (f->manifest.lines != f->spec->file->lines)
        return fail_content(f, "it holds another number of lines than were written to it");
    snprintf(f->manifest.xxh3, sizeof f->manifest.xxh3, "%016llx",
        (unsigned long long)XXH3_64bits_digest(f->hash));
    return put(f, compressor, BYTES_NONE, true);
}

static int open_files(struct finish *f)
{
    const struct archive_finish_spec *spec = f->spec;
    f->in = io->open(f->part.ptr, O_RDONLY | O_CLOEXEC, 0);
    if (f->in < 0)
        return fail_system(f, f->part.ptr);
    f->manifest.stored = spec->compression == ARCHIVE_PLAIN ? spec->file->length : 0;
    f->manifest.lines = 0;
    if (spec->compression == ARCHIVE_PLAIN)
        return 0;
    path_of(&f->fresh, spec->file->name, archive_suffix(spec->compression), ".new");
    f->out = io->open(f->fresh.ptr, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return f->out < 0 ? fail_system(f, f->fresh.ptr) : 0;
}

static int pack(struct finish *f)
{
    struct compressor *compressor = compressor_new(f->spec->compression);
    int rc = open_files(f);
    if (rc == 0)
        rc = copy(f, compressor);
    if (rc == 0 && f->out >= 0 && io->fdatasync(f->out) != 0)
        rc = fail_system(f, f->fresh.ptr);
    int saved = errno;
    if (f->in >= 0)
        io->close(f->in);
    if (f->out >= 0)
        io->close(f->out);
    compressor_free(&compressor);
    errno = saved;
    return rc;
}

/* True: a manifest of these lines is there. */
static bool has_own_manifest(const struct finish *f, const char *name, struct archive_manifest *out)
{
    struct buf path = {0};
    bool own = archive_manifest_read(path_of(&path, name, "", ".manifest.json"), out) &&
               archive_manifest_is_of_same_lines(out, &f->manifest);
    buf_free(&path);
    return own;
}

static bool has_file(const char *name)
{
    struct buf path = {0};
    bool there = false;
    for (int i = 0; i < COMPRESSIONS; i++)
        there = there || is_there(path_of(&path, name, archive_suffix(i), ""));
    buf_free(&path);
    return there;
}

static bool has_any_manifest(const char *name)
{
    struct buf path = {0};
    bool there = is_there(path_of(&path, name, "", ".manifest.json"));
    buf_free(&path);
    return there;
}

/* NAME was free when it was chosen, but others may have made a file of that name since. */
static bool may_have(const struct finish *f, const char *name)
{
    struct archive_manifest m;
    if (has_file(name))
        return false;
    if (has_own_manifest(f, name, &m))
        return true;
    bool is_chosen = strcmp(name, f->spec->file->name) == 0;
    return is_chosen ? !has_any_manifest(name) : !archive_name_is_taken(name);
}

/* The file's own, and those with a number behind it. */
static const char *name_number(const struct finish *f, unsigned n, struct buf *out)
{
    buf_clear(out);
    buf_printf(out, n == 0 ? "%s" : "%s.%u", f->spec->file->name, n);
    return out->ptr;
}

static void choose_name(struct finish *f)
{
    for (unsigned n = 0; n == 0 || !may_have(f, f->name.ptr); n++)
        name_number(f, n, &f->name);
}

/* One of these lines is replaced: an earlier try may have packed them otherwise. 1: somebody has made another meanwhile. */
static int name_manifest(struct finish *f, const char *fresh, const char *path)
{
    struct archive_manifest m;
    bool own = has_own_manifest(f, f->name.ptr, &m);
    if ((own ? io->rename(fresh, path) : io->rename_new(fresh, path)) == 0)
        return 0;
    return errno == EEXIST ? 1 : fail_system(f, path);
}

static int write_manifest(struct finish *f)
{
    struct buf text = {0}, path = {0}, fresh = {0};
    path_of(&path, f->name.ptr, "", ".manifest.json");
    path_of(&fresh, f->name.ptr, "", ".manifest.json.new");
    archive_manifest_print(&f->manifest, f->name.ptr, &text);
    int fd = io->open(fresh.ptr, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int rc = fd >= 0 && io_write_all(fd, text.ptr, text.len, 0) == 0 && io->fdatasync(fd) == 0
                 ? 0
                 : fail_system(f, fresh.ptr);
    int saved = errno;
    if (fd >= 0)
        io->close(fd);
    errno = saved;
    if (rc == 0)
        rc = name_manifest(f, fresh.ptr, path.ptr);
    saved = errno;
    if (rc > 0)
        io->unlink(fresh.ptr);
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

/* Durably, whether it was there or not: whoever removed it may have been killed before that was durable. It may never have been
 * made, perhaps its directory neither. */
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
    if (f->fresh.len > 0 && !f->irrevocable)
        io->unlink(f->fresh.ptr);
    errno = saved;
}

/* What a life that packed otherwise has left: it is perhaps no whole file. */
static void remove_packed_otherwise(struct finish *f)
{
    struct buf path = {0};
    for (int i = ARCHIVE_PLAIN + 1; i < COMPRESSIONS; i++)
        if (i != (int)f->manifest.compression)
            io->unlink(path_of(&path, f->spec->file->name, archive_suffix(i), ".new"));
    buf_free(&path);
}

/* Of these lines, beside names that others took before the file had them. Safely, while NAME.part or the new manifest's file tells
 * all: no later try is to take what stands there for the file. */
static int remove_other_manifests(struct finish *f)
{
    struct buf name = {0}, path = {0};
    struct archive_manifest m;
    bool removed = false;
    for (unsigned n = 0; n == 0 || archive_name_is_taken(name.ptr); n++) {
        name_number(f, n, &name);
        if (strcmp(name.ptr, f->name.ptr) != 0 && has_own_manifest(f, name.ptr, &m))
            removed = io->unlink(path_of(&path, name.ptr, "", ".manifest.json")) == 0 || removed;
    }
    buf_free(&name);
    buf_free(&path);
    return removed ? sync_directory(f) : 0;
}

/* All of it is in `from`. 1: somebody has made a file of the name meanwhile. */
static int rename_whole(struct finish *f, const char *from)
{
    struct buf final = {0};
    int rc = 0;
    path_of(&final, f->name.ptr, archive_suffix(f->manifest.compression), "");
    if (io->rename_new(from, final.ptr) != 0)
        rc = errno == EEXIST ? 1 : fail_system(f, final.ptr);
    int saved = errno;
    buf_free(&final);
    errno = saved;
    return rc;
}

/* The manifest's name is made durable before the file's, and so is that NAME.part is gone: rename keeps its order on no file
 * system that promises none. */
static int try_name(struct finish *f)
{
    bool plain = f->manifest.compression == ARCHIVE_PLAIN;
    choose_name(f);
    int rc = write_manifest(f);
    if (rc != 0)
        return rc;
    if (!f->irrevocable)
        remove_packed_otherwise(f);
    if (sync_directory(f) != 0 || remove_other_manifests(f) != 0)
        return -1;
    if (!plain && !f->irrevocable) {
        f->irrevocable = true;
        if (remove_part(f) != 0)
            return -1;
    }
    return rename_whole(f, plain ? f->part.ptr : f->fresh.ptr);
}

static int give_name(struct finish *f)
{
    int rc;
    do
        rc = try_name(f);
    while (rc > 0);
    if (rc != 0 || sync_directory(f) != 0)
        return -1;
    if (strcmp(f->name.ptr, f->spec->file->name) != 0)
        log_warn("finished under another name: a file of its own is there, and somebody else's",
            LOG_S("file", f->spec->file->name), LOG_S("as", f->name.ptr));
    return 0;
}

/* With NAME.part beside it: so it was packed by a version before this one, which removed that last. A plain file is NAME.part
 * itself, renamed. */
static bool is_packed_already(const struct finish *f)
{
    struct archive_manifest m;
    struct buf path = {0};
    struct stat st;
    const char *name = f->spec->file->name;
    bool is = has_own_manifest(f, name, &m) && m.compression != ARCHIVE_PLAIN &&
              stat(path_of(&path, name, archive_suffix(m.compression), ""), &st) == 0 &&
              (uint64_t)st.st_size == m.stored;
    buf_free(&path);
    return is;
}

/* Once it is gone nothing is left to be done but, perhaps, the naming of the packed file. */
static int finish_part(struct finish *f)
{
    if (f->spec->file->length == 0)
        return remove_part(f);
    if (is_packed_already(f))
        return sync_directory(f) == 0 ? remove_part(f) : -1;
    return pack(f) == 0 ? give_name(f) : -1;
}

/* f->fresh is the packed file that waits for its name. */
static bool has_packed(struct finish *f, enum archive_compression c)
{
    path_of(&f->fresh, f->spec->file->name, archive_suffix(c), ".new");
    return c != ARCHIVE_PLAIN && access(f->fresh.ptr, F_OK) == 0;
}

/* The manifest of these lines that is there, by whatever of its names. */
static bool find_manifest(struct finish *f, struct archive_manifest *out)
{
    struct buf name = {0};
    bool found = false, more = true;
    for (unsigned n = 0; more && !found; n++) {
        found = has_own_manifest(f, name_number(f, n, &name), out);
        more = n == 0 || archive_name_is_taken(name.ptr);
    }
    buf_free(&name);
    return found;
}

static int fail_packed(struct finish *f, const char *what)
{
    snprintf(f->error, ARCHIVE_ERROR_TEXT, "%s: %s", f->fresh.ptr, what);
    errno = EIO;
    return -1;
}

static int name_packed(struct finish *f)
{
    struct stat st;
    if (stat(f->fresh.ptr, &st) != 0)
        return fail_system(f, f->fresh.ptr);
    if ((uint64_t)st.st_size != f->manifest.stored)
        return fail_packed(f, "it has another size than its manifest says");
    return give_name(f);
}

/* Neither its manifest is there nor NAME.part: it is taken away, unless somebody took the manifest alone, and before its file was
 * there. */
static int finish_away(struct finish *f)
{
    const struct archive_file_state *file = f->spec->file;
    if (has_packed(f, ARCHIVE_GZIP) || has_packed(f, ARCHIVE_ZSTD))
        return fail_packed(f, "its manifest is gone, so nothing tells whether it is whole: take it away");
    if (!has_file(file->name))
        log_warn("a file was finished and is taken away, or its .part was removed", LOG_S("file", file->name),
            LOG_U("first", file->first), LOG_U("end", file->end), LOG_U("lines", file->lines));
    return remove_part(f);
}

/* A state says that lines are in it only once NAME.part is safe, and that goes when the file is whole: what there is may lack
 * its name, nothing else. */
static int finish_again(struct finish *f)
{
    struct archive_manifest m;
    f->irrevocable = true;
    if (!find_manifest(f, &m))
        return finish_away(f);
    f->manifest = m;
    return has_packed(f, m.compression) ? name_packed(f) : remove_part(f);
}

bool archive_is_want(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENFILE || error == ENOMEM;
}

static struct archive_manifest manifest_of(const struct archive_finish_spec *spec)
{
    struct archive_manifest m = {.first = spec->file->first,
        .end = spec->file->end,
        .lines = spec->file->lines,
        .bytes = spec->file->length,
        .compression = spec->compression};
    snprintf(m.stream, sizeof m.stream, "%s", spec->stream);
    snprintf(m.id, sizeof m.id, "%s", spec->id);
    return m;
}

int archive_finish(const struct archive_finish_spec *spec, bool *wanting, char error[ARCHIVE_ERROR_TEXT])
{
    struct finish f = {.spec = spec, .in = -1, .out = -1, .error = error, .manifest = manifest_of(spec)};
    f.hash = XXH3_createState();
    if (f.hash == NULL)
        abort();
    XXH3_64bits_reset(f.hash);
    archive_part_path(spec->file->name, &f.part);
    bool gone =
        spec->may_be_named && spec->file->length > 0 && access(f.part.ptr, F_OK) != 0 && errno == ENOENT;
    int rc = gone ? finish_again(&f) : finish_part(&f);
    if (rc != 0)
        remove_packed(&f);
    *wanting = rc != 0 && archive_is_want(errno);
    XXH3_freeState(f.hash);
    buf_free(&f.part);
    buf_free(&f.fresh);
    buf_free(&f.packed);
    buf_free(&f.text);
    buf_free(&f.name);
    return rc;
}
