#include "compactor/archive.h"

#include "base/io.h"
#include "compactor/shard_writer.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TMP_SUFFIX ".tmp"
#define COPY_PREFIX "copy-"
#define CURRENT "current"
#define CURRENT_TMP CURRENT TMP_SUFFIX
#define NEWEST "newest"
#define NEWEST_TMP NEWEST TMP_SUFFIX

void archive_path(const char *archive, uint64_t generation, bool unfinished, char out[PATH_MAX])
{
    char name[MANIFEST_NAME_TEXT];
    manifest_directory_name(generation, name);
    snprintf(out, PATH_MAX, "%s/%s%s", archive, name, unfinished ? TMP_SUFFIX : "");
}

void archive_copy_path(const char *archive, uint64_t generation, char out[PATH_MAX])
{
    char name[MANIFEST_NAME_TEXT];
    manifest_directory_name(generation, name);
    snprintf(out, PATH_MAX, "%s/" COPY_PREFIX "%s", archive, name);
}

static enum compact_result from_manifest(enum manifest_result r, struct error *error)
{
    return r == MANIFEST_OK ? COMPACT_OK
                            : error_set(error,
                                  r == MANIFEST_VERSION  ? COMPACT_REFUSED
                                  : r == MANIFEST_FAILED ? COMPACT_FAILED
                                                         : COMPACT_DAMAGED,
                                  "%s", error->text);
}

enum compact_result archive_read_current(const char *archive, struct manifest *out, struct error *error)
{
    uint64_t generation;
    if (manifest_current(archive, &generation, error) == MANIFEST_ABSENT)
        return error->code = COMPACT_REFUSED;
    return from_manifest(manifest_read_current(archive, out, error), error);
}

static enum compact_result sync_dir(const char *path, struct error *error)
{
    return io_sync_dir(path) == 0 ? COMPACT_OK : error_errno(error, COMPACT_FAILED, path);
}

static void free_names(struct dirent **names, int n)
{
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

static enum compact_result remove_directory(const char *path, struct error *error)
{
    struct dirent **names;
    char file[PATH_MAX];
    int n = scandir(path, &names, NULL, alphasort), failed = n < 0;
    for (int i = 0; i < n && !failed; i++) {
        if (strcmp(names[i]->d_name, ".") == 0 || strcmp(names[i]->d_name, "..") == 0)
            continue;
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        failed = io->unlink(file) != 0;
    }
    failed = failed || rmdir(path) != 0;
    int saved = errno;
    free_names(names, n > 0 ? n : 0);
    errno = saved;
    return failed ? error_errno(error, COMPACT_FAILED, path) : COMPACT_OK;
}

/* Removes a generation. The directory is first renamed durably, so that a generation with its usual name is always
 * complete. */
static enum compact_result remove_generation(const char *archive, uint64_t generation, struct error *error)
{
    char from[PATH_MAX], to[PATH_MAX];
    archive_path(archive, generation, false, from);
    archive_path(archive, generation, true, to);
    if (io->rename(from, to) != 0)
        return error_errno(error, COMPACT_FAILED, from);
    enum compact_result r = sync_dir(archive, error);
    return r == COMPACT_OK ? remove_directory(to, error) : r;
}

static enum compact_result make_link(
    const char *archive, const char *link, uint64_t generation, struct error *error)
{
    char name[MANIFEST_NAME_TEXT], path[PATH_MAX];
    manifest_directory_name(generation, name);
    snprintf(path, sizeof path, "%s/%s", archive, link);
    return io->symlink(name, path) == 0 ? COMPACT_OK : error_errno(error, COMPACT_FAILED, path);
}

static enum compact_result remove_link(const char *archive, const char *link, struct error *error)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", archive, link);
    return io->unlink(path) == 0 ? COMPACT_OK : error_errno(error, COMPACT_FAILED, path);
}

/* Renames LINK.tmp to LINK, durably. */
static enum compact_result put_link(const char *archive, const char *link, struct error *error)
{
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s/%s" TMP_SUFFIX, archive, link);
    snprintf(to, sizeof to, "%s/%s", archive, link);
    if (io->rename(from, to) != 0)
        return error_errno(error, COMPACT_FAILED, to);
    return sync_dir(archive, error);
}

static bool has_link(const char *archive, const char *link)
{
    char path[PATH_MAX], name[MANIFEST_NAME_TEXT];
    snprintf(path, sizeof path, "%s/%s", archive, link);
    return readlink(path, name, sizeof name) > 0;
}

/* Returns the next generation of the directory listing, from the newest to the oldest. */
static bool next_generation(struct dirent **names, int *n, uint64_t *generation)
{
    while (*n > 0)
        if (manifest_directory_number(names[--*n]->d_name, generation))
            return true;
    return false;
}

/* Makes the link `newest` of an archive that was copied without the link. This is done before a run publishes a generation, so the highest
 * generation was current, unless the archive was copied during a run. */
static enum compact_result recover_newest(
    const char *archive, struct dirent **names, int n, struct error *error)
{
    uint64_t generation;
    if (has_link(archive, NEWEST) || !next_generation(names, &n, &generation))
        return COMPACT_OK;
    enum compact_result r = make_link(archive, NEWEST_TMP, generation, error);
    return r == COMPACT_OK ? put_link(archive, NEWEST, error) : r;
}

/* Finishes an interrupted archive_switch if `current` was replaced, and else undoes it (invariant 4). */
static enum compact_result recover_switch(const char *archive, struct error *error)
{
    if (!has_link(archive, NEWEST_TMP))
        return COMPACT_OK;
    return has_link(archive, CURRENT_TMP) ? remove_link(archive, NEWEST_TMP, error)
                                          : put_link(archive, NEWEST, error);
}

/* Removes the directory entry `name` if an interrupted run or copy has left it, unless it is the copy of the generation
 * `kept`. */
static enum compact_result recover_one(
    const char *archive, const char *name, bool has_current, uint64_t kept, struct error *error)
{
    uint64_t generation, unfinished;
    char path[PATH_MAX], digits[MANIFEST_DIRECTORY_DIGITS + 1];
    snprintf(path, sizeof path, "%s/%s", archive, name);
    snprintf(digits, sizeof digits, "%.*s", MANIFEST_DIRECTORY_DIGITS, name);
    if (bytes_starts_with(bytes_str(name), BYTES_LITERAL(COPY_PREFIX)) &&
        manifest_directory_number(name + strlen(COPY_PREFIX), &generation))
        return generation == kept ? COMPACT_OK : remove_directory(path, error);
    if (strlen(name) > MANIFEST_DIRECTORY_DIGITS &&
        strcmp(name + MANIFEST_DIRECTORY_DIGITS, TMP_SUFFIX) == 0 &&
        manifest_directory_number(digits, &unfinished))
        return remove_directory(path, error);
    if (strcmp(name, CURRENT_TMP) == 0 && io->unlink(path) != 0)
        return error_errno(error, COMPACT_FAILED, path);
    if (has_current || !manifest_directory_number(name, &generation))
        return COMPACT_OK;
    if (generation == 0)
        return remove_generation(archive, generation, error);
    return error_set(error, COMPACT_REFUSED,
        "%.300s exists but %.100s/current does not; make `current` a link to the generation to serve", path,
        archive);
}

enum compact_result archive_recover(const char *archive, struct error *error)
{
    return archive_recover_but(archive, ARCHIVE_NONE, error);
}

enum compact_result archive_recover_but(const char *archive, uint64_t kept, struct error *error)
{
    uint64_t current;
    struct dirent **names;
    enum manifest_result m = manifest_current(archive, &current, error);
    if (m != MANIFEST_OK && m != MANIFEST_ABSENT)
        return from_manifest(m, error);
    int n = scandir(archive, &names, NULL, alphasort);
    if (n < 0)
        return error_errno(error, COMPACT_FAILED, archive);
    enum compact_result r = recover_switch(archive, error);
    if (r == COMPACT_OK)
        r = sync_dir(archive, error);
    for (int i = 0; i < n && r == COMPACT_OK; i++)
        r = recover_one(archive, names[i]->d_name, m == MANIFEST_OK || kept != ARCHIVE_NONE, kept, error);
    if (r == COMPACT_OK && m == MANIFEST_OK)
        r = recover_newest(archive, names, n, error);
    free_names(names, n);
    return r;
}

uint64_t archive_newest(const char *archive, uint64_t current)
{
    char path[PATH_MAX], name[MANIFEST_NAME_TEXT];
    uint64_t newest = 0;
    snprintf(path, sizeof path, "%s/" NEWEST, archive);
    ssize_t n = readlink(path, name, sizeof name - 1);
    name[n > 0 ? n : 0] = '\0';
    return manifest_directory_number(name, &newest) && newest > current ? newest : current;
}

/* Appends a generation and its changes besides the merge of slices, such as "generation 8 (import of a.csv, b.csv)". */
static void append_change(const struct manifest *m, const struct manifest *current, struct buf *out)
{
    buf_printf(out, "%sgeneration %" PRIu64 " (%s", out->len ? ", " : "", m->generation,
        m->change[0] ? m->change : "slices");
    for (size_t i = current->n_imports; i < m->n_imports; i++)
        buf_printf(out, "%s%s", i == current->n_imports ? " of " : ", ", m->imports[i].name);
    buf_append_char(out, ')');
}

/* Checks the generations newer than the current generation, and appends the generations that were current once to
 * `served`. */
static enum compact_result check_newer(const char *archive, const struct manifest *current, uint64_t through,
    struct dirent **names, int n, struct buf *served, struct error *error)
{
    uint64_t generation, newest = archive_newest(archive, current->generation);
    enum compact_result r = COMPACT_OK;
    while (r == COMPACT_OK && next_generation(names, &n, &generation) && generation > current->generation) {
        char path[PATH_MAX];
        struct manifest m;
        archive_path(archive, generation, false, path);
        r = from_manifest(manifest_read(path, &m, error), error);
        if (r == COMPACT_OK && m.through > through)
            r = error_set(error, COMPACT_REFUSED,
                "%.300s is newer than the current generation and is the only copy of the counts of slice "
                "%" PRIu64,
                path, m.through);
        if (r == COMPACT_OK && generation <= newest)
            append_change(&m, current, served);
        manifest_free(&m);
    }
    return r;
}

enum compact_result archive_undo(const char *archive, const struct manifest *current, uint64_t through,
    bool discards, bool *must_ask, struct error *error)
{
    struct dirent **names;
    struct buf served = {0};
    uint64_t generation;
    int n = scandir(archive, &names, NULL, alphasort), left = n;
    if (n < 0)
        return error_errno(error, COMPACT_FAILED, archive);
    enum compact_result r = check_newer(archive, current, through, names, n, &served, error);
    *must_ask = r == COMPACT_OK && served.len > 0 && !discards;
    if (*must_ask)
        r = error_set(error, COMPACT_REFUSED,
            "%.200s/current is generation %" PRIu64 ", but the archive also has %.*s. To drop these changes: "
            "millrace compact --discard-newer. To keep them: make `current` the newest generation again",
            archive, current->generation, served.len < 600 ? (int)served.len : 600, served.ptr);
    while (r == COMPACT_OK && next_generation(names, &left, &generation) && generation > current->generation)
        r = remove_generation(archive, generation, error);
    buf_free(&served);
    free_names(names, n);
    return r;
}

enum compact_result archive_prune(const char *archive, uint64_t current, unsigned keep, struct error *error)
{
    struct dirent **names;
    int n = scandir(archive, &names, NULL, alphasort), left = n;
    unsigned kept = 0;
    enum compact_result r = COMPACT_OK;
    if (n < 0)
        return error_errno(error, COMPACT_FAILED, archive);
    for (uint64_t generation; r == COMPACT_OK && next_generation(names, &left, &generation);)
        if (generation <= current && kept++ >= keep && generation != current)
            r = remove_generation(archive, generation, error);
    free_names(names, n);
    return r;
}

enum compact_result archive_visit_others(
    const char *archive, uint64_t current, archive_visitor *visit, void *arg, struct error *error)
{
    struct dirent **names;
    int n = scandir(archive, &names, NULL, alphasort), left = n;
    enum compact_result r = COMPACT_OK;
    if (n < 0)
        return error_errno(error, COMPACT_FAILED, archive);
    for (uint64_t generation; r == COMPACT_OK && next_generation(names, &left, &generation);) {
        char path[PATH_MAX];
        struct manifest m;
        if (generation == current)
            continue;
        archive_path(archive, generation, false, path);
        r = from_manifest(manifest_read(path, &m, error), error);
        if (r == COMPACT_OK)
            r = visit(arg, &m, error);
        manifest_free(&m);
    }
    free_names(names, n);
    return r;
}

enum compact_result archive_begin(const char *archive, uint64_t generation, struct error *error)
{
    char path[PATH_MAX];
    archive_path(archive, generation, true, path);
    return io->mkdir(path, 0777) == 0 ? COMPACT_OK : error_errno(error, COMPACT_FAILED, path);
}

static void discard(const char *path)
{
    if (access(path, F_OK) == 0)
        remove_directory(path, NULL);
}

void archive_discard(const char *archive, uint64_t generation)
{
    char path[PATH_MAX];
    archive_path(archive, generation, true, path);
    discard(path);
}

void archive_discard_copy(const char *archive, uint64_t generation)
{
    char path[PATH_MAX];
    archive_copy_path(archive, generation, path);
    discard(path);
}

enum compact_result archive_describe(const char *archive, const struct manifest *m, struct error *error)
{
    char directory[PATH_MAX], path[PATH_MAX + MANIFEST_NAME_TEXT];
    struct buf text = {0};
    archive_path(archive, m->generation, true, directory);
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    manifest_print(m, &text);
    if (text.len > MANIFEST_BYTES_MAX) {
        buf_free(&text);
        return error_set(error, COMPACT_REFUSED,
            "the manifest %.300s would be too long; import fewer, larger files", path);
    }
    int fd = io->open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool written = fd >= 0 && io_write_all(fd, text.ptr, text.len, 0) == 0 && io->fsync(fd) == 0;
    enum compact_result r = written ? COMPACT_OK : error_errno(error, COMPACT_FAILED, path);
    if (fd >= 0)
        io->close(fd);
    buf_free(&text);
    return r;
}

enum compact_result archive_publish(const char *archive, uint64_t generation, struct error *error)
{
    char from[PATH_MAX], to[PATH_MAX];
    archive_path(archive, generation, true, from);
    archive_path(archive, generation, false, to);
    enum compact_result r = sync_dir(from, error);
    if (r == COMPACT_OK && io->rename(from, to) != 0)
        r = error_errno(error, COMPACT_FAILED, to);
    return r == COMPACT_OK ? sync_dir(archive, error) : r;
}

enum compact_result archive_switch(const char *archive, uint64_t generation, struct error *error)
{
    enum compact_result r = make_link(archive, CURRENT_TMP, generation, error);
    if (r == COMPACT_OK) {
        r = make_link(archive, NEWEST_TMP, archive_newest(archive, generation), error);
        if (r != COMPACT_OK)
            (void)remove_link(archive, CURRENT_TMP, NULL);
    }
    if (r == COMPACT_OK)
        r = put_link(archive, CURRENT, error);
    return r == COMPACT_OK ? put_link(archive, NEWEST, error) : r;
}

static enum compact_result write_empty(const char *directory, enum manifest_kind kind, uint32_t shard,
    uint32_t shards, struct manifest_file *file, struct error *error)
{
    struct shard_writer *w;
    enum compact_result r = shard_writer_open(directory, kind, shard, shards, 0, &w, error);
    if (r == COMPACT_OK)
        r = shard_writer_finish(w, file, error);
    shard_writer_close(&w);
    return r;
}

enum compact_result archive_init(const char *archive, uint32_t shards, int64_t now, struct error *error)
{
    uint64_t generation;
    enum manifest_result there = manifest_current(archive, &generation, error);
    if (there != MANIFEST_ABSENT)
        return from_manifest(there, error);
    struct manifest m = {.made = now};
    manifest_set_shards(&m, shards);
    char directory[PATH_MAX];
    archive_path(archive, 0, true, directory);
    enum compact_result r = archive_begin(archive, 0, error);
    for (uint32_t k = 0; k < shards && r == COMPACT_OK; k++) {
        r = write_empty(directory, MANIFEST_RECORDS, k, shards, &m.files[k], error);
        if (r == COMPACT_OK)
            r = write_empty(directory, MANIFEST_TEXTS, k, shards, &m.texts[k], error);
    }
    if (r == COMPACT_OK)
        r = archive_describe(archive, &m, error);
    if (r == COMPACT_OK)
        r = archive_publish(archive, 0, error);
    if (r == COMPACT_OK)
        r = archive_switch(archive, 0, error);
    if (r != COMPACT_OK)
        archive_discard(archive, 0);
    manifest_free(&m);
    return r;
}
