#include "api/local_archive.h"

#include "archive/reloader.h"
#include "base/log.h"
#include "daemon/loop_notify.h"
#include "daemon/loop_timer.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#define LOOK_SECONDS 1

struct archive_wait {
    TAILQ_ENTRY(archive_wait) link;
    struct local_archive *archive;
    uint64_t ticket;
    void (*fn)(void *arg);
    void *arg;
};

struct local_archive {
    const char *dir;
    char *link;            /* path of the link `current` */
    char target[PATH_MAX]; /* target of the link at the last request to open a generation */
    struct reloader *reloader;
    struct loop_notify *notify;
    struct loop_timer *look;
    struct generation *generation;
    struct error error; /* error of the last attempt to open a generation */
    bool has_shortage;  /* the last attempt failed, and another may succeed with the same files */
    bool is_written;    /* a mapped file was written to, so the generation is opened again */
    TAILQ_HEAD(, archive_wait) waits; /* waits, lowest ticket first */
    struct stats *stats;
    struct stats_counter *failures;
    void (*changed)(void *arg);
    void *changed_arg;
};

static uint64_t request(struct local_archive *a)
{
    ssize_t n = readlink(a->link, a->target, sizeof a->target - 1);
    a->target[n > 0 ? n : 0] = '\0';
    return reloader_request(a->reloader);
}

static bool is_untouched(const struct local_archive *a)
{
    return !a->generation || generation_is_untouched(a->generation, NULL);
}

static void on_look(void *arg)
{
    struct local_archive *a = arg;
    char target[PATH_MAX];
    ssize_t n = readlink(a->link, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    bool is_seen = a->is_written;
    a->is_written = !is_untouched(a);
    if (strcmp(target, a->target) != 0 || a->has_shortage || (a->is_written && !is_seen))
        request(a);
}

static void take(struct local_archive *a, struct reloader_outcome *o)
{
    if (o->generation) {
        struct generation_info info = generation_info(o->generation);
        generation_unref(&a->generation);
        a->generation = o->generation;
        generation_expect_searches(a->generation); /* reads of the generation block the loop */
        a->is_written = false;
        log_info("reading the archive", LOG_U("generation", info.number), LOG_U("through", info.through),
            LOG_U("records", info.records), LOG_U("bytes", info.bytes));
    } else if (o->error.code != SORTED_FILE_OK) {
        stats_add(a->failures, 1);
        if (a->generation && o->error.code == SORTED_FILE_REFUSED && !is_untouched(a))
            generation_unref(&a->generation);
        if (a->error.code == 0 || strcmp(a->error.text, o->error.text) != 0)
            log_error(a->generation ? "cannot open the archive; the former generation stays in use"
                                    : "cannot open the archive",
                LOG_S("error", o->error.text));
    }
    a->has_shortage = o->error.code == SORTED_FILE_FAILED;
    a->error = o->error;
}

static void on_opened(void *arg)
{
    struct local_archive *a = arg;
    struct reloader_outcome o;
    struct archive_wait *w;
    if (!a->reloader || !reloader_take(a->reloader, &o))
        return;
    take(a, &o);
    a->changed(a->changed_arg);
    while ((w = TAILQ_FIRST(&a->waits)) && w->ticket <= o.ticket) {
        void (*fn)(void *) = w->fn;
        void *fn_arg = w->arg;
        archive_wait_cancel(&w);
        fn(fn_arg);
    }
}

static double read_generation(void *ctx)
{
    const struct local_archive *a = ctx;
    return a->generation ? (double)generation_info(a->generation).number : 0;
}

static double read_made(void *ctx)
{
    const struct local_archive *a = ctx;
    return a->generation ? (double)generation_info(a->generation).modified : 0;
}

static void add_gauges(struct local_archive *a, const char *cell)
{
    char labels[NAME_LEN_MAX + 16] = "";
    if (*cell)
        snprintf(labels, sizeof labels, "cell=\"%s\"", cell);
    stats_gauge(a->stats, "archive_generation", labels, "number of the archive's generation in use; 0: none",
        read_generation, a);
    stats_gauge(a->stats, "archive_made", labels,
        "time when the archive in use was made, in Unix seconds; 0: none", read_made, a);
}

struct local_archive *local_archive_new(const char *dir, const char *cell, struct event_base *base,
    struct stats *stats, void (*changed)(void *arg), void *arg)
{
    struct local_archive *a = mem_zalloc(sizeof *a);
    struct buf link = {0};
    buf_printf(&link, "%s/current", dir);
    buf_append_char(&link, '\0');
    a->dir = dir;
    a->link = link.ptr;
    a->stats = stats;
    a->changed = changed;
    a->changed_arg = arg;
    TAILQ_INIT(&a->waits);
    a->notify = loop_notify_new(base, on_opened, a);
    a->reloader = reloader_new(&(struct reloader_config){
        .source = {.archive = dir}, .notify = loop_notify_wake, .notify_arg = a->notify});
    a->look = loop_timer_every(base, LOOK_SECONDS * USEC_PER_SEC, on_look, a);
    a->failures = stats_counter(
        stats, "archive_open_failures_total", NULL, "generations of the archive that could not be opened");
    add_gauges(a, cell);
    request(a);
    return a;
}

void local_archive_free(struct local_archive **ap)
{
    struct local_archive *a = *ap;
    *ap = NULL;
    if (!a)
        return;
    stats_remove_gauges(a->stats, a);
    loop_timer_free(&a->look);
    generation_unref(&a->generation); /* the reloader's thread unmaps it */
    reloader_free(&a->reloader);
    loop_notify_free(&a->notify);
    free(a->link);
    free(a);
}

const char *local_archive_dir(const struct local_archive *a)
{
    return a->dir;
}

struct generation *local_archive_generation(const struct local_archive *a)
{
    return a->generation;
}

const char *local_archive_error(const struct local_archive *a)
{
    return a->error.code != 0 ? a->error.text : "";
}

void local_archive_look(struct local_archive *a)
{
    request(a);
}

struct archive_wait *local_archive_refresh(struct local_archive *a, void (*fn)(void *arg), void *arg)
{
    struct archive_wait *w = mem_zalloc(sizeof *w);
    *w = (struct archive_wait){.archive = a, .ticket = request(a), .fn = fn, .arg = arg};
    TAILQ_INSERT_TAIL(&a->waits, w, link);
    return w;
}

void archive_wait_cancel(struct archive_wait **wp)
{
    struct archive_wait *w = *wp;
    *wp = NULL;
    if (!w)
        return;
    TAILQ_REMOVE(&w->archive->waits, w, link);
    free(w);
}
