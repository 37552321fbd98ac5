#include "compactor/record_source.h"

#include "base/io.h"
#include "compactor/record_reader.h"
#include <fcntl.h>
#include <stdlib.h>

#define READ_BYTES ((size_t)256 << 10)

struct count_source *record_source_of_file(
    int fd, const char *name, const struct manifest_file *expected, size_t read_bytes)
{
    return &record_reader_new(fd, name, expected, read_bytes)->base;
}

enum compact_result record_source_open_shard(
    const char *path, const struct manifest_file *expected, struct count_source **out, struct error *error)
{
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return error_errno(error, COMPACT_FAILED, path);
    *out = record_source_of_file(fd, path, expected, READ_BYTES);
    return COMPACT_OK;
}

enum compact_result record_source_add_shards(const char *directory, const struct manifest *m,
    const struct record_filter *filter, struct count_sources *out, struct error *error)
{
    enum compact_result r = COMPACT_OK;
    for (uint32_t k = 0; k < m->shards && r == COMPACT_OK; k++) {
        char *path = mem_printf("%s/%s", directory, m->files[k].name);
        struct count_source *source = NULL;
        r = record_source_open_shard(path, &m->files[k], &source, error);
        if (r == COMPACT_OK)
            count_sources_add(out, filter ? record_filter_source(filter, source) : source);
        free(path);
    }
    return r;
}

enum compact_result record_source_failed(const struct error *of, struct error *error)
{
    return error_set(error,
        of->code == COUNT_UNREADABLE  ? COMPACT_FAILED
        : of->code == COUNT_TOO_LARGE ? COMPACT_REFUSED
                                      : COMPACT_DAMAGED,
        "%s", of->text);
}
