/* options: one table describes a program's settings; argv, the environment and the configuration file all
 * fill it, --help and --check-config print it.
 *
 * A setting `max_depth` of the daemon `simplequeue` comes from, the first that has it:
 *     --max-depth=N or --max_depth N        on the command line
 *     MILLRACE_SIMPLEQUEUE_MAX_DEPTH        in the environment
 *     max_depth = N under [simplequeue]     in the file named by --config (or MILLRACE_CONFIG);
 *                                           with --instance=NAME, under [simplequeue NAME]
 *     the table's default
 *
 * 1. Values are checked against the table's type and bounds wherever they come from; what is refused is
 *    named with its source (file and line, variable, or option) and the bounds.
 * 2. An unknown setting in the program's own section, an unknown option, an option without its value or a
 *    value for one that takes none is an error. MILLRACE_<DAEMON>_<WHAT IS NO SETTING> is an error too.
 * 3. Sections of other daemons are not judged here (each judges its own).
 * 4. After options_parse every value is readable until options_free.
 *
 * The table's rows are static data. Every program has --help, --version, --config, --instance and
 * --check-config beside its own; the rows every daemon has are in daemon.c.
 */
#ifndef MILLRACE_OPTIONS_H
#define MILLRACE_OPTIONS_H

#include "base/bytes.h"
#include "config/config.h"

enum option_type {
    OPTION_BOOL,     /* --x, --no-x, --x=true|false|yes|no|on|off|1|0 */
    OPTION_INT,      /* decimal, within min..max */
    OPTION_SIZE,     /* bytes: 64M; within min..max */
    OPTION_DURATION, /* milliseconds inside; 500ms, 5s, 2m, 1h, 7d; a bare number is in the row's unit */
    OPTION_STRING,   /* any text; min..max bound its length when max is not 0 */
    OPTION_CHOICE,   /* one of `choices`, separated by '|' */
    OPTION_SYNC,     /* `never`, or milliseconds (0: sync each commit); read with options_sync */
};

#define OPTION_WARN_OBSOLETE 1 /* accepted for bitly's command lines; warns that a service manager does it */
#define OPTION_COMMAND_LINE 2  /* not in the file (--config itself, --daemon) */

struct option_row {
    const char *name; /* with underscores */
    enum option_type type;
    const char *fallback; /* the default as it would be written, or NULL: unset */
    int64_t min, max;
    const char *unit; /* for --help: "ms", "bytes"; for a DURATION the unit of a bare number: "ms" or "s" */
    const char *choices; /* OPTION_CHOICE */
    const char *help;    /* one line */
    unsigned flags;
    char letter;       /* -p, or 0 */
    const char *alone; /* what --x means without a value, which then only an = brings; NULL: it needs one */
};

/* Exit statuses, from sysexits.h: 64 EX_USAGE, 75 EX_TEMPFAIL, 78 EX_CONFIG. */
enum options_result {
    OPTIONS_OK,
    OPTIONS_EXIT,   /* --help or --version was asked for and printed to stdout: exit 0 */
    OPTIONS_USAGE,  /* exit 64; the message is in options_error */
    OPTIONS_CONFIG, /* exit 78; likewise */
};

struct options;
#define OPTIONS_TABLES_MAX 4

struct options_spec {
    const char *program;  /* "simplequeue": section, environment prefix, --help's first word */
    const char *usage;    /* what people type to run it; NULL: "millrace PROGRAM" */
    const char *summary;  /* one line for --help */
    const char *operands; /* for --help, "FILE..."; NULL: operands are refused */
    const char *more;     /* the end of --help, whole lines; NULL: nothing */
    const char *sections; /* a kind of sections of the file that --check-config prints too; NULL: none */
    const struct option_row
        *rows[OPTIONS_TABLES_MAX]; /* tables, each ended by a row whose name is NULL; NULL ends the list */
};

/* Never exits, prints only for OPTIONS_EXIT. *out is set in every case and freed with options_free. */
enum options_result options_parse(
    const struct options_spec *spec, int argc, char **argv, struct options **out);
const char *options_error(const struct options *o);
void options_free(struct options **o);

/* The value in force. The name must be a row of the right type: anything else is a programming error and
 * asserts. Strings live until options_free; an unset string is NULL. */
bool options_bool(const struct options *o, const char *name);
int64_t options_int(const struct options *o, const char *name);        /* INT, SIZE (bytes), DURATION (ms) */
const char *options_string(const struct options *o, const char *name); /* STRING, CHOICE */
const char *options_text(
    const struct options *o, const char *name); /* likewise; NULL also when it is empty */
/* OPTION_SYNC: -1 for `never`, else milliseconds. */
int64_t options_sync(const struct options *o, const char *name);
/* "default", "FILE:LINE", "$MILLRACE_...", "--option": where the value in force came from. */
const char *options_source(const struct options *o, const char *name);
bool options_is_set(const struct options *o, const char *name); /* not from the default */

/* A default that follows from another setting: nothing where the setting was given. 0, or -1 with the error when it is
 * out of bounds. */
int options_set_default(struct options *o, const char *name, int64_t number, struct config_error *error);

size_t options_operands(const struct options *o, char ***operands);
/* The configuration that --config named, or NULL. Lives as long as the options. */
const struct config *options_config(const struct options *o);
/* "SOURCE: NAME: " (the name alone of one that is not set) and what is wrong with its value; returns -1, for `return options_refuse(...)`. */
int options_refuse(const struct options *o, const char *name, struct config_error *error, const char *fmt,
    ...) __attribute__((format(printf, 4, 5)));
/* Of a setting that names a stream, a queue, a reader: 0, or -1 with the error. One without a default may be empty. */
int options_check_name(const struct options *o, const char *name, struct config_error *error);

/* Reads `text` by the row's type and bounds: for sections beside the program's own, such as [stream NAME]. 0, or -1
 * with what is wrong ("is no size (64M)"), without the name. */
int option_value_read(
    const struct option_row *row, const char *text, int64_t *number, char *why, size_t why_size);

/* The settings in force, one `name = value  ; source` a line, as --check-config prints them. */
void options_print_settings(const struct options *o, struct buf *out);
void options_show_settings(const struct options *o); /* the same on standard output */
/* --check-config was given: the program checks what else it reads, prints the settings and exits 0. */
bool options_check_only(const struct options *o);

#endif
