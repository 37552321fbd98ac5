/* tool: the subcommands built into `millrace`. Each gets the words after `millrace` as arguments (argv[0] is its name)
 * and returns an exit status of sysexits.h. */
#ifndef MILLRACE_TOOL_H
#define MILLRACE_TOOL_H

#include "base/clock.h"
#include "base/error.h"
#include "config/options.h"
#include "config/peers.h"
#include "http/client/http_client.h"

#include <sys/types.h>

int tool_up(int argc, char **argv);
int tool_put(int argc, char **argv);
int tool_compact(int argc, char **argv);
int tool_recount(int argc, char **argv);
int tool_query(int argc, char **argv);
int tool_status(int argc, char **argv);
int tool_journal(int argc, char **argv);
int tool_grep(int argc, char **argv);
int tool_slice(int argc, char **argv);
int tool_rejects(int argc, char **argv);
int tool_forget(int argc, char **argv);
int tool_producers(int argc, char **argv);
int tool_queue(int argc, char **argv);
int tool_tail(int argc, char **argv);
int tool_top(int argc, char **argv);
int tool_doctor(int argc, char **argv);
int tool_backup(int argc, char **argv);
int tool_restore(int argc, char **argv);

/* A row of the options. */
#define TOOL_DATA_DIR_SETTING                                                                                \
    {                                                                                                        \
        .name = "data_dir", .type = OPTION_STRING,                                                           \
        .help = "directory of the pipeline (default: [millrace] data_dir)"                                   \
    }

#define TOOL_COLOR_SETTING(HELP)                                                                             \
    {                                                                                                        \
        .name = "color", .type = OPTION_CHOICE, .fallback = "auto", .choices = "auto|always|never",          \
        .help = HELP " (auto: on a terminal, unless NO_COLOR is set)"                                        \
    }
/* True if this setting allows colours on the descriptor. */
bool tool_has_color(const struct options *o, int fd);

/* Parses the options and calls `run`. Prints errors, answers --check-config, and refuses a --data-dir without a run.json. `spec` must
 * have a row data_dir. */
int tool_run(const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o));
/* The same for a tool that asks no daemon: needs neither a row data_dir nor a run.json. */
int tool_run_on_files(
    const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o));

/* Sets the name that tool_fail prints. tool_run does this too. */
void tool_begin(const char *name);
/* Prints "millrace NAME: TEXT" on standard error. Returns `status`. */
int tool_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sends a request, unless `token` is NULL with a token, and appends the body of the reply. Returns the HTTP status, or 0 with the reason
 * in *why. */
int tool_request(const char *url, const char *token, const struct http_call_spec *call, struct buf *body,
    const char **why);

struct json_doc;
#define TOOL_HINT_TEXT 90
/* True if an element of the array `list` has the name as its member. Otherwise `hint` is " (did you mean NAME?)", or "" if no name is
 * near. */
bool tool_finds_name(const struct json_doc *doc, const char *list, const char *member, const char *name,
    char hint[TOOL_HINT_TEXT]);

/* True if simplequeue has the queue, or if it does not answer. The endpoints of a queue that does not exist reply like those of an empty
 * one. */
bool tool_has_queue(const char *url, const char *token, const char *queue);

/* Returns 0 if a pipeline has run in the directory, or EX_CONFIG after printing the error. Without this check, a tool would ask the
 * default ports, which may belong to another pipeline. */
int tool_check_data_dir(const char *data_dir);

/* Flushes standard output. Returns `status`, or EX_IOERR after printing the error. */
int tool_flush(int status);

struct slice_reader;
/* Opens a sealed or open slice. Returns an enum slice_result. */
int tool_open_slice(const char *path, struct slice_reader **out, struct error *error);

/* The path of a daemon: ../libexec/millrace/NAME, relative to the directory of the running program. The caller frees it. */
char *tool_program(const char *name);
/* A command line. argv ends with NULL, and argv[0] is the path of the program. */
struct tool_args {
    char **argv;
    size_t n;
};
/* Begins the command line of a daemon. */
struct tool_args tool_args_for(const char *name);
void tool_add_arg(struct tool_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tool_free_args(struct tool_args *a);

/* Starts a program and frees its arguments. The program has `fd` as its descriptor `as`, unless fd is -1, and does not outlive this
 * process. Returns its pid, or -1 after printing the error. */
pid_t tool_start(struct tool_args *a, int fd, int as);
/* Waits for the end of a program. Returns its exit status: EX_OSERR if it could not be run, EX_TEMPFAIL, after printing the error, if a signal ended it. */
int tool_wait(pid_t pid);

/* The directory of a pipeline: `given`, or if that is NULL the configured or the usual one. */
const char *tool_data_dir(const struct config *config, const char *given);
/* The directory of a daemon's data, and `below`. The caller frees it. */
char *tool_daemon_dir(
    const struct config *config, const char *data_dir, const char *daemon, const char *below);
/* The directory of a pipeline's archive. The caller frees it. */
char *tool_archive_dir(const struct config *config, const char *data_dir);
/* Appends the directories that the compactor of a pipeline needs and that [compactor] does not set. */
void tool_add_compactor_paths(struct tool_args *a, const struct config *config, const char *data_dir);

/* True if the api of `millrace up` reads the archive itself instead of asking sortdb: by its setting, or by default if sortdb serves the
 * archive. Then the compactor waits for the api too. */
bool tool_api_reads_archive(const struct config *config, bool runs_sortdb);

/* The addresses and states of a pipeline's daemons. A running `millrace up` keeps them in DATA_DIR/run.json. Without that file,
 * addresses come from the configuration and its defaults, and states are unknown. */
struct pipeline_daemon {
    char *url;         /* "http://127.0.0.1:8088" or "unix:PATH"; NULL: it does not listen */
    char *state;       /* "ready", "starting", ...; NULL: unknown */
    char *status_text; /* "ready", or why it is not; NULL: unknown */
    bool is_off;       /* the pipeline runs without it */
    int64_t pid;       /* 0: not running */
    unsigned restarts;
    char *last_error; /* the last logged error, or how the process ended; NULL: none */
    int64_t error_at; /* Unix seconds */
};

#define PIPELINE_DAEMONS (PEERS + 1) /* those of peers[], then the compactor */
const char *pipeline_daemon_name(size_t i);

struct pipeline {
    const struct config *config; /* of pipeline_open */
    const char *data_dir;
    bool is_known;        /* there is a run.json that this user may read */
    char *denied;         /* "; PATH belongs to user ..." if this user may not read run.json; NULL: it may */
    char *service;        /* the systemd unit of `millrace up`; NULL: none */
    bool has_ended;       /* `millrace up` has ended or died */
    char *config_path;    /* the file of `millrace up`; NULL: unknown */
    char *end_reason;     /* why, if it ended with an error; NULL: unknown */
    int64_t wrong_since;  /* when `millrace up` refused to reload config_path; 0: it has not */
    uint64_t log_dropped; /* lines of the log of `millrace up` */
    int64_t
        disk_at; /* when the disk had disk_free bytes free: at the start, or up to a day ago; 0: unknown */
    int64_t disk_free;
    struct pipeline_daemon daemons[PIPELINE_DAEMONS];
};

/* config is borrowed until pipeline_close; NULL: defaults. data_dir NULL: [millrace] data_dir, or millrace-data if that is not set. */
void pipeline_open(struct pipeline *p, const struct config *config, const char *data_dir);
void pipeline_close(struct pipeline *p);
/* The token that the configuration names for a daemon. NULL: none, or this user may not read it. The caller frees it. */
char *pipeline_token(const struct pipeline *p, const char *daemon);
/* Sends a request to a daemon, with its token. Returns the parsed reply of status 200 or 202, or NULL with the error, which may be
 * NULL. */
struct json_doc *pipeline_ask(
    const struct pipeline *p, const char *daemon, const struct http_call_spec *call, struct error *error);
/* The URL of a peer, valid until pipeline_close. */
const char *pipeline_url(const struct pipeline *p, const char *daemon);

#endif
