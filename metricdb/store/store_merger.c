/* The thread that merges blocks, makes wider buckets and deletes old blocks. */
#include "base/io.h"
#include "metricdb/store/block_merge.h"
#include "metricdb/store/store_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/param.h>

#define FAN_IN 12
#define LEVEL_DAY 2  /* of the largest blocks of the finest buckets, from which wider buckets are made */
#define LEVEL_LAST 3 /* of the largest blocks of wider buckets */

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

/* The first complete block of chain i that the next chain does not have yet. */
static bool plan_wider(const struct sample_store *s, size_t i, struct merge_job *job)
{
    struct block_chain c = chain_of(s, i);
    uint64_t end = block_chain_end(chain_of(s, i + 1));
    for (size_t k = 0; k < c.n; k++) {
        const struct block_info *info = block_info(c.blocks[k]);
        if (info->from < end || info->level < LEVEL_DAY)
            continue;
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

/* The first `fan_in` adjacent blocks of a level in chain i. The newest block of all is never merged, because
 * it has the state. */
static bool plan_level(
    const struct sample_store *s, size_t i, uint32_t level, size_t fan_in, struct merge_job *job)
{
    struct block_chain c = chain_of(s, i);
    size_t n = 0; /* adjacent blocks of the level that end at k */
    for (size_t k = 0; k < c.n && block_info(c.blocks[k])->to < s->next_cut; k++) {
        const struct block_info *info = block_info(c.blocks[k]);
        bool is_adjacent = n > 0 && block_info(c.blocks[k - 1])->to == info->from;
        n = info->level != level ? 0 : is_adjacent ? n + 1 : 1;
        if (n < fan_in)
            continue;
        if (level == LEVEL_DAY && !is_alone(s, i, info->to))
            return false;
        job_take(job, &c.blocks[k + 1 - n], n, s->widths[i], level + 1);
        return true;
    }
    return false;
}

/* Wider chains are merged first, so that their boundaries stay boundaries of the finer (block_list.h, rule
 * 3). */
static bool plan(const struct sample_store *s, struct merge_job *job)
{
    size_t fan_in = s->config.fan_in, fan_in_last = fan_in * 8 / 3;
    for (size_t i = 0; i + 1 < s->n_widths; i++)
        if (plan_wider(s, i, job))
            return true;
    for (size_t i = s->n_widths - 1; i > 0; i--)
        if (plan_level(s, i, LEVEL_DAY, fan_in_last, job))
            return true;
    return plan_level(s, 0, 1, fan_in, job) || plan_level(s, 0, 0, fan_in, job);
}

/* Deletes the first block of a chain that is older than its retention and in the next chain. A sample of the
 * future keeps nothing. */
static bool delete_oldest(struct sample_store *s, usec_t wall)
{
    for (size_t i = 0; i < s->n_widths; i++) {
        struct block_chain c = chain_of(s, i);
        const struct block_info *info = c.n > 0 ? block_info(c.blocks[0]) : NULL;
        int64_t now = wall / USEC_PER_MSEC, keep_last = s->keep[s->n_widths - 1];
        int64_t at = !info ? 0 : info->cut_at > 0 ? MIN(info->cut_at, info->max_at) : info->max_at;
        if (!info || s->keep[i] == 0 || at >= now - s->keep[i] || info->to >= s->next_cut)
            continue;
        bool is_old = keep_last > 0 && at < now - keep_last;
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
    int r = 0;
    while (r == 0 && !atomic_load(&m->stop)) {
        pthread_rwlock_rdlock(&s->lock);
        bool has_job = plan(s, &job);
        pthread_rwlock_unlock(&s->lock);
        if (!has_job)
            break;
        r = run_job(m, &job, error);
        job_free(&job);
    }
    for (bool did = wall > 0; did && !atomic_load(&m->stop);) {
        pthread_rwlock_wrlock(&s->lock);
        did = delete_oldest(s, wall);
        pthread_rwlock_unlock(&s->lock);
        if (did) /* the deletions become durable in their order, so a power cut leaves no gap */
            io_sync_dir(s->dir);
    }
    return r;
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
