/* tool: the subcommands built into `millrace`. A subcommand gets the words after `millrace` as arguments (argv[0]
 * is the name of the subcommand), and returns an exit status of sysexits.h. */
#ifndef MILLRACE_TOOL_H
#define MILLRACE_TOOL_H

#include "base/clock.h"
#include "base/error.h"
#include "config/options.h"
#include "config/peers.h"
#include "config/pipeline_dirs.h"
#include "http/client/http_client.h"

#include <sys/types.h>

int tool_init(int argc, char **argv);
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
int tool_dynamo(int argc, char **argv);
int tool_compare_lists(int argc, char **argv);
int tool_cell(int argc, char **argv);
int tool_tail(int argc, char **argv);
int tool_top(int argc, char **argv);
int tool_sql(int argc, char **argv);
int tool_doctor(int argc, char **argv);
int tool_distribute(int argc, char **argv);
int tool_backup(int argc, char **argv);
int tool_restore(int argc, char **argv);

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

/* Parses the options and calls `run`. Prints errors, answers --check-config, and refuses a --data-dir without a
 * run.json. `spec` must have a row data_dir. */
int tool_run(const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o));
/* Like tool_run. Without --config, the default of the stream is from the configuration that run.json names. */
int tool_run_on_stream(
    const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o));
/* Like tool_run, for a tool that asks no daemon, and needs neither a row data_dir nor a run.json. */
int tool_run_on_files(
    const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o));

/* Sets the name that tool_fail prints. tool_run calls tool_begin. */
void tool_begin(const char *name);
/* Prints "millrace NAME: TEXT" on standard error. Returns `status`. */
int tool_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* From here on, tool_fail does not wait for a full pipe: the text is dropped, and a later message has the number of
 * dropped lines. */
void tool_drop_messages(void);

/* Sends a request, with `token` unless `token` is NULL, and appends the body of the reply. Returns the HTTP status,
 * or 0 with the reason in *why. */
int tool_request(const char *url, const char *token, const struct http_call_spec *call, struct buf *body,
    const char **why);

struct json_doc;
#define TOOL_HINT_TEXT 90
/* Returns true if the member of an element of the array `list` is `name`. If not, sets `hint` to " (did you mean
 * NAME?)", or "" if no name is near. */
bool tool_finds_name(const struct json_doc *doc, const char *list, const char *member, const char *name,
    char hint[TOOL_HINT_TEXT]);

/* Returns NULL if pubsub's reply to /streams has the stream, else a hint: " (did you mean NAME?)", or the names of a few streams
 * that exist. The caller frees it. */
char *tool_stream_hint(const struct json_doc *streams, const char *name);

/* Returns true if simplequeue has the queue, or does not answer. Without this check, a queue that does not exist
 * looks like an empty queue. */
bool tool_has_queue(const char *url, const char *token, const char *queue);

/* Remedy if the directory of the pipeline does not exist. A relative path depends on the directory of the command. */
#define PIPELINE_PLACE_REMEDY                                                                                \
    "run this command in the directory of `millrace up`, or name the data directory: --data-dir=DIR, or an " \
    "absolute path in [millrace] data_dir"

/* Like tool_fail for a file of a pipeline. Adds this remedy if the file is missing, and both users if this user may not
 * read it. */
int tool_fail_at(int status, const char *path, const char *text);

/* Returns 0 if a pipeline has run in the directory, or EX_CONFIG after printing the error. Without
 * tool_check_data_dir, a tool would ask the default ports, which may belong to another pipeline. */
int tool_check_data_dir(const char *data_dir);

/* Flushes standard output. Returns false if that failed. A reader that has closed its pipe is not an error of the subcommand. */
bool tool_show(void);
/* Flushes standard output at the end of a subcommand. Returns `status`, or EX_IOERR after printing the error. */
int tool_flush(int status);

/* Returns 0, or EX_NOINPUT after printing that the file is missing, unreadable or a directory. */
int tool_check_input(const char *path);

struct slice_reader;
/* Opens a sealed or open slice. Returns an enum slice_result. */
int tool_open_slice(const char *path, struct slice_reader **out, struct error *error);

/* Returns the path of a daemon: ../libexec/millrace/NAME, relative to the directory of the running program. The
 * caller frees the path. */
char *tool_program(const char *name);
/* A command line. argv ends with NULL, and argv[0] is the path of the program. */
struct tool_args {
    char **argv;
    size_t n;
};
struct tool_args tool_args_for(const char *name);
void tool_add_arg(struct tool_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tool_free_args(struct tool_args *a);

/* Starts a program and frees its arguments. The program gets `fd` as descriptor `as`, unless `fd` is -1, and is
 * killed when this process ends. Returns its pid, or -1 after printing the error. */
pid_t tool_start(struct tool_args *a, int fd, int as);
/* Waits for the end of a program, and returns the exit status. EX_OSERR: the program could not be run. EX_TEMPFAIL,
 * after printing the error: a signal ended the program. */
int tool_wait(pid_t pid);

/* Appends the directories that the compactor of a pipeline needs and that [compactor] does not set. */
void tool_add_compactor_paths(struct tool_args *a, const struct config *config, const char *data_dir);

/* True if the api answers for the sections [cell NAME]. */
bool tool_has_cells(const struct config *config);
/* Returns the section [cell NAME] after `cell`, or the first one after NULL. Returns NULL after the last one. */
const struct config_section *tool_next_cell(const struct config *config, const struct config_section *cell);
struct json_doc;
/* Asks a daemon of a cell, at the setting DAEMON_url of the section. Returns the parsed reply, or NULL with the error. The
 * section must have the setting. */
struct json_doc *tool_ask_cell(
    const struct config_section *cell, const char *daemon, const char *target, struct error *error);
/* Calls `fn` for each of the n items of a list, `size` bytes each, in threads. So daemons that hang cost one timeout. */
void tool_each(void *list, size_t n, size_t size, void *(*fn)(void *item));
/* True if the api of `millrace up` maps the archive and does not ask sortdb. This is the default if sortdb serves
 * the archive. The compactor then also waits for the api. */
bool tool_api_reads_archive(const struct config *config, bool runs_sortdb);

/* The addresses and states of a pipeline's daemons. A running `millrace up` keeps them in DATA_DIR/run.json.
 * Without that file, addresses come from the configuration and its defaults, and states are unknown. */
struct pipeline_daemon {
    char *url;         /* "http://127.0.0.1:8088" or "unix:PATH"; NULL: the daemon does not listen */
    char *state;       /* "ready", "starting", ...; NULL: unknown */
    char *status_text; /* "ready", or why the daemon is not ready; NULL: unknown */
    bool is_off;       /* the pipeline runs without the daemon */
    int64_t pid;       /* 0: the daemon is not running */
    unsigned restarts;
    char *last_error;               /* the last logged error, or how the process ended; NULL: none */
    char *remedy;                   /* remedy that the daemon has logged with last_error; NULL: none */
    int64_t error_at, restarted_at; /* Unix seconds; 0: never */
};

/* File of the data directory with the error of the latest `millrace up`, if it started no daemon. */
#define PIPELINE_START_ERROR "start-error"

#define PIPELINE_DAEMONS (PEERS + 1) /* the daemons of peers[], then the compactor */
const char *pipeline_daemon_name(size_t i);

struct pipeline {
    const struct config *config; /* configuration passed to pipeline_open */
    const char *data_dir;
    bool is_known;          /* this user may read the pipeline's run.json */
    int64_t pid;            /* process of `millrace up`; 0: unknown */
    bool is_here;           /* the process ids of run.json are valid on this host */
    char *denied;           /* "; PATH belongs to user ..." if this user may not read run.json; else NULL */
    char *service;          /* the systemd unit of `millrace up`; NULL: none */
    bool has_ended;         /* `millrace up` has ended or died, or could not start */
    bool was_killed;        /* `millrace up` has ended without saying so */
    int64_t starting;       /* process of a `millrace up` that has not written run.json yet; 0: none */
    int64_t written;        /* time of run.json; 0: unknown */
    char *config_path;      /* configuration file of `millrace up`; NULL: unknown */
    char *end_reason;       /* error with which `millrace up` ended or did not start; NULL: unknown */
    const char *end_remedy; /* the remedy of this error; NULL: unknown */
    int64_t wrong_since;    /* time when `millrace up` refused to reload config_path; 0: not refused */
    uint64_t log_dropped;   /* number of dropped log lines of `millrace up` */
    int64_t disk_at;        /* time when the disk had disk_free free bytes, up to a day ago; 0: unknown */
    int64_t disk_free;
    struct pipeline_daemon daemons[PIPELINE_DAEMONS];
};

/* Reads the state of a pipeline. `config` is borrowed until pipeline_close; NULL: defaults. `data_dir` NULL: the
 * setting [millrace] data_dir, whose default is millrace-data. */
void pipeline_open(struct pipeline *p, const struct config *config, const char *data_dir);
void pipeline_close(struct pipeline *p);
/* True if `millrace up` has ended and no process uses the directories of the pipeline. Another pipeline may then use
 * the addresses. */
bool pipeline_is_stopped(const struct pipeline *p);
/* Returns 0, or EX_TEMPFAIL after printing that the pipeline is stopped. */
int tool_check_runs(const struct pipeline *p);
/* Reads the configured token of a daemon. Sets *token to NULL if there is none; the caller frees the token. Returns 0, or
 * an exit status with the error. */
int pipeline_token(const struct pipeline *p, const char *daemon, char **token, struct error *error);
/* Sends a request to a daemon, with its token. Returns the parsed reply of status 200 or 202, or NULL with the
 * error, which may be NULL. */
struct json_doc *pipeline_ask(
    const struct pipeline *p, const char *daemon, const struct http_call_spec *call, struct error *error);
/* Returns the URL of a peer, valid until pipeline_close. */
const char *pipeline_url(const struct pipeline *p, const char *daemon);

#endif
