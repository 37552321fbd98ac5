#include "archive/mapping.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAPPING_MAGIC 0x4d617046u

/* The addresses of a mapping, for the signal handler. Entries (struct place) of the list of mappings are reused and
 * never freed, so that the signal handler can read the list without a lock. */
struct place {
    struct place *next;          /* set before the entry is added to the list */
    atomic_uintptr_t begin, end; /* `end` is 0 in a free entry */
    atomic_bool torn;
};

struct mapping {
    unsigned magic;
    int fd;
    char *base;
    size_t len;
    char last; /* the file's last byte when it was opened */
    struct timespec written;
    struct place *place;
};

static _Atomic(struct place *) places;
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uintptr_t page_size;

static void on_sigbus(int signal_number, siginfo_t *info, void *context)
{
    int saved = errno;
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    for (struct place *p = atomic_load(&places); p; p = p->next) {
        if (at < atomic_load(&p->begin) || at >= atomic_load(&p->end))
            continue;
        void *page = (void *)(at & ~(page_size - 1)); /* NOLINT(performance-no-int-to-ptr) */
        atomic_store(&p->torn, true);
        if (mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            break;
        errno = saved;
        return;
    }
    signal(signal_number,
        SIG_DFL); /* restore the default action: the instruction faults again and ends the process */
}

static int map(struct mapping *m, bool lock, const char **what)
{
    struct stat st;
    *what = "fstat";
    if (fstat(m->fd, &st) != 0)
        return -1;
    *what = "open";
    if (!S_ISREG(st.st_mode)) {
        errno = EINVAL;
        return -1;
    }
    m->len = (size_t)st.st_size;
    m->written = st.st_mtim;
    if (m->len == 0)
        return 0;
    *what = "mmap";
    void *base = mmap(NULL, m->len, PROT_READ, MAP_SHARED, m->fd, 0);
    if (base == MAP_FAILED)
        return -1;
    m->base = base;
    pthread_mutex_lock(&places_lock);
    struct place *p = atomic_load(&places);
    while (p && atomic_load(&p->end) != 0)
        p = p->next;
    if (!p) {
        p = mem_zalloc(sizeof *p);
        p->next = atomic_load(&places);
        atomic_store(&places, p);
    }
    atomic_store(&p->torn, false);
    atomic_store(&p->begin, (uintptr_t)m->base);
    atomic_store(&p->end, (uintptr_t)m->base + m->len);
    pthread_mutex_unlock(&places_lock);
    m->place = p;
    *what = "mlock";
    if (lock && mlock(m->base, m->len) != 0)
        return -1;
    m->last = m->base[m->len - 1];
    return 0;
}

int mapping_open(const char *path, bool lock, struct mapping **out, struct error *error)
{
    const char *what = "open";
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
    struct mapping *m = mem_zalloc(sizeof *m);
    m->magic = MAPPING_MAGIC;
    m->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (m->fd >= 0 && map(m, lock, &what) == 0) {
        *out = m;
        return 0;
    }
    int saved = errno;
    error_set(error, -1, "%s: %s", what, strerror(saved));
    mapping_close(&m);
    errno = saved;
    return -1;
}

void mapping_close(struct mapping **mp)
{
    struct mapping *m = *mp;
    *mp = NULL;
    if (!m)
        return;
    assert(m->magic == MAPPING_MAGIC);
    if (m->place) {
        atomic_store(&m->place->end,
            0); /* unregister before munmap, because another mapping may get the same addresses */
        munmap(m->base, m->len);
    }
    if (m->fd >= 0)
        close(m->fd);
    m->magic = 0;
    free(m);
}

struct bytes mapping_bytes(const struct mapping *m)
{
    return bytes_of(m->base, m->len);
}

bool mapping_is_whole(struct mapping *m)
{
    assert(m->magic == MAPPING_MAGIC);
    if (m->len == 0)
        return true;
    const volatile char *last = m->base + m->len - 1;
    struct stat st;
    bool is_long = m->last != '\0' || (fstat(m->fd, &st) == 0 && (size_t)st.st_size >= m->len);
    if (*last != m->last || !is_long)
        atomic_store(&m->place->torn, true);
    return !atomic_load(&m->place->torn);
}

bool mapping_is_untouched(const struct mapping *m)
{
    struct stat st;
    return fstat(m->fd, &st) == 0 && (size_t)st.st_size == m->len && st.st_mtim.tv_sec == m->written.tv_sec &&
           st.st_mtim.tv_nsec == m->written.tv_nsec;
}

int64_t mapping_modified(const struct mapping *m)
{
    return m->written.tv_sec;
}

void mapping_expect_scan(struct mapping *m, bool scan)
{
    if (m->len > 0)
        madvise(m->base, m->len, scan ? MADV_SEQUENTIAL : MADV_NORMAL);
}

void mapping_expect_searches(struct mapping *m)
{
    if (m->len > 0)
        madvise(m->base, m->len, MADV_RANDOM);
}
