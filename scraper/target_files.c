#include "scraper/target_files.h"

#include "base/io.h"

#include <errno.h>
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
    bool is_there, is_node;
};

struct target_files {
    const char *patterns;
    const struct target_defaults *defaults;
    struct target_file *first;
    char *missing; /* the first path or pattern without a file; NULL: none */
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

/* Replaces the targets by those of a text, or keeps them with the error. */
static void set_targets(struct target_files *files, struct target_file *f, struct bytes text)
{
    struct target_list list = {0};
    struct error error = {0};
    free(f->error);
    f->error = NULL;
    if (targets_read(text, files->defaults, &list, &error) == 0) {
        targets_free(&f->targets);
        f->targets = list;
        return;
    }
    f->error = mem_printf("%s: %s", f->path, error.text);
    targets_free(&list);
}

static void read_file(struct target_files *files, struct target_file *f)
{
    struct buf text = {0};
    if (S_ISREG(f->seen.st_mode) && io_read_regular(f->path, FILE_MAX, &text) == 0) {
        set_targets(files, f, buf_bytes(&text));
    } else {
        const char *why = S_ISREG(f->seen.st_mode) ? strerror(errno) : "not a regular file";
        free(f->error);
        f->error = mem_printf("%s: %s", f->path, why);
    }
    buf_free(&text);
}

/* Finds a file or node, or adds it. */
static struct target_file *find(struct target_files *files, const char *path, bool is_node)
{
    struct target_file *f = files->first;
    while (f && (f->is_node != is_node || strcmp(f->path, path) != 0))
        f = f->next;
    if (f)
        return f;
    f = mem_zalloc(sizeof *f);
    *f = (struct target_file){.next = files->first, .path = mem_strdup(path), .is_node = is_node};
    files->first = f;
    return f;
}

static void begin(struct target_files *files, bool is_node)
{
    for (struct target_file *f = files->first; f; f = f->next)
        f->is_there = f->is_there && f->is_node != is_node;
}

/* Removes the files or nodes that are gone. */
static bool end(struct target_files *files, bool is_node)
{
    bool is_changed = false;
    for (struct target_file **at = &files->first, *f; (f = *at);) {
        if (f->is_there || f->is_node != is_node) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        file_free(f);
        is_changed = true;
    }
    return is_changed;
}

/* Looks at one path. Returns true if the file was read. */
static bool look(struct target_files *files, const char *path)
{
    struct stat now;
    if (stat(path, &now) != 0)
        return false;
    struct target_file *f = find(files, path, false);
    if (f->is_there) /* two patterns match the path */
        return false;
    f->is_there = true;
    if (is_same(&f->seen, &now))
        return false;
    f->seen = now;
    read_file(files, f);
    return true;
}

bool target_files_look(struct target_files *files)
{
    bool is_changed = false;
    const char *rest = files->patterns;
    struct bytes word;
    begin(files, false);
    free(files->missing);
    files->missing = NULL;
    while (bytes_next_word(&rest, " ", &word)) {
        char *pattern = bytes_dup(word);
        glob_t found;
        if (glob(pattern, 0, NULL, &found) == 0) {
            for (size_t i = 0; i < found.gl_pathc; i++)
                is_changed |= look(files, found.gl_pathv[i]);
            globfree(&found);
        } else if (!files->missing) {
            files->missing = mem_strdup(pattern);
        }
        free(pattern);
    }
    return end(files, false) || is_changed;
}

void target_files_begin_nodes(struct target_files *files)
{
    begin(files, true);
}

void target_files_put_node(struct target_files *files, const char *path, struct bytes text)
{
    struct target_file *f = find(files, path, true);
    f->is_there = true;
    set_targets(files, f, text);
}

void target_files_end_nodes(struct target_files *files)
{
    end(files, true);
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

const char *target_files_missing(const struct target_files *files)
{
    return files->missing;
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
    free(files->missing);
    free(files);
    *fp = NULL;
}
