#include "aggregator/slice_scrub.h"

#include "aggregator/aggregator_app.h"
#include "base/work_thread.h"
#include "counts/slice_copy.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PASS_EVERY (3600 * USEC_PER_SEC)
#define PIECE ((size_t)64 << 10)

struct slice_scrub {
    struct app *app;
    struct work_thread *thread;
    uint64_t rate;
    uint64_t number; /* latest slice that this pass has verified; 0: no slice */
    usec_t pass;
    char *path; /* path of the slice to verify; NULL: the thread is idle */
    size_t unpaid;
    enum slice_result result;
    struct error error;
    atomic_bool stopping;
    atomic_ullong bytes;
    struct stats_counter *slices, *damaged;
};

/* Sleeps for as long as reading the bytes since the last sleep may take. */
static bool pace(void *arg, size_t bytes)
{
    struct slice_scrub *s = arg;
    s->unpaid += bytes;
    atomic_fetch_add(&s->bytes, bytes);
    if (s->unpaid >= PIECE) {
        clock_sleep((usec_t)(s->unpaid * USEC_PER_SEC / s->rate));
        s->unpaid = 0;
    }
    return !atomic_load(&s->stopping);
}

static void run(void *ctx, void *job)
{
    struct slice_scrub *s = job;
    (void)ctx;
    int fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* drop the page cache, so that the disk is read */
        close(fd);
    }
    s->result = slice_verify(s->path, pace, s, NULL, &s->error);
}

static void no_notify(void *arg)
{
    (void)arg; /* no notification is needed: slice_scrub_tick polls the thread */
}

STATS_READ(bytes_read, atomic_load(&((struct slice_scrub *)ctx)->bytes))

struct slice_scrub *slice_scrub_new(struct app *app)
{
    struct stats *stats = daemon_stats(app->daemon);
    static const struct stats_row rows[] = {
        {"scrub_bytes_total", "bytes of counts in sealed slices that were re-read", bytes_read}, {0}};
    uint64_t rate = (uint64_t)options_int(daemon_options(app->daemon), "scrub_rate");
    if (rate == 0)
        return NULL;
    struct slice_scrub *s = mem_zalloc(sizeof *s);
    *s = (struct slice_scrub){.app = app, .rate = rate, .pass = clock_monotonic()};
    s->thread = work_thread_new(&(struct work_thread_config){.run = run, .notify = no_notify});
    if (!s->thread) {
        free(s);
        return NULL;
    }
    stats_gauges(stats, rows, NULL, s);
    s->slices = stats_counter(stats, "scrub_slices_total", NULL, "sealed slices verified");
    s->damaged = stats_counter(stats, "scrub_damaged_total", NULL,
        "sealed slices that were damaged or unreadable when they were re-read");
    return s;
}

static void take_result(struct slice_scrub *s)
{
    bool is_there = access(s->path, F_OK) == 0; /* the slice may have been cleared during the verification */
    free(s->path);
    s->path = NULL;
    if (!is_there)
        return;
    stats_add(s->slices, 1);
    if (s->result == SLICE_OK)
        return;
    stats_add(s->damaged, 1);
    slice_scrub_report(s->app, &s->error);
}

void slice_scrub_tick(struct slice_scrub *s)
{
    const struct sealed *sealed;
    if (!s || (s->path && !work_thread_done(s->thread)))
        return;
    if (s->path)
        take_result(s);
    sealed = aggregate_sealed(s->app->aggregate);
    for (size_t i = 0; i < sealed->n; i++)
        if (sealed->slices[i].state.number > s->number) {
            s->number = sealed->slices[i].state.number;
            s->path = mem_strdup(sealed->slices[i].path);
            work_thread_start(s->thread, s);
            return;
        }
    if (clock_monotonic() - s->pass < PASS_EVERY)
        return;
    s->pass = clock_monotonic();
    s->number = 0;
}

void slice_scrub_free(struct slice_scrub **sp)
{
    struct slice_scrub *s = *sp;
    if (!s)
        return;
    *sp = NULL;
    atomic_store(&s->stopping, true);
    work_thread_free(&s->thread);
    stats_remove_gauges(daemon_stats(s->app->daemon), s);
    free(s->path);
    free(s);
}

void slice_scrub_report(struct app *app, const struct error *error)
{
    char *text = mem_printf("%s. Queries for other counts are answered, and counting continues", error->text);
    if (!app->is_damaged)
        daemon_set_damaged(app->daemon, "restore this file from a backup, then restart the aggregator", text);
    app->is_damaged = true;
    free(text);
}
