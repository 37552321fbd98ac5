#include "compactor/export.h"

#include "base/io.h"
#include "compactor/archive.h"
#include "compactor/record_filter.h"
#include "compactor/record_source.h"
#include "compactor/set_reader.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITE_BYTES ((size_t)1 << 20)

struct export
{
    struct manifest manifest;
    struct record_filter filter;
    struct count_sources sources;
    const char *to; /* name of the output in errors */
    int fd;
    struct buf data;
};

static enum compact_result open_sources(struct export *e, const char *archive, struct error *error)
{
    char directory[PATH_MAX];
    enum compact_result r = archive_read_current(archive, &e->manifest, error);
    if (r != COMPACT_OK)
        return r;
    archive_path(archive, e->manifest.generation, false, directory);
    e->filter = (struct record_filter){.keep = record_filter_is_counted, .arg = &e->manifest};
    r = record_source_add_shards(directory, &e->manifest, &e->filter, &e->sources, error);
    return r == COMPACT_OK ? set_reader_add_sources(directory, &e->manifest, NULL, &e->sources, error) : r;
}

static enum compact_result flush(struct export *e, struct error *error)
{
    for (size_t at = 0; at < e->data.len;) {
        ssize_t n = write(e->fd, e->data.ptr + at, e->data.len - at);
        if (n < 0 && errno != EINTR)
            return error_errno(error, COMPACT_FAILED, e->to);
        at += n > 0 ? (size_t)n : 0;
    }
    buf_clear(&e->data);
    return COMPACT_OK;
}

static enum compact_result write_records(struct export *e, struct error *error)
{
    struct count_merge *m = count_merge_new(e->sources.list, e->sources.n);
    enum compact_result r = COMPACT_OK;
    enum count_next next = COUNT_FOUND;
    while (r == COMPACT_OK && (next = count_merge_next_record(m)) == COUNT_FOUND) {
        struct bytes line = count_merge_line(m);
        buf_append_bytes(&e->data, line);
        if (line.ptr)
            buf_append_char(&e->data, '\n');
        else if ((next = count_merge_print(m, &e->data)) == COUNT_FAILED)
            break;
        if (e->data.len >= WRITE_BYTES)
            r = flush(e, error);
    }
    if (r == COMPACT_OK && next == COUNT_FAILED)
        r = record_source_failed(count_merge_error(m), error);
    if (r == COMPACT_OK)
        r = flush(e, error);
    count_merge_free(&m);
    return r;
}

static enum compact_result write_file(struct export *e, const char *to, struct error *error)
{
    struct stat st;
    if (stat(to, &st) == 0 && S_ISDIR(st.st_mode))
        return error_set(error, COMPACT_MISSING, "%.600s is a directory; name a file", to);
    char *fresh = mem_printf("%s.tmp", to);
    e->to = to;
    e->fd = io->open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int r = e->fd < 0 ? error_errno(error, COMPACT_MISSING, to) : (int)write_records(e, error);
    if (r == COMPACT_OK && (io->fsync(e->fd) != 0 || io->rename(fresh, to) != 0 || io_sync_parent(to) != 0))
        r = error_errno(error, COMPACT_FAILED, to);
    if (r != COMPACT_OK && e->fd >= 0)
        io->unlink(fresh);
    if (e->fd >= 0)
        io->close(e->fd);
    free(fresh);
    return r;
}

enum compact_result export_archive(const char *archive, const char *to, struct error *error)
{
    struct export e = {.fd = STDOUT_FILENO, .to = "standard output"};
    enum compact_result r = open_sources(&e, archive, error);
    if (r == COMPACT_OK)
        r = to ? write_file(&e, to, error) : write_records(&e, error);
    count_sources_free(&e.sources);
    buf_free(&e.data);
    manifest_free(&e.manifest);
    return r;
}
