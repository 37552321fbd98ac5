#include "aggregator/rejects.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

struct rejects {
    int fd;
};

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static size_t replacements(struct bytes text)
{
    size_t n = 0;
    const char *at = text.ptr, *end = text.ptr + text.len;
    while (at < end && (at = memmem(at, (size_t)(end - at), REPLACEMENT, 3))) {
        at += 3;
        n++;
    }
    return n;
}

void rejects_format(struct buf *out, const char *origin, struct bytes name, uint64_t offset,
    const char *reason, uint64_t bytes, struct bytes line)
{
    buf_printf(out, "{\"%s\":", origin);
    buf_append_json(out, name);
    buf_printf(out, ",\"offset\":\"%llu\",\"reason\":", (unsigned long long)offset);
    buf_append_json(out, bytes_str(reason));
    buf_printf(out, ",\"bytes\":%llu,\"line\":", (unsigned long long)bytes);
    size_t start = out->len;
    buf_append_json(out, line);
    /* If more replacement characters appear than the line had, some bytes were not UTF-8. */
    if (replacements(bytes_of(out->ptr + start, out->len - start)) > replacements(line)) {
        buf_append_str(out, ",\"hex\":\"");
        for (size_t i = 0; i < line.len; i++)
            buf_printf(out, "%02x", (unsigned char)line.ptr[i]);
        buf_append_char(out, '"');
    }
    buf_append_str(out, "}\n");
}

int rejects_open(const char *path, uint64_t length, struct rejects **out)
{
    int fd = io->open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, IO_PRIVATE_MODE);
    if (fd < 0)
        return -1;
    struct stat st;
    bool ok = fstat(fd, &st) == 0;
    if (ok && (uint64_t)st.st_size < length) {
        errno = ERANGE;
        ok = false;
    }
    if (!ok || ((uint64_t)st.st_size > length && io->ftruncate(fd, (off_t)length) != 0)) {
        int saved = errno;
        io->close(fd);
        errno = saved;
        return -1;
    }
    *out = mem_zalloc(sizeof(**out));
    (*out)->fd = fd;
    return 0;
}

void rejects_close(struct rejects **r)
{
    if (!*r)
        return;
    io->close((*r)->fd);
    free(*r);
    *r = NULL;
}

int rejects_write(struct rejects *r, struct bytes entries, uint64_t at)
{
    if (io_write_all(r->fd, entries.ptr, entries.len, (off_t)at) != 0)
        return -1;
    return io->fdatasync(r->fd);
}
