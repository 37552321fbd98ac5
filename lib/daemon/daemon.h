/* daemon: start, readiness, signals and stop of every daemon. A daemon's main.c only wires its parts:
 *
 *     int main(int argc, char **argv) { return daemon_main(&spec, argc, argv); }
 *
 * daemon_main parses the options, calls spec->start, starts the HTTP server, runs the event loop, and drains on
 * SIGTERM or SIGINT. Exit status: 0 after a clean stop, 64 usage, 78 configuration (also a port in use, a locked or
 * unwritable directory), 75 a temporary failure, 1 other.
 *
 * 1. The listening socket comes from the service manager (LISTEN_FDS, LISTEN_PID), otherwise from --address and
 *    --port. The address is logged.
 * 2. /ping and /health answer from the start, HTTP_ROUTE_WHEN_READY routes with 503 until daemon_set_ready, which
 *    sends READY=1 to NOTIFY_SOCKET and logs `ready`. With --daemon, the parent process exits then, at
 *    daemon_notify_parent, or with the daemon's status.
 * 3. At a second SIGTERM, or after drain_timeout, the drain is aborted, and the exit status is 75. Acknowledged
 *    data is safe. spec->abort_drain has DAEMON_ABORT_TIME_MAX to report the work that it aborts.
 * 4. SIGHUP reloads the service's files and calls spec->hangup; during the start it waits. The daemon ignores SIGPIPE and SIGXFSZ. Signal handlers run in the loop (evsignal).
 * 5. If the start fails, the daemon logs one error line that states the cause and a remedy. */
#ifndef MILLRACE_DAEMON_H
#define MILLRACE_DAEMON_H

#include "http/server/http_server.h"
#include "base/clock_watch.h"
#include "config/options.h"
#include "base/stats.h"

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
        .help = "TCP port with only the endpoints for web pages, without a token; unset: none"},             \
    {.name = "public_address", .type = OPTION_STRING, .fallback = "127.0.0.1",                               \
        .help = "address of the public port, or unix:PATH"},                                                 \
    {.name = "public_max_body", .type = OPTION_SIZE, .fallback = "64K", .min = 1, .max = INT64_C(1) << 30,   \
        .unit = "bytes", .help = "largest request body at the public port"},                                 \
    {.name = "public_rate", .type = OPTION_INT, .fallback = "1000", .min = 0, .max = 1000000,                \
        .help = "requests a second at the public port, from all clients; 0: unlimited"},                     \
    {.name = "public_path", .type = OPTION_STRING,                                                           \
        .help = "further path of the public endpoints, for browsers that block their own: /p serves "        \
                "/p/events and /p/pixel.gif (default: none)"}
/* clang-format on */

struct daemon_spec {
    const char *name;                 /* "simplequeue" */
    const char *summary;              /* one line */
    const char *operands;             /* NULL: none */
    const struct option_row *options; /* its own settings; a row with a NULL name ends them; may be NULL */
    const char *sections;             /* as in options_spec */
    int default_port; /* of --port; 0: any free port; -1: no HTTP server unless --port is set */
    bool has_public_port;
    bool is_service; /* its table of options has SERVICE_SETTINGS (service.h); not with a setting `threads` */
    const struct http_route *routes; /* the handlers' ctx is the one from `start`; may be NULL */
    /* Makes further checks of the settings, also for --check-config; may be NULL. 0, or -1 with the error. */
    int (*check)(struct options *o, struct error *error);
    /* For a command line that does not start the daemon: does its work, sets the exit status and returns true. May
     * be NULL. */
    bool (*instead)(struct options *o, int *status);
    /* Builds the daemon's parts and sets *ctx, the argument of all callbacks. 0, or an exit status with the error.
     * Must not block for long: a slow recovery runs in a thread and ends with daemon_post. */
    int (*start)(struct daemon *d, void **ctx, struct error *error);
    /* For a setting `threads`: the ctx of the handlers that run in worker `worker` (from 0; threads - 1 of them),
     * with its event base (daemon/workers.h). NULL: only the loop serves. */
    void *(*worker)(void *ctx, size_t worker, struct event_base *base);
    void (*worker_end)(void *worker_ctx); /* the thread has ended; its event base is freed next */
    void (*hangup)(void *ctx);            /* SIGHUP; may be NULL */
    /* Refuses new work, finishes work in flight, then calls daemon_drained once. May be NULL. */
    void (*drain)(void *ctx);
    /* The drain takes too long: aborts and reports the work in flight, and calls daemon_drained within
     * DAEMON_ABORT_TIME_MAX. False: nothing to report. May be NULL. */
    bool (*abort_drain)(void *ctx);
    /* Frees everything, after the event loop and every on_gone. */
    void (*stop)(void *ctx);
    void (*extra_stats)(void *ctx, bool json, struct buf *out); /* see http_server_config */
    void (*reset_stats)(void *ctx);                             /* likewise; may be NULL */
    void (*stats_headers)(void *ctx, struct http_request *req); /* likewise */
};

int daemon_main(const struct daemon_spec *spec, int argc, char **argv);

struct event_base *daemon_base(struct daemon *d);
struct options *daemon_options(struct daemon *d);
struct stats *daemon_stats(struct daemon *d);
/* The trusted time (base/clock_watch.h), for deletions by age and the watermark. Checked here and once a second;
 * jumps are logged and counted. Loop's thread only. */
usec_t daemon_trusted_time(struct daemon *d);
uint64_t daemon_clock_jumps(const struct daemon *d); /* so far */

void daemon_set_ready(struct daemon *d);
/* With --daemon: lets the parent exit with 0. For daemons that wait for another daemon before they are ready;
 * daemon_set_ready calls it. */
void daemon_notify_parent(void);
/* Sets the reason, such as "recovering" or "storage failed: ...", for /health and 503 replies. */
void daemon_set_not_ready(struct daemon *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* For damaged files: /health is 503 with the reason until `why` is NULL, while all other endpoints work. */
void daemon_set_degraded(struct daemon *d, const char *why);
/* For a condition that ends by itself, such as a full disk: /health is 503 with "refusing WHAT since TIME: WHY"
 * until why is NULL. */
void daemon_set_refusing(struct daemon *d, const char *what, const char *why);
/* Sets the one warning that a later call replaces; NULL: none. /health shows it before the others. */
void daemon_set_notice(struct daemon *d, const char *text);
/* Adds "warning: TEXT" to all later 200 replies of /health. If there are more than DAEMON_WARNINGS_MAX warnings,
 * /health refers to the log for the others. */
#define DAEMON_WARNINGS_MAX 16
void daemon_add_warning(struct daemon *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool daemon_is_ready(const struct daemon *d);
bool daemon_is_draining(const struct daemon *d);
void daemon_drained(struct daemon *d);
void daemon_begin_stop(struct daemon *d);       /* drains, as SIGTERM does */
void daemon_fail(struct daemon *d, int status); /* ends the daemon at once with that status */
/* Sets the exit status. For spec->stop, and for work that continues after spec->abort_drain. */
void daemon_set_status(struct daemon *d, int status);

/* Makes the event loop call fn(arg) once, in the order of the posts, at the latest before spec->stop. May be called
 * from any thread. */
void daemon_post(struct daemon *d, void (*fn)(void *arg), void *arg);

/* Creates the directory and its parents, checks that it is writable, and locks DIR/lock until the process ends;
 * under NOTIFY_SOCKET waits up to 15 s for the lock. 0, or -1 with errno and the error, which for EWOULDBLOCK names
 * the holder. */
int daemon_lock_directory(const char *dir, struct error *error);
/* Returns false if DIR was moved or DIR/lock was removed. */
bool daemon_holds_directory(const char *dir);
/* Returns the exit status for a start that failed with this errno: EX_TEMPFAIL if a resource ran short
 * (errno_class.h), otherwise EX_CONFIG. */
int daemon_start_status(int why);
/* The same for a command after daemon_lock_directory: EX_TEMPFAIL also if another process has the lock. */
int daemon_lock_status(void);

/* Raises the limit of open files to its hard limit. daemon_main calls it. */
void daemon_raise_file_limit(void);

/* Reads a token into *token, which the caller frees (NULL for a NULL or empty path). 0, or an exit status with the error:
 * unreadable, open to all users, or no valid token. */
int daemon_read_token(const char *path, char **token, struct error *error);

/* Create a client or a pool with the daemon's event base and the token from `token_file` (NULL: none). /stats show
 * the pool's metrics. NULL with the error: the token is not readable. */
struct http_client *daemon_client_new(
    struct daemon *d, const char *token_file, const struct http_client_config *config, struct error *error);
struct http_pool *daemon_pool_new(
    struct daemon *d, const char *token_file, const struct http_pool_config *config, struct error *error);

#endif
