#include "journal/journal_internal.h"

#include "base/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PENDING_DEFAULT ((size_t)64 << 20)
#define POOL_BYTES_MAX ((size_t)8 << 20)
#define POOLED_BATCH_BYTES_MAX ((size_t)4 << 20)

const char *journal_strerror(enum journal_result r)
{
    static const char *const text[] = {
        [JOURNAL_OK] = "no error",
        [JOURNAL_CONFLICT] = "the producer's mark is another",
        [JOURNAL_TOO_MANY_PRODUCERS] = "too many producers",
        [JOURNAL_TOO_LARGE] = "too large for one append",
        [JOURNAL_BUSY] = "too much is waiting to be committed",
        [JOURNAL_NO_SPACE] = "no space left on the device",
        [JOURNAL_LATCHED] = "storage failed: no more writes until a restart",
        [JOURNAL_GONE] = "the offset is no longer there",
        [JOURNAL_BEYOND] = "the offset is past the end",
        [JOURNAL_END] = "at the end",
        [JOURNAL_DAMAGED] = "a segment is damaged",
        [JOURNAL_NEWER] = "written by a newer version",
        [JOURNAL_IN_USE] = "in use by another process",
        [JOURNAL_IO] = "input or output failed",
        [JOURNAL_NO_DESCRIPTORS] = "out of file descriptors",
        [JOURNAL_CLOSED] = "the journal is being closed",
    };
    return (size_t)r < sizeof text / sizeof *text ? text[r] : "unknown error";
}

void failure_set(char text[JOURNAL_ERROR_TEXT], const char *path, const char *what, int system)
{
    if (system)
        snprintf(text, JOURNAL_ERROR_TEXT, "%s: %s: %s", path, what, strerror(system));
    else
        snprintf(text, JOURNAL_ERROR_TEXT, "%s: %s", path, what);
}

bool is_out_of_descriptors(int system)
{
    return system == EMFILE || system == ENFILE;
}

bool is_resource_shortage(int system)
{
    return is_out_of_descriptors(system) || system == ENOMEM;
}

/* Without a boot id (not Linux, a bare chroot) all zeros: two such sessions count as one boot, which claims
 * that the page cache survived. So a random one is taken instead: at worst a hole too many. */
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

static size_t batch_bytes(const struct batch *b)
{
    return sizeof *b + b->frames.cap + b->capacity * sizeof *b->entries;
}

struct batch *batch_new(struct journal_set *set, struct journal *j)
{
    struct batch *b = set->pool;
    if (b) {
        set->pool = b->next;
        set->pool_bytes -= batch_bytes(b);
    } else {
        b = mem_zalloc(sizeof *b);
    }
    b->next = NULL;
    b->journal = j;
    return b;
}

static void batch_free(struct batch *b)
{
    buf_free(&b->frames);
    free(b->entries);
    free(b);
}

/* Keeps the memory of some, of as many as are under way at once at most: fresh pages cost more than the copying into them. */
void batch_release(struct journal_set *set, struct batch *b)
{
    size_t bytes = batch_bytes(b);
    if (bytes > POOLED_BATCH_BYTES_MAX || set->pool_bytes + bytes > POOL_BYTES_MAX) {
        batch_free(b);
        return;
    }
    struct buf frames = b->frames;
    struct entry *entries = b->entries;
    size_t capacity = b->capacity;
    buf_clear(&frames);
    *b = (struct batch){.next = set->pool, .frames = frames, .entries = entries, .capacity = capacity};
    set->pool = b;
    set->pool_bytes += bytes;
}

static void no_notify(void *arg)
{
    (void)arg;
}

static void init_lists(struct journal_set *set)
{
    set->dirty_tail = &set->dirty;
    set->finished_tail = &set->finished;
    set->jobs_tail = &set->jobs;
    set->jobs_done_tail = &set->jobs_done;
    set->to_fill_tail = &set->to_fill;
}

static void init_conditions(struct journal_set *set)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (size_t i = 0; i < COMMITTERS; i++) {
        pthread_cond_init(&set->committers[i].wake, &monotonic);
        set->committers[i].set = set;
    }
    pthread_cond_init(&set->synced, NULL);
    pthread_cond_init(&set->reads, &monotonic);
    pthread_cond_init(&set->fills, &monotonic);
    pthread_cond_init(&set->progress, NULL);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&set->lock, NULL);
    pthread_mutex_init(&set->files.lock, NULL);
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
    init_lists(set);
    init_conditions(set);
    int failed = 0;
    for (size_t i = 0; i < COMMITTERS; i++)
        failed |= pthread_create(&set->committers[i].thread, NULL, committer_main, &set->committers[i]);
    if (failed || pthread_create(&set->reader, NULL, reader_main, set) != 0 ||
        pthread_create(&set->filler, NULL, filler_main, set) != 0) {
        fprintf(stderr, "millrace: cannot start a thread\n");
        abort();
    }
    return set;
}

void set_lock(struct journal_set *set)
{
    pthread_mutex_lock(&set->lock);
    set->locked_by = pthread_self();
    set->locked = true;
}

void set_unlock(struct journal_set *set)
{
    set->locked = false;
    pthread_mutex_unlock(&set->lock);
}

bool set_is_locked(const struct journal_set *set)
{
    return set->locked && pthread_equal(set->locked_by, pthread_self());
}

void set_sleep(struct journal_set *set, pthread_cond_t *until)
{
    assert(set_is_locked(set));
    set->locked = false;
    pthread_cond_wait(until, &set->lock);
    set->locked_by = pthread_self();
    set->locked = true;
}

void set_sleep_until(struct journal_set *set, pthread_cond_t *until, usec_t due)
{
    struct timespec at = {.tv_sec = due / USEC_PER_SEC, .tv_nsec = due % USEC_PER_SEC * 1000};
    assert(set_is_locked(set));
    set->locked = false;
    pthread_cond_timedwait(until, &set->lock, &at);
    set->locked_by = pthread_self();
    set->locked = true;
}

void set_signal_owner(struct journal_set *set, bool was_empty)
{
    if (was_empty && set->owner_waits)
        pthread_cond_broadcast(&set->progress);
}

void set_request_poll(struct journal_set *set)
{
    if (set->poll_requested)
        return;
    set->poll_requested = true;
    set->config.notify(set->config.notify_arg);
}

void journal_set_poll(struct journal_set *set)
{
    set->poll_requested = false;
    set->polls = true;
    commit_write(set);
    commit_start(set);
    set_lock(set);
    struct batch *finished = set->finished;
    struct job *jobs = set->jobs_done;
    set->finished = NULL;
    set->finished_tail = &set->finished;
    set->jobs_done = NULL;
    set->jobs_done_tail = &set->jobs_done;
    set_unlock(set);
    struct batch *answered = set->answered;
    set->answered = NULL;
    if (answered) {
        append_deliver(answered);
        batch_release(set, answered);
    }
    while (finished) {
        struct batch *b = finished;
        finished = b->next;
        append_deliver(b);
        batch_release(set, b);
    }
    while (jobs) {
        struct job *job = jobs;
        jobs = job->next;
        job_deliver(job);
    }
    set->polls = false;
    commit_start(set);
}

void set_wait(struct journal_set *set)
{
    commit_write(set);
    set_lock(set);
    set->hurry = true;
    commit_wake_all(set);
    set->owner_waits = true;
    while (!set->finished && !set->jobs_done && !set->answered)
        set_sleep(set, &set->progress);
    set->owner_waits = false;
    set->hurry = false;
    set_unlock(set);
    journal_set_poll(set);
}

static bool unfinished(const struct journal_set *set)
{
    for (const struct journal *j = set->journals; j; j = j->next)
        if (j->unfinished)
            return true;
    return set->answered != NULL;
}

void journal_set_flush(struct journal_set *set)
{
    while (unfinished(set))
        set_wait(set);
}

size_t journal_set_pending(const struct journal_set *set)
{
    return set->pending_bytes;
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
    usec_t lacked = set->last_shortage;
    set_unlock(set);
    return lacked;
}

static void stop_threads(struct journal_set *set)
{
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
    stop_threads(set);
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
