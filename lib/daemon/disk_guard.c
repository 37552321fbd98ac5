#include "daemon/disk_guard.h"

#include "base/amount.h"
#include "base/log.h"
#include "daemon/loop_timer.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#define DEFAULT_MAX ((uint64_t)1 << 30)
#define DEFAULT_PART 20
#define RESUME_PART 20

struct disk_guard {
    struct disk_guard_config config;
    char *dir;
    struct loop_timer *timer;
    bool warns, refuses;
    bool was_full;           /* disk_guard_note_full was called, and the disk has no room yet */
    uint64_t free;           /* free bytes at the last check */
    uint64_t free_when_full; /* free bytes at the last disk_guard_note_full */
    char why[128];
};

static uint64_t min_free_of(const struct disk_guard *g, uint64_t size)
{
    const struct options *o = daemon_options(g->config.daemon);
    if (options_is_set(o, "min_free"))
        return (uint64_t)options_int(o, "min_free");
    return size / DEFAULT_PART < DEFAULT_MAX ? size / DEFAULT_PART : DEFAULT_MAX;
}

static bool is_below(uint64_t bytes, uint64_t limit, bool was_below)
{
    return bytes < limit + (was_below ? limit / RESUME_PART : 0);
}

static void look(void *arg)
{
    struct disk_guard *g = arg;
    struct statvfs fs;
    char is_free[SIZE_TEXT], wanted[SIZE_TEXT], notice[160];
    if (statvfs(g->dir, &fs) != 0)
        return;
    uint64_t min = min_free_of(g, (uint64_t)fs.f_blocks * fs.f_frsize);
    g->free = (uint64_t)fs.f_bavail * fs.f_frsize;
    g->was_full = g->was_full && g->free < g->free_when_full + DISK_GUARD_ROOM;
    bool was_refusing = g->refuses;
    g->refuses = is_below(g->free, min, was_refusing);
    bool warns = is_below(g->free, 2 * min, g->warns);
    size_write(wanted, min);
    if (g->refuses)
        snprintf(g->why, sizeof g->why, "the disk is full: %s free, min_free is %s",
            size_write(is_free, g->free), wanted);
    else
        snprintf(g->why, sizeof g->why, "the disk is full");
    if (warns && !g->warns)
        log_warn("the disk is nearly full", LOG_S("path", g->dir), LOG_U("free_bytes", g->free),
            LOG_U("min_free", min));
    if (warns != g->warns || g->refuses != was_refusing) {
        if (g->refuses)
            snprintf(notice, sizeof notice, "%s; %s are refused", g->why, g->config.what);
        else
            snprintf(notice, sizeof notice, "the disk is nearly full: below %s free, %s are refused", wanted,
                g->config.what);
        daemon_set_notice(g->config.daemon, "disk", g->refuses ? NOTICE_ALARM : NOTICE_WARNING,
            g->refuses ? DAEMON_FREE_DISK : DAEMON_DISK_LOW, warns ? notice : NULL);
    }
    g->warns = warns;
    if (g->config.on_look)
        g->config.on_look(g->config.arg, !g->refuses && !g->was_full);
}

struct disk_guard *disk_guard_new(const struct disk_guard_config *config)
{
    struct disk_guard *g = mem_zalloc(sizeof *g);
    g->config = *config;
    g->dir = mem_strdup(config->dir);
    g->timer = loop_timer_every(daemon_base(config->daemon), DISK_GUARD_EVERY, look, g);
    look(g);
    return g;
}

void disk_guard_free(struct disk_guard **gp)
{
    struct disk_guard *g = *gp;
    *gp = NULL;
    if (!g)
        return;
    loop_timer_free(&g->timer);
    free(g->dir);
    free(g);
}

bool disk_guard_refuses(const struct disk_guard *g)
{
    return g && g->refuses;
}

const char *disk_guard_why(const struct disk_guard *g)
{
    return g ? g->why : "the disk is full";
}

void disk_guard_note_full(struct disk_guard *g)
{
    struct statvfs fs;
    if (!g || statvfs(g->dir, &fs) != 0)
        return;
    g->was_full = true;
    g->free_when_full = (uint64_t)fs.f_bavail * fs.f_frsize;
}
