#include "backup/counts_copy.h"

#include "base/io.h"
#include "counts/slice_copy.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Links every file of the directory `from` into `to`, except the files for which `skips` returns true. `skips` may be
 * NULL. A missing directory counts as empty. */
static enum backup_result link_files(
    const char *from, const char *to, bool (*skips)(const char *to), struct error *error)
{
    enum backup_result r = BACKUP_OK;
    DIR *d = opendir(from);
    if (!d)
        return errno == ENOENT ? BACKUP_OK : backup_fail_errno(error, from);
    if (io_make_dirs(to) != 0)
        r = backup_fail_errno(error, to);
    for (struct dirent *e; r == BACKUP_OK && (e = readdir(d));) {
        char *source = tree_path(from, e->d_name), *target = tree_path(to, e->d_name);
        struct stat st;
        if (lstat(source, &st) == 0 && S_ISREG(st.st_mode) && !(skips && skips(target)))
            r = tree_link(source, target, error);
        free(source);
        free(target);
    }
    closedir(d);
    return r;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static enum backup_result copy_archive(struct counts_copy *c, struct error *error)
{
    char name[MANIFEST_NAME_TEXT];
    struct error why;
    enum manifest_result found = manifest_read_current(c->archive, &c->archived, &why);
    if (found == MANIFEST_ABSENT)
        return BACKUP_OK;
    if (found != MANIFEST_OK)
        return error_set(error, found == MANIFEST_BAD ? BACKUP_DAMAGED : BACKUP_FAILED, "%s", why.text);
    manifest_directory_name(c->archived.generation, name);
    char *from = tree_path(c->archive, name), *to = tree_path(c->archive_stage, name);
    char *current = tree_path(c->archive_stage, "current"), *manifest = tree_path(to, "manifest.json");
    enum backup_result r = link_files(from, to, NULL, error);
    if (r == BACKUP_OK && !is_there(manifest))
        r = error_set(error, BACKUP_CHANGED, "%s was deleted during the backup", from);
    if (r == BACKUP_OK && symlink(name, current) != 0)
        r = backup_fail_errno(error, current);
    free(from);
    free(to);
    free(current);
    free(manifest);
    return r;
}

static int slice_failed(const struct error *why, struct error *error)
{
    return error_set(error,
        why->code == SLICE_FULL      ? BACKUP_FULL
        : why->code == SLICE_DAMAGED ? BACKUP_DAMAGED
                                     : BACKUP_FAILED,
        "%s", why->text);
}

/* Finds the slices after the archive. */
static enum backup_result find_slices(struct counts_copy *c, const char *dir, struct error *error)
{
    if (slice_files_find(dir, c->archived.through, &c->slices) != 0)
        return errno == ENOENT ? BACKUP_OK : backup_fail_errno(error, dir);
    return c->slices.first > c->archived.through + 1
               ? error_set(error, BACKUP_CHANGED, "slice %" PRIu64 " is neither in %.300s nor in the archive",
                     c->archived.through + 1, dir)
               : BACKUP_OK;
}

static enum backup_result copy_slices(
    struct counts_copy *c, const char *dir, const char *stage, struct error *error)
{
    struct error why;
    enum backup_result r =
        c->slices.last > 0 && io_make_dirs(stage) != 0 ? backup_fail_errno(error, stage) : BACKUP_OK;
    for (uint64_t n = c->slices.first; r == BACKUP_OK && n > 0 && n <= c->slices.last; n++) {
        char *from = slice_path(dir, n), *to = slice_path(stage, n);
        if (n < c->slices.last && !slice_has_log(from)) {
            r = tree_link(from, to, error);
        } else {
            if (slice_copy(from, to, c->meanwhile, c->arg, &why) != SLICE_OK)
                r = is_there(from)
                        ? slice_failed(&why, error)
                        : error_set(error, BACKUP_CHANGED, "%s was deleted during the backup", from);
        }
        free(from);
        free(to);
    }
    return r;
}

/* Replaces the links of the rejects by copies, because the aggregator appends to the newest file. */
static enum backup_result settle_rejects(const char *stage, struct error *error)
{
    struct tree_list files = {0};
    enum backup_result r = is_there(stage) ? tree_list(stage, &files, error) : BACKUP_OK;
    for (size_t i = 0; r == BACKUP_OK && i < files.n; i++) {
        char *path = tree_path(stage, files.files[i].path);
        r = tree_replace(path, UINT64_MAX, error);
        free(path);
    }
    tree_list_free(&files);
    return r;
}

static enum backup_result copy_aggregator(struct counts_copy *c, struct error *error)
{
    char *slices = tree_path(c->aggregator, "slices"),
         *slices_stage = tree_path(c->aggregator_stage, "slices");
    char *rejects = tree_path(c->aggregator, "rejects"),
         *rejects_stage = tree_path(c->aggregator_stage, "rejects");
    char *key = tree_path(c->aggregator, "cursor-key"),
         *key_stage = tree_path(c->aggregator_stage, "cursor-key");
    struct tree_file ignored;
    enum backup_result r = find_slices(c, slices, error);
    if (r == BACKUP_OK)
        r = link_files(rejects, rejects_stage, NULL, error);
    if (r == BACKUP_OK)
        r = copy_slices(c, slices, slices_stage, error);
    if (r == BACKUP_OK) /* links files that were created while the slices were copied */
        r = link_files(rejects, rejects_stage, is_there, error);
    if (r == BACKUP_OK)
        r = settle_rejects(rejects_stage, error);
    if (r == BACKUP_OK && is_there(key) && (r = tree_make_parent(key_stage, error)) == BACKUP_OK)
        r = tree_copy(key, key_stage, &(struct tree_copy){.max_bytes = UINT64_MAX}, &ignored, error);
    free(slices);
    free(slices_stage);
    free(rejects);
    free(rejects_stage);
    free(key);
    free(key_stage);
    return r;
}

enum backup_result counts_copy(struct counts_copy *c, struct error *error)
{
    enum backup_result r = BACKUP_OK;
    manifest_free(&c->archived);
    c->slices = (struct slice_range){0};
    if (c->archive)
        r = copy_archive(c, error);
    if (r == BACKUP_OK && c->aggregator)
        r = copy_aggregator(c, error);
    return r;
}

/* Replaces the path of the staged slice at the beginning of the error by the path of the aggregator's slice, because
 * a failed backup removes its stages. */
static void name_source(const struct counts_copy *c, const char *staged, struct error *why)
{
    size_t n = strlen(staged);
    if (strncmp(why->text, staged, n) == 0)
        error_set(why, why->code, "%.600s/slices%s%s", c->aggregator, strrchr(staged, '/'), why->text + n);
}

enum backup_result counts_copy_verify(struct counts_copy *c, struct error *error)
{
    struct error why;
    enum slice_result r = SLICE_OK;
    char *stage = tree_path(c->aggregator_stage, "slices");
    for (uint64_t n = c->slices.first; r == SLICE_OK && n > 0 && n <= c->slices.last; n++) {
        char *path = slice_path(stage, n);
        slice_state_free(&c->state);
        r = slice_verify(path, NULL, NULL, &c->state, &why);
        if (r != SLICE_OK)
            name_source(c, path, &why);
        free(path);
    }
    free(stage);
    if (r == SLICE_FOREIGN) /* the copied slice was not completely created */
        return error_set(error, BACKUP_CHANGED, "%s", why.text);
    return r == SLICE_OK ? BACKUP_OK : slice_failed(&why, error);
}

static enum backup_result verify_file(const struct counts_copy *c, const struct manifest_file *expected,
    const struct tree_list *files, struct error *error)
{
    char generation[MANIFEST_NAME_TEXT];
    manifest_directory_name(c->archived.generation, generation);
    char *path = tree_path(generation, expected->name);
    const struct tree_file *f = NULL;
    for (size_t i = 0; i < files->n && !f; i++)
        f = strcmp(files->files[i].path, path) == 0 ? &files->files[i] : NULL;
    bool is_intact = f && f->bytes == expected->bytes && f->xxh3 == expected->xxh3;
    enum backup_result r =
        is_intact ? BACKUP_OK
                  : error_set(error, BACKUP_DAMAGED,
                        "%.600s/%s is damaged or missing (its checksum does not match the manifest); restore "
                        "the file from an earlier backup",
                        c->archive, path);
    free(path);
    return r;
}

enum backup_result counts_copy_verify_archive(
    const struct counts_copy *c, const struct tree_list *files, struct error *error)
{
    enum backup_result r = BACKUP_OK;
    const struct manifest_file *expected;
    for (size_t i = 0; r == BACKUP_OK && (expected = manifest_next_file(&c->archived, &i));)
        r = verify_file(c, expected, files, error);
    return r;
}

void counts_copy_free(struct counts_copy *c)
{
    manifest_free(&c->archived);
    slice_state_free(&c->state);
}
