/* daemon: the life of every daemon, so that its main.c only wires.
 *
 *     int main(int argc, char **argv) { return daemon_main(&spec, argc, argv); }
 *
 * daemon_main parses the options, serves --help, --version and --check-config, starts the event loop and the HTTP server, calls
 * spec->start, runs, and drains on SIGTERM or SIGINT. It returns the exit status: 0 clean stop; 64 usage; 78 configuration (also a port
 * in use, an unwritable directory, a lock held by another process); 75 temporary failure; 1 anything else.
 *
 * 1. Listening sockets come from the service manager (LISTEN_FDS, LISTEN_PID; the first is for HTTP), else from --address and
 *    --port. Port 0 takes a free one. The socket is logged as `listening address=A port=N` or `listening unix=PATH`.
 * 2. /ping and /health answer from the start. HTTP_ROUTE_WHEN_READY routes get 503 until daemon_set_ready, which also sends
 *    READY=1 to NOTIFY_SOCKET and logs `ready`. With --daemon the parent process exits then, or at daemon_notify_parent, or
 *    with the status of a daemon that ended earlier.
 * 3. A second SIGTERM, or drain_timeout after the first, ends the drain with exit status 75. Nothing acknowledged depends on the
 *    drain. spec->abort_drain may use DAEMON_ABORT_TIME_MAX to report what it aborts.
 * 4. SIGHUP calls spec->hangup. SIGPIPE and SIGXFSZ are ignored. Signal handlers run in the loop (evsignal).
 * 5. A failed start logs one error line that says what to change. */
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
    const struct option_row *options; /* its own settings, ended by a NULL name; may be NULL */
    const char *sections;             /* of options_spec */
    int default_port; /* of --port; 0 takes a free one; -1: no HTTP server unless --port is given */
    bool has_public_port;
    const struct http_route *routes; /* handlers get the ctx of `start`; may be NULL */
    /* Checks the settings further, also for --check-config; may be NULL. 0, or -1 with the error. */
    int (*check)(struct options *o, struct config_error *error);
    /* Builds the daemon's parts; every other callback gets *ctx. 0, or an exit status with the error. Must not block for long:
     * a slow recovery runs in a thread and calls daemon_post. */
    int (*start)(struct daemon *d, void **ctx, struct config_error *error);
    void (*hangup)(void *ctx); /* SIGHUP; may be NULL */
    /* Refuses new work, finishes work in flight, then calls daemon_drained once. May be NULL. */
    void (*drain)(void *ctx);
    /* The drain took too long: aborts work in flight, reports it, then calls daemon_drained within DAEMON_ABORT_TIME_MAX. False:
     * there is nothing to report. May be NULL. */
    bool (*abort_drain)(void *ctx);
    /* Frees everything. The loop has ended and the HTTP server is freed: every waiting request has had its on_gone. */
    void (*stop)(void *ctx);
    void (*extra_stats)(void *ctx, bool json, struct buf *out); /* see http_server_config */
    void (*reset_stats)(void *ctx);                             /* likewise; may be NULL */
    void (*stats_headers)(void *ctx, struct http_request *req); /* likewise */
};

int daemon_main(const struct daemon_spec *spec, int argc, char **argv);

struct event_base *daemon_base(struct daemon *d);
struct options *daemon_options(struct daemon *d);
struct stats *daemon_stats(struct daemon *d);

void daemon_set_ready(struct daemon *d);
/* With --daemon: lets the parent process exit with status 0. daemon_set_ready calls it; so does a daemon that keeps retrying to
 * reach another one. Further calls do nothing. */
void daemon_notify_parent(void);
/* The reason, such as "recovering" or "storage failed: ...", is copied and shown on /health and in 503s. */
void daemon_set_not_ready(struct daemon *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* From now on /health returns 503 with the reason, while everything is served as before. For damage that was found. */
void daemon_set_degraded(struct daemon *d, const char *why);
bool daemon_is_ready(const struct daemon *d);
bool daemon_is_draining(const struct daemon *d);
void daemon_drained(struct daemon *d);
/* daemon_begin_stop drains as SIGTERM does (bitly's /exit). daemon_fail ends the daemon at once with that status. */
void daemon_begin_stop(struct daemon *d);
void daemon_fail(struct daemon *d, int status);
/* Sets the exit status, for spec->stop and for work that ends within DAEMON_ABORT_TIME_MAX. */
void daemon_set_status(struct daemon *d, int status);

/* From any thread: runs fn(arg) once in the loop, in the order of posting, at the latest before spec->stop. */
void daemon_post(struct daemon *d, void (*fn)(void *arg), void *arg);

/* Creates the directory and its parents if needed, checks that it is writable, and locks DIR/lock until the process ends. 0, or
 * -1 with errno and the error, which names the pid of the lock's owner (EWOULDBLOCK). With NOTIFY_SOCKET in the environment it
 * waits up to 15 s for the lock. */
int daemon_lock_directory(const char *dir, struct config_error *error);
/* False once DIR was moved away or its lock removed. */
bool daemon_holds_directory(const char *dir);
/* The exit status of a start that failed with this errno: EX_TEMPFAIL for a shortage, else EX_CONFIG. */
int daemon_start_status(int why);

/* Raises the limit of open files to its hard limit. daemon_main calls it. */
void daemon_raise_file_limit(void);

/* Reads the token from a file. *token is from malloc; NULL if path is NULL. 0, or an exit status with the error: no such file, a
 * file that everybody may read, or a file without a token. */
int daemon_read_token(const char *path, char **token, struct config_error *error);

#endif
