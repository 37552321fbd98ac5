#include "compactor/disk_space.h"

#include "base/amount.h"

#include <sys/statvfs.h>

uint64_t disk_space_of(const struct manifest *m)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < m->shards; k++)
        bytes += m->files[k].bytes + m->texts[k].bytes + m->set_texts[k].bytes + m->sets[k].bytes;
    return bytes;
}

enum compact_result disk_space_check(const char *directory, uint64_t needed, struct error *error)
{
    struct statvfs fs;
    /* If the size of the file system is unknown, assume that it has enough space. */
    if (statvfs(directory, &fs) != 0 || fs.f_blocks == 0)
        return COMPACT_OK;
    uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (needed <= available)
        return COMPACT_OK;
    char wanted[SIZE_TEXT], is_free[SIZE_TEXT];
    return error_set(error, COMPACT_FAILED,
        "%.300s: a new generation needs about %s of disk space, but only %s are available; free space and "
        "run "
        "again",
        directory, size_write(wanted, needed), size_write(is_free, available));
}
