#include "support/fuzz_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64], path[80], new_path[80], log_path[80];

static void leave(void)
{
    unlink(path);
    unlink(new_path);
    unlink(log_path);
    rmdir(dir);
}

const char *fuzz_dir(void)
{
    if (dir[0])
        return dir;
    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz-XXXXXX" : "/tmp/fuzz-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    snprintf(path, sizeof path, "%s/file", dir);
    snprintf(new_path, sizeof new_path, "%s/file.new", dir);
    snprintf(log_path, sizeof log_path, "%s/file.log", dir);
    atexit(leave);
    return dir;
}

const char *fuzz_file(struct bytes content)
{
    fuzz_dir();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, content.ptr, content.len) != (ssize_t)content.len || close(fd) != 0)
        abort();
    return path;
}
