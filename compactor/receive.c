#include "compactor/receive.h"

#include "base/xxh3.h"
#include "compactor/archive.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define PIECE ((size_t)1 << 20)

bool receive_parse(const char *text, struct receive_spec *spec)
{
    int end = 0;
    return sscanf(text, "%" SCNu64 "/%" SCNx64 "%n", &spec->generation, &spec->xxh3, &end) == 2 &&
           text[end] == '\0';
}

/* Reads the manifest in N, or in N.tmp. Sets *is_it to false if it is missing or another one. */
static enum compact_result look(
    const struct receive_spec *spec, bool unfinished, struct manifest *out, bool *is_it, struct error *error)
{
    char directory[PATH_MAX];
    struct buf text = {0};
    archive_path(spec->archive, spec->generation, unfinished, directory);
    char *path = mem_printf("%s/manifest.json", directory);
    bool is_read = io_read_file(path, MANIFEST_BYTES_MAX, &text) == 0;
    enum compact_result r = COMPACT_OK;
    *is_it = is_read && XXH3_64bits(text.ptr, text.len) == spec->xxh3;
    if (!is_read && errno != ENOENT)
        r = error_errno(error, COMPACT_FAILED, path);
    else if (is_read && !*is_it && !unfinished)
        r = error_set(error, COMPACT_REFUSED,
            "%.300s is another generation %" PRIu64 " than the one to copy: choose another directory",
            directory, spec->generation);
    else if (*is_it && manifest_read(directory, out, error) != MANIFEST_OK)
        r = error->code = COMPACT_REFUSED;
    buf_free(&text);
    free(path);
    return r;
}

/* The archive may have a generation already, which must be of the same streams. */
static enum compact_result check_streams(
    const struct receive_spec *spec, const struct manifest *m, uint64_t *current, struct error *error)
{
    struct manifest own;
    enum manifest_result read = manifest_read_current(spec->archive, &own, error);
    enum compact_result r = COMPACT_OK;
    *current = read == MANIFEST_OK ? own.generation : ARCHIVE_NONE;
    if (read != MANIFEST_OK)
        return read == MANIFEST_ABSENT ? COMPACT_OK : (error->code = COMPACT_REFUSED);
    for (size_t i = 0; i < own.n_streams; i++)
        for (size_t k = 0; k < m->n_streams; k++)
            if (strcmp(own.streams[i].name, m->streams[k].name) == 0 &&
                strcmp(own.streams[i].id, m->streams[k].id) != 0)
                r = error_set(error, COMPACT_REFUSED,
                    "%.300s is the archive of another pipeline (stream %s): choose another directory",
                    spec->archive, own.streams[i].name);
    manifest_free(&own);
    return r;
}

struct check {
    const struct receive_spec *spec;
    XXH3_state_t *hash;
    char *piece;
    uint64_t done, total; /* bytes */
};

/* Reads and syncs a file of the copy. Sets *is_whole to false if its size differs from the manifest's. */
static enum compact_result check_file(
    struct check *c, const char *path, const struct manifest_file *f, bool *is_whole, struct error *error)
{
    struct stat st;
    ssize_t n = 0;
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    *is_whole = fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == f->bytes;
    XXH3_64bits_reset(c->hash);
    for (off_t at = 0; *is_whole && (n = io->pread(fd, c->piece, PIECE, at)) > 0; at += n) {
        XXH3_64bits_update(c->hash, c->piece, (size_t)n);
        c->done += (uint64_t)n;
        if (c->spec->on_progress)
            c->spec->on_progress(c->done, c->total, c->spec->arg);
    }
    enum compact_result r = COMPACT_OK;
    if ((fd < 0 && errno != ENOENT) || n < 0 || (*is_whole && io->fsync(fd) != 0))
        r = error_errno(error, COMPACT_FAILED, path);
    else if (*is_whole && XXH3_64bits_digest(c->hash) != f->xxh3)
        r = error_set(error, COMPACT_DAMAGED, "%.300s: its checksum is not that of the manifest", path);
    if (fd >= 0)
        io->close(fd);
    return r;
}

/* Links a file of copy-N into N.tmp. Sets *is_copied to false if the file does not exist. */
static enum compact_result link_file(
    const struct receive_spec *spec, const char *name, bool *is_copied, struct error *error)
{
    char copy[PATH_MAX], unfinished[PATH_MAX];
    archive_copy_path(spec->archive, spec->generation, copy);
    archive_path(spec->archive, spec->generation, true, unfinished);
    char *from = mem_printf("%s/%s", copy, name), *to = mem_printf("%s/%s", unfinished, name);
    enum compact_result r = COMPACT_OK;
    *is_copied = io->link(from, to) == 0;
    if (!*is_copied && errno != ENOENT)
        r = error_errno(error, COMPACT_FAILED, from);
    free(from);
    free(to);
    return r;
}

/* Makes N.tmp of the files in copy-N, and reads its manifest. Sets *is_copied to false if a file is missing, or the manifest
 * is another one. */
static enum compact_result link_files(
    const struct receive_spec *spec, struct manifest *m, bool *is_copied, struct error *error)
{
    enum compact_result r = archive_begin(spec->archive, spec->generation, error);
    if (r == COMPACT_OK)
        r = link_file(spec, "manifest.json", is_copied, error);
    if (r == COMPACT_OK && *is_copied)
        r = look(spec, true, m, is_copied, error);
    const struct manifest_file *f;
    for (size_t i = 0; r == COMPACT_OK && *is_copied && (f = manifest_next_file(m, &i));)
        r = link_file(spec, f->name, is_copied, error);
    return r;
}

/* Compares all files of N.tmp with the manifest. Sets *is_whole to false if a file is missing or has another size. */
static enum compact_result check_files(
    const struct receive_spec *spec, const struct manifest *m, bool *is_whole, struct error *error)
{
    char directory[PATH_MAX];
    struct check c = {.spec = spec, .hash = XXH3_createState(), .piece = mem_alloc(PIECE)};
    enum compact_result r = COMPACT_OK;
    archive_path(spec->archive, spec->generation, true, directory);
    const struct manifest_file *f;
    for (size_t i = 0; (f = manifest_next_file(m, &i));)
        c.total += f->bytes;
    for (size_t i = 0; *is_whole && r == COMPACT_OK && (f = manifest_next_file(m, &i));) {
        char *path = mem_printf("%s/%s", directory, f->name);
        r = check_file(&c, path, f, is_whole, error);
        free(path);
    }
    XXH3_freeState(c.hash);
    free(c.piece);
    return r;
}

static enum compact_result publish(const struct receive_spec *spec, const struct manifest *m,
    bool is_published, uint64_t current, struct error *error)
{
    const struct run_control *control = spec->control;
    bool is_served = false;
    enum compact_result r =
        is_published ? COMPACT_OK : archive_publish(spec->archive, spec->generation, error);
    if (r == COMPACT_OK && current != spec->generation)
        r = archive_switch(spec->archive, spec->generation, error);
    if (r == COMPACT_OK)
        archive_discard_copy(spec->archive, spec->generation);
    if (r == COMPACT_OK)
        r = control->reload(control->arg, spec->generation, manifest_content(m), &is_served, error);
    if (r == COMPACT_OK && is_served)
        r = archive_prune(spec->archive, spec->generation, spec->keep, error);
    return r;
}

enum compact_result receive_generation(const struct receive_spec *spec, bool *is_needed, struct error *error)
{
    struct manifest m = {0};
    bool is_published, is_copied = false;
    uint64_t current = ARCHIVE_NONE;
    enum compact_result r = look(spec, false, &m, &is_published, error);
    if (r == COMPACT_OK && !spec->looks)
        r = archive_recover_but(spec->archive, spec->generation, error);
    if (r == COMPACT_OK && !is_published && !spec->looks)
        r = link_files(spec, &m, &is_copied, error);
    if (r == COMPACT_OK && (is_published || is_copied))
        r = check_streams(spec, &m, &current, error);
    if (r == COMPACT_OK && is_copied)
        r = check_files(spec, &m, &is_copied, error);
    *is_needed = r == COMPACT_OK && !is_published && !is_copied;
    if (spec->looks)
        *is_needed = r == COMPACT_OK && current != spec->generation;
    if (r == COMPACT_OK && !*is_needed && !spec->looks)
        r = publish(spec, &m, is_published, current, error);
    if (!spec->looks)
        archive_discard(spec->archive, spec->generation);
    manifest_free(&m);
    return r;
}
