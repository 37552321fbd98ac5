#include "journal/journal_segment.h"

#include "base/io.h"
#include "journal/journal_error.h"
#include "journal/journal_frame_index.h"
#include "journal/journal_sendfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

char *segment_path(const char *dir, uint64_t sequence, const char *suffix)
{
    struct buf b = {0};
    buf_printf(&b, "%s/%016llx.seg%s", dir, (unsigned long long)sequence, suffix);
    buf_append_char(&b, 0);
    return b.ptr;
}

/* "0123456789abcdef.seg" */
static bool segment_name(const char *name, uint64_t *sequence)
{
    char *end;
    if (strlen(name) != 20 || strcmp(name + 16, ".seg") != 0 || strspn(name, "0123456789abcdef") != 16)
        return false;
    *sequence = strtoull(name, &end, 16);
    return end == name + 16;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t *segments_list(const char *dir, size_t *count)
{
    DIR *d = opendir(dir);
    if (!d)
        return NULL;
    uint64_t *list = mem_alloc(sizeof *list), sequence;
    *count = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (!segment_name(e->d_name, &sequence))
            continue;
        list = mem_realloc(list, (*count + 1) * sizeof *list);
        list[(*count)++] = sequence;
    }
    closedir(d);
    qsort(list, *count, sizeof *list, ascending);
    return list;
}

int segment_read(const char *path, struct buf *file)
{
    struct stat st;
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    bool bad = fd < 0 || fstat(fd, &st) != 0;
    if (!bad)
        buf_reserve(file, (size_t)st.st_size + 1);
    for (ssize_t n = 1; !bad && n > 0 && file->len < (size_t)st.st_size;) {
        n = io->pread(fd, file->ptr + file->len, (size_t)st.st_size - file->len, (off_t)file->len);
        bad = n < 0 && errno != EINTR;
        file->len += n > 0 ? (size_t)n : 0;
        n = n < 0 ? 1 : n;
    }
    int saved = errno;
    if (fd >= 0)
        io->close(fd);
    errno = saved;
    return bad ? -1 : 0;
}

int segment_read_header(
    const char *dir, uint64_t sequence, struct segment_header *h, enum header_status *status)
{
    char raw[SEGMENT_HEADER], *path = segment_path(dir, sequence, "");
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    ssize_t n = fd >= 0 ? io->pread(fd, raw, sizeof raw, 0) : -1;
    int system = errno;
    if (fd >= 0)
        io->close(fd);
    free(path);
    errno = system;
    if (n < 0)
        return -1;
    *status = segment_header_decode(bytes_of(raw, (size_t)n), h);
    if (*status == HEADER_OK && h->sequence != sequence)
        *status = HEADER_DAMAGED;
    return 0;
}

char *prealloc_path(const char *dir, const char *suffix)
{
    struct buf b = {0};
    buf_printf(&b, "%s/spare%s", dir, suffix);
    buf_append_char(&b, 0);
    return b.ptr;
}

static const char end_mark[FRAME_HEADER];

static int write_and_sync(int fd, const struct segment_header *h, struct bytes table, uint64_t *end_position)
{
    struct buf b = {0};
    char header[SEGMENT_HEADER];
    segment_header_encode(h, header);
    buf_append(&b, header, sizeof header);
    struct frame f = {.kind = FRAME_TABLE, .offset = h->base, .time = h->last_time, .payload = table};
    frame_append(&b, &f, &table, 1);
    struct frame_place place = {segment_seed(h), SEGMENT_HEADER, h->durable, 0};
    frame_seal(b.ptr + SEGMENT_HEADER, &place);
    *end_position = b.len;
    buf_append(&b, end_mark, h->recycled ? sizeof end_mark : 0);
    int failed = io_write_all(fd, b.ptr, b.len, 0);
    if (!failed)
        failed = sync_or_eio(io->fdatasync(fd));
    buf_free(&b);
    return failed;
}

int segment_create(const struct new_segment *n, uint64_t *end_position)
{
    char *path = segment_path(n->dir, n->header->sequence, "");
    char *fresh = n->prepared ? prealloc_path(n->dir, "") : segment_path(n->dir, n->header->sequence, ".new");
    int fd = io->open(fresh, O_RDWR | O_CLOEXEC | (n->prepared ? 0 : O_CREAT | O_TRUNC), IO_PRIVATE_MODE);
    bool failed = fd < 0 || write_and_sync(fd, n->header, n->table, end_position) != 0;
    failed = failed || io->rename(fresh, path) != 0 || sync_or_eio(io->fsync(n->dir_fd)) != 0;
    if (failed && fd >= 0) {
        int system = errno;
        io->close(fd);
        io->unlink(fresh);
        errno = system;
        fd = -1;
    }
    free(path);
    free(fresh);
    return fd;
}

struct segment *segment_new(const char *dir, const struct segment_header *h)
{
    struct segment *s = mem_zalloc(sizeof *s);
    s->sequence = h->sequence;
    s->base = s->end = h->base;
    s->seed = segment_seed(h);
    s->last_time = h->last_time;
    s->path = segment_path(dir, h->sequence, "");
    return s;
}

void segment_free(struct segment *s)
{
    frame_index_drop(s);
    segment_detach_file(s);
    free(s->path);
    free(s);
}
