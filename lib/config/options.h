/* options: a program's settings. A table describes them; argv, the environment and the configuration file set them; --help and
 * --check-config print them.
 *
 * The first of these sources that has a value wins, here for `max_depth` of `simplequeue`:
 *     --max-depth=N or --max_depth N        on the command line
 *     MILLRACE_SIMPLEQUEUE_MAX_DEPTH        in the environment
 *     max_depth = N under [simplequeue]     in the file of --config or MILLRACE_CONFIG;
 *                                           with --instance=NAME, under [simplequeue NAME]
 *     the default in the table
 *
 * 1. Values from every source must have the type and bounds of the table. An error names the source: file and line, variable, or
 *    option.
 * 2. Unknown settings in the program's own section, unknown options, and unknown variables MILLRACE_<PROGRAM>_... are errors.
 * 3. A program does not check the sections of other programs.
 *
 * Every program has --help, --version, --config, --instance and --check-config. daemon.c has the settings of all daemons. */
#ifndef MILLRACE_OPTIONS_H
#define MILLRACE_OPTIONS_H

#include "base/bytes.h"
#include "config/config.h"

enum option_type {
    OPTION_BOOL,     /* --x, --no-x, --x=true|false|yes|no|on|off|1|0 */
    OPTION_INT,      /* decimal, within min..max */
    OPTION_SIZE,     /* bytes: 64M; within min..max */
    OPTION_DURATION, /* 500ms, 5s, 2m, 1h, 7d; a bare number is in the row's unit; the value is in ms */
    OPTION_STRING,   /* any text of min..max bytes; max 0: of any length */
    OPTION_CHOICE,   /* one of `choices`, separated by '|' */
    OPTION_SYNC,     /* `never`, or milliseconds (0: sync each commit); read with options_sync */
};

#define OPTION_WARN_OBSOLETE 1 /* bitly's setting, now left to the service manager: logs a warning */
#define OPTION_COMMAND_LINE 2  /* not allowed in the file: --config, --daemon */

struct option_row {
    const char *name; /* with underscores */
    enum option_type type;
    const char *fallback; /* the default as text; NULL: unset */
    int64_t min, max;
    const char *unit;    /* for --help, such as "bytes"; of a DURATION: "ms" or "s", for bare numbers */
    const char *choices; /* OPTION_CHOICE */
    const char *help;    /* one line */
    unsigned flags;
    char letter;       /* -p, or 0 */
    const char *alone; /* the value of --x without `=`; NULL: --x requires a value */
};

/* Exit statuses, from sysexits.h: 64 EX_USAGE, 75 EX_TEMPFAIL, 78 EX_CONFIG. */
enum options_result {
    OPTIONS_OK,
    OPTIONS_EXIT,   /* --help or --version was printed to stdout: exit 0 */
    OPTIONS_USAGE,  /* exit 64; the message is in options_error */
    OPTIONS_CONFIG, /* exit 78; likewise */
};

struct options;
#define OPTIONS_TABLES_MAX 4

struct options_spec {
    const char *program;  /* "simplequeue": section, environment prefix, --help's first word */
    const char *usage;    /* the command; NULL: "millrace PROGRAM" */
    const char *summary;  /* one line for --help */
    const char *operands; /* for --help, "FILE..."; NULL: operands are errors */
    const char *more;     /* the end of --help, whole lines; NULL: nothing */
    const char *sections; /* a further kind of section for --check-config to print; NULL: none */
    const struct option_row
        *rows[OPTIONS_TABLES_MAX]; /* tables, each ended by a row whose name is NULL; NULL ends the list */
};

/* Never exits. Prints only if the result is OPTIONS_EXIT. Always sets *out; free it with options_free. */
enum options_result options_parse(
    const struct options_spec *spec, int argc, char **argv, struct options **out);
const char *options_error(const struct options *o);
void options_free(struct options **o);

/* The current value. The name must be a row of the right type (asserted). Strings live until options_free; NULL if unset. */
bool options_bool(const struct options *o, const char *name);
int64_t options_int(const struct options *o, const char *name);        /* INT, SIZE (bytes), DURATION (ms) */
const char *options_string(const struct options *o, const char *name); /* STRING, CHOICE */
const char *options_text(const struct options *o, const char *name); /* STRING, CHOICE; NULL also if empty */
/* OPTION_SYNC: -1 for `never`, else milliseconds. */
int64_t options_sync(const struct options *o, const char *name);
/* The source of the current value: "default", "FILE:LINE", "$MILLRACE_...", "--option" or "unset". */
const char *options_source(const struct options *o, const char *name);
bool options_is_set(const struct options *o, const char *name); /* the value is not the default */

/* Sets a default that depends on another setting. An explicit value stays. 0, or -1 with the error if out of bounds. */
int options_set_default(struct options *o, const char *name, int64_t number, struct config_error *error);

/* Copies a text. The copy lives as long as the options. */
const char *options_keep(struct options *o, struct bytes text);
/* Sets the value and source that --check-config prints for an unset setting with a derived value. The texts live as long as the
 * options. */
void options_show_as(struct options *o, const char *name, const char *text, const char *source);

size_t options_operands(const struct options *o, char ***operands);
/* The configuration file, or NULL. It lives as long as the options. */
const struct config *options_config(const struct options *o);
/* Stores "SOURCE: NAME: message", or "NAME: message" for an unset option. Returns -1, for `return options_refuse(...)`. */
int options_refuse(const struct options *o, const char *name, struct config_error *error, const char *fmt,
    ...) __attribute__((format(printf, 4, 5)));
/* Checks a setting that names a stream, queue or reader. A setting without a default may be empty. 0, or -1 with the error. */
int options_check_name(const struct options *o, const char *name, struct config_error *error);

/* Parses `text` by the type and bounds of the row, for sections such as [stream NAME]. 0, or -1 with the reason, worded
 * to follow the name of the setting ("is not a size ..."). */
int option_value_read(
    const struct option_row *row, const char *text, int64_t *number, char *why, size_t why_size);

/* Appends the current settings as --check-config prints them: `name = value  ; source` lines. */
void options_print_settings(const struct options *o, struct buf *out);
void options_show_settings(const struct options *o); /* on standard output, with the further sections */
/* Whether --check-config was given. The program then checks its other input, prints the settings and exits 0. */
bool options_check_only(const struct options *o);

#endif
