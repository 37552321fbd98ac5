#include "daemon/workers.h"

#include "daemon/loop_notify.h"

#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct worker {
    struct workers *workers;
    pthread_t thread;
    bool is_running;
    struct event_base *base;
    struct http_server *http;
    struct loop_notify *notify;
    void *ctx; /* the handlers' argument */
};

struct workers {
    struct workers_config config;
    atomic_bool is_draining, is_stopping;
    size_t n;
    struct worker all[];
};

static void on_notify(void *arg)
{
    struct worker *w = arg;
    if (atomic_load(&w->workers->is_draining))
        http_server_drain(w->http);
    if (atomic_load(&w->workers->is_stopping))
        event_base_loopbreak(w->base);
}

static void *run(void *arg)
{
    struct worker *w = arg;
    event_base_loop(w->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

static bool begin(struct workers *all, size_t i)
{
    struct worker *w = &all->all[i];
    struct http_server_config http = all->config.http;
    w->workers = all;
    w->base = event_base_new();
    w->notify = w->base ? loop_notify_new(w->base, on_notify, w) : NULL;
    if (!w->notify)
        return false;
    http.base = w->base;
    http.ctx = w->ctx = all->config.begin(all->config.ctx, i, w->base);
    w->http = http_server_new(&http);
    int fd = fcntl(all->config.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 || http_server_listen_fd(w->http, fd, false) != 0)
        return false;
    w->is_running = pthread_create(&w->thread, NULL, run, w) == 0;
    return w->is_running;
}

struct workers *workers_new(const struct workers_config *config)
{
    struct workers *w = mem_zalloc(sizeof *w + config->n * sizeof *w->all);
    w->config = *config;
    while (w->n < config->n)
        if (!begin(w, w->n++)) {
            workers_free(&w);
            return NULL;
        }
    return w;
}

static void wake(struct workers *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->all[i].is_running)
            loop_notify_wake(w->all[i].notify);
}

void workers_drain(struct workers *w)
{
    if (!w)
        return;
    atomic_store(&w->is_draining, true);
    wake(w);
}

void workers_free(struct workers **wp)
{
    struct workers *w = *wp;
    *wp = NULL;
    if (!w)
        return;
    atomic_store(&w->is_stopping, true);
    wake(w);
    for (size_t i = 0; i < w->n; i++) {
        struct worker *one = &w->all[i];
        if (one->is_running)
            pthread_join(one->thread, NULL);
        http_server_free(&one->http);
        if (one->ctx)
            w->config.end(one->ctx);
        loop_notify_free(&one->notify);
        if (one->base)
            event_base_free(one->base);
    }
    free(w);
}
