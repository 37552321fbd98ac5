#include "put_rejects.h"

#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

struct put_rejects {
    char *path;
    uint64_t n, told;
    usec_t told_at;
};

static int fail(const struct put_rejects *r)
{
    fprintf(stderr, "\nmillrace put: %s: %s\n", r->path, strerror(errno));
    return -1;
}

/* Its name is durable too: the directory is synced whenever the file is still empty. */
static int open_file(const struct put_rejects *r, off_t *length)
{
    struct stat st;
    int fd = io->open(r->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(r);
    if (fstat(fd, &st) != 0 || (st.st_size == 0 && io_sync_parent(r->path) != 0)) {
        fail(r);
        io->close(fd);
        return -1;
    }
    *length = st.st_size;
    return fd;
}

static bool is_torn(int fd, off_t length)
{
    char last;
    return length > 0 && io->pread(fd, &last, 1, length - 1) == 1 && last != '\n';
}

static int append(int fd, struct bytes line, off_t length)
{
    struct buf text = {0};
    if (is_torn(fd, length))
        buf_append_char(&text, '\n');
    buf_append_bytes(&text, line);
    buf_append_char(&text, '\n');
    int rc = io_write_all(fd, text.ptr, text.len, length);
    if (rc == 0)
        rc = io->fdatasync(fd);
    buf_free(&text);
    return rc;
}

struct put_rejects *put_rejects_open(const char *path)
{
    off_t length;
    struct put_rejects *r = mem_zalloc(sizeof *r);
    r->path = mem_strdup(path);
    int fd = open_file(r, &length);
    if (fd >= 0)
        io->close(fd);
    else
        put_rejects_free(&r);
    return r;
}

void put_rejects_free(struct put_rejects **rp)
{
    if (*rp == NULL)
        return;
    free((*rp)->path);
    free(*rp);
    *rp = NULL;
}

void put_reject_tell(const struct put_reject *reject)
{
    fprintf(stderr,
        "\nmillrace put: the queue refuses the line at byte %" PRIu64 " of %s (%zu bytes): %.*s\n",
        reject->offset, reject->file, reject->line.len, (int)reject->why.len,
        reject->why.ptr != NULL ? reject->why.ptr : "");
}

int put_rejects_add(struct put_rejects *r, const struct put_reject *reject, usec_t now)
{
    off_t length;
    int fd = open_file(r, &length);
    if (fd < 0)
        return EX_IOERR;
    int rc = append(fd, reject->line, length);
    if (rc != 0) {
        fail(r);
        (void)io->ftruncate(fd, length);
    }
    io->close(fd);
    if (rc != 0)
        return EX_IOERR;
    if (r->n++ == 0) {
        put_reject_tell(reject);
        fprintf(stderr, "millrace put: it is in %s; how many there are is said once a minute\n", r->path);
        r->told = 1;
        r->told_at = now;
    }
    put_rejects_tell(r, now, false);
    return 0;
}

void put_rejects_tell(struct put_rejects *r, usec_t now, bool last)
{
    if (r == NULL || r->n == r->told || (!last && now - r->told_at < PUT_REJECTS_TELL_EVERY))
        return;
    fprintf(stderr, "millrace put: %" PRIu64 " lines that the queue refuses are in %s\n", r->n, r->path);
    r->told = r->n;
    r->told_at = now;
}
