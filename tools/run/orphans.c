#include "tools/run/orphans.h"

#include "base/io.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "tools/run/supervisor.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sysexits.h>
#include <unistd.h>

#define POLL (20 * USEC_PER_MSEC)

int orphans_wait(const char *data_dir, usec_t limit, int *status, struct error *error)
{
    char *path = mem_printf("%s/daemons.lock", data_dir);
    int low = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, IO_PRIVATE_MODE);
    int fd = low >= 0 ? fcntl(low, F_DUPFD_CLOEXEC, SUPERVISOR_FD_MIN) : -1;
    usec_t end = clock_monotonic() + limit;
    if (low >= 0)
        close(low);
    bool is_locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0 && !is_locked && errno == EWOULDBLOCK)
        log_info("waiting for the daemons of an earlier start to end", LOG_S("path", path));
    while (fd >= 0 && !is_locked && errno == EWOULDBLOCK && clock_monotonic() < end) {
        clock_sleep(POLL);
        is_locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    }
    if (!is_locked && fd >= 0 && errno == EWOULDBLOCK) {
        *status = error_set(error, EX_TEMPFAIL,
            "daemons of an earlier start still run after %" PRId64
            " s (stop_timeout); `fuser %s` shows the processes",
            limit / USEC_PER_SEC, path);
    } else if (!is_locked) {
        *status = error_set(error, daemon_start_status(errno), "cannot lock %s: %s", path, strerror(errno));
    }
    if (!is_locked && fd >= 0)
        close(fd);
    free(path);
    return is_locked ? fd : -1;
}
