#include "tools/run/handover.h"

#include "daemon/listen.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VARIABLE "MILLRACE_UP_SOCKETS" /* name and descriptor of each socket: "simplequeue=10,pubsub=11" */

void handover_exec(const struct supervisor_program *programs, size_t n, char **argv)
{
    struct buf list = {0};
    for (size_t i = 0; i < n; i++)
        if (programs[i].listen_fd >= 0 && fcntl(programs[i].listen_fd, F_SETFD, 0) == 0)
            buf_printf(&list, "%s%s=%d", list.len ? "," : "", programs[i].name, programs[i].listen_fd);
    setenv(VARIABLE, list.len ? list.ptr : "", 1);
    buf_free(&list);
    execv(argv[0], argv);
    unsetenv(VARIABLE);
    for (size_t i = 0; i < n; i++)
        if (programs[i].listen_fd >= 0)
            fcntl(programs[i].listen_fd, F_SETFD, FD_CLOEXEC);
}

/* Removes the daemon's entry from the variable; `daemon` NULL: the first entry. Returns the descriptor of the
 * entry, or -1. */
static int remove_entry(const char *daemon)
{
    const char *list = getenv(VARIABLE);
    struct buf rest = {0};
    struct bytes word;
    int fd = -1;
    while (list && bytes_next_word(&list, ",", &word)) {
        const char *equals = memchr(word.ptr, '=', word.len);
        uint64_t number;
        bool is_valid =
            equals && bytes_to_u64(bytes_of(equals + 1, (size_t)(word.ptr + word.len - equals - 1)), &number);
        if (is_valid && fd < 0 &&
            (!daemon || bytes_equal_str(bytes_of(word.ptr, (size_t)(equals - word.ptr)), daemon)))
            fd = (int)number;
        else
            buf_printf(&rest, "%s%.*s", rest.len ? "," : "", (int)word.len, word.ptr);
    }
    if (rest.len)
        setenv(VARIABLE, rest.ptr, 1);
    else
        unsetenv(VARIABLE);
    buf_free(&rest);
    return fd;
}

int handover_take(const char *daemon, const char *address, int port)
{
    struct listen_name name;
    bool is_unix = address && strncmp(address, "unix:", 5) == 0;
    int fd = remove_entry(daemon);
    if (fd < 0)
        return -1;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && listen_name(fd, &name) == 0 && name.is_unix == is_unix &&
        (is_unix ? strcmp(name.address, address + 5) == 0 : port == 0 || port == name.port))
        return fd;
    close(fd);
    return -1;
}

void handover_end(void)
{
    int fd;
    while ((fd = remove_entry(NULL)) >= 0)
        close(fd);
}
