#include "daemon/daemon.h"
#include "base/clock_watch.h"
#include "base/errno_class.h"
#include "base/io.h"
#include "base/log.h"
#include "base/rfc3339.h"
#include "daemon/daemon_directory.h"
#include "daemon/daemon_settings.h"
#include "daemon/listen.h"
#include "daemon/service.h"
#include "daemon/service_manager.h"
#include "daemon/workers.h"
#include "daemon/loop_notify.h"
#include "daemon/loop_timer.h"
#include "http/client/http_pool.h"
#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define TOKEN_MAX 512 /* maximum length of a token in bytes */
#define TOKEN_FILE_MAX 4096
#define DRAIN_POLL_MS 10
#define NEW_CONNECTION (2 * USEC_PER_SEC) /* longest time from a connect to the first request */
#define REFUSING "refusing"               /* the subject of daemon_set_refusing */

void daemon_raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int parent_pipe = -1; /* with --daemon: a pipe whose other end the parent process reads */

/* Forks. The parent process exits with status 0 as soon as the child is ready. If the child ends first, the parent
 * exits with the child's status. */
static int go_into_background(void)
{
    int ends[2], status;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child <= 0) {
        close(ends[0]);
        parent_pipe = ends[1];
        return child < 0 || setsid() < 0 ? -1 : 0;
    }
    char ready;
    ssize_t n;
    close(ends[1]);
    do
        n = read(ends[0], &ready, 1);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        _exit(EX_OK);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            _exit(EXIT_FAILURE);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE);
}

void daemon_notify_parent(void)
{
    if (parent_pipe < 0)
        return;
    (void)!write(parent_pipe, "r", 1); /* the write fails if the parent has ended */
    close(parent_pipe);
    parent_pipe = -1;
}

/* Applies --user and --group. Called after the sockets are bound, so that the daemon can use privileged ports. */
static int change_identity(const struct options *o, struct error *error)
{
    const char *group = options_string(o, "group"), *user = options_string(o, "user");
    const struct group *g = group ? getgrnam(group) : NULL;
    const struct passwd *p = user ? getpwnam(user) : NULL;
    errno = ENOENT;
    if (group && !g)
        return error_set(error, EX_CONFIG, "no group %s: %s", group, strerror(errno));
    if (user && !p)
        return error_set(error, EX_CONFIG, "no user %s: %s", user, strerror(errno));
    if (g && (setgroups(1, &g->gr_gid) != 0 || setgid(g->gr_gid) != 0))
        return error_set(error, EX_CONFIG, "cannot change to the group %s: %s", group, strerror(errno));
    if (p && !g && (initgroups(user, p->pw_gid) != 0 || setgid(p->pw_gid) != 0))
        return error_set(error, EX_CONFIG, "cannot set the groups of the user %s: %s", user, strerror(errno));
    if (p && setuid(p->pw_uid) != 0)
        return error_set(error, EX_CONFIG, "cannot change to the user %s: %s", user, strerror(errno));
    return 0;
}

static bool is_token_char(unsigned char c)
{
    return c > ' ' && c < 0x7F;
}

int daemon_read_token(const char *path, char **token, struct error *error)
{
    struct buf text = {0};
    *token = NULL;
    if (!path || *path == '\0')
        return 0;
    int status = io_read_secret(path, "token file", TOKEN_FILE_MAX, &text, error) == 0 ? 0 : EX_CONFIG;
    while (text.len > 0 && !is_token_char((unsigned char)text.ptr[text.len - 1]))
        text.len--;
    bool good = text.len > 0 && text.len <= TOKEN_MAX;
    for (size_t i = 0; i < text.len; i++)
        good = good && is_token_char((unsigned char)text.ptr[i]);
    if (status == 0 && good)
        *token = bytes_dup(buf_bytes(&text));
    else if (status == 0)
        status = error_set(
            error, EX_CONFIG, "the token file %s must contain one word of 1 to 512 ASCII characters", path);
    buf_free(&text);
    return status;
}

int daemon_start_status(int why)
{
    return errno_is_shortage(why) ? EX_TEMPFAIL : EX_CONFIG;
}

int daemon_lock_status(void)
{
    return errno == EWOULDBLOCK ? EX_TEMPFAIL : daemon_start_status(errno);
}

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
    struct service *service; /* NULL: spec->is_service is false */
    struct workers *workers; /* NULL: only the daemon's loop serves requests */
    struct event *signals[3];
    struct loop_timer *drain_begin, *drain_check, *drain_limit, *clock_tick;
    struct loop_timer *tick; /* of daemon_set_tick; NULL: none */
    void (*on_tick)(void *ctx);
    struct clock_watch clocks;
    struct stats_counter *clock_jumps;
    void *ctx;
    char *auth_token;
    char url[300]; /* of the HTTP server; "": none */
    bool ready, draining, drained, aborting;
    pthread_mutex_t state_lock; /* protects ready, draining and notices, which workers read for /health */
    struct notices notices;
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

const char *daemon_url(const struct daemon *d)
{
    return d->url;
}

char *daemon_tool_options(const struct daemon *d, const char *url)
{
    const char *file = options_string(d->options, "config");
    return mem_printf(" --url=%s%s%s", url, file ? " --config=" : "", file ? file : "");
}

usec_t daemon_trusted_time(struct daemon *d)
{
    uint64_t jumps = d->clocks.jumps;
    usec_t trusted = clock_watch_look(&d->clocks, clock_wall(), clock_boot());
    if (d->clocks.jumps != jumps) {
        log_warn("the wall clock jumped", LOG_I("seconds", d->clocks.last_jump / USEC_PER_SEC));
        stats_add(d->clock_jumps, 1);
    }
    return trusted;
}

uint64_t daemon_clock_jumps(const struct daemon *d)
{
    return d->clocks.jumps;
}

static void on_clock_tick(void *arg)
{
    daemon_trusted_time(arg);
}

static void on_tick(void *arg)
{
    struct daemon *d = arg;
    d->on_tick(d->ctx);
}

void daemon_set_tick(struct daemon *d, usec_t every, void (*fn)(void *ctx))
{
    d->on_tick = fn;
    d->tick = loop_timer_every(d->base, every, on_tick, d);
}

static void end_tick(struct daemon *d)
{
    loop_timer_free(&d->tick);
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
    pthread_mutex_lock(&d->state_lock);
    d->ready = true;
    notices_set(&d->notices, NOTICE_START, NOTICE_WARNING, "", NULL);
    pthread_mutex_unlock(&d->state_lock);
    log_info("ready");
    service_notify(SERVICE_READY, "ready");
    daemon_notify_parent();
}

void daemon_set_notice(
    struct daemon *d, const char *of, enum notice_state state, const char *remedy, const char *text)
{
    pthread_mutex_lock(&d->state_lock);
    notices_set(&d->notices, of, state, remedy, text);
    pthread_mutex_unlock(&d->state_lock);
}

void daemon_set_not_ready(struct daemon *d, enum notice_state state, const char *remedy, const char *why)
{
    const char *before = d->notices.all[0].text;
    if (d->ready)
        log_warn("not ready", LOG_S("error", why));
    if (!before || strcmp(why, before) != 0)
        service_notify(0, "%s", why);
    if (d->draining)
        return;
    pthread_mutex_lock(&d->state_lock);
    d->ready = false;
    notices_set(&d->notices, NOTICE_START, state, remedy, why);
    pthread_mutex_unlock(&d->state_lock);
}

void daemon_set_refusing(struct daemon *d, const char *what, const char *remedy, const char *why)
{
    char since[RFC3339_TEXT];
    const char *old = "";
    for (size_t i = 0; i < NOTICES_MAX; i++)
        if (d->notices.all[i].of && strcmp(d->notices.all[i].of, REFUSING) == 0 && d->notices.all[i].text)
            old = d->notices.all[i].text;
    size_t len = why ? strlen(why) : 0;
    if (why && strlen(old) >= len && strcmp(old + strlen(old) - len, why) == 0)
        return; /* the time of the first refusal stays */
    rfc3339_write(clock_wall() / USEC_PER_SEC, since);
    char *text = why ? mem_printf("refusing %s since %s: %s", what, since, why) : NULL;
    daemon_set_notice(d, REFUSING, NOTICE_REFUSING, remedy, text);
    free(text);
}

void daemon_set_storage_failed(struct daemon *d, const char *why)
{
    char *text = mem_printf("storage failed: %s", why);
    daemon_set_not_ready(d, NOTICE_FAILING, DAEMON_REPAIR_DISK, text);
    free(text);
}

void daemon_set_damaged(struct daemon *d, const char *remedy, const char *why)
{
    if (why)
        daemon_log_error("degraded", remedy, why);
    daemon_set_notice(d, "damaged", NOTICE_DAMAGED, remedy, why);
}

void daemon_add_warning(struct daemon *d, const char *remedy, const char *text)
{
    pthread_mutex_lock(&d->state_lock);
    notices_add(&d->notices, remedy, text);
    pthread_mutex_unlock(&d->state_lock);
}

void daemon_log_error(const char *message, const char *remedy, const char *error)
{
    char *all = notice_remedy(NOTICE_RECOVERING, remedy, error);
    if (*all)
        log_error(message, LOG_S("error", error), LOG_S("remedy", all));
    else
        log_error(message, LOG_S("error", error));
    free(all);
}

void daemon_give_up(struct daemon *d, int status, const char *message, const char *remedy, const char *error)
{
    daemon_log_error(message, remedy, error);
    daemon_set_not_ready(d, NOTICE_FAILING, remedy, error);
    daemon_fail(d, status);
}

static const struct notice *reason_of(const struct daemon *d)
{
    const struct notice *first = notices_first(&d->notices);
    return first && first->state >= NOTICE_RECOVERING ? first : NULL;
}

static bool is_not_ready(void *arg, struct buf *why)
{
    struct daemon *d = arg;
    pthread_mutex_lock(&d->state_lock);
    bool is = !d->ready;
    if (is && why)
        buf_append_str(why, d->notices.all[0].text);
    pthread_mutex_unlock(&d->state_lock);
    return is;
}

void daemon_print_health(void *daemon, struct buf *out)
{
    struct daemon *d = daemon;
    pthread_mutex_lock(&d->state_lock);
    notices_print_json(&d->notices, out);
    pthread_mutex_unlock(&d->state_lock);
}

static void reply_health(struct http_request *req, void *arg)
{
    struct daemon *d = arg;
    struct bytes format = BYTES_NONE;
    struct buf body = {0};
    bool is_json = http_param(req, "format", &format) && bytes_equal_str(format, "json");
    pthread_mutex_lock(&d->state_lock);
    const struct notice *reason = reason_of(d);
    char *why = reason ? mem_strdup(reason->text) : NULL;
    char *remedy = reason && *reason->remedy ? mem_strdup(reason->remedy) : NULL;
    const char *code = d->ready ? "not-well" : "not-ready";
    buf_append_str(&body, is_json ? "" : "ready\n");
    (is_json ? notices_print_json : notices_print)(&d->notices, &body);
    pthread_mutex_unlock(&d->state_lock);
    /* The reply takes the lock of the statistics, which read the health under that lock. */
    if (why && !is_json)
        http_problem(req, 503, code, remedy, "%s", why);
    else
        http_reply(req, why ? 503 : 200, is_json ? "application/json" : NULL, buf_bytes(&body));
    free(why);
    free(remedy);
    buf_free(&body);
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
    while (list) {
        struct post *p = list;
        list = p->next;
        p->fn(p->arg);
        free(p);
    }
}

/* Ends the drain if the daemon has called daemon_drained and all connections are closed. */
static void check_drain(void *arg)
{
    struct daemon *d = arg;
    if (d->drained && (!d->http || http_server_connections(d->http) == 0))
        event_base_loopbreak(d->base);
    else
        loop_timer_set(d->drain_check, DRAIN_POLL_MS * USEC_PER_MSEC);
}

static void end_drain(void *arg)
{
    struct daemon *d = arg;
    bool may_abort = !d->drained && !d->aborting && d->spec->abort_drain && d->spec->abort_drain(d->ctx);
    if (!may_abort) {
        daemon_fail(d, EX_TEMPFAIL);
        return;
    }
    log_warn("the drain is cut short: work in progress has 3 s to end");
    d->aborting = true;
    d->status = EX_TEMPFAIL;
    loop_timer_set(d->drain_limit, DAEMON_ABORT_TIME_MAX);
}

void daemon_drained(struct daemon *d)
{
    d->drained = true;
}

static void begin_drain(struct daemon *d)
{
    loop_timer_stop(d->drain_begin);
    pthread_mutex_lock(&d->state_lock);
    d->draining = true;
    d->ready = false;
    notices_set(&d->notices, NOTICE_START, NOTICE_STOPPING, "", "stopping");
    pthread_mutex_unlock(&d->state_lock);
    log_info("stopping");
    service_notify(SERVICE_STOPPING, "stopping");
    if (d->http)
        http_server_drain(d->http);
    workers_drain(d->workers);
    loop_timer_set(d->drain_limit, options_int(d->options, "drain_timeout") * USEC_PER_MSEC);
    if (d->spec->drain) {
        end_tick(d);
        d->spec->drain(d->ctx);
    } else {
        d->drained = true;
    }
    loop_timer_set(d->drain_check, 0);
}

/* Begins the drain once each new connection has sent its first request or is NEW_CONNECTION old. While the drain waits
 * for this, the daemon still answers requests but accepts no connections. */
static void try_drain(void *arg)
{
    struct daemon *d = arg;
    if (d->http && http_server_stop_accepting(d->http, NEW_CONNECTION))
        loop_timer_set(d->drain_begin, DRAIN_POLL_MS * USEC_PER_MSEC);
    else
        begin_drain(d);
}

void daemon_begin_stop(struct daemon *d)
{
    if (!d->draining && !loop_timer_is_set(d->drain_begin))
        try_drain(d);
}

void daemon_fail(struct daemon *d, int status)
{
    if (d->draining && !d->drained)
        log_warn("ended with unfinished work in flight");
    else if (d->draining)
        log_warn("ended with undelivered replies",
            LOG_U("connections", d->http ? http_server_connections(d->http) : 0));
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
        if (d->service)
            service_hangup(d->service, d->http);
        if (d->spec->hangup)
            d->spec->hangup(d->ctx);
    } else if (d->draining) {
        end_drain(d);
    } else if (loop_timer_is_set(d->drain_begin)) {
        begin_drain(d);
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

static size_t count_workers(const struct daemon *d)
{
    return d->spec->worker ? (size_t)options_int(d->options, "threads") - 1 : 0;
}

static int start_workers(struct daemon *d, struct http_server_config config, int fd, struct error *error)
{
    size_t n = count_workers(d);
    if (n == 0)
        return 0;
    config.first = d->http;
    d->workers = workers_new(&(struct workers_config){.http = config,
        .fd = fd,
        .n = n,
        .begin = d->spec->worker,
        .end = d->spec->worker_end,
        .ctx = d->ctx});
    return d->workers ? 0 : error_set(error, EX_TEMPFAIL, "cannot start %zu threads", n);
}

/* Listens at an address and port. `address` and `port` are names of settings. Returns a descriptor, or -1 with the
 * error. */
static int listen_at(const struct options *o, const char *address, const char *port, struct error *error)
{
    int fd = listen_open(options_string(o, address), (int)options_int(o, port), error);
    if (fd < 0 && errno == EADDRINUSE && strncmp(options_string(o, address), "unix:", 5) != 0)
        error_set(error, -1, "%s: choose another --%s", error->text, port);
    return fd;
}

static int start_http(struct daemon *d, int fd, struct error *error)
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
        .public_path = is_public ? options_text(o, "public_path") : NULL,
        .public_rate = is_public ? (uint64_t)options_int(o, "public_rate") : 0,
        .allowed_hosts = allowed_hosts.ptr,
        .server_name = server_name,
        .not_ready = is_not_ready,
        .reply_health = reply_health,
        .print_health = daemon_print_health,
        .not_ready_arg = d,
        .check_health = d->spec->check_health,
        .extra_stats = d->spec->extra_stats,
        .reset_stats = d->spec->reset_stats,
        .stats_headers = d->spec->stats_headers};
    /* The warning is only for an explicit max_connections, because most hosts allow fewer open files than its default
     * needs. */
    int room = http_descriptors_for_connections();
    if (options_is_set(o, "max_connections") && config.max_connections > room)
        log_warn("the limit of open files allows fewer connections than max_connections: raise the limit "
                 "(LimitNOFILE, "
                 "ulimit -Hn)",
            LOG_I("max_connections", config.max_connections), LOG_I("room_for", room),
            LOG_U("limit_wanted", http_descriptors_with_connections((size_t)config.max_connections)));
    if (d->spec->is_service) {
        int bad = service_new(o, d->base, d->stats, &d->service, error);
        if (bad != 0) {
            buf_free(&allowed_hosts);
            close(fd);
            return bad;
        }
        service_configure(d->service, &config);
    }
    config.is_shared = count_workers(d) > 0;
    d->http = http_server_new(&config);
    int status = start_workers(d, config, fd, error);
    buf_free(&allowed_hosts);
    if (status != 0)
        return status;
    if (http_server_listen_fd(d->http, fd, false) != 0)
        return error_set(error, EXIT_FAILURE, "cannot serve HTTP on the socket");
    log_listening(fd, "listening");
    listen_url(fd, d->url, sizeof d->url);
    if (!is_public || !options_is_set(o, "public_port"))
        return 0;
    fd = listen_at(o, "public_address", "public_port", error);
    if (fd < 0)
        return EX_CONFIG;
    if (http_server_listen_fd(d->http, fd, true) != 0)
        return error_set(error, EXIT_FAILURE, "cannot serve HTTP on the public socket");
    log_listening(fd, "public port");
    return 0;
}

static void ignore_signal(int sig)
{
    (void)sig;
}

struct http_client *daemon_client_new(
    struct daemon *d, const char *token_file, const struct http_client_config *config, struct error *error)
{
    struct http_client_config full = *config;
    char *token;
    if (daemon_read_token(token_file, &token, error) != 0)
        return NULL;
    full.base = d->base;
    full.auth_token = token;
    struct http_client *client = http_client_new(&full);
    if (!client)
        error_set(error, -1, "%.200s is not an address", config->url);
    free(token);
    return client;
}

struct http_pool *daemon_pool_new(
    struct daemon *d, const char *token_file, const struct http_pool_config *config, struct error *error)
{
    struct http_pool_config full = *config;
    char *token;
    if (daemon_read_token(token_file, &token, error) != 0)
        return NULL;
    full.base = d->base;
    full.auth_token = token;
    struct http_pool *pool = http_pool_new(&full, error->text, sizeof error->text);
    if (pool)
        http_pool_register_stats(pool, d->stats);
    free(token);
    return pool;
}

static int start(struct daemon *d, struct error *error)
{
    static const int signals[3] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t all, before;
    const struct options *o = d->options;
    int fd = -1, passed = service_sockets(); /* sockets from the service manager */
    int status = daemon_read_token(options_string(o, "auth_token_file"), &d->auth_token, error);
    if (status != 0)
        return status;
    if (passed > 0) {
        fd = SERVICE_FIRST_SOCKET;
        evutil_make_socket_nonblocking(fd);
    } else if (d->spec->default_port >= 0 || options_is_set(o, "port")) {
        fd = listen_at(o, "address", "port", error);
        if (fd < 0)
            return EX_CONFIG;
    }
    status = change_identity(o, error);
    if (status == 0) {
        sigemptyset(&all);
        for (int i = 0; i < 3; i++)
            sigaddset(&all, signals[i]);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        for (int i = 0; i < 3; i++) {
            /* event_free restores the handler from before evsignal_new. With the default handler, a late signal would
             * kill a daemon that is ending cleanly. */
            signal(signals[i], ignore_signal);
            d->signals[i] = evsignal_new(d->base, signals[i], on_signal, d);
            event_add(d->signals[i], NULL);
        }
        sigdelset(&before, SIGHUP); /* daemon_main has blocked SIGHUP */
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        d->drain_begin = loop_timer_new(d->base, try_drain, d);
        d->drain_check = loop_timer_new(d->base, check_drain, d);
        d->drain_limit = loop_timer_new(d->base, end_drain, d);
        d->clock_tick = loop_timer_every(d->base, USEC_PER_SEC, on_clock_tick, d);
        d->notify = loop_notify_new(d->base, run_posts, d);
        status = d->spec->start(d, &d->ctx, error);
    }
    if (status == 0)
        daemon_directory_stats(d->stats);
    if (status == 0 && fd >= 0)
        status = start_http(d, fd, error);
    else if (fd >= 0)
        close(fd);
    return status;
}

static double is_healthy(void *arg)
{
    struct daemon *d = arg;
    pthread_mutex_lock(&d->state_lock);
    bool is = d->ready && !reason_of(d);
    pthread_mutex_unlock(&d->state_lock);
    return is;
}

static double count_warnings(void *arg)
{
    struct daemon *d = arg;
    pthread_mutex_lock(&d->state_lock);
    double n = (double)notices_warnings(&d->notices);
    pthread_mutex_unlock(&d->state_lock);
    return n;
}

static int run(const struct daemon_spec *spec, struct options *o)
{
    struct daemon d = {.spec = spec, .options = o, .last_post = &d.first_post};
    struct error error = {0};
    pthread_mutex_init(&d.posts_lock, NULL);
    pthread_mutex_init(&d.state_lock, NULL);
    notices_set(&d.notices, NOTICE_START, NOTICE_RECOVERING, DAEMON_WAIT, "starting");
    d.stats = stats_new(spec->name);
    d.clock_jumps =
        stats_counter(d.stats, "clock_jumps_total", NULL, "jumps of the wall clock by two seconds or more");
    stats_gauge(d.stats, "healthy", NULL, "1: /health answers 200; 0: /health answers 503 with the reason",
        is_healthy, &d);
    stats_gauge(d.stats, "health_warnings", NULL, "Warnings that /health shows", count_warnings, &d);
    daemon_trusted_time(&d);
    d.base = event_base_new();
    int status = start(&d, &error);
    if (status != 0)
        daemon_log_error("cannot start", "", error.text);
    else
        event_base_dispatch(d.base);
    workers_free(&d.workers);
    http_server_free(&d.http);
    service_free(&d.service);
    if (d.notify)
        run_posts(&d);
    end_tick(&d);
    if (d.ctx && spec->stop)
        spec->stop(d.ctx);
    for (struct post *p;
         (p = d.first_post);) { /* fn is not called, because `stop` may have freed its argument */
        d.first_post = p->next;
        free(p);
    }
    for (int i = 0; i < 3; i++)
        if (d.signals[i])
            event_free(d.signals[i]);
    loop_timer_free(&d.drain_begin);
    loop_timer_free(&d.drain_check);
    loop_timer_free(&d.drain_limit);
    loop_timer_free(&d.clock_tick);
    loop_notify_free(&d.notify);
    stats_free(&d.stats);
    event_base_free(d.base);
    pthread_mutex_destroy(&d.posts_lock);
    pthread_mutex_destroy(&d.state_lock);
    notices_free(&d.notices);
    free(d.auth_token);
    if (status == 0)
        status = d.status;
    if (status == 0)
        log_info("stopped");
    return status;
}

/* Logs an error in the settings. With --check-config the message is not "cannot start", because no start was asked. */
static int refuse(const struct options *o, const char *why, int status)
{
    daemon_log_error(options_check_only(o) ? "wrong configuration" : "cannot start", "", why);
    return status;
}

/* Blocks or unblocks SIGHUP. SIGHUP is blocked, so it waits for the event loop and does not end a daemon that is starting. */
static void hold_hangup(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(how, &set, NULL);
}

static int run_checked(const struct daemon_spec *spec, struct options *o)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    struct error error;
    enum log_level level = LOG_LEVEL_DEBUG;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* makes a write beyond the file size limit fail with EFBIG */
    while (!options_bool(o, "enable_logging") && strcmp(levels[level], options_string(o, "log_level")) != 0)
        level++;
    log_init(spec->name, level,
        strcmp(options_string(o, "log_format"), "json") == 0 ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT);
    if (daemon_settings_check(spec, o, &error) != 0 || (spec->check && spec->check(o, &error) != 0))
        return refuse(o, error.text, EX_CONFIG);
    if (options_check_only(o)) {
        options_show_settings(o);
        return EX_OK;
    }
    int status = 0;
    if (spec->instead) {
        hold_hangup(SIG_UNBLOCK);
        if (spec->instead(o, &status))
            return status;
        hold_hangup(SIG_BLOCK);
    }
    daemon_raise_file_limit();
    status = daemon_enter_directory(options_string(o, "root"), &error);
    if (status == 0 && options_bool(o, "daemon") && go_into_background() != 0)
        status = error_set(&error, EXIT_FAILURE, "cannot run in the background: %s", strerror(errno));
    return status != 0 ? refuse(o, error.text, status) : run(spec, o);
}

int daemon_main(const struct daemon_spec *spec, int argc, char **argv)
{
    struct option_row rows[DAEMON_SETTINGS];
    char port[16];
    struct buf endpoints = {0}; /* the list of endpoints for --help */
    if (spec->routes)
        buf_append_str(
            &endpoints, "Endpoints, besides /ping, /health, /stats, /metrics and / of every daemon:\n\n");
    for (const struct http_route *r = spec->routes; r && r->path; r++)
        if (r->help)
            buf_printf(&endpoints, "  %-12s %s\n", r->path, r->help);
    if (spec->more)
        buf_printf(&endpoints, "\n%s", spec->more);
    buf_append_char(&endpoints, '\0');
    daemon_settings_rows(spec, rows, port);
    struct options_spec options = {.program = spec->name,
        .summary = spec->summary,
        .operands = spec->operands,
        .more = spec->routes ? endpoints.ptr : NULL,
        .sections = spec->sections,
        .rows = {rows, spec->options, NULL}};
    struct options *o;
    int status = EX_OK;
    io_reserve_stdio();
    hold_hangup(SIG_BLOCK);
    log_init(spec->name, LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    switch (options_parse(&options, argc, argv, &o)) {
    case OPTIONS_OK:
        status = run_checked(spec, o);
        break;
    case OPTIONS_EXIT:
        break;
    case OPTIONS_USAGE:
        status = refuse(o, options_error(o), EX_USAGE);
        break;
    case OPTIONS_CONFIG:
        status = refuse(o, options_error(o), EX_CONFIG);
        break;
    }
    options_free(&o);
    buf_free(&endpoints);
    return status;
}
