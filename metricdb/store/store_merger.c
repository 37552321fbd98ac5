/* The thread that merges blocks, makes wider buckets and deletes old blocks. */
#include "base/io.h"
#include "metricdb/store/block_merge.h"
#include "metricdb/store/store_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/param.h>

#define LEVEL_DAY BLOCK_LEVEL_DAY

struct store_merger {
    struct sample_store *s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_woken, is_working;
    atomic_bool stop;
    usec_t wall;
    bool has_trouble;
    struct error trouble;
};

/* A merge: the inputs, with a reference each, and the result's width and level. */
struct merge_job {
    struct block **inputs;
    size_t n;
    int64_t width;
    uint32_t level;
};

static void job_take(
    struct merge_job *job, struct block *const *inputs, size_t n, int64_t width, uint32_t level)
{
    *job =
        (struct merge_job){.inputs = mem_alloc(n * sizeof(struct block *)), .width = width, .level = level};
    while (job->n < n) {
        job->inputs[job->n] = block_ref(inputs[job->n]);
        job->n++;
    }
}

static void job_free(struct merge_job *job)
{
    for (size_t i = 0; i < job->n; i++)
        block_unref(&job->inputs[i]);
    free(job->inputs);
    *job = (struct merge_job){0};
}

static struct block_chain chain_of(const struct sample_store *s, size_t i)
{
    return block_list_chain(&s->blocks, s->widths[i]);
}

/* The first block of chain i that the next chain does not have yet, if it is complete. */
static bool plan_wider(const struct sample_store *s, size_t i, struct merge_job *job)
{
    struct block_chain c = chain_of(s, i);
    uint64_t end = block_chain_end(chain_of(s, i + 1));
    for (size_t k = 0; k < c.n; k++) {
        const struct block_info *info = block_info(c.blocks[k]);
        if (info->from < end)
            continue;
        if (info->level < LEVEL_DAY)
            return false;
        job_take(job, &c.blocks[k], 1, s->widths[i + 1], info->level);
        return true;
    }
    return false;
}

/* Finer buckets that are deleted earlier end before `end`. Otherwise a wider block would hide finer blocks
 * (block_list.h, rule 3). */
static bool is_alone(const struct sample_store *s, size_t i, uint64_t end)
{
    for (size_t k = 0; k < i; k++) {
        struct block_chain c = chain_of(s, k);
        if (s->keep[k] != s->keep[i] && c.n > 0 && block_info(c.blocks[0])->from < end)
            return false;
    }
    return true;
}

/* The first `fan_in` adjacent blocks of a level in chain i; fewer with a block of a higher level after them, which an
 * accepted loss leaves. The newest block of all is never merged, because it has the state. */
static bool plan_level(
    const struct sample_store *s, size_t i, uint32_t level, size_t fan_in, struct merge_job *job)
{
    struct block_chain c = chain_of(s, i);
    size_t n = 0; /* adjacent blocks of the level that end at k */
    for (size_t k = 0; k < c.n && block_info(c.blocks[k])->to < s->next_cut; k++) {
        const struct block_info *info = block_info(c.blocks[k]);
        bool is_adjacent = n > 0 && block_info(c.blocks[k - 1])->to == info->from;
        n = info->level != level ? 0 : is_adjacent ? n + 1 : 1;
        const struct block_info *next = k + 1 < c.n ? block_info(c.blocks[k + 1]) : NULL;
        bool is_before_higher = n > 0 && next && next->level > level && next->to < s->next_cut;
        if (n < fan_in && !is_before_higher)
            continue;
        if (level == LEVEL_DAY && !is_alone(s, i, info->to))
            return false;
        job_take(job, &c.blocks[k + 1 - n], n + is_before_higher, s->widths[i],
            is_before_higher ? next->level : level + 1);
        return true;
    }
    return false;
}

/* The kinds of merges, in their order: to the next wider buckets, of days of each wider chain, and of cuts. Wider chains
 * are merged first, so that their boundaries stay boundaries of the finer (block_list.h, rule 3). */
static bool plan(const struct sample_store *s, size_t kind, struct merge_job *job)
{
    size_t fan_in = s->config.fan_in, last = s->n_widths - 1;
    if (kind < last)
        return plan_wider(s, kind, job);
    if (kind < 2 * last)
        return plan_level(s, 2 * last - kind, LEVEL_DAY, fan_in * 8 / 3, job);
    return plan_level(s, 0, kind == 2 * last ? 1 : 0, fan_in, job);
}

/* After a failure, merges of the same kind wait for the next wake, and so do those of days if a merge before them failed. */
static bool must_wait(const struct sample_store *s, size_t kind, unsigned failed)
{
    size_t last = s->n_widths - 1;
    bool is_of_days = kind >= last && kind < 2 * last;
    return (failed >> kind & 1) != 0 || (is_of_days && (failed & ((1U << 2 * last) - 1)) != 0);
}

/* True if no chain after the i-th has blocks. */
static bool is_widest(const struct sample_store *s, size_t i)
{
    while (++i < s->n_widths)
        if (chain_of(s, i).n > 0)
            return false;
    return true;
}

/* Deletes the first block of a chain that is older than its retention and in the next chain. A block older than the
 * last retention need not be in the next chain, but wider blocks are deleted first, so that their chains get no gap.
 * A sample of the future keeps no block. */
static bool delete_oldest(struct sample_store *s, usec_t wall)
{
    for (size_t i = 0; i < s->n_widths; i++) {
        struct block_chain c = chain_of(s, i);
        const struct block_info *info = c.n > 0 ? block_info(c.blocks[0]) : NULL;
        int64_t now = wall / USEC_PER_MSEC, keep_last = s->keep[s->n_widths - 1];
        int64_t at = info ? block_info_end(info) : 0;
        if (!info || s->keep[i] == 0 || at >= now - s->keep[i] || info->to >= s->next_cut)
            continue;
        bool is_old = keep_last > 0 && at < now - keep_last && is_widest(s, i);
        if (!is_old && i + 1 < s->n_widths && block_chain_end(chain_of(s, i + 1)) < info->to)
            continue;
        block_list_delete(&s->blocks, c.blocks[0]);
        s->stats.deleted++;
        return true;
    }
    return false;
}

static int run_job(struct store_merger *m, struct merge_job *job, struct error *error)
{
    struct sample_store *s = m->s;
    struct block *made = block_merge(s->dir, job->inputs, job->n, job->width, job->level, &m->stop, error);
    if (!made)
        return -1;
    pthread_rwlock_wrlock(&s->lock);
    for (size_t i = 0; i < job->n; i++)
        if (block_info(job->inputs[i])->width == job->width)
            block_list_delete(&s->blocks, job->inputs[i]);
    block_list_add(&s->blocks, made);
    s->stats.merges++;
    pthread_rwlock_unlock(&s->lock);
    return 0;
}

static int work(struct store_merger *m, usec_t wall, struct error *error)
{
    struct sample_store *s = m->s;
    struct merge_job job = {0};
    struct error later;
    unsigned failed = 0;
    for (size_t kind = 0; kind < 2 * s->n_widths && !atomic_load(&m->stop);) {
        pthread_rwlock_rdlock(&s->lock);
        bool has_job = !must_wait(s, kind, failed) && plan(s, kind, &job);
        pthread_rwlock_unlock(&s->lock);
        if (has_job && run_job(m, &job, failed ? &later : error) != 0)
            failed |= 1U << kind;
        kind = has_job ? 0 : kind + 1;
        job_free(&job);
    }
    for (bool did = wall > 0; did && !atomic_load(&m->stop);) {
        pthread_rwlock_wrlock(&s->lock);
        did = delete_oldest(s, wall);
        pthread_rwlock_unlock(&s->lock);
        if (did) /* the deletions become durable in their order, so a power cut leaves no gap */
            io_sync_dir(s->dir);
    }
    return failed ? -1 : 0;
}

static void *run(void *arg)
{
    struct store_merger *m = arg;
    struct error error;
    pthread_mutex_lock(&m->lock);
    while (!atomic_load(&m->stop)) {
        if (!m->is_woken) {
            pthread_cond_wait(&m->changed, &m->lock);
            continue;
        }
        usec_t wall = m->wall;
        m->is_woken = false;
        m->is_working = true;
        pthread_mutex_unlock(&m->lock);
        int r = work(m, wall, &error);
        if (m->s->config.notify)
            m->s->config.notify(m->s->config.notify_arg);
        pthread_mutex_lock(&m->lock);
        m->is_working = false;
        m->has_trouble = r != 0;
        if (r != 0)
            m->trouble = error;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

struct store_merger *store_merger_new(struct sample_store *s, struct error *error)
{
    struct store_merger *m = mem_zalloc(sizeof *m);
    m->s = s;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    int failed = pthread_create(&m->thread, NULL, run, m);
    if (failed == 0)
        return m;
    error_set(error, -1, "cannot start a thread: %s", strerror(failed));
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    free(m);
    return NULL;
}

void store_merger_free(struct store_merger **mp)
{
    struct store_merger *m = *mp;
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    atomic_store(&m->stop, true);
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    free(m);
    *mp = NULL;
}

void store_merger_wake(struct store_merger *m, usec_t wall)
{
    pthread_mutex_lock(&m->lock);
    m->is_woken = true;
    m->wall = wall;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

void store_merger_settle(struct store_merger *m)
{
    pthread_mutex_lock(&m->lock);
    while (m->is_woken || m->is_working)
        pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

bool store_merger_trouble(struct store_merger *m, struct error *error)
{
    pthread_mutex_lock(&m->lock);
    bool has_trouble = m->has_trouble;
    if (has_trouble)
        *error = m->trouble;
    pthread_mutex_unlock(&m->lock);
    return has_trouble;
}
