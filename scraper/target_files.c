#include "scraper/target_files.h"

#include "base/io.h"

#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>

#define FILE_MAX ((size_t)64 << 20)

struct target_file {
    struct target_file *next;
    char *path;
    struct stat seen; /* when the file was read */
    struct target_list targets;
    char *error; /* NULL: none */
    bool is_there;
};

struct target_files {
    const char *patterns;
    const struct target_defaults *defaults;
    struct target_file *first;
};

static void file_free(struct target_file *f)
{
    targets_free(&f->targets);
    free(f->path);
    free(f->error);
    free(f);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void read_targets(struct target_files *files, struct target_file *f)
{
    struct buf text = {0};
    struct target_list list = {0};
    struct error error = {0};
    int r = io_read_file(f->path, FILE_MAX, &text);
    if (r != 0)
        error_errno(&error, -1, f->path);
    else if ((r = targets_read(buf_bytes(&text), files->defaults, &list, &error)) != 0)
        error_set(&error, -1, "%s: %s", f->path, error.text);
    free(f->error);
    f->error = r == 0 ? NULL : mem_strdup(error.text);
    targets_free(r == 0 ? &f->targets : &list);
    if (r == 0)
        f->targets = list;
    buf_free(&text);
}

/* Looks at one path. Returns true if the file was read. */
static bool look(struct target_files *files, const char *path)
{
    struct stat now;
    struct target_file *f = files->first;
    while (f && strcmp(f->path, path) != 0)
        f = f->next;
    if (f && f->is_there) /* two patterns match the path */
        return false;
    if (stat(path, &now) != 0)
        return false;
    if (!f) {
        f = mem_zalloc(sizeof *f);
        f->path = mem_strdup(path);
        f->next = files->first;
        files->first = f;
    }
    f->is_there = true;
    if (is_same(&f->seen, &now))
        return false;
    f->seen = now;
    read_targets(files, f);
    return true;
}

bool target_files_look(struct target_files *files)
{
    bool is_changed = false;
    const char *rest = files->patterns;
    struct bytes word;
    for (struct target_file *f = files->first; f; f = f->next)
        f->is_there = false;
    while (bytes_next_word(&rest, " ", &word)) {
        char *pattern = bytes_dup(word);
        glob_t found;
        if (glob(pattern, 0, NULL, &found) == 0) {
            for (size_t i = 0; i < found.gl_pathc; i++)
                is_changed |= look(files, found.gl_pathv[i]);
            globfree(&found);
        }
        free(pattern);
    }
    for (struct target_file **at = &files->first, *f; (f = *at);) {
        if (f->is_there) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        file_free(f);
        is_changed = true;
    }
    return is_changed;
}

void target_files_list(const struct target_files *files, struct target_list *out)
{
    for (const struct target_file *f = files->first; f; f = f->next)
        for (size_t i = 0; i < f->targets.n; i++)
            targets_add(out, f->targets.all[i]);
}

const char *target_files_error(const struct target_files *files)
{
    for (const struct target_file *f = files->first; f; f = f->next)
        if (f->error)
            return f->error;
    return NULL;
}

struct target_files *target_files_new(const char *patterns, const struct target_defaults *defaults)
{
    struct target_files *f = mem_zalloc(sizeof *f);
    *f = (struct target_files){.patterns = patterns, .defaults = defaults};
    return f;
}

void target_files_free(struct target_files **fp)
{
    struct target_files *files = *fp;
    struct target_file *next;
    if (!files)
        return;
    for (struct target_file *f = files->first; f; f = next) {
        next = f->next;
        file_free(f);
    }
    free(files);
    *fp = NULL;
}
