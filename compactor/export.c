#include "compactor/export.h"

#include "base/io.h"
#include "compactor/archive.h"
#include "compactor/record_filter.h"
#include "compactor/record_source.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WRITE_BYTES ((size_t)1 << 20)

struct export
{
    struct manifest manifest;
    struct record_filter filter;
    struct count_source **sources;
    size_t n_sources;
    const char *to; /* for errors */
    int fd;
    struct buf data;
};

/* Rollups are derived from hours, except the days whose hours were dropped. */
static bool is_not_derived(void *arg, const struct record_key *key, int64_t start)
{
    const struct manifest *m = arg;
    return key->unit == PERIOD_HOUR || (key->unit == PERIOD_DAY && start < m->hours_from);
}

static enum compact_result open_sources(struct export *e, const char *archive, char error[COMPACT_ERROR_TEXT])
{
    enum manifest_result m = manifest_read_current(archive, &e->manifest, error);
    if (m != MANIFEST_OK)
        return m == MANIFEST_FAILED ? COMPACT_FAILED : m == MANIFEST_BAD ? COMPACT_DAMAGED : COMPACT_REFUSED;
    enum compact_result r = COMPACT_OK;
    char directory[PATH_MAX];
    archive_path(archive, e->manifest.generation, false, directory);
    e->filter = (struct record_filter){is_not_derived, &e->manifest, false};
    e->sources = mem_zalloc(e->manifest.shards * sizeof(struct count_source *));
    for (uint32_t k = 0; k < e->manifest.shards && r == COMPACT_OK; k++) {
        struct buf path = {0};
        struct count_source *s;
        buf_printf(&path, "%s/%s", directory, e->manifest.files[k].name);
        r = record_source_open_shard(path.ptr, &e->manifest.files[k], &s, error);
        if (r == COMPACT_OK)
            e->sources[e->n_sources++] = record_filter_source(&e->filter, s);
        buf_free(&path);
    }
    return r;
}

static enum compact_result flush(struct export *e, char error[COMPACT_ERROR_TEXT])
{
    for (size_t at = 0; at < e->data.len;) {
        ssize_t n = write(e->fd, e->data.ptr + at, e->data.len - at);
        if (n < 0 && errno != EINTR)
            return compact_fail_errno(error, e->to);
        at += n > 0 ? (size_t)n : 0;
    }
    buf_clear(&e->data);
    return COMPACT_OK;
}

static enum compact_result write_records(struct export *e, char error[COMPACT_ERROR_TEXT])
{
    struct count_merge *m = count_merge_new(e->sources, e->n_sources);
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
        r = record_source_failed(m, error);
    if (r == COMPACT_OK)
        r = flush(e, error);
    count_merge_free(&m);
    return r;
}

static enum compact_result write_file(struct export *e, const char *to, char error[COMPACT_ERROR_TEXT])
{
    struct buf fresh = {0};
    buf_printf(&fresh, "%s.tmp", to);
    e->to = to;
    e->fd = io->open(fresh.ptr, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    enum compact_result r = e->fd < 0 ? compact_fail_errno(error, fresh.ptr) : write_records(e, error);
    if (r == COMPACT_OK &&
        (io->fsync(e->fd) != 0 || io->rename(fresh.ptr, to) != 0 || io_sync_parent(to) != 0))
        r = compact_fail_errno(error, to);
    if (r != COMPACT_OK && e->fd >= 0)
        io->unlink(fresh.ptr);
    if (e->fd >= 0)
        io->close(e->fd);
    buf_free(&fresh);
    return r;
}

enum compact_result export_archive(const char *archive, const char *to, char error[COMPACT_ERROR_TEXT])
{
    struct export e = {.fd = STDOUT_FILENO, .to = "standard output"};
    enum compact_result r = open_sources(&e, archive, error);
    if (r == COMPACT_OK)
        r = to ? write_file(&e, to, error) : write_records(&e, error);
    for (size_t i = 0; i < e.n_sources; i++)
        count_source_close(&e.sources[i]);
    free(e.sources);
    buf_free(&e.data);
    manifest_free(&e.manifest);
    return r;
}
