/* options: a program's settings. A table describes the settings. The values of settings come from argv, the environment
 * and the configuration file. --help prints the table, and --check-config prints the values.
 *
 * A setting gets its value from the first source in this list that has a value. The example is the setting `max_depth`
 * of the program `simplequeue`:
 *     --max-depth=N or --max_depth N        on the command line
 *     MILLRACE_SIMPLEQUEUE_MAX_DEPTH        in the environment
 *     max_depth = N under [simplequeue]     in the file of --config, or of config_default;
 *                                           with --instance=NAME, under [simplequeue NAME]
 *     an inherited setting                  in the same file, under another section (option_row.inherits)
 *     the default in the table
 *
 * 1. A value from any source must have the row's type and be within the row's bounds. Errors name the source of the
 *    value: file and line, variable, or option.
 * 2. Unknown options, unknown variables MILLRACE_<PROGRAM>_... and unknown settings in the program's own section are
 *    errors. The settings in other programs' sections are not checked.
 *
 * Every program has the options --help, --version, --config, --instance and --check-config. Every daemon also has the
 * settings of daemon_settings.c. */
#ifndef MILLRACE_OPTIONS_H
#define MILLRACE_OPTIONS_H

#include "base/bytes.h"
#include "config/config.h"

enum option_type {
    OPTION_BOOL,     /* --x, --no-x, --x=true|false|yes|no|on|off|1|0 */
    OPTION_INT,      /* a decimal number from min to max */
    OPTION_SIZE,     /* a number of bytes from min to max, such as 512 or 64M */
    OPTION_DURATION, /* 500ms, 5s, 2m, 1h, 7d, or a number in the row's unit; stored in ms */
    OPTION_STRING,   /* a text of min to max bytes; max 0: a text of any length */
    OPTION_CHOICE,   /* one of the texts in `choices`, which are separated by '|' */
    OPTION_SYNC,     /* `never`, or milliseconds (0: sync each commit); read with options_sync */
};

#define OPTION_WARN_OBSOLETE 1 /* the service manager replaces the setting: using it logs a warning */
#define OPTION_COMMAND_LINE 2  /* not allowed in the configuration file, such as --config and --daemon */
#define OPTION_FIRST 4         /* inherits only the first word of a list */
#define OPTION_LIST 8          /* the values of a repeated --x are joined by spaces */
#define OPTION_OPERAND 16      /* a setting with `means` whose value becomes an operand of the program */

struct option_row {
    const char *name; /* name of the setting, with underscores */
    enum option_type type;
    const char *fallback; /* the default as text; NULL: the setting is unset, and a BOOL is false */
    int64_t min, max;
    const char *unit; /* unit in --help, such as "bytes"; a DURATION's unit of a bare number: "ms" or "s" */
    const char *choices; /* the allowed texts of an OPTION_CHOICE */
    const char *help;    /* description in one line */
    unsigned flags;
    char letter;       /* short form of the option, such as 'p' for -p; 0: none */
    const char *alone; /* the value of --x without `=`; NULL: --x requires a value */
    /* `inherits` names another setting whose value is this row's default. The setting is looked up in the section `of`,
     * unless `of` is NULL, and then in [millrace]. A file or name that several daemons need is therefore written only once. X_token_file inherits
     * nothing if the program's own section sets X_url, because a token must not be sent to another address. */
    const char *inherits, *of;
    /* The settings, separated by spaces, that this setting of bitly's simplehttp sets. The list "drop method=GET" sets
     * `drop` to the value of this setting and `method` to GET. An empty list: this setting has no effect. Using this
     * setting logs a warning. If one source sets a setting to two different values, parsing fails. NULL: this setting
     * is not from simplehttp. */
    const char *means;
    /* This option has an effect only if a setting in `needs`, and no setting in `excludes`, is active. `|` separates
     * the settings of a list. A setting is active if its value is set and is not false, 0 or "". On the command line
     * an option without effect is refused. NULL: no condition. */
    const char *needs, *excludes;
};

/* Rows of a table. Further members of the row may follow the help: SETTING_STRING("stream", "stream to read", .fallback =
 * "clicks"). FALLBACK may be NULL. */
/* clang-format off */
#define SETTING_BOOL(NAME, HELP, ...) {.name = (NAME), .type = OPTION_BOOL, .help = HELP, __VA_ARGS__}
#define SETTING_STRING(NAME, HELP, ...) {.name = (NAME), .type = OPTION_STRING, .help = HELP, __VA_ARGS__}
#define SETTING_CHOICE(NAME, FALLBACK, CHOICES, HELP, ...) \
    {.name = (NAME), .type = OPTION_CHOICE, .fallback = (FALLBACK), .choices = (CHOICES), .help = HELP, __VA_ARGS__}
#define SETTING_INT(NAME, FALLBACK, MIN, MAX, HELP, ...) \
    {.name = (NAME), .type = OPTION_INT, .fallback = (FALLBACK), .min = (MIN), .max = (MAX), .help = HELP, __VA_ARGS__}
#define SETTING_SIZE(NAME, FALLBACK, MIN, MAX, HELP, ...) \
    {.name = (NAME), .type = OPTION_SIZE, .fallback = (FALLBACK), .min = (MIN), .max = (MAX), .unit = "bytes", .help = HELP, __VA_ARGS__}
#define SETTING_DURATION(NAME, FALLBACK, MIN, MAX, UNIT, HELP, ...) \
    {.name = (NAME), .type = OPTION_DURATION, .fallback = (FALLBACK), .min = (MIN), .max = (MAX), .unit = (UNIT), .help = HELP, __VA_ARGS__}
/* clang-format on */

#define OPTION_INHERITS_TOKEN(DAEMON) .inherits = "auth_token_file", .of = (DAEMON)

/* Exit statuses, from sysexits.h: 64 EX_USAGE, 75 EX_TEMPFAIL, 78 EX_CONFIG. */
enum options_result {
    OPTIONS_OK,
    OPTIONS_EXIT,   /* --help or --version was printed to stdout: exit 0 */
    OPTIONS_USAGE,  /* the command line is wrong (options_error): exit 64 */
    OPTIONS_CONFIG, /* the environment or the file is wrong (options_error): exit 78 */
};

struct options;
#define OPTIONS_TABLES_MAX 4

struct options_spec {
    const char *
        program; /* such as "simplequeue": the section, the prefix of the environment variables, and the name in --help */
    const char *usage;    /* the command in --help; NULL: "millrace PROGRAM" */
    const char *summary;  /* description of the program in one line, for --help */
    const char *operands; /* the operands in --help, such as "FILE..."; NULL: operands are errors */
    const char *settings; /* the section in --help; NULL: `program` */
    const char *more;     /* whole lines that --help prints last; NULL: nothing */
    bool is_tool;         /* users type the command line: an address there inherits no token */
    const char
        *sections; /* further kinds of sections that --check-config prints, separated by spaces; NULL: none */
    const struct option_row
        *rows[OPTIONS_TABLES_MAX]; /* tables; a row with a NULL name ends each table; NULL ends the list */
};

/* Parses all sources. Never exits, and prints only if the result is OPTIONS_EXIT. Always sets *out, which the caller
 * frees with options_free. */
enum options_result options_parse(
    const struct options_spec *spec, int argc, char **argv, struct options **out);
const char *options_error(const struct options *o);
void options_free(struct options **o);

/* The functions from options_bool to options_sync return the current value of a setting. The table must have a row with
 * this name and type (asserted). A string is valid until options_free. The string of an unset setting is NULL. */
bool options_bool(const struct options *o, const char *name);
int64_t options_int(const struct options *o, const char *name);        /* INT, SIZE (bytes), DURATION (ms) */
const char *options_string(const struct options *o, const char *name); /* STRING, CHOICE */
/* Like options_string, but returns NULL also for an empty value. */
const char *options_text(const struct options *o, const char *name);
/* Returns -1 for an OPTION_SYNC with the value `never`, otherwise milliseconds. */
int64_t options_sync(const struct options *o, const char *name);
/* The source of the current value: "default", "FILE:LINE", "$MILLRACE_...", "--option" or "unset". */
const char *options_source(const struct options *o, const char *name);
/* True if a source has set the value. False for the default. */
bool options_is_set(const struct options *o, const char *name);
/* True if the conditions in the row's `needs` and `excludes` are met. */
bool options_has_effect(const struct options *o, const char *name);

/* Sets a default that depends on another setting, unless a source has set the value. Returns 0, or -1 with the error if
 * the default is out of bounds. */
int options_set_default(struct options *o, const char *name, int64_t number, struct error *error);
/* If no configuration was read, reads this file and takes inherited values from its sections, but no settings from the
 * program's own section. A file that cannot be read changes nothing. */
void options_adopt(struct options *o, const char *path);
/* Sets a default that is a text, unless a source has set the value. --check-config prints `source` as the source. */
int options_inherit(
    struct options *o, const char *name, const char *text, const char *source, struct error *error);

/* Replaces the text of a value that a source has set, for example by the same address in another form. The recorded
 * source does not change. Returns 0, or -1 with the error. */
int options_rewrite(struct options *o, const char *name, const char *text, struct error *error);

/* Copies a text. The copy is valid until options_free. */
const char *options_keep(struct options *o, struct bytes text);
/* Sets the value and source that --check-config prints for an unset setting whose value is computed from other
 * settings. `text` and `source` must be valid until options_free. */
void options_show_as(struct options *o, const char *name, const char *text, const char *source);

size_t options_operands(const struct options *o, char ***operands);
/* Returns the configuration file, valid until options_free, or NULL if the program reads no file. */
const struct config *options_config(const struct options *o);
/* Stores the error "--OPTION: message", "SOURCE: NAME: message", or for an unset setting "NAME: message". Returns
 * -1. */
int options_refuse(const struct options *o, const char *name, struct error *error, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Checks that the value is a valid name of a stream, queue or reader. A setting without a default may also be empty.
 * Returns 0, or -1 with the error. */
int options_check_name(const struct options *o, const char *name, struct error *error);

/* Parses `text` by the row's type and bounds, for sections such as [stream NAME]. Returns 0, or -1 with an error such
 * as "is not a size ...". The caller inserts the name of the setting before this error. */
int option_value_read(const struct option_row *row, const char *text, int64_t *number, struct error *error);

/* Appends the current settings as --check-config prints them: one line `name = value ; source` per setting. */
void options_print_settings(const struct options *o, struct buf *out);
/* Prints the current settings and the sections of the kind spec->sections on standard output. */
void options_show_settings(const struct options *o);
/* True if --check-config is set. With --check-config, a program must check its other input, print the settings and exit
 * with 0. */
bool options_check_only(const struct options *o);

#endif
