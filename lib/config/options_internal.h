/* options_internal: declarations that the files of options share. options_value.c parses values, options_print.c prints, and
 * options.c, on top of both, reads argv, the environment and the file. */
#ifndef MILLRACE_OPTIONS_INTERNAL_H
#define MILLRACE_OPTIONS_INTERNAL_H

#include "config/options.h"

struct option_value {
    const struct option_row *row;
    bool is_set; /* from a source or the default */
    char *text;  /* as written */
    char *source;
    int64_t number;                   /* INT, SIZE, DURATION (ms), BOOL (0, 1), SYNC (-1: never) */
    int rank;                         /* option_rank of the source; the highest wins */
    const char *shown, *shown_source; /* of options_show_as */
};

enum option_rank { RANK_UNSET, RANK_DEFAULT, RANK_FILE, RANK_ENVIRONMENT, RANK_COMMAND_LINE };

struct options {
    const struct options_spec *spec;
    struct option_value *values;
    size_t n_values;
    char **operands;
    size_t n_operands;
    struct config *config;
    char **kept; /* texts of options_keep */
    size_t n_kept;
    bool check_only;
    char error[600];
};

/* Appends the placeholder of a value for --help: "N", "SIZE", "a|b". */
void option_value_describe(const struct option_row *row, struct buf *out);

/* Appends the bounds: "100ms..1h", "1..65535", "1..64 bytes". */
void option_value_bounds(const struct option_row *row, struct buf *out);
/* The unit of a bare number: "ms" or "s". */
const char *option_bare_unit(const struct option_row *row);

/* Copies a text. The copy lives as long as the options. */
const char *options_keep(struct options *o, struct bytes text);

/* Sets the value and source that --check-config prints for an unset setting with a derived value. The texts live as long as the
 * options. */
void options_show_as(struct options *o, const char *name, const char *text, const char *source);

/* The settings of every program. */
extern const struct option_row options_common_rows[];

void options_print_help(const struct options *o, struct buf *out);

#endif
