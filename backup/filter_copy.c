#include "backup/filter_copy.h"

#include "backup/file_tree.h"
#include "filter/filter.h"

#include <stdlib.h>
#include <unistd.h>

#define READS 10
#define HEADER 4096

/* Copies a file, or only reads it if `to` is NULL. A missing file is empty. */
static enum backup_result take(const char *dir, const char *to, const char *name, uint64_t max_bytes,
    struct tree_file *out, struct error *error)
{
    char *source = tree_path(dir, name), *target = to ? tree_path(to, name) : NULL;
    *out = (struct tree_file){0};
    enum backup_result r = target ? tree_make_parent(target, error) : BACKUP_OK;
    if (r == BACKUP_OK && access(source, F_OK) == 0) {
        if (target)
            unlink(target);
        r = tree_copy(source, target, &(struct tree_copy){.max_bytes = max_bytes}, out, error);
    }
    free(source);
    free(target);
    return r;
}

static bool is_same(const struct tree_file *a, const struct tree_file *b)
{
    return a->bytes == b->bytes && a->xxh3 == b->xxh3;
}

static enum backup_result copy_file(const char *from, const char *to, struct error *error)
{
    struct tree_file header, log, all, later_header, later_log;
    enum backup_result r = BACKUP_OK;
    for (int i = 0; r == BACKUP_OK && i < READS; i++) {
        if ((r = take(from, NULL, "marks", HEADER, &header, error)) == BACKUP_OK &&
            (r = take(from, to, "marks.log", UINT64_MAX, &log, error)) == BACKUP_OK &&
            (r = take(from, to, "marks", UINT64_MAX, &all, error)) == BACKUP_OK &&
            (r = take(from, NULL, "marks", HEADER, &later_header, error)) == BACKUP_OK)
            r = take(from, NULL, "marks.log", UINT64_MAX, &later_log, error);
        if (r == BACKUP_OK && is_same(&header, &later_header) && is_same(&log, &later_log))
            return r;
    }
    if (r == BACKUP_OK)
        r = error_set(error, BACKUP_CHANGED, "%.600s/marks changed during each of %d reads", from, READS);
    return r;
}

/* Completes an interrupted sync in the copy, and checks its header. */
static enum backup_result check_filter(const char *to, struct error *error)
{
    char *path = tree_path(to, "marks");
    struct filter_config config = {.path = path, .capacity = 1, .rate = FILTER_RATE_MAX};
    struct filter *f = NULL;
    struct error why;
    enum filter_result found = filter_open(&config, &f, &why);
    enum backup_result r = BACKUP_OK;
    if (found != FILTER_OK)
        r = error_set(error,
            found == FILTER_DAMAGED    ? BACKUP_DAMAGED
            : found == FILTER_NO_SPACE ? BACKUP_FULL
                                       : BACKUP_FAILED,
            "%s", why.text);
    filter_close(&f);
    free(path);
    return r;
}

enum backup_result filter_copy(const char *from, const char *to, struct error *error)
{
    struct tree_file ignored;
    enum backup_result r = copy_file(from, to, error);
    if (r == BACKUP_OK)
        r = take(from, to, "exceptions", UINT64_MAX, &ignored, error);
    return r == BACKUP_OK ? check_filter(to, error) : r;
}
