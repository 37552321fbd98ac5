#include "api/readiness.h"

#include "api/local_archive.h"
#include "daemon/daemon.h"
#include <event2/event.h>
#include <stdlib.h>
#include <sys/queue.h>

#define CHECK_EVERY USEC_PER_SEC
#define PATIENCE (900 * USEC_PER_MSEC) /* of each source */
#define CHECK "/mget?k=lookup%7CAAAAAAAAAAA%3D"

struct waiter {
    struct readiness *readiness;
    struct http_request *req;
    TAILQ_ENTRY(waiter) link;
};

struct readiness {
    struct daemon *daemon;
    struct sources *sources;
    struct question *question; /* the check in progress; NULL: none */
    struct event *again;
    usec_t checked;     /* end of the last check; 0: none has ended */
    struct buf failing; /* the sources that failed in the last check */
    char *error;
    TAILQ_HEAD(, waiter) waiters;
};

const char *readiness_error(const struct readiness *r)
{
    return r->error;
}

void readiness_judge(struct readiness *r)
{
    struct local_archive *archive = sources_local(r->sources);
    bool has_archive = !archive || local_archive_generation(archive) != NULL;
    const char *error = archive ? local_archive_error(archive) : "";
    free(r->error);
    r->error = !has_archive && *error ? mem_printf("cannot open the archive: %s", error)
               : !has_archive         ? mem_strdup("opening the archive")
               : r->failing.len > 0
                   ? mem_printf("%.*s; `millrace status` names the remedy. Events are stored",
                         (int)r->failing.len, r->failing.ptr)
                   : NULL;
    char *notice = has_archive && *error
                       ? mem_printf("cannot open the archive, the former generation stays in use: %s", error)
                       : NULL;
    daemon_set_refusing(r->daemon, "queries", r->error);
    daemon_set_notice(r->daemon, notice);
    free(notice);
}

static bool on_record(void *arg, const struct record *record)
{
    (void)arg, (void)record;
    return true;
}

static bool on_piece(void *arg, size_t held)
{
    (void)arg, (void)held;
    return true;
}

static void on_gone(struct http_request *req, void *arg)
{
    struct waiter *w = arg;
    (void)req;
    TAILQ_REMOVE(&w->readiness->waiters, w, link);
    free(w);
}

/* An archive that is not open is no failure here, because readiness_judge knows it at every moment. */
static void on_checked(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct readiness *r = arg;
    struct waiter *w;
    struct local_archive *archive = sources_local(r->sources);
    (void)why;
    r->question = NULL;
    if (result == SOURCE_CANCELLED)
        return;
    r->checked = clock_monotonic();
    buf_clear(&r->failing);
    for (size_t i = 0; i < complete->n_missing; i++) {
        const struct source_missing *m = &complete->missing[i];
        if (archive && !local_archive_generation(archive) && m->url == local_archive_dir(archive))
            continue;
        buf_printf(&r->failing, "%s%s at %s does not answer queries (%s)", r->failing.len ? "; " : "",
            m->name, m->url, m->why);
    }
    readiness_judge(r);
    if (r->failing.len > 0)
        evtimer_add(r->again, &(struct timeval){.tv_sec = CHECK_EVERY / USEC_PER_SEC});
    while ((w = TAILQ_FIRST(&r->waiters))) {
        struct http_request *req = w->req;
        on_gone(req, w);
        http_reply_health(req);
    }
}

void readiness_check(struct readiness *r)
{
    static const struct source_question check = {.target = CHECK,
        .allows_partial = true,
        .patience = PATIENCE,
        .on_record = on_record,
        .on_piece = on_piece,
        .on_done = on_checked};
    struct source_question q = check;
    if (r->question || (r->checked > 0 && clock_monotonic() - r->checked < CHECK_EVERY))
        return;
    q.arg = r;
    r->question = source_ask(r->sources, &q);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    struct readiness *r = arg;
    (void)fd, (void)what;
    r->checked = 0;
    readiness_check(r);
}

void readiness_reply(struct readiness *r, struct http_request *req)
{
    readiness_check(r);
    if (!r->question || r->failing.len > 0) {
        http_reply_health(req);
        return;
    }
    struct waiter *w = mem_zalloc(sizeof *w);
    *w = (struct waiter){.readiness = r, .req = req};
    TAILQ_INSERT_TAIL(&r->waiters, w, link);
    http_on_gone(req, on_gone, w);
}

struct readiness *readiness_new(struct daemon *daemon, struct sources *sources)
{
    struct readiness *r = mem_zalloc(sizeof *r);
    r->daemon = daemon;
    r->sources = sources;
    r->again = evtimer_new(daemon_base(daemon), on_again, r);
    TAILQ_INIT(&r->waiters);
    readiness_judge(r);
    return r;
}

void readiness_free(struct readiness **rp)
{
    struct readiness *r = *rp;
    *rp = NULL;
    if (!r)
        return;
    if (r->question)
        source_cancel(r->question);
    event_free(r->again);
    buf_free(&r->failing);
    free(r->error);
    free(r);
}
