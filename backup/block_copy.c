#include "backup/block_copy.h"

#include "backup/file_tree.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int is_block(const struct dirent *e)
{
    static const char ending[] = ".block";
    size_t n = strlen(e->d_name), m = sizeof ending - 1;
    return n > m && strcmp(e->d_name + n - m, ending) == 0;
}

/* Appends the names of the blocks, sorted, each with an LF. A missing directory counts as empty. */
static enum backup_result list_blocks(const char *dir, struct buf *names, struct error *error)
{
    struct dirent **list = NULL;
    int n = scandir(dir, &list, is_block, alphasort);
    if (n < 0)
        return errno == ENOENT ? BACKUP_OK : backup_fail_errno(error, dir);
    for (int i = 0; i < n; i++) {
        buf_append_str(names, list[i]->d_name);
        buf_append_char(names, '\n');
        free(list[i]);
    }
    free(list);
    return BACKUP_OK;
}

static enum backup_result link_blocks(
    const char *from, const char *to, struct bytes names, struct error *error)
{
    enum backup_result r = BACKUP_OK;
    while (r == BACKUP_OK && names.len > 0) {
        size_t n = (size_t)((const char *)memchr(names.ptr, '\n', names.len) - names.ptr);
        char *name = bytes_dup(bytes_of(names.ptr, n));
        char *source = tree_path(from, name), *target = tree_path(to, name);
        r = tree_make_parent(target, error);
        if (r == BACKUP_OK)
            r = tree_link(source, target, error);
        names = bytes_of(names.ptr + n + 1, names.len - n - 1);
        free(name);
        free(source);
        free(target);
    }
    return r;
}

static enum backup_result copy_key(const char *from, const char *to, struct error *error)
{
    struct tree_file ignored;
    char *source = tree_path(from, "cursor-key"), *target = tree_path(to, "cursor-key");
    enum backup_result r = access(source, F_OK) == 0 ? tree_make_parent(target, error) : BACKUP_OK;
    if (r == BACKUP_OK && access(source, F_OK) == 0)
        r = tree_copy(source, target, &(struct tree_copy){.max_bytes = UINT64_MAX}, &ignored, error);
    free(source);
    free(target);
    return r;
}

enum backup_result block_copy(const char *from, const char *to, struct error *error)
{
    struct buf first = {0}, second = {0};
    char *blocks = tree_path(from, "blocks"), *stage = tree_path(to, "blocks");
    enum backup_result r = copy_key(from, to, error);
    if (r == BACKUP_OK)
        r = list_blocks(blocks, &first, error);
    if (r == BACKUP_OK)
        r = link_blocks(blocks, stage, buf_bytes(&first), error);
    if (r == BACKUP_OK)
        r = list_blocks(blocks, &second, error);
    if (r == BACKUP_OK && !bytes_equal(buf_bytes(&first), buf_bytes(&second)))
        r = error_set(error, BACKUP_CHANGED, "%.600s changed during the backup", blocks);
    buf_free(&first);
    buf_free(&second);
    free(blocks);
    free(stage);
    return r;
}
