/* daemon: what every daemon's life has in common, so that its main.c only wires.
 *
 *     int main(int argc, char **argv) { return daemon_main(&spec, argc, argv); }
 *
 * daemon_main parses the options, answers --help, --version and --check-config, starts the event loop and
 * the HTTP server, calls spec->start, runs, and on SIGTERM or SIGINT drains and stops. It returns the exit
 * status: 0 after a clean stop; 64 usage; 78 configuration (also: a port in use, a directory that cannot be
 * written, a lock held by another process); 75 a failure that another try may heal; 1 anything else.
 *
 * 1. Listening sockets come from the service manager when it passes them (LISTEN_FDS, LISTEN_PID: the first
 *    is the HTTP server's), else from --address and --port. Port 0 takes a free one. What is listened on is
 *    logged as `listening address=A port=N` (or `listening unix=PATH`) before the daemon is ready.
 * 2. From the first moment /ping and /health answer; routes flagged HTTP_ROUTE_WHEN_READY answer 503 until
 *    daemon_set_ready. Readiness is told by READY=1 to NOTIFY_SOCKET, by the log line `ready`, by /health.
 *    With --daemon the process that was started ends then, or when the daemon has tried in vain to reach another one and goes on
 *    trying (daemon_notify_parent), or with the status of a daemon that ended before.
 * 3. A second SIGTERM, or drain_timeout after the first, ends the drain: exit 75 with what was left undone
 *    logged; nothing acknowledged depends on the drain. What is cut short then has DAEMON_ABORT_TIME_MAX to say so.
 * 4. SIGHUP calls spec->hangup. SIGPIPE and SIGXFSZ are ignored: a file past its limit is EFBIG. Signal handlers (evsignal) run in the loop.
 * 5. A failed start is logged as one error line that names what to change; no core, no half-started daemon.
 *
 * Settings every daemon has (daemon_option_rows): config, instance, check-config, help, version, address, port,
 * log_level, log_format, enable_logging, auth_token_file, allow_exit, max_connections, max_buffered, max_body,
 * idle_timeout, header_timeout, body_timeout, write_timeout, drain_timeout, and bitly's root, user, group, daemon.
 */
#ifndef MILLRACE_DAEMON_H
#define MILLRACE_DAEMON_H

#include "http/server/http_server.h"
#include "config/options.h"
#include "base/stats.h"

struct daemon;
struct event_base;

#define DAEMON_ABORT_TIME_MAX (3 * USEC_PER_SEC)

/* Settings of a daemon with a public port, in its table of options; daemon_spec.has_public_port is then set. */
/* clang-format off */
#define DAEMON_PUBLIC_PORT_SETTINGS                                                                          \
    {.name = "public_port", .type = OPTION_INT, .min = 0, .max = 65535,                                      \
        .help = "TCP port for the public: only endpoints for web pages, without a token; unset: none"},      \
    {.name = "public_address", .type = OPTION_STRING, .fallback = "127.0.0.1",                               \
        .help = "address of the public port, or unix:PATH"},                                                 \
    {.name = "public_max_body", .type = OPTION_SIZE, .fallback = "64K", .min = 1, .max = INT64_C(1) << 30,   \
        .unit = "bytes", .help = "largest request body at the public port"},                                 \
    {.name = "public_rate", .type = OPTION_INT, .fallback = "1000", .min = 0, .max = 1000000,                \
        .help = "requests a second at the public port, from all clients; 0: unlimited"}
/* clang-format on */

struct daemon_spec {
    const char *name;                 /* "simplequeue" */
    const char *summary;              /* one line */
    const char *operands;             /* NULL: none */
    const struct option_row *options; /* its own settings, ended by a row whose name is NULL; may be NULL */
    const char *sections;             /* of options_spec */
    int default_port; /* of --port; 0 takes a free one; -1: no HTTP server unless --port is given */
    bool has_public_port;
    const struct http_route *routes; /* handlers get the ctx that start returned; may be NULL */
    /* More checks of the settings, also for --check-config; may be NULL. 0, or -1 with the error filled. */
    int (*check)(struct options *o, struct config_error *error);
    /* Builds the daemon's parts; *ctx is handed to everything else. 0, or an exit status with the error
     * filled. Must not block for long: recovery that takes time runs in a thread and calls daemon_post. */
    int (*start)(struct daemon *d, void **ctx, struct config_error *error);
    void (*hangup)(void *ctx); /* SIGHUP; may be NULL */
    /* Begin to stop: refuse new work, finish what is in flight, then call daemon_drained once. May be NULL. */
    void (*drain)(void *ctx);
    /* The drain is over: end what is in flight, and tell whom it concerns; daemon_drained ends it before DAEMON_ABORT_TIME_MAX does.
     * False when that is nothing. May be NULL. */
    bool (*abort_drain)(void *ctx);
    /* Frees everything; the loop no longer runs. The HTTP server is freed before this (every waiting request
     * has had its on_gone). */
    void (*stop)(void *ctx);
    void (*extra_stats)(void *ctx, bool json, struct buf *out); /* see http_server_config */
    void (*reset_stats)(void *ctx);                             /* likewise; may be NULL */
    void (*stats_headers)(void *ctx, struct http_request *req); /* likewise */
};

int daemon_main(const struct daemon_spec *spec, int argc, char **argv);

struct event_base *daemon_base(struct daemon *d);
struct options *daemon_options(struct daemon *d);
struct stats *daemon_stats(struct daemon *d);
struct http_server *daemon_http(struct daemon *d); /* NULL without an HTTP server */

void daemon_set_ready(struct daemon *d);
/* With --daemon: the process that was started may end, by status 0. daemon_set_ready does it; whoever waits for another daemon
 * does it when that has been asked in vain. Again: nothing. */
void daemon_notify_parent(void);
/* The reason is copied and shown on /health and in 503s: "recovering", "storage failed: ..." */
void daemon_set_not_ready(struct daemon *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* From now on /health says so (503) and why, though everything is served as before: damage was found. */
void daemon_set_degraded(struct daemon *d, const char *why);
bool daemon_is_ready(const struct daemon *d);
bool daemon_is_draining(const struct daemon *d);
void daemon_drained(struct daemon *d);
/* Ends the daemon from inside as SIGTERM does (bitly's /exit), or at once with an exit status after a
 * failure that makes going on wrong. */
void daemon_begin_stop(struct daemon *d);
void daemon_fail(struct daemon *d, int status);
/* How the daemon ends: for spec->stop, which found that something cannot be kept, and for what ends in DAEMON_ABORT_TIME_MAX after all. */
void daemon_set_status(struct daemon *d, int status);

/* From any thread: fn(arg) runs once in the loop, in the order of posting. Posts that have not run when the
 * loop ends are run before spec->stop. */
void daemon_post(struct daemon *d, void (*fn)(void *arg), void *arg);

/* Makes the directory (and its parents) if need be, takes an exclusive lock on DIR/lock that lasts until the
 * process ends, and checks that files can be made there. 0, or -1 with the error naming the directory and,
 * when it is locked, the pid of the owner (errno EWOULDBLOCK). errno says why. With NOTIFY_SOCKET in the environment a lock is waited for up to 15 s. */
int daemon_lock_directory(const char *dir, struct config_error *error);
/* Whether DIR is still the directory that was owned: not when it was moved away, or its lock was removed. */
bool daemon_holds_directory(const char *dir);
/* The exit status of a start that failed with this errno: EX_TEMPFAIL for want of room, descriptors or memory, which may
 * pass, else EX_CONFIG. */
int daemon_start_status(int why);

/* As many open files as the system allows the process; daemon_main does it for daemons. */
void daemon_raise_file_limit(void);

/* The token that a file holds, for talking to a daemon that asks for one: *token is from malloc, NULL when path is. 0, or
 * an exit status with the error filled: no such file, one that everybody may read, one without a token. */
int daemon_read_token(const char *path, char **token, struct config_error *error);

#endif
