#include "filter/filter_file.h"

#include "base/errno_class.h"
#include "base/io.h"
#include "filter/filter_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define READ_TRIES 100 /* of a header that another process may be writing */

static enum filter_result failed(const struct filter *f, const char *what, struct error *error)
{
    return (enum filter_result)error_set(error, errno_is_full(errno) ? FILTER_NO_SPACE : FILTER_FAILED,
        "%.500s: cannot %s: %s", f->path, what, strerror(errno));
}

static enum filter_result damaged(const struct filter *f, const char *why, struct error *error)
{
    return (enum filter_result)error_set(error, FILTER_DAMAGED,
        "%.500s: %s; delete the file and its log, and add the members again", f->path, why);
}

static enum filter_result map_layer(const struct filter *f, const struct filter_header *h, size_t i,
    struct filter_layer *out, struct error *error)
{
    struct filter_shape shape = h->layers[i].shape;
    bool is_writer = f->log >= 0;
    void *map = mmap(NULL, filter_shape_bytes(shape), is_writer ? PROT_READ | PROT_WRITE : PROT_READ,
        is_writer ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED, f->fd, (off_t)filter_header_place(h, i));
    if (map == MAP_FAILED)
        return failed(f, "map a layer", error);
    uint64_t *changed = is_writer ? mem_zalloc((shape.blocks / 64 + 1) * sizeof *changed) : NULL;
    *out = (struct filter_layer){shape, map, changed};
    return FILTER_OK;
}

/* Maps the layers without a mapping. A layer behind the end of the file could not be read. */
static enum filter_result map_layers(struct filter *f, const struct filter_header *h, struct error *error)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return failed(f, "read the size", error);
    if (h->n_layers > 0 && (uint64_t)st.st_size < filter_header_place(h, h->n_layers))
        return damaged(f, "the file is shorter than its layers", error);
    enum filter_result r = FILTER_OK;
    for (size_t i = 0; r == FILTER_OK && i < h->n_layers; i++) {
        struct filter_layer *l = &f->layers[i];
        if (!l->counters)
            r = map_layer(f, h, i, l, error);
        else if (memcmp(&l->shape, &h->layers[i].shape, sizeof l->shape) != 0)
            r = damaged(f, "a layer has changed its shape", error);
    }
    return r;
}

static enum filter_result read_header(const struct filter *f, struct filter_header *out, struct error *error)
{
    ssize_t got = io->pread(f->fd, out, sizeof *out, 0);
    if (got < 0)
        return failed(f, "read the header", error);
    return got == sizeof *out ? FILTER_OK : damaged(f, "the file is shorter than its header", error);
}

/* Steps 2 and 3 of a sync. Returns NULL, or the step that failed, with errno. */
static const char *apply(const struct filter *f, const struct filter_log *log)
{
    for (size_t i = 0; i < log->n; i++)
        if (io_write_all(f->fd, log->runs[i].bytes, log->runs[i].len, (off_t)log->runs[i].at) != 0)
            return "write the layers";
    if (io_write_all(f->fd, log->header, sizeof *log->header, 0) != 0)
        return "write the header";
    if (io->fdatasync(f->fd) != 0)
        return "sync the file";
    return io->ftruncate(f->log, 0) == 0 ? NULL : "truncate the log";
}

static int grow(const struct filter *f, uint64_t from, uint64_t to)
{
    int r = io_extend(f->fd, (off_t)from, (off_t)to);
    return r != 0 && (errno == EOPNOTSUPP || errno == ENOSYS) ? io->ftruncate(f->fd, (off_t)to) : r;
}

/* The file may be shorter than the layers of the log, if a power cut came before the first sync of a layer. */
static const char *apply_again(const struct filter *f, const struct filter_log *log)
{
    struct stat st;
    uint64_t end = filter_header_place(log->header, log->header->n_layers);
    if (filter_log_write(f->log, log) != 0)
        return "write the log again";
    if (fstat(f->fd, &st) != 0)
        return "read the size";
    if ((uint64_t)st.st_size < end && grow(f, (uint64_t)st.st_size, end) != 0)
        return "extend the file";
    return apply(f, log);
}

/* Completes the sync of a whole log. f->h is the header in the file, which may be torn, and then the log's header. */
static enum filter_result replay(struct filter *f, const struct filter_log *log, struct error *error)
{
    if (filter_header_is_whole(&f->h) && f->h.sequence != log->base && f->h.sequence != log->header->sequence)
        return damaged(f, "the log continues another copy of the file", error);
    struct filter_header next = *log->header; /* the last step truncates the mapped log */
    const char *step = apply_again(f, log);
    if (step)
        return failed(f, step, error);
    f->h = next;
    f->was_recovered = true;
    return FILTER_OK;
}

static enum filter_result recover(struct filter *f, struct error *error)
{
    struct stat st;
    struct filter_log log;
    if (fstat(f->log, &st) != 0)
        return failed(f, "read the size of the log", error);
    if (st.st_size == 0)
        return FILTER_OK;
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, f->log, 0);
    if (map == MAP_FAILED)
        return failed(f, "map the log", error);
    enum filter_result r = FILTER_OK;
    if (filter_log_read(bytes_of(map, (size_t)st.st_size), &f->h.identity, &log))
        r = replay(f, &log, error);
    free(log.runs);
    munmap(map, (size_t)st.st_size);
    return r;
}

static enum filter_result open_log(struct filter *f, struct error *error)
{
    char *path = mem_printf("%s.log", f->path);
    f->log = io->open(path, O_RDWR | O_CREAT | O_CLOEXEC, IO_PRIVATE_MODE);
    bool is_open = f->log >= 0 && io_sync_name(path) == 0;
    free(path);
    if (!is_open)
        return failed(f, "open the log", error);
    if (io->flock(f->log, LOCK_EX | LOCK_NB) == 0)
        return FILTER_OK;
    if (errno != EWOULDBLOCK)
        return failed(f, "lock the log", error);
    return (enum filter_result)error_set(
        error, FILTER_BUSY, "%.500s: another process writes this filter", f->path);
}

/* Under the lock on the log. */
static int open_or_create(struct filter *f)
{
    f->fd = io->open(f->path, O_RDWR | O_CLOEXEC, 0);
    if (f->fd >= 0 || errno != ENOENT)
        return f->fd;
    filter_header_seal(&f->h);
    if (io_replace_file(f->path, bytes_of(&f->h, sizeof f->h), IO_PRIVATE_MODE) == 0)
        f->fd = io->open(f->path, O_RDWR | O_CLOEXEC, 0);
    return f->fd;
}

enum filter_result filter_file_open(struct filter *f, struct error *error)
{
    enum filter_result r = open_log(f, error);
    if (r == FILTER_OK && open_or_create(f) < 0)
        r = failed(f, "open the file", error);
    if (r == FILTER_OK)
        r = read_header(f, &f->h, error);
    if (r == FILTER_OK)
        r = recover(f, error);
    if (r == FILTER_OK)
        r = filter_header_check(&f->h, f->path, error);
    f->synced = f->h.sequence;
    return r == FILTER_OK ? map_layers(f, &f->h, error) : r;
}

enum filter_result filter_file_refresh(struct filter *f, struct error *error)
{
    struct filter_header next;
    enum filter_result r = read_header(f, &next, error);
    for (int i = 0; r == FILTER_OK && !filter_header_is_whole(&next) && i < READ_TRIES; i++)
        r = read_header(f, &next, error);
    if (r == FILTER_OK)
        r = filter_header_check(&next, f->path, error);
    if (r == FILTER_OK)
        r = map_layers(f, &next, error);
    if (r == FILTER_OK)
        f->h = next;
    return r;
}

bool filter_file_is_replaced(const struct filter *f)
{
    struct stat own, named;
    return stat(f->path, &named) != 0 || fstat(f->fd, &own) != 0 || own.st_ino != named.st_ino ||
           own.st_dev != named.st_dev;
}

enum filter_result filter_file_open_reader(struct filter *f, struct error *error)
{
    f->fd = io->open(f->path, O_RDONLY | O_CLOEXEC, 0);
    return f->fd < 0 ? failed(f, "open the file", error) : filter_file_refresh(f, error);
}

void filter_file_close(struct filter *f)
{
    for (struct filter_layer *l = f->layers; l < f->layers + FILTER_LAYERS && l->counters; l++) {
        munmap(l->counters, filter_shape_bytes(l->shape));
        free(l->changed);
    }
    if (f->fd >= 0)
        io->close(f->fd);
    if (f->log >= 0)
        io->close(f->log);
}

enum filter_result filter_file_reserve(struct filter *f, uint64_t end, struct error *error)
{
    if (end <= f->reserved)
        return FILTER_OK;
    uint64_t used = filter_header_place(&f->h, f->h.n_layers);
    if (grow(f, f->reserved > used ? f->reserved : used, end) != 0)
        return failed(f, "extend the file", error);
    f->reserved = end;
    return FILTER_OK;
}

enum filter_result filter_file_add_layer(
    struct filter *f, const struct filter_range *range, struct error *error)
{
    size_t i = f->h.n_layers;
    uint64_t end = filter_header_place(&f->h, i) + filter_shape_bytes(range->shape);
    enum filter_result r = filter_file_reserve(f, end, error);
    if (r != FILTER_OK)
        return r;
    f->h.layers[i] = *range;
    r = map_layer(f, &f->h, i, &f->layers[i], error);
    f->h.n_layers += r == FILTER_OK;
    return r;
}

static bool has_changed(const struct filter_layer *l, size_t block)
{
    return block < l->shape.blocks && (l->changed[block / 64] >> block % 64 & 1) != 0;
}

static void append_runs(const struct filter_layer *l, uint64_t place, struct filter_log *log)
{
    for (size_t from = 0, to; from < l->shape.blocks; from = to + 1) {
        for (to = from; has_changed(l, to); to++)
            ;
        if (to > from)
            *ARRAY_ADD(log->runs, log->n, log->room) = (struct filter_run){place + from * FILTER_BLOCK,
                (to - from) * FILTER_BLOCK, (const char *)l->counters + from * FILTER_BLOCK};
    }
}

/* The file has the bytes of the writer's private pages, so the kernel may have this memory back. */
static void release(struct filter *f, const struct filter_log *log)
{
    for (size_t i = 0; i < log->n; i++)
        (void)madvise((void *)(uintptr_t)log->runs[i].bytes, log->runs[i].len, MADV_DONTNEED);
    for (struct filter_layer *l = f->layers; l < f->layers + f->h.n_layers; l++)
        memset(l->changed, 0, (l->shape.blocks / 64 + 1) * sizeof *l->changed);
    f->synced = f->h.sequence;
}

enum filter_result filter_file_sync(struct filter *f, struct error *error)
{
    struct filter_log log = {.base = f->synced, .header = &f->h};
    filter_header_seal(&f->h);
    for (size_t i = 0; i < f->h.n_layers; i++)
        append_runs(&f->layers[i], filter_header_place(&f->h, i), &log);
    bool is_logged = filter_log_write(f->log, &log) == 0;
    const char *step = is_logged ? apply(f, &log) : "write the log";
    enum filter_result r = step ? failed(f, step, error) : FILTER_OK;
    bool is_undone = r == FILTER_NO_SPACE && !is_logged && io->ftruncate(f->log, 0) == 0;
    f->has_failed = step && !is_undone;
    if (f->has_failed) /* after step 1, also without space */
        r = (enum filter_result)error_set(error, FILTER_FAILED, "%s", error->text);
    if (r == FILTER_OK)
        release(f, &log);
    free(log.runs);
    return r;
}
