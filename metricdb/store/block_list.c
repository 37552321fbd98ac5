#include "metricdb/store/block_list.h"

#include "base/io.h"
#include "base/log.h"
#include "metricdb/store/block_writer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n >= m && strcmp(name + n - m, ending) == 0;
}

/* By width, then by the first cut; a block before the blocks that it covers. */
static int by_cut(const void *a, const void *b)
{
    const struct block_info *x = block_info(*(struct block *const *)a),
                            *y = block_info(*(struct block *const *)b);
    if (x->width != y->width)
        return x->width < y->width ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return (x->to < y->to) - (x->to > y->to);
}

static int load_file(struct block_list *l, const char *dir, const char *name, struct error *error)
{
    char path[PATH_MAX], expected[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (ends_with(name, BLOCK_ENDING BLOCK_TEMPORARY))
        io->unlink(path);
    if (!ends_with(name, BLOCK_ENDING))
        return 0;
    struct block *b = block_open(path, error);
    if (!b)
        return -1;
    *ARRAY_ADD(l->all, l->n, l->cap) = b;
    block_path(dir, block_info(b), expected);
    return strcmp(path, expected) == 0 ? 0 : block_damaged(b, "its name does not match its header", error);
}

int block_list_bridge(struct block_list *l, const char *dir, const struct block_info *like, uint64_t from,
    uint64_t to, struct error *error)
{
    struct block_info info = *like;
    info.level = BLOCK_LEVEL_DAY;
    info.from = from;
    info.to = to;
    info.horizon = MAX(like->horizon, block_info_end(like));
    struct block_writer *w = block_writer_new(dir, &info, error);
    struct block *b = w ? block_writer_finish(w, error) : NULL;
    block_writer_free(&w);
    if (!b)
        return -1;
    log_warn("the loss of blocks is accepted", LOG_I("width_ms", info.width), LOG_U("from_cut", from),
        LOG_U("to_cut", to));
    block_list_add(l, b);
    return 0;
}

/* Deletes the replaced blocks, and checks that no blocks are missing. */
static int settle(struct block_list *l, const char *dir, bool accepts_loss, struct error *error)
{
    size_t i = 1;
    if (l->n > 0)
        qsort(l->all, l->n, sizeof(struct block *), by_cut);
    while (i < l->n) {
        const struct block_info *before = block_info(l->all[i - 1]), *b = block_info(l->all[i]);
        if (before->width == b->width && b->to <= before->to) {
            block_list_delete(l, l->all[i]);
            continue;
        }
        if (before->width == b->width && b->from < before->to)
            return error_set(error, -1, "%s: overlaps %s; restore the directory from a backup",
                block_name(l->all[i]), block_name(l->all[i - 1]));
        if (before->width == b->width && b->from > before->to && !accepts_loss)
            return error_set(error, -1,
                "blocks %llu to %llu are missing before %s; restore them from a backup, or start once with "
                "--accept-loss",
                (unsigned long long)before->to, (unsigned long long)b->from, block_name(l->all[i]));
        if (before->width == b->width && b->from > before->to &&
            block_list_bridge(l, dir, before, before->to, b->from, error) != 0)
            return -1;
        i++;
    }
    return 0;
}

int block_list_load(struct block_list *l, const char *dir, bool accepts_loss, struct error *error)
{
    struct dirent *entry;
    DIR *d = opendir(dir);
    int r = 0;
    if (!d)
        return error_errno(error, -1, dir);
    while (r == 0 && (errno = 0, entry = readdir(d)))
        r = load_file(l, dir, entry->d_name, error);
    if (r == 0 && errno != 0)
        r = error_errno(error, -1, dir);
    closedir(d);
    return r == 0 ? settle(l, dir, accepts_loss, error) : r;
}

void block_list_free(struct block_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        block_unref(&l->all[i]);
    free(l->all);
    *l = (struct block_list){0};
}

void block_list_add(struct block_list *l, struct block *b)
{
    size_t i = l->n;
    *ARRAY_ADD(l->all, l->n, l->cap) = b;
    for (; i > 0 && by_cut(&l->all[i - 1], &b) > 0; i--)
        l->all[i] = l->all[i - 1];
    l->all[i] = b;
}

void block_list_delete(struct block_list *l, struct block *b)
{
    size_t i = 0;
    while (l->all[i] != b)
        i++;
    memmove(&l->all[i], &l->all[i + 1], (--l->n - i) * sizeof *l->all);
    io->unlink(block_name(b));
    block_unref(&b);
}

struct block_chain block_list_chain(const struct block_list *l, int64_t width)
{
    struct block_chain c = {l->all, 0};
    size_t i = 0;
    while (i < l->n && block_info(l->all[i])->width < width)
        i++;
    c.blocks += i;
    while (i + c.n < l->n && block_info(c.blocks[c.n])->width == width)
        c.n++;
    return c;
}

uint64_t block_chain_end(struct block_chain c)
{
    return c.n > 0 ? block_info(c.blocks[c.n - 1])->to : 0;
}

/* True if buckets of width a are better than those of width b. */
static bool is_better(int64_t a, int64_t b, int64_t max_width)
{
    if ((a <= max_width) != (b <= max_width))
        return a <= max_width;
    return a <= max_width ? a > b : a < b;
}

size_t block_list_choose(const struct block_list *l, int64_t max_width, struct block **out)
{
    size_t n = 0;
    for (uint64_t at = 0; at < UINT64_MAX;) {
        struct block *best = NULL;
        uint64_t next = UINT64_MAX;
        for (size_t i = 0; i < l->n; i++) {
            const struct block_info *info = block_info(l->all[i]);
            if (info->from == at && (!best || is_better(info->width, block_info(best)->width, max_width)))
                best = l->all[i];
            if (info->from > at && info->from < next)
                next = info->from;
        }
        if (best)
            out[n++] = best;
        at = best ? block_info(best)->to : next;
    }
    return n;
}
