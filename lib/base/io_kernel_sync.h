/* io_kernel_sync: what lib/base/io.h has the kernel do, by its own calls; nobody else includes it. */
#ifndef MILLRACE_IO_KERNEL_SYNC_H
#define MILLRACE_IO_KERNEL_SYNC_H

#include "base/io.h"

int io_kernel_sync_open(struct io_kernel_sync *s, int wake);
int io_kernel_sync_begin(struct io_kernel_sync *s, int fd);
bool io_kernel_sync_is_over(struct io_kernel_sync *s);
int io_kernel_sync_end(struct io_kernel_sync *s);
void io_kernel_sync_close(struct io_kernel_sync *s);

#endif
