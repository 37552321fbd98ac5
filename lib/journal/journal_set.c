#include "journal/journal_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PENDING_DEFAULT ((size_t)64 << 20)

/* If the kernel's boot id is not readable, as in a bare chroot, the function uses a random id. A random id can only
 * cause an unnecessary hole. With a constant id, journal_open would make no hole after a power cut. */
static void kernel_boot_id(uint8_t out[16])
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    size_t digits = 0;
    memset(out, 0, 16);
    for (ssize_t i = 0; i < n && digits < 32; i++) {
        const char *hex = "0123456789abcdef", *at = strchr(hex, text[i]);
        if (at && *at)
            out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | (at - hex)), digits++;
    }
    if (digits < 32 && getentropy(out, 16) != 0)
        abort();
}

void (*journal_boot_id)(uint8_t out[16]) = kernel_boot_id;

const char *journal_strerror(enum journal_result r)
{
    static const char *const text[] = {
        [JOURNAL_OK] = "no error",
        [JOURNAL_CONFLICT] = "the producer's mark differs",
        [JOURNAL_TOO_MANY_PRODUCERS] = "too many producers",
        [JOURNAL_TOO_LARGE] = "too large for one append",
        [JOURNAL_BUSY] = "too many bytes wait for their commit",
        [JOURNAL_MARK_BUSY] = "another request is moving the producer's mark",
        [JOURNAL_GUARDED] = "the guard has another mark",
        [JOURNAL_NO_SPACE] = "no space left on the device",
        [JOURNAL_LATCHED] = "storage failed: no more writes until a restart",
        [JOURNAL_GONE] = "the offset has expired or lies in a hole",
        [JOURNAL_BEYOND] = "the offset is past the end",
        [JOURNAL_END] = "at the end",
        [JOURNAL_DAMAGED] = "a segment is damaged",
        [JOURNAL_VERSION] = "unknown format version",
        [JOURNAL_IN_USE] = "in use by another process",
        [JOURNAL_IO] = "input or output failed",
        [JOURNAL_NO_DESCRIPTORS] = "out of file descriptors",
        [JOURNAL_CLOSED] = "the journal is being closed",
    };
    return (size_t)r < sizeof text / sizeof *text ? text[r] : "unknown error";
}

static void no_notify(void *arg)
{
    (void)arg;
}

struct journal_set *journal_set_new(const struct journal_set_config *config)
{
    struct journal_set *set = mem_zalloc(sizeof *set);
    set->config = *config;
    if (set->config.max_pending == 0)
        set->config.max_pending = PENDING_DEFAULT;
    if (!set->config.notify)
        set->config.notify = no_notify;
    journal_boot_id(set->boot);
    set->scrub.cursor.fd = -1;
    set->dirty_tail = &set->dirty;
    set->finished_tail = &set->finished;
    set->jobs_tail = &set->jobs;
    set->jobs_done_tail = &set->jobs_done;
    set->to_fill_tail = &set->to_fill;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (size_t i = 0; i < COMMITTERS; i++)
        pthread_cond_init(&set->committers[i].wake, &monotonic);
    pthread_cond_init(&set->synced, &monotonic);
    pthread_cond_init(&set->reads, &monotonic);
    pthread_cond_init(&set->fills, &monotonic);
    pthread_cond_init(&set->progress, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&set->lock, NULL);
    pthread_mutex_init(&set->files.lock, NULL);
    int failed = 0;
    for (size_t i = 0; i < COMMITTERS; i++) {
        set->committers[i].set = set;
        failed |= pthread_create(&set->committers[i].thread, NULL, committer_main, &set->committers[i]);
    }
    failed |= pthread_create(&set->reader, NULL, reader_main, set);
    failed |= pthread_create(&set->filler, NULL, filler_main, set);
    if (failed) {
        fprintf(stderr, "millrace: cannot start a thread\n");
        abort();
    }
    return set;
}

uint64_t journal_set_syncs(struct journal_set *set)
{
    set_lock(set);
    uint64_t syncs = set->syncs;
    set_unlock(set);
    return syncs;
}

usec_t journal_set_last_shortage(struct journal_set *set)
{
    set_lock(set);
    usec_t last = set->last_shortage;
    set_unlock(set);
    return last;
}

void journal_set_free(struct journal_set **p)
{
    struct journal_set *set = *p;
    if (!set)
        return;
    *p = NULL;
    journal_set_flush(set);
    set->closing = true;
    while (set->journals) {
        struct journal *j = set->journals;
        journal_close(&j);
    }
    set_lock(set);
    set->stop = true;
    commit_wake_all(set);
    pthread_cond_signal(&set->reads);
    pthread_cond_signal(&set->fills);
    set_unlock(set);
    for (size_t i = 0; i < COMMITTERS; i++)
        pthread_join(set->committers[i].thread, NULL);
    pthread_join(set->reader, NULL);
    pthread_join(set->filler, NULL);
    while (set->pool) {
        struct batch *b = set->pool;
        set->pool = b->next;
        batch_free(b);
    }
    free(set->index);
    pthread_mutex_destroy(&set->lock);
    pthread_mutex_destroy(&set->files.lock);
    for (size_t i = 0; i < COMMITTERS; i++)
        pthread_cond_destroy(&set->committers[i].wake);
    pthread_cond_destroy(&set->synced);
    pthread_cond_destroy(&set->reads);
    pthread_cond_destroy(&set->fills);
    pthread_cond_destroy(&set->progress);
    free(set);
}
