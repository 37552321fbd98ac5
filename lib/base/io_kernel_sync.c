/* Linux has IOCB_CMD_FDSYNC: a thread of the kernel's on the caller's processor makes the fdatasync, by the file that the descriptor was
 * open for when it began, so a failure to write back is reported here as fdatasync would report it, and once. */
#include "base/io_kernel_sync.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What the context's address shows, as fs/aio.c lays it out: so whether something is over costs no system call. */
struct ring {
    unsigned id, nr, head, tail, magic, compat_features, incompat_features, header_length;
};
#define RING_MAGIC 0xa10a10a1

static const struct ring *ring_of(const struct io_kernel_sync *s)
{
    return (const struct ring *)s->context;
}

int io_kernel_sync_open(struct io_kernel_sync *s, int wake)
{
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 1, &context) != 0)
        return -1;
    *s = (struct io_kernel_sync){.context = context, .wake = wake};
    const struct ring *r = ring_of(s);
    if (r->magic == RING_MAGIC && r->incompat_features == 0)
        return 0;
    io_kernel_sync_close(s);
    errno = ENOSYS;
    return -1;
}

int io_kernel_sync_begin(struct io_kernel_sync *s, int fd)
{
    struct iocb block = {.aio_lio_opcode = IOCB_CMD_FDSYNC,
        .aio_fildes = (uint32_t)fd,
        .aio_flags = IOCB_FLAG_RESFD,
        .aio_resfd = (uint32_t)s->wake};
    struct iocb *blocks[] = {&block};
    return syscall(SYS_io_submit, s->context, 1L, blocks) == 1 ? 0 : -1;
}

bool io_kernel_sync_is_over(struct io_kernel_sync *s)
{
    const struct ring *r = ring_of(s);
    return __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) != __atomic_load_n(&r->head, __ATOMIC_RELAXED);
}

int io_kernel_sync_end(struct io_kernel_sync *s)
{
    struct io_event event = {0};
    long n;
    do
        n = syscall(SYS_io_getevents, s->context, 1L, 1L, &event, NULL);
    while (n < 0 && errno == EINTR);
    if (n == 1 && event.res == 0)
        return 0;
    if (n >= 0)
        errno = event.res < 0 ? (int)-event.res : EIO;
    return -1;
}

void io_kernel_sync_close(struct io_kernel_sync *s)
{
    syscall(SYS_io_destroy, s->context);
    s->context = 0;
}
