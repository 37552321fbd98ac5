/* file_tree: links, copies, lists and removes files, with checksums.
 *
 * Paths of a tree are relative to the root of the tree, and have no "." or ".." component. A copy has the mode of the
 * copied file. Only tree_sync syncs. */
#ifndef MILLRACE_FILE_TREE_H
#define MILLRACE_FILE_TREE_H

#include "backup/backup_result.h"
#include "base/bytes.h"

struct tree_file {
    char *path;
    char *link;     /* target of a symbolic link; NULL: a regular file */
    uint64_t bytes; /* size of the file; 0 for a symbolic link */
    uint64_t xxh3;  /* checksum of the file (64 bits, seed 0); 0 for a symbolic link */
};
struct tree_list {
    struct tree_file *files;
    size_t n, room;
};
void tree_list_add(struct tree_list *l, const struct tree_file *f); /* adds a copy of *f */
void tree_list_free(struct tree_list *l);
/* Returns true if the path cannot lead out of the root. */
bool tree_path_is_valid(struct bytes path);

/* Returns "DIR/NAME", which the caller frees. */
char *tree_path(const char *dir, const char *name);
/* Makes a hard link. Returns BACKUP_CHANGED if `from` does not exist. */
enum backup_result tree_link(const char *from, const char *to, struct error *error);
/* Called with the number of bytes of each copied piece. */
typedef void tree_progress_fn(size_t bytes, void *arg);
struct tree_copy {
    uint64_t max_bytes;         /* number of bytes to copy from the beginning of the file; UINT64_MAX: all */
    tree_progress_fn *on_bytes; /* may be NULL */
    void *arg;
};
/* Copies the file `from` to a new file `to`, or only reads the file if `to` is NULL. Sets the size and the checksum in
 * *out. Returns BACKUP_CHANGED if `from` does not exist, or is shorter than max_bytes. */
enum backup_result tree_copy(const char *from, const char *to, const struct tree_copy *how,
    struct tree_file *out, struct error *error);
/* Replaces the file by a copy of its first max_bytes bytes, or of all bytes if max_bytes is UINT64_MAX. */
enum backup_result tree_replace(const char *path, uint64_t max_bytes, struct error *error);
/* Creates the file with this text. */
enum backup_result tree_write(const char *path, struct bytes text, struct error *error);
/* Creates the directory of `path` and its parents if missing. */
enum backup_result tree_make_parent(const char *path, struct error *error);

/* Lists all files below `root`, without sizes and checksums. */
enum backup_result tree_list(const char *root, struct tree_list *out, struct error *error);
/* Syncs every file and directory of the tree. */
enum backup_result tree_sync(const char *root, struct error *error);
/* Removes the directory and everything in it. Succeeds if the directory does not exist. */
enum backup_result tree_remove(const char *root, struct error *error);

#endif
