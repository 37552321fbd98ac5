/* errno_class: groups of errno values by their meaning for the caller. No other file classifies errno values. */
#ifndef MILLRACE_ERRNO_CLASS_H
#define MILLRACE_ERRNO_CLASS_H

#include <errno.h>
#include <stdbool.h>

/* The system call would block, or a signal interrupted the call. Nothing failed. */
static inline bool errno_is_retry(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* The disk or a quota is full. */
static inline bool errno_is_full(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

/* The process or the system is out of file descriptors. */
static inline bool errno_is_fd_limit(int error)
{
    return error == EMFILE || error == ENFILE;
}

/* A resource is exhausted, but a later attempt may succeed. */
static inline bool errno_is_shortage(int error)
{
    return errno_is_full(error) || errno_is_fd_limit(error) || error == ENOMEM || error == ENOBUFS;
}

#endif
