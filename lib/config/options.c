/* This file first parses values, then prints settings, and then reads argv, the environment and the configuration
 * file. */
#include "config/options.h"
#include "base/amount.h"
#include "base/log.h"
#include "base/suggest.h"
#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HELP_COLUMN 30
#define HELP_WIDTH 100

struct option_value {
    const struct option_row *row;
    bool is_set; /* a source or the table's default has set the value */
    char *text;  /* the value as written in its source */
    char *source;
    int64_t number; /* the value of an INT, SIZE, DURATION (ms), BOOL (0, 1) or SYNC (-1: never) */
    int rank;       /* option_rank of the source; the source with the highest rank sets the value */
    const char *shown, *shown_source; /* the texts that options_show_as has set */
};

enum option_rank { RANK_UNSET, RANK_DEFAULT, RANK_INHERITED, RANK_FILE, RANK_ENVIRONMENT, RANK_COMMAND_LINE };

struct options {
    const struct options_spec *spec;
    struct option_value *values;
    size_t n_values;
    char **operands;
    size_t n_operands;
    struct config *config;
    char **kept; /* the copies that options_keep has made */
    size_t n_kept, room_kept;
    struct error error;
};

struct unit {
    const char *name;
    int64_t ms;
};
static const struct unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}};
#define N_UNITS (sizeof duration_units / sizeof *duration_units)

/* Returns the unit, "ms" or "s", that a bare number of this setting has. */
static const char *bare_unit_of(const struct option_row *row)
{
    return row->unit ? row->unit : "ms";
}

/* Appends the duration in the largest unit that divides the duration. */
static void append_duration(struct buf *out, int64_t ms)
{
    const struct unit *u = &duration_units[N_UNITS - 1];
    while (ms % u->ms != 0)
        u--;
    if (ms == 0)
        buf_append_char(out, '0');
    else
        buf_printf(out, "%lld%s", (long long)(ms / u->ms), strcmp(u->name, "min") == 0 ? "m" : u->name);
}

static void append_size(struct buf *out, int64_t bytes)
{
    static const char units[] = "\0KMG";
    size_t u = 0;
    for (; bytes != 0 && bytes % 1024 == 0 && u < 3; u++)
        bytes /= 1024;
    buf_printf(out, "%lld", (long long)bytes);
    if (u > 0)
        buf_append_char(out, units[u]);
}

/* Appends the bounds: "100ms..1h", "1..65535", "64K..1G bytes". */
static void append_bounds(const struct option_row *row, struct buf *out)
{
    if (row->type == OPTION_DURATION) {
        append_duration(out, row->min);
        buf_append_str(out, "..");
        append_duration(out, row->max);
        return;
    }
    if (row->type == OPTION_SIZE) {
        append_size(out, row->min);
        buf_append_str(out, "..");
        append_size(out, row->max);
    } else
        buf_printf(out, "%lld..%lld", (long long)row->min, (long long)row->max);
    if (row->unit)
        buf_printf(out, " %s", row->unit);
}

/* Converts `5s`, `500ms` or a number in bare_unit to milliseconds. */
static bool parse_duration(const char *text, const char *bare_unit, int64_t *ms)
{
    size_t digits = strspn(text, "0123456789");
    int64_t n;
    const char *unit = text[digits] != '\0' ? text + digits : bare_unit;
    if (!bytes_to_i64(bytes_of(text, digits), &n))
        return false;
    for (size_t i = 0; i < N_UNITS; i++)
        if (strcmp(unit, duration_units[i].name) == 0)
            return !__builtin_mul_overflow(n, duration_units[i].ms, ms);
    return false;
}

int option_value_read(const struct option_row *row, const char *text, int64_t *number, struct error *error)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    size_t n = strlen(text);
    const char *wrong = NULL;
    struct buf bounds = {0};
    uint64_t size;
    bool has_bounds = row->min != 0 || row->max != 0;
    *number = 0;
    switch (row->type) {
    case OPTION_BOOL:
        while (*number < 8 && strcmp(text, words[*number]) != 0)
            ++*number;
        if (*number == 8)
            wrong = "is not a boolean (true, false, yes, no, on, off, 1, 0)";
        *number %= 2;
        break;
    case OPTION_INT:
        if (!bytes_to_i64(bytes_str(text), number))
            wrong = "is not an integer";
        break;
    case OPTION_SIZE:
        if (!bytes_to_size(bytes_str(text), &size) || size > INT64_MAX)
            wrong = "is not a size in bytes (512, 64K, 64M, 2G)";
        else
            *number = (int64_t)size;
        break;
    case OPTION_DURATION:
        if (!parse_duration(text, bare_unit_of(row), number))
            wrong = "is not a duration (500ms, 5s, 2m, 1h, 7d)";
        break;
    case OPTION_STRING:
        if (row->max == 0 || ((int64_t)n >= row->min && (int64_t)n <= row->max))
            return 0;
        return error_set(error, -1, "has %zu %s; allowed are %lld..%lld", n, plural(n, "byte", "bytes"),
            (long long)row->min, (long long)row->max);
    case OPTION_CHOICE:
        for (const char *p = row->choices; *p != '\0';) {
            size_t length = strcspn(p, "|");
            if (length == n && memcmp(p, text, n) == 0)
                return 0;
            p += length + (p[length] == '|');
        }
        return error_set(error, -1, "is not one of %s", row->choices);
    case OPTION_SYNC:
        if (strcmp(text, "never") == 0)
            *number = -1;
        else if (!parse_duration(text, "ms", number) || *number > 60000)
            wrong = "is neither `never` nor a number of milliseconds up to 60000 (0: sync each commit)";
        has_bounds = false;
        break;
    }
    if (!wrong && has_bounds && (*number < row->min || *number > row->max)) {
        append_bounds(row, &bounds);
        error_set(error, -1, "is out of bounds: %.*s", (int)bounds.len, bounds.ptr);
        buf_free(&bounds);
        return -1;
    }
    return wrong ? error_set(error, -1, "%s", wrong) : 0;
}

/* The settings of every program. */
static const struct option_row common_rows[] = {
    {.name = "help",
        .type = OPTION_BOOL,
        .flags = OPTION_COMMAND_LINE,
        .letter = 'h',
        .help = "print this help and exit"},
    {.name = "version",
        .type = OPTION_BOOL,
        .flags = OPTION_COMMAND_LINE,
        .letter = 'V',
        .help = "print the version and exit"},
    {.name = "config",
        .type = OPTION_STRING,
        .flags = OPTION_COMMAND_LINE,
        .letter = 'c',
        .help = "configuration file; unset: $MILLRACE_CONFIG, or else the file of the installation"},
    {.name = "instance",
        .type = OPTION_STRING,
        .flags = OPTION_COMMAND_LINE,
        .help = "read the section [PROGRAM NAME] instead of [PROGRAM]"},
    {.name = "check_config",
        .type = OPTION_BOOL,
        .flags = OPTION_COMMAND_LINE,
        .help = "check all settings, print their values and sources, and exit"},
    {.name = NULL},
};

static void append_note(struct buf *notes, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void append_note(struct buf *notes, const char *fmt, ...)
{
    va_list ap;
    buf_append_str(notes, notes->len > 0 ? "; " : " (");
    va_start(ap, fmt);
    buf_vprintf(notes, fmt, ap);
    va_end(ap);
}

/* Appends the words of `text` from column HELP_COLUMN on, in lines of at most HELP_WIDTH. No line begins with a dash,
 * because such a line would look like an option. */
static void append_wrapped(struct buf *out, struct bytes text)
{
    size_t column = HELP_COLUMN;
    for (const char *word = text.ptr, *end = word + text.len; word < end;) {
        const char *stop = memchr(word, ' ', (size_t)(end - word));
        size_t n = (size_t)((stop ? stop : end) - word);
        if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH && *word != '-') {
            buf_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            buf_append_char(out, ' ');
            column++;
        }
        buf_append(out, word, n);
        column += n;
        word += n + 1;
    }
    buf_append_char(out, '\n');
}

static void append_option(const struct option_row *r, struct buf *out)
{
    static const char *const placeholders[] = {[OPTION_INT] = "N",
        [OPTION_SIZE] = "SIZE",
        [OPTION_DURATION] = "TIME",
        [OPTION_STRING] = "TEXT",
        [OPTION_SYNC] = "never|MS"};
    size_t start = out->len;
    if (r->letter != 0)
        buf_printf(out, "  -%c, --", r->letter);
    else
        buf_append_str(out, "      --");
    for (const char *name = r->name; *name != '\0'; name++)
        buf_append_char(out, *name == '_' ? '-' : *name);
    if (r->type != OPTION_BOOL) {
        const char *placeholder = r->type == OPTION_CHOICE ? r->choices : placeholders[r->type];
        buf_printf(out, r->alone ? "[=%s]" : "=%s", placeholder); /* "N", "SIZE", "a|b" */
    }
    if (out->len - start >= HELP_COLUMN) {
        buf_append_char(out, '\n');
        start = out->len;
    }
    while (out->len - start < HELP_COLUMN)
        buf_append_char(out, ' ');
    struct buf text = {0}, notes = {0}, bounds = {0};
    if (r->means && *r->means != '\0')
        append_note(&notes, "bitly's name; use %s", r->means);
    buf_append_str(&text, r->help);
    if (r->alone)
        append_note(&notes, "alone: %s", r->alone);
    if (r->fallback && *r->fallback != '\0')
        append_note(&notes, "default %s", r->fallback);
    bool is_number = r->type == OPTION_INT || r->type == OPTION_SIZE;
    if (r->max != 0 && (r->type == OPTION_DURATION || (is_number && r->max < INT64_C(1) << 50))) {
        append_bounds(r, &bounds);
        append_note(&notes, "%.*s", (int)bounds.len, bounds.ptr);
    }
    if (r->type == OPTION_DURATION)
        append_note(&notes, "a bare number is %sseconds", strcmp(bare_unit_of(r), "ms") == 0 ? "milli" : "");
    buf_append_bytes(&text, buf_bytes(&notes));
    if (notes.len > 0)
        buf_append_char(&text, ')');
    append_wrapped(out, buf_bytes(&text));
    buf_free(&text);
    buf_free(&notes);
    buf_free(&bounds);
}

static void print_help(const struct options *o, struct buf *out)
{
    const struct options_spec *spec = o->spec;
    buf_printf(out, "%s\n\nusage: ", spec->summary);
    if (spec->usage)
        buf_append_str(out, spec->usage);
    else
        buf_printf(out, "millrace %s", spec->program);
    buf_printf(out, " [OPTION...]%s%s\n\n", spec->operands ? " " : "", spec->operands ? spec->operands : "");
    for (size_t t = 0; t < OPTIONS_TABLES_MAX && spec->rows[t]; t++) {
        for (const struct option_row *r = spec->rows[t]; r->name; r++)
            append_option(r, out);
        buf_append_char(out, '\n');
    }
    for (const struct option_row *r = common_rows; r->name; r++)
        append_option(r, out);
    buf_printf(out,
        "\nEvery option is also a setting under [%s] in the configuration file, and an environment\n"
        "variable MILLRACE_<PROGRAM>_<OPTION>. The command line overrides the environment,\n"
        "which overrides the file.\n",
        spec->settings ? spec->settings : spec->program);
    if (spec->more)
        buf_printf(out, "\n%s", spec->more);
}

static void pad_to_source(struct buf *out, size_t start)
{
    while (out->len - start < HELP_COLUMN + 6)
        buf_append_char(out, ' ');
}

void options_print_settings(const struct options *o, struct buf *out)
{
    for (size_t i = 0; i < o->n_values; i++) {
        const struct option_value *v = &o->values[i];
        size_t start = out->len;
        if (v->row->flags & OPTION_COMMAND_LINE || v->row->means)
            continue;
        const char *text = v->is_set ? v->text : "", *source = v->is_set ? v->source : "unset";
        buf_printf(out, "%s = %s", v->row->name, v->shown ? v->shown : text);
        pad_to_source(out, start);
        buf_printf(out, " ; %s\n", v->shown ? v->shown_source : source);
    }
}

static void print_section(const struct config *c, const struct config_section *s, struct buf *out)
{
    buf_printf(out, "[%s%s%s]\n", s->kind, *s->name ? " " : "", s->name);
    for (const struct config_entry *e = s->entries; e < s->entries + s->n_entries; e++) {
        size_t start = out->len;
        buf_printf(out, "%s = %s", e->key, e->value);
        pad_to_source(out, start);
        buf_printf(out, " ; %s:%d\n", c->path, e->line);
    }
}

void options_show_settings(const struct options *o)
{
    const struct config *c = o->config;
    const char *kinds = o->spec->sections ? o->spec->sections : "";
    struct buf out = {0};
    options_print_settings(o, &out);
    for (struct bytes kind; bytes_next_word(&kinds, " ", &kind);)
        for (size_t i = 0; c && i < c->n_sections; i++)
            if (bytes_equal_str(kind, c->sections[i].kind))
                print_section(c, &c->sections[i], &out);
    fwrite(out.ptr, 1, out.len, stdout);
    fflush(stdout);
    buf_free(&out);
}

static struct option_value *find(const struct options *o, const char *name)
{
    for (size_t i = 0; i < o->n_values; i++)
        if (strcmp(o->values[i].row->name, name) == 0)
            return &o->values[i];
    return NULL;
}

/* Returns " (did you mean max_depth?)" if a setting has a similar name, otherwise "". The prefix precedes that name. */
static const char *suggestion(
    const struct options *o, const char *prefix, const char *name, char *out, size_t size)
{
    struct suggest s = suggest_for(name);
    *out = '\0';
    for (size_t i = 0; i < o->n_values; i++)
        suggest_try(&s, o->values[i].row->name);
    if (s.nearest)
        snprintf(out, size, " (did you mean %s%s?)", prefix, s.nearest);
    for (char *c = out; prefix[0] && *c; c++) /* an option has - where a setting has _ */
        *c = *c == '_' ? '-' : *c;
    return out;
}

static char *keep(struct options *o, struct bytes text)
{
    return *ARRAY_ADD(o->kept, o->n_kept, o->room_kept) = bytes_dup(text);
}

const char *options_keep(struct options *o, struct bytes text)
{
    return keep(o, text);
}

static int set(struct options *o, struct option_value *v, const char *text, int rank, const char *source);

/* Sets the settings that row->means lists. */
static int set_meant(
    struct options *o, const struct option_row *row, const char *text, int rank, const char *source)
{
    const char *list = row->means;
    struct bytes word;
    log_warn(*row->means != '\0' ? "setting has a better name" : "setting has no effect",
        LOG_S("setting", row->name), LOG_S("use", row->means), LOG_S("source", source));
    if (row->flags & OPTION_OPERAND)
        o->operands[o->n_operands++] = keep(o, bytes_str(text));
    while (!(row->flags & OPTION_OPERAND) && bytes_next_word(&list, " ", &word)) {
        char *name = keep(o, word), *value = strchr(name, '=');
        struct option_value *v;
        if (value)
            *value++ = '\0';
        v = find(o, name);
        assert(v);
        const char *meant = value ? value : text;
        if (v->rank == rank && !(v->row->flags & OPTION_LIST) && strcmp(v->text, meant) != 0)
            return error_set(
                &o->error, -1, "%s sets %s = %s, but %s sets %s", source, name, meant, v->source, v->text);
        if (set(o, v, meant, rank, source) != 0)
            return -1;
    }
    return 0;
}

static int set(struct options *o, struct option_value *v, const char *text, int rank, const char *source)
{
    struct error why;
    int64_t number = 0;
    if (option_value_read(v->row, text, &number, &why) != 0)
        return strncmp(source, "--", 2) == 0
                   ? error_set(&o->error, -1, "%s=%s %s", source, text, why.text)
                   : error_set(&o->error, -1, "%s: %s = %s %s", source, v->row->name, text, why.text);
    if (rank < v->rank)
        return 0;
    if (v->row->means && rank > RANK_DEFAULT && set_meant(o, v->row, text, rank, source) != 0)
        return -1;
    bool joins = (v->row->flags & OPTION_LIST) && v->rank == rank && rank == RANK_COMMAND_LINE;
    char *kept = joins ? mem_printf("%s %s", v->text, text) : mem_strdup(text);
    free(v->text);
    free(v->source);
    *v = (struct option_value){.row = v->row,
        .is_set = true,
        .text = kept,
        .number = number,
        .source = mem_strdup(source),
        .rank = rank};
    if ((v->row->flags & OPTION_WARN_OBSOLETE) && rank > RANK_DEFAULT)
        log_warn("obsolete setting: use the service manager instead", LOG_S("setting", v->row->name),
            LOG_S("source", source));
    return 0;
}

static void underscored(char *name)
{
    for (; *name != '\0'; name++)
        if (*name == '-')
            *name = '_';
}

static int read_arguments(struct options *o, int argc, char **argv)
{
    bool only_operands = false;
    o->operands = mem_zalloc(((size_t)argc + 2) * sizeof *o->operands);
    for (int at = 1; at < argc; at++) {
        char *arg = argv[at], name[80], shown[90], hint[120];
        const char *value = NULL;
        struct option_value *v = NULL;
        if (only_operands || arg[0] != '-' || arg[1] == '\0') {
            if (!o->spec->operands)
                return error_set(&o->error, -1, "unexpected argument %s", arg);
            o->operands[o->n_operands++] = arg;
            continue;
        }
        if (strcmp(arg, "--") == 0) {
            only_operands = true;
            continue;
        }
        if (arg[1] == '-') {
            size_t n = strcspn(arg + 2, "=");
            if (n >= sizeof name)
                return error_set(&o->error, -1, "unknown option --%.60s...", arg + 2);
            snprintf(name, sizeof name, "%.*s", (int)n, arg + 2);
            snprintf(shown, sizeof shown, "--%s", name);
            underscored(name);
            v = find(o, name);
            if (arg[n + 2] == '=') {
                value = arg + n + 3;
            } else if (!v && strncmp(name, "no_", 3) == 0) {
                v = find(o, name + 3);
                v = v && v->row->type == OPTION_BOOL ? v : NULL;
                value = "false";
            }
            if (!v)
                return error_set(&o->error, -1, "unknown option %s%s", shown,
                    suggestion(o, "--", name, hint, sizeof hint));
        } else {
            snprintf(shown, sizeof shown, "-%c", arg[1]);
            for (size_t i = 0; i < o->n_values && !v; i++)
                v = o->values[i].row->letter == arg[1] ? &o->values[i] : NULL;
            if (!v || (v->row->type == OPTION_BOOL && arg[2] != '\0'))
                return error_set(&o->error, -1, "unknown option %s", arg);
            value = arg[2] != '\0' ? arg + 2 : NULL;
        }
        if (!value)
            value = v->row->type == OPTION_BOOL ? "true" : v->row->alone;
        if (!value && at + 1 < argc)
            value = argv[++at];
        if (!value)
            return error_set(&o->error, -1, "%s needs a value", shown);
        if (set(o, v, value, RANK_COMMAND_LINE, shown) != 0)
            return -1;
    }
    return 0;
}

/* Returns whether the variable begins with MILLRACE_<PROGRAM>_. */
static bool has_prefix(const char *variable, const char *program)
{
    char prefix[80];
    snprintf(prefix, sizeof prefix, "MILLRACE_%s_", program);
    for (char *p = prefix; *p != '\0'; p++)
        *p = (char)toupper((unsigned char)*p);
    return strncmp(variable, prefix, strlen(prefix)) == 0;
}

static int read_environment(struct options *o)
{
    const char *program = o->spec->program;
    char name[80], source[160], hint[120];
    for (char **e = environ; *e != NULL; e++) {
        const char *equals = strchr(*e, '=');
        /* MILLRACE_PUBSUB_FILTERED_PORT belongs to pubsub_filtered, not to pubsub. */
        if (!equals || !has_prefix(*e, program) ||
            (strcmp(program, "pubsub") == 0 && has_prefix(*e, "pubsub_filtered")))
            continue;
        size_t prefix = strlen("MILLRACE_") + strlen(program) + 1, n = (size_t)(equals - *e) - prefix;
        if (n == 0 || n >= sizeof name)
            continue;
        for (size_t i = 0; i < n; i++)
            name[i] = (char)tolower((unsigned char)(*e)[prefix + i]);
        name[n] = '\0';
        snprintf(source, sizeof source, "$%.*s", (int)(equals - *e), *e);
        struct option_value *v = find(o, name);
        if (!v)
            return error_set(&o->error, -1, "%s: %s has no setting %s%s", source, program, name,
                suggestion(o, "", name, hint, sizeof hint));
        if (set(o, v, equals + 1, RANK_ENVIRONMENT, source) != 0)
            return -1;
    }
    return 0;
}

/* True if the operator has set X_url, so that the inherited X_token_file may belong to another address. On the command
 * line of a daemon, X_url comes from `millrace up` and is the address of a daemon of this configuration. */
static bool is_for_another(struct options *o, const struct option_row *row, const struct config_section *own)
{
    char url[80];
    size_t len = strlen(row->name), end = strlen("token_file");
    if (len <= end || strcmp(row->name + len - end, "token_file") != 0)
        return false;
    snprintf(url, sizeof url, "%.*surl", (int)(len - end), row->name);
    const struct option_value *v = find(o, url);
    return v && ((o->spec->is_tool && v->rank > RANK_DEFAULT) || (own && config_entry(own, url)));
}

/* Sets inherited values, which the program's own section may still override. */
static int inherit(struct options *o, const struct config_section *own)
{
    for (size_t i = 0; i < o->n_values; i++) {
        const struct option_row *row = o->values[i].row;
        const char *sections[] = {row->of ? row->of : "millrace", "millrace"};
        const struct config_entry *e = NULL;
        for (size_t k = 0; row->inherits && !e && k < 2; k++)
            e = config_entry(config_section(o->config, sections[k], ""), row->inherits);
        if (!e || is_for_another(o, row, own))
            continue;
        char source[300];
        const char *list = e->value;
        struct bytes first;
        snprintf(source, sizeof source, "%s:%d", o->config->path, e->line);
        bool takes_first = row->flags & OPTION_FIRST && bytes_next_word(&list, ", \t", &first);
        if (set(o, &o->values[i], takes_first ? options_keep(o, first) : e->value, RANK_INHERITED, source) !=
            0)
            return -1;
    }
    return 0;
}

static int read_file(struct options *o)
{
    const char *path = options_string(o, "config");
    const char *instance = options_string(o, "instance");
    char usual[PATH_MAX];
    if (!path && config_default(usual, sizeof usual))
        path = usual;
    if (!path || *path == '\0')
        return !instance ? 0 : error_set(&o->error, -1, "--instance needs --config");
    if (config_read(path, &o->config, &o->error) != 0)
        return -1;
    const struct config_section *s = config_section(o->config, o->spec->program, instance ? instance : "");
    if (inherit(o, s) != 0)
        return -1;
    if (!s)
        return !instance
                   ? 0
                   : error_set(&o->error, -1, "%s has no section [%s %s]", path, o->spec->program, instance);
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct config_entry *e = &s->entries[i];
        char source[300], hint[120], name[80];
        snprintf(source, sizeof source, "%s:%d", o->config->path, e->line);
        snprintf(name, sizeof name, "%s", e->key);
        underscored(name);
        struct option_value *v = find(o, name);
        if (!v && config_place(name))
            return error_set(&o->error, -1, "%s: %s has no setting %s: it belongs in %s", source,
                o->spec->program, e->key, config_place(name));
        if (!v)
            return error_set(&o->error, -1, "%s: %s has no setting %s%s", source, o->spec->program, e->key,
                suggestion(o, "", name, hint, sizeof hint));
        if (v->row->flags & OPTION_COMMAND_LINE)
            return error_set(
                &o->error, -1, "%s: %s is a command-line option, not a setting of the file", source, e->key);
        if (set(o, v, e->value, RANK_FILE, source) != 0)
            return -1;
    }
    return 0;
}

/* Returns the first setting of the list whose value is set and is not false, 0 or "". NULL: no such setting. */
static const struct option_row *find_active(const struct options *o, const char *list)
{
    struct bytes word;
    while (list && bytes_next_word(&list, "|", &word)) {
        for (size_t i = 0; i < o->n_values; i++) {
            const struct option_value *v = &o->values[i];
            bool is_text = v->row->type == OPTION_STRING || v->row->type == OPTION_CHOICE;
            if (bytes_equal_str(word, v->row->name) && v->is_set && (is_text ? *v->text : v->number != 0))
                return v->row;
        }
    }
    return NULL;
}

bool options_has_effect(const struct options *o, const char *name)
{
    const struct option_row *row = find(o, name)->row;
    return (!row->needs || find_active(o, row->needs)) && !find_active(o, row->excludes);
}

/* Appends the name as an option: "--drop-before". */
static void append_dashed(struct buf *out, struct bytes name)
{
    buf_append_str(out, "--");
    for (size_t i = 0; i < name.len; i++)
        buf_append_char(out, name.ptr[i] == '_' ? '-' : name.ptr[i]);
}

/* Refuses options of the command line that have no effect. */
static int check_effects(struct options *o)
{
    for (size_t i = 0; i < o->n_values; i++) {
        const struct option_value *v = &o->values[i];
        const char *needs = v->row->needs;
        struct buf text = {0};
        struct bytes word;
        if (v->rank != RANK_COMMAND_LINE || find_active(o, v->row->name) == NULL ||
            options_has_effect(o, v->row->name))
            continue;
        const struct option_row *other = find_active(o, v->row->excludes);
        append_dashed(&text, bytes_str(v->row->name));
        buf_append_str(&text, other ? " has no effect with " : " needs ");
        if (other)
            append_dashed(&text, bytes_str(other->name));
        for (const char * or = ""; !other && bytes_next_word(&needs, "|", &word); or = " or ") {
            buf_append_str(&text, or);
            append_dashed(&text, word);
        }
        error_set(&o->error, -1, "%.*s", (int)text.len, text.ptr);
        buf_free(&text);
        return -1;
    }
    return 0;
}

enum options_result options_parse(
    const struct options_spec *spec, int argc, char **argv, struct options **out)
{
    struct options *o = *out = mem_zalloc(sizeof *o);
    o->spec = spec;
    const struct option_row *tables[OPTIONS_TABLES_MAX + 1];
    size_t n_tables = 0;
    while (n_tables < OPTIONS_TABLES_MAX && spec->rows[n_tables]) {
        tables[n_tables] = spec->rows[n_tables];
        n_tables++;
    }
    tables[n_tables++] = common_rows;
    for (size_t t = 0; t < n_tables; t++)
        for (const struct option_row *r = tables[t]; r->name; r++) {
            o->values = mem_realloc(o->values, (o->n_values + 1) * sizeof *o->values);
            o->values[o->n_values] = (struct option_value){.row = r};
            const char *fallback = !r->fallback && r->type == OPTION_BOOL ? "false" : r->fallback;
            if (fallback && set(o, &o->values[o->n_values], fallback, RANK_DEFAULT, "default") != 0)
                return OPTIONS_USAGE;
            o->n_values++;
        }
    if (read_arguments(o, argc, argv) != 0)
        return OPTIONS_USAGE;
    struct buf text = {0};
    if (options_bool(o, "help"))
        print_help(o, &text);
    else if (options_bool(o, "version"))
        buf_printf(&text, "%s (millrace) %s\n", spec->program, MILLRACE_VERSION);
    if (text.len > 0) {
        fwrite(text.ptr, 1, text.len, stdout);
        fflush(stdout);
        buf_free(&text);
        return OPTIONS_EXIT;
    }
    if (read_environment(o) != 0 || read_file(o) != 0)
        return OPTIONS_CONFIG;
    return check_effects(o) == 0 ? OPTIONS_OK : OPTIONS_USAGE;
}

void options_adopt(struct options *o, const char *path)
{
    struct error ignored;
    if (!o->config && config_read(path, &o->config, &ignored) == 0)
        (void)inherit(o, NULL);
}

int options_inherit(
    struct options *o, const char *name, const char *text, const char *source, struct error *error)
{
    struct option_value *v = find(o, name);
    assert(v);
    return set(o, v, text, RANK_DEFAULT, source) == 0 ? 0
                                                      : options_refuse(o, name, error, "%s", o->error.text);
}

int options_rewrite(struct options *o, const char *name, const char *text, struct error *error)
{
    struct option_value *v = find(o, name);
    assert(v && v->rank > RANK_DEFAULT);
    char *kept = mem_strdup(text), *source = mem_strdup(v->source); /* `set` frees v->text and v->source */
    int rank = v->rank;
    v->rank = RANK_UNSET; /* makes `set` replace an OPTION_LIST instead of extending it */
    int result = set(o, v, kept, rank, source);
    free(kept);
    free(source);
    return result == 0 ? 0 : options_refuse(o, name, error, "%s", o->error.text);
}

int options_set_default(struct options *o, const char *name, int64_t number, struct error *error)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    return options_inherit(o, name, text, "default", error);
}

const char *options_error(const struct options *o)
{
    return o->error.text;
}

void options_free(struct options **op)
{
    struct options *o = *op;
    if (!o)
        return;
    for (size_t i = 0; i < o->n_values; i++) {
        free(o->values[i].text);
        free(o->values[i].source);
    }
    for (size_t i = 0; i < o->n_kept; i++)
        free(o->kept[i]);
    free(o->kept);
    free(o->values);
    free(o->operands);
    config_free(&o->config);
    free(o);
    *op = NULL;
}

static const struct option_value *must_find(const struct options *o, const char *name, unsigned types)
{
    const struct option_value *v = find(o, name);
    assert(v && (types & (1u << v->row->type)));
    (void)types;
    return v;
}

bool options_bool(const struct options *o, const char *name)
{
    return must_find(o, name, 1u << OPTION_BOOL)->number != 0;
}

int64_t options_int(const struct options *o, const char *name)
{
    return must_find(o, name, 1u << OPTION_INT | 1u << OPTION_SIZE | 1u << OPTION_DURATION)->number;
}

const char *options_string(const struct options *o, const char *name)
{
    const struct option_value *v = must_find(o, name, 1u << OPTION_STRING | 1u << OPTION_CHOICE);
    return v->is_set ? v->text : NULL;
}

const char *options_text(const struct options *o, const char *name)
{
    const char *text = options_string(o, name);
    return text && *text != '\0' ? text : NULL;
}

int64_t options_sync(const struct options *o, const char *name)
{
    return must_find(o, name, 1u << OPTION_SYNC)->number;
}

const char *options_source(const struct options *o, const char *name)
{
    const struct option_value *v = must_find(o, name, ~0u);
    return v->source ? v->source : "unset";
}

bool options_is_set(const struct options *o, const char *name)
{
    return must_find(o, name, ~0u)->rank > RANK_DEFAULT;
}

int options_refuse(const struct options *o, const char *name, struct error *error, const char *fmt, ...)
{
    va_list ap;
    const char *source = options_is_set(o, name) ? options_source(o, name) : "";
    bool has_name = strncmp(source, "--", 2) == 0;
    va_start(ap, fmt);
    error_vset(error, -1, fmt, ap);
    va_end(ap);
    return error_set(error, -1, "%s%s%s: %s", source, *source != '\0' && !has_name ? ": " : "",
        has_name ? "" : name, error->text);
}

int options_check_name(const struct options *o, const char *name, struct error *error)
{
    const char *text = options_text(o, name);
    if (!text ? find(o, name)->row->fallback == NULL : bytes_is_name(bytes_str(text)))
        return 0;
    return options_refuse(o, name, error, "not a name: [A-Za-z0-9_.-]{1,64}, and neither . nor ..");
}

size_t options_operands(const struct options *o, char ***operands)
{
    *operands = o->operands;
    return o->n_operands;
}

const struct config *options_config(const struct options *o)
{
    return o->config;
}

void options_show_as(struct options *o, const char *name, const char *text, const char *source)
{
    struct option_value *v = find(o, name);
    assert(v);
    v->shown = text;
    v->shown_source = source;
}

bool options_check_only(const struct options *o)
{
    return options_bool(o, "check_config");
}
