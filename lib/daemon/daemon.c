#include "daemon/daemon.h"
#include "daemon/daemon_internal.h"
#include "base/io.h"
#include "daemon/listen.h"
#include "base/log.h"
#include "daemon/loop_notify.h"
#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define DRAIN_POLL_MS 10

struct post {
    void (*fn)(void *arg);
    void *arg;
    struct post *next;
};

struct daemon {
    const struct daemon_spec *spec;
    struct options *options;
    struct stats *stats;
    struct event_base *base;
    struct http_server *http;
    struct event *signals[3], *drain_check, *drain_limit;
    void *ctx;
    char *auth_token;
    bool ready, draining, drained, aborting;
    char *not_ready; /* the reason */
    char *degraded;  /* the reason, or NULL */
    int status;
    pthread_mutex_t posts_lock;
    struct post *first_post, **last_post;
    struct loop_notify *notify;
};

struct event_base *daemon_base(struct daemon *d)
{
    return d->base;
}

struct options *daemon_options(struct daemon *d)
{
    return d->options;
}

struct stats *daemon_stats(struct daemon *d)
{
    return d->stats;
}

bool daemon_is_ready(const struct daemon *d)
{
    return d->ready;
}

bool daemon_is_draining(const struct daemon *d)
{
    return d->draining;
}

void daemon_set_ready(struct daemon *d)
{
    if (d->ready || d->draining)
        return;
    d->ready = true;
    log_info("ready");
    sd_notify(0, "READY=1\nSTATUS=ready");
    daemon_notify_parent();
}

void daemon_set_not_ready(struct daemon *d, const char *fmt, ...)
{
    struct buf why = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&why, fmt, ap);
    va_end(ap);
    char *text = bytes_dup(buf_bytes(&why));
    buf_free(&why);
    if (d->ready || strcmp(text, d->not_ready) != 0) {
        if (d->ready)
            log_warn("not ready", LOG_S("error", text));
        sd_notifyf(0, "STATUS=%s", text);
    }
    d->ready = false;
    free(d->not_ready);
    d->not_ready = text;
}

void daemon_set_degraded(struct daemon *d, const char *why)
{
    log_error("degraded", LOG_S("error", why));
    free(d->degraded);
    d->degraded = mem_strdup(why);
}

static const char *why_degraded(void *arg)
{
    return ((const struct daemon *)arg)->degraded;
}

static const char *why_not_ready(void *arg)
{
    const struct daemon *d = arg;
    if (d->draining)
        return "stopping";
    return d->ready ? NULL : d->not_ready;
}

void daemon_post(struct daemon *d, void (*fn)(void *arg), void *arg)
{
    struct post *p = mem_alloc(sizeof *p);
    *p = (struct post){fn, arg, NULL};
    pthread_mutex_lock(&d->posts_lock);
    *d->last_post = p;
    d->last_post = &p->next;
    pthread_mutex_unlock(&d->posts_lock);
    loop_notify_wake(d->notify);
}

static void run_posts(void *arg)
{
    struct daemon *d = arg;
    pthread_mutex_lock(&d->posts_lock);
    struct post *list = d->first_post;
    d->first_post = NULL;
    d->last_post = &d->first_post;
    pthread_mutex_unlock(&d->posts_lock);
    while (list != NULL) {
        struct post *p = list;
        list = p->next;
        p->fn(p->arg);
        free(p);
    }
}

static struct timeval after_ms(int64_t ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

/* The drain ends once the daemon has called daemon_drained and every reply is delivered. */
static void check_drain(evutil_socket_t fd, short what, void *arg)
{
    struct daemon *d = arg;
    (void)fd;
    (void)what;
    if (d->drained && (d->http == NULL || http_server_connections(d->http) == 0))
        event_base_loopbreak(d->base);
    else
        event_add(d->drain_check, &(struct timeval){.tv_usec = DRAIN_POLL_MS * 1000});
}

static void end_drain(struct daemon *d)
{
    bool may_abort = !d->drained && !d->aborting && d->spec->abort_drain && d->spec->abort_drain(d->ctx);
    if (!may_abort) {
        daemon_fail(d, EX_TEMPFAIL);
        return;
    }
    struct timeval limit = after_ms(DAEMON_ABORT_TIME_MAX / USEC_PER_MSEC);
    log_warn("the drain is cut short: work in flight has 3 s to end");
    d->aborting = true;
    d->status = EX_TEMPFAIL;
    event_add(d->drain_limit, &limit);
}

static void on_drain_timeout(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    end_drain(arg);
}

void daemon_drained(struct daemon *d)
{
    d->drained = true;
}

void daemon_begin_stop(struct daemon *d)
{
    if (d->draining)
        return;
    d->draining = true;
    d->ready = false;
    log_info("stopping");
    sd_notify(0, "STOPPING=1\nSTATUS=stopping");
    if (d->http != NULL)
        http_server_drain(d->http);
    struct timeval limit = after_ms(options_int(d->options, "drain_timeout"));
    event_add(d->drain_limit, &limit);
    if (d->spec->drain != NULL)
        d->spec->drain(d->ctx);
    else
        d->drained = true;
    event_active(d->drain_check, EV_TIMEOUT, 0);
}

void daemon_fail(struct daemon *d, int status)
{
    if (d->draining && !d->drained)
        log_warn("ended with unfinished work in flight");
    else if (d->draining)
        log_warn("ended with undelivered replies",
            LOG_U("connections", d->http != NULL ? http_server_connections(d->http) : 0));
    d->status = status;
    event_base_loopbreak(d->base);
}

void daemon_set_status(struct daemon *d, int status)
{
    d->status = status;
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
    struct daemon *d = arg;
    (void)what;
    if (sig == SIGHUP) {
        if (d->spec->hangup != NULL)
            d->spec->hangup(d->ctx);
    } else if (d->draining) {
        end_drain(d);
    } else {
        daemon_begin_stop(d);
    }
}

static void log_listening(int fd, const char *message)
{
    struct listen_name name;
    if (listen_name(fd, &name) != 0)
        return;
    if (name.is_unix)
        log_info(message, LOG_S("unix", name.address));
    else
        log_info(message, LOG_S("address", name.address), LOG_I("port", name.port));
}

/* Only for an explicit max_connections, because few hosts allow as many files as the default needs. */
static void warn_about_descriptors(const struct options *o)
{
    int64_t wanted = options_int(o, "max_connections");
    int room = http_descriptors_for_connections();
    if (options_is_set(o, "max_connections") && wanted > room)
        log_warn(
            "the limit of open files leaves fewer connections than max_connections: raise it (LimitNOFILE, "
            "ulimit -Hn)",
            LOG_I("max_connections", wanted), LOG_I("room_for", room),
            LOG_U("limit_wanted", http_descriptors_with_connections((size_t)wanted)));
}

static int start_http(struct daemon *d, int fd, struct config_error *error)
{
    const struct options *o = d->options;
    const char *allowed = options_string(o, "allowed_hosts");
    char own[HOST_NAME_MAX + 1] = "";
    struct buf allowed_hosts = {0};
    gethostname(own, sizeof own - 1);
    buf_printf(&allowed_hosts, "%s %s", allowed ? allowed : "", own);
    buf_append_char(&allowed_hosts, '\0');
    static char server_name[100];
    snprintf(server_name, sizeof server_name, "millrace-%s/%s", d->spec->name, MILLRACE_VERSION);
    bool is_public = d->spec->has_public_port;
    struct http_server_config config = {.base = d->base,
        .stats = d->stats,
        .ctx = d->ctx,
        .routes = d->spec->routes,
        .max_body = (size_t)options_int(o, "max_body"),
        .max_connections = (int)options_int(o, "max_connections"),
        .max_buffered = (size_t)options_int(o, "max_buffered"),
        .header_timeout = options_int(o, "header_timeout") * USEC_PER_MSEC,
        .body_timeout = options_int(o, "body_timeout") * USEC_PER_MSEC,
        .write_timeout = options_int(o, "write_timeout") * USEC_PER_MSEC,
        .idle_timeout = options_int(o, "idle_timeout") * USEC_PER_MSEC,
        .auth_token = d->auth_token,
        .allow_admin = options_bool(o, "allow_exit"),
        .public_max_body = is_public ? (size_t)options_int(o, "public_max_body") : 0,
        .public_rate = is_public ? (uint64_t)options_int(o, "public_rate") : 0,
        .allowed_hosts = allowed_hosts.ptr,
        .server_name = server_name,
        .not_ready = why_not_ready,
        .degraded = why_degraded,
        .not_ready_arg = d,
        .extra_stats = d->spec->extra_stats,
        .reset_stats = d->spec->reset_stats,
        .stats_headers = d->spec->stats_headers};
    warn_about_descriptors(o);
    d->http = http_server_new(&config);
    buf_free(&allowed_hosts);
    if (http_server_listen_fd(d->http, fd, false) != 0) {
        snprintf(error->text, sizeof error->text, "cannot serve HTTP on the socket");
        return EXIT_FAILURE;
    }
    log_listening(fd, "listening");
    if (!is_public || !options_is_set(o, "public_port"))
        return 0;
    fd = listen_open(options_string(o, "public_address"), (int)options_int(o, "public_port"), error->text,
        sizeof error->text);
    if (fd < 0)
        return EX_CONFIG;
    if (http_server_listen_fd(d->http, fd, true) != 0) {
        snprintf(error->text, sizeof error->text, "cannot serve HTTP on the public socket");
        return EXIT_FAILURE;
    }
    log_listening(fd, "public port");
    return 0;
}

static void ignore_signal(int sig)
{
    (void)sig;
}

static void add_events(struct daemon *d)
{
    static const int signals[3] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t all, before;
    sigemptyset(&all);
    for (int i = 0; i < 3; i++)
        sigaddset(&all, signals[i]);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (int i = 0; i < 3; i++) {
        /* event_free restores this handler, so that a late signal does not kill a daemon that is ending cleanly. */
        signal(signals[i], ignore_signal);
        d->signals[i] = evsignal_new(d->base, signals[i], on_signal, d);
        event_add(d->signals[i], NULL);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    d->drain_check = evtimer_new(d->base, check_drain, d);
    d->drain_limit = evtimer_new(d->base, on_drain_timeout, d);
    d->notify = loop_notify_new(d->base, run_posts, d);
}

static int start(struct daemon *d, struct config_error *error)
{
    const struct options *o = d->options;
    int fd = -1, passed = sd_listen_fds(1); /* sockets from the service manager */
    int status = daemon_read_token(options_string(o, "auth_token_file"), &d->auth_token, error);
    if (status != 0)
        return status;
    if (passed > 0) {
        fd = SD_LISTEN_FDS_START;
        evutil_make_socket_nonblocking(fd);
        evutil_make_socket_closeonexec(fd);
    } else if (d->spec->default_port >= 0 || options_is_set(o, "port")) {
        fd = listen_open(
            options_string(o, "address"), (int)options_int(o, "port"), error->text, sizeof error->text);
        if (fd < 0)
            return EX_CONFIG;
    }
    status = daemon_change_identity(o, error);
    if (status == 0) {
        add_events(d);
        status = d->spec->start(d, &d->ctx, error);
    }
    if (status == 0 && fd >= 0)
        status = start_http(d, fd, error);
    else if (fd >= 0)
        close(fd);
    return status;
}

static int run(const struct daemon_spec *spec, struct options *o)
{
    struct daemon d = {.spec = spec, .options = o, .last_post = &d.first_post};
    struct config_error error = {""};
    pthread_mutex_init(&d.posts_lock, NULL);
    d.not_ready = mem_strdup("starting");
    d.stats = stats_new(spec->name);
    d.base = event_base_new();
    int status = start(&d, &error);
    if (status != 0)
        log_error("cannot start", LOG_S("error", error.text));
    else
        event_base_dispatch(d.base);
    http_server_free(&d.http);
    if (d.notify != NULL)
        run_posts(&d);
    if (d.ctx != NULL && spec->stop != NULL)
        spec->stop(d.ctx);
    for (struct post *p; (p = d.first_post);) { /* `stop` has freed the arguments of its own posts */
        d.first_post = p->next;
        free(p);
    }
    for (int i = 0; i < 3; i++)
        if (d.signals[i] != NULL)
            event_free(d.signals[i]);
    if (d.drain_check != NULL)
        event_free(d.drain_check);
    if (d.drain_limit != NULL)
        event_free(d.drain_limit);
    loop_notify_free(&d.notify);
    stats_free(&d.stats);
    event_base_free(d.base);
    pthread_mutex_destroy(&d.posts_lock);
    free(d.not_ready);
    free(d.degraded);
    free(d.auth_token);
    if (status == 0)
        status = d.status;
    if (status == 0)
        log_info("stopped");
    return status;
}

static int refuse(const char *why, int status)
{
    log_error("cannot start", LOG_S("error", why));
    return status;
}

static int run_checked(const struct daemon_spec *spec, struct options *o)
{
    struct config_error error;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write above the limit on file sizes then fails with EFBIG */
    daemon_init_log(spec->name, o);
    if (daemon_check_common(o, &error) != 0 || (spec->check != NULL && spec->check(o, &error) != 0))
        return refuse(error.text, EX_CONFIG);
    if (options_check_only(o)) {
        options_show_settings(o);
        return EX_OK;
    }
    int status = daemon_enter(o, &error);
    return status != 0 ? refuse(error.text, status) : run(spec, o);
}

int daemon_main(const struct daemon_spec *spec, int argc, char **argv)
{
    struct option_row rows[DAEMON_ROWS_MAX];
    struct buf endpoints = {0}; /* the list of endpoints for --help */
    if (spec->routes != NULL)
        buf_append_str(
            &endpoints, "Endpoints, besides /ping, /health, /stats, /metrics and / of every daemon:\n\n");
    for (const struct http_route *r = spec->routes; r != NULL && r->path != NULL; r++)
        if (r->help != NULL)
            buf_printf(&endpoints, "  %-12s %s\n", r->path, r->help);
    buf_append_char(&endpoints, '\0');
    struct options_spec options = {.program = spec->name,
        .summary = spec->summary,
        .operands = spec->operands,
        .more = spec->routes != NULL ? endpoints.ptr : NULL,
        .sections = spec->sections,
        .rows = {daemon_rows(spec->default_port, rows), spec->options, NULL}};
    struct options *o;
    int status = EX_OK;
    io_reserve_stdio();
    log_init(spec->name, LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    switch (options_parse(&options, argc, argv, &o)) {
    case OPTIONS_OK:
        status = run_checked(spec, o);
        break;
    case OPTIONS_EXIT:
        break;
    case OPTIONS_USAGE:
        status = refuse(options_error(o), EX_USAGE);
        break;
    case OPTIONS_CONFIG:
        status = refuse(options_error(o), EX_CONFIG);
        break;
    }
    options_free(&o);
    buf_free(&endpoints);
    return status;
}
