/* options: a program's settings. A table describes the settings. Their values come from argv, the environment and the
 * configuration file. --help and --check-config print them.
 *
 * A setting gets its value from the first of these sources that has a value. The example is `max_depth` of
 * `simplequeue`:
 *     --max-depth=N or --max_depth N        on the command line
 *     MILLRACE_SIMPLEQUEUE_MAX_DEPTH        in the environment
 *     max_depth = N under [simplequeue]     in the file of --config, or of config_default;
 *                                           with --instance=NAME, under [simplequeue NAME]
 *     an inherited setting                  in the same file, under another section (option_row.inherits)
 *     the default in the table
 *
 * 1. A value must have the row's type and bounds, whatever its source. Errors name file and line, variable, or
 *    option.
 * 2. Unknown settings in the program's own section, options and variables MILLRACE_<PROGRAM>_... are errors. Other
 *    sections are not checked.
 *
 * Every program has the options --help, --version, --config, --instance and --check-config. daemon.c adds the
 * settings that all daemons have. */
#ifndef MILLRACE_OPTIONS_H
#define MILLRACE_OPTIONS_H

#include "base/bytes.h"
#include "config/config.h"

enum option_type {
    OPTION_BOOL,     /* --x, --no-x, --x=true|false|yes|no|on|off|1|0 */
    OPTION_INT,      /* decimal, within min..max */
    OPTION_SIZE,     /* bytes: 64M; within min..max */
    OPTION_DURATION, /* 500ms, 5s, 2m, 1h, 7d, or a number in the row's unit; stored in ms */
    OPTION_STRING,   /* any text of min..max bytes; max 0: of any length */
    OPTION_CHOICE,   /* one of `choices`, separated by '|' */
    OPTION_SYNC,     /* `never`, or milliseconds (0: sync each commit); read with options_sync */
};

#define OPTION_WARN_OBSOLETE 1 /* bitly's setting that the service manager replaces: logs a warning */
#define OPTION_COMMAND_LINE 2  /* not allowed in the file: --config, --daemon */
#define OPTION_FIRST 4         /* inherits only the first name of a list */
#define OPTION_LIST 8          /* the values of a repeated --x are joined by spaces */
#define OPTION_OPERAND 16      /* with `means`: the value is an operand */

struct option_row {
    const char *name; /* with underscores */
    enum option_type type;
    const char *fallback; /* the default as text; NULL: unset, and false for a BOOL */
    int64_t min, max;
    const char *unit;    /* for --help, such as "bytes"; DURATION: the unit of a bare number, "ms" or "s" */
    const char *choices; /* OPTION_CHOICE */
    const char *help;    /* one line */
    unsigned flags;
    char letter;       /* -p, or 0 */
    const char *alone; /* the value of --x without `=`; NULL: --x requires a value */
    /* The setting that is its default: `inherits` of the section [of] (NULL: none), or else of [millrace]. So a
     * name or file that several daemons need is written once. X_token_file
     * inherits nothing if X_url is set in the own section: a token is not sent to another address. */
    const char *inherits, *of;
    /* For a setting of bitly's simplehttp that has a better name here: the settings that it sets, separated by spaces. "drop" gets its
     * value, "method=GET" the value GET; "": none. Using it logs a warning. Two settings of one source that set different values are an
     * error. NULL: not such a setting. */
    const char *means;
    /* For an option that has an effect only with, or only without, others: `|` separates the settings, and a setting counts once it is
     * set to anything but false, 0 or "". On the command line, the option without effect is refused. NULL: has always an effect. */
    const char *needs, *excludes;
};

#define OPTION_INHERITS_TOKEN(DAEMON) .inherits = "auth_token_file", .of = (DAEMON)

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
    bool is_tool;         /* a person writes its command line: an address there gets no inherited token */
    const char *sections; /* a further kind of section that --check-config prints; NULL: none */
    const struct option_row
        *rows[OPTIONS_TABLES_MAX]; /* tables; a row with a NULL name ends each table; NULL ends the list */
};

/* Never exits. Prints only if the result is OPTIONS_EXIT. Always sets *out; free it with options_free. */
enum options_result options_parse(
    const struct options_spec *spec, int argc, char **argv, struct options **out);
const char *options_error(const struct options *o);
void options_free(struct options **o);

/* These functions return the current value. The table must have a row with this name and this type (asserted). A
 * string is valid until options_free, and NULL if the setting is unset. */
bool options_bool(const struct options *o, const char *name);
int64_t options_int(const struct options *o, const char *name);        /* INT, SIZE (bytes), DURATION (ms) */
const char *options_string(const struct options *o, const char *name); /* STRING, CHOICE */
const char *options_text(const struct options *o, const char *name); /* STRING, CHOICE; NULL also if empty */
/* OPTION_SYNC: -1 for `never`, else milliseconds. */
int64_t options_sync(const struct options *o, const char *name);
/* The source of the current value: "default", "FILE:LINE", "$MILLRACE_...", "--option" or "unset". */
const char *options_source(const struct options *o, const char *name);
bool options_is_set(const struct options *o, const char *name);     /* the value is not the default */
bool options_has_effect(const struct options *o, const char *name); /* by `needs` and `excludes` */

/* Sets a default that depends on another setting. An explicit value is kept. Returns 0, or -1 with the error if the
 * default is out of bounds. */
int options_set_default(struct options *o, const char *name, int64_t number, struct error *error);
/* The same for a text. --check-config prints `source`. */
int options_inherit(
    struct options *o, const char *name, const char *text, const char *source, struct error *error);

/* Replaces the text of a set setting by the same in another form. The source remains. Returns 0, or -1 with the error. */
int options_rewrite(struct options *o, const char *name, const char *text, struct error *error);

/* Copies a text. The copy is valid until options_free. */
const char *options_keep(struct options *o, struct bytes text);
/* For an unset setting whose value follows from others: sets the value and source that --check-config prints. Both
 * texts must be valid until options_free. */
void options_show_as(struct options *o, const char *name, const char *text, const char *source);

size_t options_operands(const struct options *o, char ***operands);
/* The configuration file, valid until options_free; NULL if there is none. */
const struct config *options_config(const struct options *o);
/* Stores the error "--OPTION: message", "SOURCE: NAME: message", or "NAME: message" if it is unset. Returns -1. */
int options_refuse(const struct options *o, const char *name, struct error *error, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Checks that the setting is a valid name of a stream, queue or reader. If the table has no default, the setting may
 * also be empty. Returns 0, or -1 with the error. */
int options_check_name(const struct options *o, const char *name, struct error *error);

/* Parses `text` by the type and bounds of the row, for sections such as [stream NAME]. Returns 0, or -1 with the
 * error, such as "is not a size ...". The caller puts the name of the setting before the reason. */
int option_value_read(const struct option_row *row, const char *text, int64_t *number, struct error *error);

/* Appends the current settings in the form that --check-config prints: one line `name = value ; source` each. */
void options_print_settings(const struct options *o, struct buf *out);
void options_show_settings(const struct options *o); /* on standard output, with spec->sections */
/* True if --check-config is set. The program must then check its other input, print the settings and exit with 0. */
bool options_check_only(const struct options *o);

#endif
