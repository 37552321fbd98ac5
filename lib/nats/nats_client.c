#include "nats/nats_client.h"

#include "base/bytes.h"
#include "base/log.h"
#include "base/work_thread.h"
#include "daemon/loop_notify.h"
#include "daemon/loop_timer.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define STOP_TIMEOUTS 4     /* longest wait for the request in progress at a stop */
#define REQUEST_TIMEOUTS 10 /* a request takes less than this number of timeouts for each server */
#define STOP_POLL (10 * USEC_PER_MSEC)

struct nats_client {
    struct nats_client_config config;
    struct work_thread *thread;
    struct loop_notify *notify;
    struct loop_timer *stuck; /* fires if the request in progress does not end */
    bool is_busy;
    natsConnection *connection;
    jsCtx *js;
    uint64_t number; /* see nats_client_number */
    size_t server;   /* modulo the number of addresses: the next one to connect to */
    char why[ERROR_TEXT];
};

void nats_client_disconnect(struct nats_client *c)
{
    jsCtx_Destroy(c->js);
    natsConnection_Destroy(c->connection);
    c->js = NULL;
    c->connection = NULL;
}

void nats_client_fail(struct nats_client *c, natsStatus s, const char *what)
{
    const char *text = nats_GetLastError(NULL), *of_server = NULL;
    if (c->connection && s == NATS_TIMEOUT &&
        natsConnection_GetLastError(c->connection, &of_server) != NATS_OK)
        text = of_server; /* such as a missing permission */
    text = text && text[0] ? text : natsStatus_GetText(s);
    snprintf(c->why, sizeof c->why, "%s%s%s", what, s == NATS_OK ? "" : ": ", s == NATS_OK ? "" : text);
}

static bool connect_to(struct nats_client *c, size_t server)
{
    jsOptions options;
    struct error error;
    natsOptions *settings = nats_settings_new(c->config.options, server, c->config.name, &error);
    if (!settings) {
        snprintf(c->why, sizeof c->why, "%s", error.text);
        return false;
    }
    jsOptions_Init(&options);
    options.Wait = nats_client_timeout(c) / USEC_PER_MSEC;
    natsStatus s = natsConnection_Connect(&c->connection, settings);
    natsOptions_Destroy(settings);
    if (s == NATS_OK)
        s = natsConnection_JetStream(&c->js, c->connection, &options);
    if (s != NATS_OK) {
        nats_client_fail(c, s, "cannot connect to a nats-server");
        nats_client_disconnect(c);
    }
    return s == NATS_OK;
}

static bool connect_if_needed(struct nats_client *c)
{
    size_t n = nats_settings_servers(c->config.options);
    bool is_connected = c->connection && natsConnection_Status(c->connection) == NATS_CONN_STATUS_CONNECTED;
    if (is_connected)
        return true;
    nats_client_disconnect(c);
    for (size_t i = 0; i < n && !is_connected; i++)
        is_connected = connect_to(c, c->server++ % n);
    c->number++;
    return is_connected;
}

static void run(void *ctx, void *job)
{
    struct nats_client *c = ctx;
    (void)job;
    if (!connect_if_needed(c))
        return;
    c->why[0] = '\0';
    c->config.perform(c->config.arg);
}

static void on_stuck(void *arg)
{
    (void)arg;
    log_error(
        "a request to a nats-server hangs: this process exits, so that a restarted process connects again");
    _exit(EX_TEMPFAIL);
}

void nats_client_start(struct nats_client *c)
{
    usec_t limit =
        nats_client_timeout(c) * REQUEST_TIMEOUTS * (usec_t)nats_settings_servers(c->config.options);
    assert(!c->is_busy);
    loop_timer_set(c->stuck, limit + USEC_PER_SEC);
    c->is_busy = true;
    work_thread_start(c->thread, c);
}

static void on_notify(void *arg)
{
    struct nats_client *c = arg;
    if (!work_thread_done(c->thread))
        return;
    c->is_busy = false;
    loop_timer_stop(c->stuck);
    c->config.on_done(c->config.arg);
}

usec_t nats_client_timeout(const struct nats_client *c)
{
    return options_int(c->config.options, "nats_timeout") * USEC_PER_MSEC;
}

natsConnection *nats_client_connection(struct nats_client *c)
{
    return c->connection;
}

jsCtx *nats_client_js(struct nats_client *c)
{
    return c->js;
}

uint64_t nats_client_number(const struct nats_client *c)
{
    return c->number;
}

const char *nats_client_error(const struct nats_client *c)
{
    return c->why;
}

struct nats_client *nats_client_new(const struct nats_client_config *config, struct error *error)
{
    natsOptions *tried = nats_settings_new(config->options, 0, config->name, error);
    if (!tried)
        return NULL;
    natsOptions_Destroy(tried);
    struct nats_client *c = mem_zalloc(sizeof *c);
    c->config = *config;
    c->server = (size_t)clock_wall();
    c->stuck = loop_timer_new(config->base, on_stuck, c);
    c->notify = loop_notify_new(config->base, on_notify, c);
    if (c->notify)
        c->thread = work_thread_new(&(struct work_thread_config){
            .run = run, .ctx = c, .notify = loop_notify_wake, .notify_arg = c->notify});
    if (!c->thread) {
        error_set(error, -1, "thread: %s", strerror(errno));
        nats_client_free(&c);
    }
    return c;
}

void nats_client_free(struct nats_client **cc)
{
    struct nats_client *c = *cc;
    if (!c)
        return;
    usec_t end = clock_monotonic() + STOP_TIMEOUTS * nats_client_timeout(c);
    while (c->is_busy && !work_thread_done(c->thread)) {
        if (clock_monotonic() > end)
            on_stuck(c);
        clock_sleep(STOP_POLL);
    }
    if (c->thread)
        work_thread_free(&c->thread);
    loop_timer_free(&c->stuck);
    loop_notify_free(&c->notify);
    nats_client_disconnect(c);
    free(c);
    *cc = NULL;
}
