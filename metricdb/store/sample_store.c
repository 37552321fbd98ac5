#include "metricdb/store/sample_store.h"

#include "base/io.h"
#include "metricdb/store/store_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/param.h>

#define LOCK_FILE "lock"
#define MINUTE INT64_C(60000)
#define FAN_IN 12
#define RETRY_CUT (10 * USEC_PER_SEC) /* after a cut that failed */

/* Opening. */

static int check_config(struct sample_store *s, struct error *error)
{
    static const int64_t wider[] = {MINUTE, 10 * MINUTE, 60 * MINUTE, 1440 * MINUTE};
    const struct sample_store_config *c = &s->config;
    const int64_t keeps[] = {c->keep, c->keep_minutes, c->keep_wide};
    if (c->resolution <= 0 || c->resolution > 1440 * MINUTE || 1440 * MINUTE % c->resolution != 0)
        return error_set(error, -1, "the resolution (%lld ms) must divide a day", (long long)c->resolution);
    for (int i = 0; i < 2; i++)
        if (keeps[i + 1] != 0 && (keeps[i] == 0 || keeps[i] > keeps[i + 1]))
            return error_set(error, -1, "wider buckets must be kept at least as long as finer buckets");
    s->widths[s->n_widths++] = c->resolution;
    s->keep[0] = c->keep;
    for (size_t i = 0; i < sizeof wider / sizeof *wider; i++) {
        if (wider[i] <= c->resolution || wider[i] % s->widths[s->n_widths - 1] != 0)
            continue;
        s->keep[s->n_widths] = wider[i] == MINUTE ? c->keep_minutes : c->keep_wide;
        s->widths[s->n_widths++] = wider[i];
    }
    return 0;
}

static int lock_directory(struct sample_store *s, struct error *error)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" LOCK_FILE, s->dir);
    s->lock_fd = io->open(path, O_RDWR | O_CREAT | O_CLOEXEC, IO_PRIVATE_MODE);
    if (s->lock_fd < 0)
        return error_errno(error, -1, path);
    if (io->flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    return errno == EWOULDBLOCK ? error_set(error, -1, "%s: another process uses this directory", s->dir)
                                : error_errno(error, -1, path);
}

static struct open_series *find_series(struct sample_store *s, struct bytes key)
{
    struct open_series *o;
    HASH_FIND(hh, s->series, key.ptr, key.len, o);
    return o;
}

static struct open_series *add_series(
    struct sample_store *s, struct bytes key, uint32_t n_labels, const struct block_state *state)
{
    struct open_series *o = open_series_new(key, n_labels, state);
    HASH_ADD(hh, s->series, key, o->key_len, o);
    s->open_bytes += open_series_memory(o);
    return o;
}

static void free_series(struct sample_store *s, struct open_series *o)
{
    s->open_bytes -= open_series_memory(o);
    HASH_DEL(s->series, o);
    open_series_free(&o);
}

/* Loads the last sample of each series from the newest block. */
static int load_states(struct sample_store *s, struct block *b, struct error *error)
{
    struct metric_label labels[BLOCK_LABELS_MAX];
    struct block_series series;
    struct block_state state;
    if (block_verify(b, error) != 0)
        return -1;
    for (uint64_t i = 0; i < block_info(b)->n_series; i++) {
        if (block_get_series(b, i, &series, error) != 0 || block_get_labels(b, &series, labels, error) != 0 ||
            block_get_state(b, i, &state, error) != 0)
            return -1;
        uint32_t n = open_series_key(&s->key, labels, series.n_labels);
        if (n != series.n_labels || find_series(s, buf_bytes(&s->key)))
            return block_damaged(b, "the labels of a series", error);
        add_series(s, buf_bytes(&s->key), n, &state);
        s->newest = MAX(s->newest, state.last_at);
    }
    s->cut_bytes = s->open_bytes;
    return block_check_whole(b, error);
}

static int load_blocks(struct sample_store *s, struct error *error)
{
    bool accepts = s->config.accepts_loss;
    if (block_list_load(&s->blocks, s->dir, accepts, error) != 0)
        return -1;
    struct block_chain base = block_list_chain(&s->blocks, s->config.resolution);
    struct block_info last = {.to = 0};
    for (size_t i = 0; i < s->blocks.n; i++) {
        const struct block_info *info = block_info(s->blocks.all[i]);
        size_t w = 0;
        while (w < s->n_widths && s->widths[w] != info->width)
            w++;
        if (w == s->n_widths || base.n == 0)
            return error_set(error, -1, "%s: has buckets of %lld ms, but the resolution is %lld ms",
                block_name(s->blocks.all[i]), (long long)info->width, (long long)s->config.resolution);
        if (info->to > block_chain_end(base) && !accepts)
            return error_set(error, -1,
                "blocks after %s are missing; restore them from a backup, or start once with --accept-loss",
                block_name(base.blocks[base.n - 1]));
        last = info->to > last.to ? *info : last;
    }
    if (base.n == 0)
        return 0;
    last.width = s->config.resolution;
    if (last.to > block_chain_end(base)) {
        if (block_list_bridge(&s->blocks, s->dir, &last, block_chain_end(base), last.to, error) != 0)
            return -1;
        base = block_list_chain(&s->blocks, s->config.resolution);
    }
    s->next_cut = last.to;
    struct block *newest = base.blocks[base.n - 1];
    s->cursor = s->cut_cursor = block_info(newest)->cursor;
    s->horizon = block_info(newest)->horizon;
    if (block_info(newest)->level == 0)
        return load_states(s, newest, error);
    /* Without states, all series are forgotten. */
    s->horizon = MAX(s->horizon, block_info_end(block_info(newest)));
    return accepts ? 0
                   : error_set(error, -1,
                         "the block after %s is missing; restore it from a backup, or start once with "
                         "--accept-loss",
                         block_name(newest));
}

struct sample_store *sample_store_open(const struct sample_store_config *config, struct error *error)
{
    struct sample_store *s = mem_zalloc(sizeof *s);
    pthread_rwlockattr_t writers_first;
    s->config = *config;
    s->config.fan_in = config->fan_in > 1 ? config->fan_in : FAN_IN;
    s->dir = mem_strdup(config->dir);
    s->lock_fd = -1;
    pthread_rwlockattr_init(&writers_first);
    pthread_rwlockattr_setkind_np(&writers_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&s->lock, &writers_first);
    pthread_rwlockattr_destroy(&writers_first);
    if (check_config(s, error) != 0 || lock_directory(s, error) != 0 || load_blocks(s, error) != 0 ||
        !(s->merger = store_merger_new(s, error)))
        sample_store_close(&s);
    return s;
}

void sample_store_close(struct sample_store **sp)
{
    struct sample_store *s = *sp;
    if (!s)
        return;
    store_merger_free(&s->merger);
    while (s->series)
        free_series(s, s->series);
    block_list_free(&s->blocks);
    if (s->lock_fd >= 0)
        io->close(s->lock_fd);
    pthread_rwlock_destroy(&s->lock);
    buf_free(&s->key);
    free(s->dir);
    free(s);
    *sp = NULL;
}

const struct stream_cursor *sample_store_cursor(const struct sample_store *s)
{
    return &s->cursor;
}

/* Samples. */

void sample_store_begin(struct sample_store *s)
{
    pthread_rwlock_wrlock(&s->lock);
}

void sample_store_end(struct sample_store *s, const struct stream_cursor *cursor)
{
    s->cursor = *cursor;
    pthread_rwlock_unlock(&s->lock);
}

static enum sample_result add(struct sample_store *s, const struct sample *sample)
{
    if (sample->at <= 0 || sample->at > BUCKET_TIME_MAX)
        return SAMPLE_BAD_TIME;
    uint32_t n_labels = open_series_key(&s->key, sample->labels, sample->n_labels);
    if (n_labels == 0)
        return SAMPLE_BAD_LABELS;
    struct open_series *o = find_series(s, buf_bytes(&s->key));
    if (!o && HASH_COUNT(s->series) >= s->config.series_max)
        return SAMPLE_TOO_MANY;
    if (sample->at <= (o ? o->state.last_at : s->horizon))
        return SAMPLE_NOT_LATER;
    o = o ? o : add_series(s, buf_bytes(&s->key), n_labels, &(struct block_state){0});
    s->open_bytes -= open_series_memory(o);
    open_series_add(o, sample, s->config.resolution);
    s->open_bytes += open_series_memory(o);
    s->late += sample->at < s->newest - SAMPLE_STORE_LATE;
    s->newest = MAX(s->newest, sample->at);
    return SAMPLE_STORED;
}

enum sample_result sample_store_add(struct sample_store *s, const struct sample *sample)
{
    enum sample_result r = add(s, sample);
    s->stats.results[r]++;
    return r;
}

/* Cuts. */

bool sample_store_is_cut_due(struct sample_store *s, usec_t now)
{
    if (s->last_cut == 0)
        s->last_cut = now;
    bool has_lines = s->cursor.offset != s->cut_cursor.offset || strcmp(s->cursor.id, s->cut_cursor.id) != 0;
    bool is_due = s->has_failed || now - s->last_cut >= s->config.block_every ||
                  s->open_bytes - s->cut_bytes >= s->config.open_bytes;
    return has_lines && is_due && (!s->has_failed || now - s->last_cut >= RETRY_CUT);
}

static int by_labels(const void *a, const void *b)
{
    const struct open_series *x = *(struct open_series *const *)a, *y = *(struct open_series *const *)b;
    return metric_labels_compare(x->labels, x->n_labels, y->labels, y->n_labels);
}

/* Writes the block of all series that are not forgotten. No lock is needed: only the ingesting thread changes
 * series. */
static struct block *write_block(struct sample_store *s, int64_t wall, struct error *error)
{
    struct block_info info = {.width = s->config.resolution,
        .from = s->next_cut,
        .to = s->next_cut + 1,
        .cut_at = wall,
        .horizon = s->horizon,
        .cursor = s->cursor};
    size_t n = 0;
    struct open_series **sorted = mem_alloc((HASH_COUNT(s->series) + 1) * sizeof *sorted);
    struct buf pieces = {0};
    struct block *result = NULL;
    for (struct open_series *o = s->series; o; o = o->hh.next) {
        if (open_series_is_forgotten(o, wall))
            info.horizon = MAX(info.horizon, o->state.last_at);
        else
            sorted[n++] = o;
    }
    qsort(sorted, n, sizeof *sorted, by_labels);
    struct block_writer *w = block_writer_new(s->dir, &info, error);
    for (size_t i = 0; w && i < n; i++) {
        struct block_series series;
        struct block_state state = sorted[i]->state;
        state.idle = open_series_next_idle(sorted[i]);
        buf_clear(&pieces);
        open_series_copy(sorted[i], &pieces, &series);
        block_writer_add(w, sorted[i]->labels, sorted[i]->n_labels, &series, &state);
    }
    if (w)
        result = block_writer_finish(w, error);
    block_writer_free(&w);
    buf_free(&pieces);
    free(sorted);
    return result;
}

/* Removes the buckets that the block contains from memory. */
static void begin_next_block(struct sample_store *s, int64_t wall)
{
    struct open_series *o, *next;
    HASH_ITER(hh, s->series, o, next)
    {
        if (open_series_is_forgotten(o, wall)) {
            free_series(s, o);
            continue;
        }
        s->open_bytes -= open_series_memory(o);
        open_series_begin_block(o);
        s->open_bytes += open_series_memory(o);
    }
    s->cut_bytes = s->open_bytes;
}

int sample_store_cut(struct sample_store *s, usec_t now, usec_t wall, struct error *error)
{
    int64_t wall_ms = wall / USEC_PER_MSEC;
    struct block *b = write_block(s, wall_ms, error);
    s->last_cut = now;
    s->has_failed = !b;
    if (!b)
        return -1;
    pthread_rwlock_wrlock(&s->lock);
    block_list_add(&s->blocks, b);
    s->cut_cursor = s->cursor;
    s->next_cut++;
    s->stats.cuts++;
    s->horizon = block_info(b)->horizon;
    begin_next_block(s, wall_ms);
    pthread_rwlock_unlock(&s->lock);
    store_merger_wake(s->merger, wall);
    return 0;
}

/* For others. */

void sample_store_stats(struct sample_store *s, struct sample_store_stats *out)
{
    pthread_rwlock_rdlock(&s->lock);
    *out = s->stats;
    out->series = HASH_COUNT(s->series);
    out->open_bytes = s->open_bytes;
    for (size_t w = 0; w < s->n_widths; w++) {
        struct block_chain c = block_list_chain(&s->blocks, s->widths[w]);
        out->widths[w].width = s->widths[w];
        out->widths[w].blocks = c.n;
        for (size_t i = 0; i < c.n; i++) {
            out->widths[w].bytes += block_size(c.blocks[i]);
            out->widths[w].buckets += block_info(c.blocks[i])->n_buckets;
        }
    }
    pthread_rwlock_unlock(&s->lock);
}

bool sample_store_trouble(struct sample_store *s, struct error *error)
{
    return store_merger_trouble(s->merger, error);
}

void sample_store_settle(struct sample_store *s)
{
    store_merger_settle(s->merger);
}
