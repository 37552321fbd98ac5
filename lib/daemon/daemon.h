/* daemon: start, readiness, signals and stop of every daemon. A daemon's main.c only connects the daemon's parts:
 *
 *     int main(int argc, char **argv) { return daemon_main(&spec, argc, argv); }
 *
 * daemon_main parses the options, calls spec->start, starts the HTTP server, runs the event loop, and drains on SIGTERM
 * or SIGINT. The exit status is one of:
 *     0   after a clean stop
 *     64  usage
 *     78  configuration, also a port in use, or a locked or unwritable directory
 *     75  a temporary failure
 *     1   any other failure
 *
 * 1. The listening socket comes from the service manager (LISTEN_FDS, LISTEN_PID). Without a service manager, the
 *    daemon opens a socket at --address and --port. The daemon logs the address.
 * 2. /ping and /health answer during the start. Routes with HTTP_ROUTE_WHEN_READY answer 503 until daemon_set_ready.
 *    daemon_set_ready also sends READY=1 to NOTIFY_SOCKET and logs `ready`. With --daemon, the parent process exits
 *    with 0 at daemon_set_ready or daemon_notify_parent. If the daemon ends first, the parent exits with the daemon's
 *    status.
 * 3. A second SIGTERM, or the end of drain_timeout, aborts the drain. The exit status is then 75. No acknowledged data
 *    is lost. spec->abort_drain may take DAEMON_ABORT_TIME_MAX to report the aborted work.
 * 4. SIGHUP reloads the service's files (service.h) and calls spec->hangup. A SIGHUP during the start takes effect
 *    after the start. The daemon ignores SIGPIPE and SIGXFSZ. Signal handlers run in the loop (evsignal).
 * 5. If the start fails, the daemon logs one line with the error, its cause and a remedy. */
#ifndef MILLRACE_DAEMON_H
#define MILLRACE_DAEMON_H

#include "http/server/http_server.h"
#include "base/clock_watch.h"
#include "config/options.h"
#include "base/stats.h"
#include "daemon/notices.h"

struct daemon;
struct event_base;
struct http_client;
struct http_client_config;
struct http_pool;
struct http_pool_config;

#define DAEMON_ABORT_TIME_MAX (3 * USEC_PER_SEC)

/* The settings of a daemon with a public port (daemon_spec.has_public_port), as rows for its table of options. */
/* clang-format off */
#define DAEMON_PUBLIC_PORT_SETTINGS                                                                          \
    {.name = "public_port", .type = OPTION_INT, .min = 0, .max = 65535,                                      \
        .help = "TCP port that serves only the endpoints for web pages, without a token; unset: none"},      \
    {.name = "public_address", .type = OPTION_STRING, .fallback = "127.0.0.1",                               \
        .help = "address of the public port, or unix:PATH"},                                                 \
    {.name = "public_max_body", .type = OPTION_SIZE, .fallback = "64K", .min = 1, .max = INT64_C(1) << 30,   \
        .unit = "bytes", .help = "largest request body at the public port"},                                 \
    {.name = "public_rate", .type = OPTION_INT, .fallback = "1000", .min = 0, .max = 1000000,                \
        .help = "maximum requests per second at the public port, from all clients together; 0: unlimited"},                   \
    {.name = "public_path", .type = OPTION_STRING,                                                           \
        .help = "second path of the public endpoints, on every port, for readers with ad blockers: /p "      \
                "serves /p/events, /p/pixel.gif and /p/m.js (default: none)"}
/* clang-format on */

struct daemon_spec {
    const char *name;     /* name of the daemon, such as "simplequeue" */
    const char *summary;  /* description of the daemon in one line */
    const char *operands; /* the operands in --help; NULL: operands are errors */
    const char *more;     /* whole lines of --help after the endpoints; NULL: none */
    const struct option_row
        *options;         /* the daemon's own settings, ended by a row with a NULL name; may be NULL */
    const char *sections; /* see options_spec */
    int default_port;     /* default of --port; 0: any free port; -1: no HTTP server unless --port is set */
    bool has_public_port; /* `options` has the rows DAEMON_PUBLIC_PORT_SETTINGS */
    bool is_service;      /* `options` has the rows SERVICE_SETTINGS (service.h), but no setting `threads` */
    const struct http_route *routes; /* may be NULL; the handlers' ctx is the *ctx that `start` has set */
    /* Makes further checks of the settings, also for --check-config. May be NULL. Returns 0, or -1 with the error. */
    int (*check)(struct options *o, struct error *error);
    /* For a command line that does not start the daemon, does the work of the command, sets the exit status and returns
     * true. Returns false for all other command lines. May be NULL. */
    bool (*instead)(struct options *o, int *status);
    /* Builds the daemon's parts and sets *ctx, the argument of all callbacks. Returns 0, or an exit status with the
     * error. Must not block for long: a slow recovery should run in a thread, which reports its end by daemon_post. */
    int (*start)(struct daemon *d, void **ctx, struct error *error);
    /* For a daemon with a setting `threads`: returns the ctx of the handlers in one worker thread (workers.h). `worker`
     * is the number of the thread, from 0 to threads - 2, and `base` the thread's event base. NULL: only the daemon's
     * loop serves requests. */
    void *(*worker)(void *ctx, size_t worker, struct event_base *base);
    /* Called after a worker thread has ended, before its event base is freed. */
    void (*worker_end)(void *worker_ctx);
    void (*hangup)(void *ctx); /* called at SIGHUP; may be NULL */
    /* Refuses new work, finishes work in flight, then calls daemon_drained once. May be NULL. */
    void (*drain)(void *ctx);
    /* Called if the drain takes too long. Aborts and reports the work in flight, calls daemon_drained within
     * DAEMON_ABORT_TIME_MAX, and returns true. Returns false if no work needs a report. May be NULL. */
    bool (*abort_drain)(void *ctx);
    /* Frees all parts, unless *ctx is NULL. Called after the event loop has ended and every on_gone (http_server.h) has run. */
    void (*stop)(void *ctx);
    /* See http_server_config for the last four callbacks. check_health and reset_stats may be NULL. */
    bool (*check_health)(struct http_request *req, void *ctx);
    void (*extra_stats)(void *ctx, bool json, struct buf *out);
    void (*reset_stats)(void *ctx);
    void (*stats_headers)(void *ctx, struct http_request *req);
};

int daemon_main(const struct daemon_spec *spec, int argc, char **argv);

struct event_base *daemon_base(struct daemon *d);
struct options *daemon_options(struct daemon *d);
struct stats *daemon_stats(struct daemon *d);
/* Returns " --url=URL", and " --config=FILE" if this daemon has a configuration: the options with which a tool finds the
 * daemon at `url` and its token. The caller frees the text. */
char *daemon_tool_options(const struct daemon *d, const char *url);
const char *daemon_url(const struct daemon *d); /* "": no HTTP server */
/* Returns the trusted time (base/clock_watch.h), for deletions by age and for the watermark. The daemon checks the wall
 * clock for jumps at each call and once per second, and logs and counts each jump. Only for the loop's thread. */
usec_t daemon_trusted_time(struct daemon *d);
/* Returns the number of jumps of the wall clock since the start. */
uint64_t daemon_clock_jumps(const struct daemon *d);

void daemon_set_ready(struct daemon *d);
/* With --daemon, lets the parent process exit with 0. A daemon calls daemon_notify_parent if it must wait for another
 * daemon before it is ready. daemon_set_ready also calls daemon_notify_parent. */
void daemon_notify_parent(void);
/* The conditions of the daemon (notices.h). The caller passes the remedy that ends the condition. */
#define DAEMON_WAIT "wait; `millrace status --watch` shows the progress"
#define DAEMON_REPAIR_DISK "repair the disk, then restart the daemon"
/* Problems of the disk have remedies that begin with DAEMON_DISK, so that `millrace status` shows them as one
 * problem. */
#define DAEMON_DISK "free disk space; "
#define DAEMON_FREE_DISK DAEMON_DISK "it resumes by itself"
#define DAEMON_DISK_LOW DAEMON_DISK "to need less, set retain_bytes or retain_age of the streams"
#define PEER_REMEDY                                                                                          \
    "it continues by itself once the cause that the reason names has ended; if the other daemon is ready, "  \
    "correct its URL or its token file"
#define JOURNAL_CUT_REMEDY "compare with the producers: millrace help damage, \"A tail that was cut\""
/* Makes the daemon not ready: routes with HTTP_ROUTE_WHEN_READY and /health answer 503 with the reason. */
void daemon_set_not_ready(struct daemon *d, enum notice_state state, const char *remedy, const char *why);
/* Sets the notice of a subject `of`, a constant, which replaces the subject's earlier notice. `text` NULL removes it.
 * All routes except /health work as before. */
void daemon_set_notice(
    struct daemon *d, const char *of, enum notice_state state, const char *remedy, const char *text);
/* Sets a notice "refusing WHAT since TIME: WHY" for a temporary condition such as a full disk. `why` NULL removes it. */
void daemon_set_refusing(struct daemon *d, const char *what, const char *remedy, const char *why);
/* Makes the daemon not ready until a restart. */
void daemon_set_storage_failed(struct daemon *d, const char *why);
/* Sets or removes a notice of damaged files. Logs each new `why`. */
void daemon_set_damaged(struct daemon *d, const char *remedy, const char *why);
/* Adds a warning that lasts until the end of the process. */
void daemon_add_warning(struct daemon *d, const char *remedy, const char *text);
/* Appends the state and the notices as JSON. Any thread may call it. */
void daemon_print_health(void *daemon, struct buf *out);
/* Logs an error with which a process ends, and its remedy, which `millrace up` keeps for `millrace status`. */
void daemon_log_error(const char *message, const char *remedy, const char *error);
/* Logs the error, and ends the daemon at once with an exit status. */
void daemon_give_up(struct daemon *d, int status, const char *message, const char *remedy, const char *error);
/* Makes the event loop call fn(ctx), with the *ctx of spec->start, each time that `every` has passed, until
 * spec->drain or spec->stop is called. spec->start may call the function once. */
void daemon_set_tick(struct daemon *d, usec_t every, void (*fn)(void *ctx));
bool daemon_is_ready(const struct daemon *d);
bool daemon_is_draining(const struct daemon *d);
void daemon_drained(struct daemon *d);
void daemon_begin_stop(struct daemon *d);       /* starts the drain, as SIGTERM does */
void daemon_fail(struct daemon *d, int status); /* ends the daemon at once, with exit status `status` */
/* Sets the exit status. Called by spec->stop, and by work that continues after spec->abort_drain. */
void daemon_set_status(struct daemon *d, int status);

/* Makes the event loop call fn(arg) once, before spec->stop. Functions are called in the order of the calls of
 * daemon_post. daemon_post may be called from any thread. */
void daemon_post(struct daemon *d, void (*fn)(void *arg), void *arg);

/* Returns the exit status for a start that failed with the errno `why`: EX_TEMPFAIL if a resource ran short
 * (errno_class.h), otherwise EX_CONFIG. */
int daemon_start_status(int why);
/* Returns the exit status for a command whose daemon_lock_directory failed: EX_TEMPFAIL also if another process has the
 * lock. */
int daemon_lock_status(void);

/* Raises the limit of open files to the hard limit. Called by daemon_main. */
void daemon_raise_file_limit(void);

/* Reads a token file into *token, which the caller frees. *token is NULL if the path is NULL or empty. Returns 0, or an
 * exit status with the error. The file must be readable, closed to other users, and contain a valid token. */
int daemon_read_token(const char *path, char **token, struct error *error);

/* Create a client or a pool with the daemon's event base and the token from `token_file` (NULL: no token). /stats shows
 * the pool's metrics. Both functions return NULL with the error if they cannot read the token. */
struct http_client *daemon_client_new(
    struct daemon *d, const char *token_file, const struct http_client_config *config, struct error *error);
struct http_pool *daemon_pool_new(
    struct daemon *d, const char *token_file, const struct http_pool_config *config, struct error *error);

#endif
