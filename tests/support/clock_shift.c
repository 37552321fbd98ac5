/* clock_shift: a library for LD_PRELOAD that shifts the clocks of a program while it runs. MILLRACE_TEST_CLOCKS names a file of two
 * numbers of eight bytes: seconds to add to the wall clock, and seconds to add to the clock since boot. It links no sanitizer and
 * calls the kernel, so that it also works in front of a sanitizer's library. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shifts;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("MILLRACE_TEST_CLOCKS");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *p = fd >= 0 ? mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (p != MAP_FAILED)
        shifts = p;
    if (fd >= 0)
        close(fd);
}

int clock_gettime(clockid_t which, struct timespec *out)
{
    int r = (int)syscall(SYS_clock_gettime, which, out);
    if (r == 0 && shifts && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
        out->tv_sec += shifts[0];
    else if (r == 0 && shifts && which == CLOCK_BOOTTIME)
        out->tv_sec += shifts[1];
    return r;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int r = clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return r;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
