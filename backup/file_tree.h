/* file_tree: links, copies, lists and removes files, with checksums.
 *
 * Paths of a tree are relative to its root and have no "." or ".." component. A copy has the mode of its original.
 * Only tree_sync syncs. */
#ifndef MILLRACE_FILE_TREE_H
#define MILLRACE_FILE_TREE_H

#include "backup/backup_result.h"
#include "base/bytes.h"

struct tree_file {
    char *path;
    char *link;     /* the target of a symbolic link; NULL: a file */
    uint64_t bytes; /* 0 for a symbolic link */
    uint64_t xxh3;  /* 64 bits, seed 0; 0 for a symbolic link */
};
struct tree_list {
    struct tree_file *files;
    size_t n, room;
};
void tree_list_add(struct tree_list *l, const struct tree_file *f); /* copies the texts */
void tree_list_free(struct tree_list *l);
/* True if the path is safe as the path of a file below any root. */
bool tree_path_is_valid(struct bytes path);

/* "DIR/NAME"; the caller frees the text. */
char *tree_path(const char *dir, const char *name);
/* A hard link. BACKUP_CHANGED: `from` does not exist. */
enum backup_result tree_link(const char *from, const char *to, struct error *error);
/* Called with the size of each piece; returns false to stop the copy. May be NULL. */
typedef void tree_progress_fn(size_t bytes, void *arg);
struct tree_copy {
    uint64_t max_bytes; /* copies only so many bytes of the file's beginning; UINT64_MAX: all */
    tree_progress_fn *on_bytes;
    void *arg;
};
/* Copies the file to a new file `to`, or, if `to` is NULL, only reads it. Sets the size and the checksum.
 * BACKUP_CHANGED: `from` does not exist, or is shorter than max_bytes. */
enum backup_result tree_copy(const char *from, const char *to, const struct tree_copy *how,
    struct tree_file *out, struct error *error);
/* Replaces the file by a copy of its first bytes. */
enum backup_result tree_replace(const char *path, uint64_t max_bytes, struct error *error);
/* Creates the file. */
enum backup_result tree_write(const char *path, struct bytes text, struct error *error);
/* mkdir -p of the directory of `path`. */
enum backup_result tree_make_parent(const char *path, struct error *error);

/* Lists all files below `root`, without sizes and checksums. */
enum backup_result tree_list(const char *root, struct tree_list *out, struct error *error);
/* Syncs every file and directory of the tree. */
enum backup_result tree_sync(const char *root, struct error *error);
/* Removes the directory and everything in it. It is not an error if the directory does not exist. */
enum backup_result tree_remove(const char *root, struct error *error);

#endif
