#include "api/readiness.h"

#include "api/local_archive.h"
#include "daemon/daemon.h"
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#define CHECK_EVERY USEC_PER_SEC
#define PATIENCE (1500 * USEC_PER_MSEC)
#define CHECK "/mget?k=lookup%7CAAAAAAAAAAA%3D"

struct waiter {
    struct readiness *readiness;
    struct http_request *req;
    TAILQ_ENTRY(waiter) link;
};

struct check {
    struct readiness *readiness;
    size_t source;
    struct http_call *call; /* NULL: not in progress */
};

struct readiness {
    struct daemon *daemon;
    struct sources *sources;
    struct check checks[SOURCES_MAX];
    unsigned unanswered; /* number of checks in progress */
    struct event *again;
    usec_t checked;           /* end of the last check; 0: none has ended */
    struct buf failing, next; /* sources that failed: in the last check, and in the check in progress */
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

static void on_gone(struct http_request *req, void *arg)
{
    struct waiter *w = arg;
    (void)req;
    TAILQ_REMOVE(&w->readiness->waiters, w, link);
    free(w);
}

static void end_check(struct readiness *r)
{
    struct waiter *w;
    r->checked = clock_monotonic();
    buf_clear(&r->failing);
    buf_append_bytes(&r->failing, buf_bytes(&r->next));
    readiness_judge(r);
    if (r->failing.len > 0)
        evtimer_add(r->again, &(struct timeval){.tv_sec = CHECK_EVERY / USEC_PER_SEC});
    while ((w = TAILQ_FIRST(&r->waiters))) {
        struct http_request *req = w->req;
        on_gone(req, w);
        http_reply_health(req);
    }
}

static void on_checked(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct check *check = arg;
    struct readiness *r = check->readiness;
    char why[64];
    check->call = NULL;
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    if (result == HTTP_CLIENT_OK)
        snprintf(why, sizeof why, "answered with status %d", reply->status);
    else
        snprintf(why, sizeof why, "%s", http_client_strerror(result));
    /* 410: the aggregator has cleared slices, and answers questions that name the archive's last slice. */
    if (result == HTTP_CLIENT_OK && (reply->status == 200 || reply->status == 410)) {
        sources_succeed(r->sources, check->source, SOURCE_CHECKS);
    } else {
        struct source_missing m = sources_fail(r->sources, check->source, SOURCE_CHECKS, why);
        buf_printf(&r->next, "%s%s at %s does not answer queries (%s)", r->next.len ? "; " : "", m.name,
            m.url, m.why);
    }
    if (--r->unanswered == 0)
        end_check(r);
}

void readiness_check(struct readiness *r)
{
    if (r->unanswered > 0 || (r->checked > 0 && clock_monotonic() - r->checked < CHECK_EVERY))
        return;
    buf_clear(&r->next);
    for (size_t i = 0; i < sources_count(r->sources); i++) {
        struct check *check = &r->checks[i];
        *check = (struct check){.readiness = r, .source = i};
        check->call = sources_check(r->sources, i, CHECK, PATIENCE, on_checked, check);
        r->unanswered += check->call != NULL;
    }
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
    if (r->unanswered == 0 || r->failing.len > 0) {
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
    for (size_t i = 0; i < SOURCES_MAX; i++)
        if (r->checks[i].call)
            http_call_cancel(r->checks[i].call);
    event_free(r->again);
    buf_free(&r->failing);
    buf_free(&r->next);
    free(r->error);
    free(r);
}
