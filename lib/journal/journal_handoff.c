#include "base/errno_class.h"
#include "base/log.h"
#include "journal/journal_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define POOL_BYTES_MAX ((size_t)8 << 20)
#define POOLED_BATCH_BYTES_MAX ((size_t)4 << 20)

static void set_locked(struct journal_set *set)
{
    set->locked_by = pthread_self();
    set->locked = true;
}

void set_lock(struct journal_set *set)
{
    pthread_mutex_lock(&set->lock);
    set_locked(set);
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

void set_sleep(struct journal_set *set, pthread_cond_t *until, usec_t due)
{
    struct timespec at = {.tv_sec = due / USEC_PER_SEC, .tv_nsec = due % USEC_PER_SEC * 1000};
    assert(set_is_locked(set));
    set->locked = false;
    if (due)
        pthread_cond_timedwait(until, &set->lock, &at);
    else
        pthread_cond_wait(until, &set->lock);
    set_locked(set);
}

void set_signal_owner(struct journal_set *set, bool was_empty)
{
    assert(set_is_locked(set));
    if (was_empty && set->owner_waits)
        pthread_cond_broadcast(&set->progress);
}

void set_wait_while_syncing(struct journal_set *set)
{
    assert(set_is_locked(set) && set->writing);
    set->awaits_sync = true;
    set_sleep(set, &set->synced, 0);
    set->awaits_sync = false;
}

void journal_make_dirty(struct journal *j)
{
    struct journal_set *set = j->set;
    assert(set_is_locked(set));
    if (j->dirty)
        return;
    j->dirty = true;
    j->next_dirty = NULL;
    *set->dirty_tail = j;
    set->dirty_tail = &j->next_dirty;
}

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

void batch_free(struct batch *b)
{
    buf_free(&b->frames);
    free(b->entries);
    free(b);
}

/* Reuses the memory of small batches, because new pages from the kernel cost more than copying a small batch. */
void batch_release(struct journal_set *set, struct batch *b)
{
    size_t bytes = batch_bytes(b);
    if (bytes > POOLED_BATCH_BYTES_MAX || set->pool_bytes + bytes > POOL_BYTES_MAX) {
        batch_free(b);
        return;
    }
    buf_clear(&b->frames);
    *b = (struct batch){
        .next = set->pool, .frames = b->frames, .entries = b->entries, .capacity = b->capacity};
    set->pool = b;
    set->pool_bytes += bytes;
}

static void close_entry(struct fd_cache_entry *f)
{
    io->close(f->fd);
    *f = (struct fd_cache_entry){0};
}

static struct fd_cache_entry *find(struct fd_cache *cache, const struct segment *s)
{
    for (size_t i = 0; i < FD_CACHE_MAX; i++)
        if (cache->open[i].segment == s)
            return &cache->open[i];
    return NULL;
}

static struct fd_cache_entry *least_used(struct fd_cache *cache)
{
    struct fd_cache_entry *least = NULL;
    for (size_t i = 0; i < FD_CACHE_MAX; i++) {
        struct fd_cache_entry *f = &cache->open[i];
        if (f->segment && (!least || f->use < least->use))
            least = f;
    }
    return least;
}

static int add(struct fd_cache *cache, const struct segment *s)
{
    if (!find(cache, NULL))
        close_entry(least_used(cache));
    int fd = file_open(s->path);
    struct fd_cache_entry *oldest = least_used(cache);
    if (fd < 0 && errno_is_fd_limit(errno) && oldest) {
        close_entry(oldest); /* close only one descriptor, because another thread could take more */
        fd = file_open(s->path);
    }
    if (fd >= 0)
        *find(cache, NULL) = (struct fd_cache_entry){.segment = s, .fd = fd};
    return fd;
}

int fd_cache_get(struct fd_cache *cache, const struct segment *s)
{
    pthread_mutex_lock(&cache->lock);
    struct fd_cache_entry *f = find(cache, s);
    int fd = f ? f->fd : add(cache, s);
    int system = errno;
    if (fd >= 0)
        find(cache, s)->use = ++cache->uses;
    pthread_mutex_unlock(&cache->lock);
    errno = system;
    return fd;
}

void fd_cache_drop(struct fd_cache *cache, const struct segment *s)
{
    pthread_mutex_lock(&cache->lock);
    struct fd_cache_entry *f = find(cache, s);
    if (f)
        close_entry(f);
    pthread_mutex_unlock(&cache->lock);
}

#define CHUNK_MAX ((size_t)256 << 10)
#define SHORTAGE_LOG_INTERVAL (10 * USEC_PER_SEC)

uint64_t journal_step_max = (uint64_t)1 << 20;
usec_t journal_retry_pause = 20 * USEC_PER_MSEC;

void job_submit(struct journal *j, struct job *job)
{
    struct journal_set *set = j->set;
    job->journal = j;
    job->next = NULL;
    j->jobs++;
    set_lock(set);
    *set->jobs_tail = job;
    set->jobs_tail = &job->next;
    bool wake = set->reader_waits;
    set_unlock(set);
    if (wake) /* signal after unlocking, because the reader thread needs the lock */
        pthread_cond_signal(&set->reads);
}

void job_read_failed(struct job *job, enum cursor_status status)
{
    struct journal_set *set = job->journal->set;
    int system = status == CURSOR_IO ? job->cursor->system : 0;
    job->again = errno_is_fd_limit(system) || system == ENOMEM;
    if (!job->again) {
        cursor_failure(job->cursor, status, job->segment->path, job->failure);
        job->result = system ? JOURNAL_IO : JOURNAL_DAMAGED;
        return;
    }
    usec_t now = clock_monotonic();
    job->not_before = now + journal_retry_pause;
    set_lock(set);
    set->last_shortage = now;
    set_unlock(set);
    if (set->shortage_logged && now - set->shortage_logged < SHORTAGE_LOG_INTERVAL)
        return;
    set->shortage_logged = now;
    log_warn("a read waits: out of descriptors or memory", LOG_S("path", job->segment->path),
        LOG_S("error", strerror(system)));
}

enum cursor_status job_enter(struct job *job)
{
    struct cursor *c = job->cursor;
    int fd = fd_cache_get(&job->journal->set->files, job->segment);
    if (fd < 0) {
        c->system = errno;
        return CURSOR_IO;
    }
    bool is_old = c->fd >= 0 && c->version != job->segment->version;
    if (c->fd < 0)
        cursor_begin(c, fd, job->segment->seed, job->segment->base);
    c->fd = fd;
    c->borrowed = true;
    c->version = job->segment->version;
    return is_old ? cursor_reread(c) : CURSOR_FRAME;
}

void job_begin(struct job *job)
{
    struct cursor *c = job->cursor;
    if (job->begin.position > c->position) {
        c->position = job->begin.position;
        c->offset = job->begin.offset;
        c->latest = job->begin.latest;
    }
    job->begin.position = c->position;
    c->chunk = CHUNK_MAX;
}

void job_pass(struct job *job, const struct frame *f)
{
    struct cursor *c = job->cursor;
    uint64_t last = job->n_indexed ? job->indexed[job->n_indexed - 1].position : job->begin.position;
    cursor_skip(c, f);
    job->again = c->position >= job->begin.position + journal_step_max;
    if (job->n_indexed < JOB_ENTRIES_MAX && c->position >= last + journal_index_spacing)
        job->indexed[job->n_indexed++] = (struct index_entry){c->position, c->offset, c->latest};
}

/* Removes the first due job from the list and returns it. If none is due, sets *due to the next job's time; 0: no
 * job. */
static struct job *take_job(struct journal_set *set, usec_t *due)
{
    usec_t now = 0;
    *due = 0;
    for (struct job **at = &set->jobs, *job; (job = *at); at = &job->next) {
        if (job->not_before && !now)
            now = clock_monotonic();
        if (job->not_before > now) {
            *due = *due && *due < job->not_before ? *due : job->not_before;
            continue;
        }
        *at = job->next;
        if (set->jobs_tail == &job->next)
            set->jobs_tail = at;
        return job;
    }
    return NULL;
}

void *reader_main(void *arg)
{
    struct journal_set *set = arg;
    for (;;) {
        struct job *job;
        usec_t due;
        set_lock(set);
        while (!(job = take_job(set, &due)) && !set->stop) {
            set->reader_waits = true;
            set_sleep(set, &set->reads, due);
            set->reader_waits = false;
        }
        set_unlock(set);
        if (!job)
            return NULL;
        if (job->run)
            job->run(job);
        set_lock(set);
        bool was_empty = !set->jobs_done;
        job->next = NULL;
        *set->jobs_done_tail = job;
        set->jobs_done_tail = &job->next;
        set_signal_owner(set, was_empty);
        set_unlock(set);
        if (was_empty)
            set->config.notify(set->config.notify_arg);
    }
}

void job_note_damage(struct job *job, const char *found)
{
    struct scrub *s = &job->journal->set->scrub;
    if (job->segment->damaged)
        return;
    job->segment->damaged = true;
    if (s->done.damaged++ == 0) {
        memcpy(s->damage, job->failure, sizeof s->damage);
        s->done.damage = s->damage;
    }
    log_error(found, LOG_S("error", job->failure));
}

void job_report_failure(struct job *job)
{
    struct journal *j = job->journal;
    if (job->failure[0] && !j->latched)
        memcpy(j->failure, job->failure, sizeof j->failure);
    if (job->failure[0] && job->result == JOURNAL_DAMAGED && job->segment)
        job_note_damage(job, "a read found damage");
}

void job_deliver(struct job *job)
{
    struct journal *j = job->journal;
    for (size_t i = 0; i < job->n_indexed; i++)
        frame_index_add(j, job->segment, &job->indexed[i]);
    j->jobs--;
    job->deliver(job);
    if (job->wants_spans && job->spans.fd >= 0)
        io->close(job->spans.fd);
    free(job->spans.spans);
    buf_free(&job->out);
    free(job);
    if (j->observer)
        j->observer(j, false, j->observer_arg);
}
