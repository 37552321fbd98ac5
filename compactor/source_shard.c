#include "compactor/record_source.h"

#include "base/io.h"
#include "compactor/record_reader.h"
#include <fcntl.h>

#define READ_BYTES ((size_t)256 << 10)

struct count_source *record_source_of_file(
    int fd, const char *name, const struct manifest_file *expected, size_t read_bytes)
{
    return &record_reader_new(fd, name, expected, read_bytes)->base;
}

enum compact_result record_source_open_shard(const char *path, const struct manifest_file *expected,
    struct count_source **out, char error[COMPACT_ERROR_TEXT])
{
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return compact_fail_errno(error, path);
    *out = record_source_of_file(fd, path, expected, READ_BYTES);
    return COMPACT_OK;
}

enum compact_result record_source_failed(const struct count_merge *m, char error[COMPACT_ERROR_TEXT])
{
    return compact_fail(
        error, count_merge_is_unreadable(m) ? COMPACT_FAILED : COMPACT_DAMAGED, "%s", count_merge_error(m));
}
