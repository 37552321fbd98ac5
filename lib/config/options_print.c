#include "config/options_internal.h"
#include <stdio.h>

#define HELP_COLUMN 30

const struct option_row options_common_rows[] = {
    {.name = "help",
        .type = OPTION_BOOL,
        .fallback = "false",
        .flags = OPTION_COMMAND_LINE,
        .letter = 'h',
        .help = "print this help and exit"},
    {.name = "version",
        .type = OPTION_BOOL,
        .fallback = "false",
        .flags = OPTION_COMMAND_LINE,
        .letter = 'V',
        .help = "print the version and exit"},
    {.name = "config",
        .type = OPTION_STRING,
        .flags = OPTION_COMMAND_LINE,
        .letter = 'c',
        .help = "configuration file (also $MILLRACE_CONFIG)"},
    {.name = "instance",
        .type = OPTION_STRING,
        .flags = OPTION_COMMAND_LINE,
        .help = "read the section [PROGRAM NAME] instead of [PROGRAM]"},
    {.name = "check_config",
        .type = OPTION_BOOL,
        .fallback = "false",
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

static void append_option(const struct option_row *r, struct buf *out)
{
    size_t start = out->len;
    if (r->letter != 0)
        buf_printf(out, "  -%c, --", r->letter);
    else
        buf_append_str(out, "      --");
    for (const char *name = r->name; *name != '\0'; name++)
        buf_append_char(out, *name == '_' ? '-' : *name);
    if (r->type != OPTION_BOOL) {
        buf_append_str(out, r->alone != NULL ? "[=" : "=");
        option_value_describe(r, out);
        buf_append_str(out, r->alone != NULL ? "]" : "");
    }
    if (out->len - start >= HELP_COLUMN) {
        buf_append_char(out, '\n');
        start = out->len;
    }
    while (out->len - start < HELP_COLUMN)
        buf_append_char(out, ' ');
    buf_append_str(out, r->help);
    struct buf notes = {0}, bounds = {0};
    if (r->alone != NULL)
        append_note(&notes, "alone: %s", r->alone);
    if (r->fallback != NULL && *r->fallback != '\0' &&
        (r->type != OPTION_BOOL || strcmp(r->fallback, "false") != 0))
        append_note(&notes, "default %s", r->fallback);
    bool is_number = r->type == OPTION_INT || r->type == OPTION_SIZE;
    if (r->max != 0 && (r->type == OPTION_DURATION || (is_number && r->max < INT64_C(1) << 50))) {
        option_value_bounds(r, &bounds);
        append_note(&notes, "%.*s", (int)bounds.len, bounds.ptr);
    }
    if (r->type == OPTION_DURATION)
        append_note(
            &notes, "a bare number is %sseconds", strcmp(option_bare_unit(r), "ms") == 0 ? "milli" : "");
    buf_append_bytes(out, buf_bytes(&notes));
    buf_append_str(out, notes.len > 0 ? ")\n" : "\n");
    buf_free(&notes);
    buf_free(&bounds);
}

void options_print_help(const struct options *o, struct buf *out)
{
    const struct options_spec *spec = o->spec;
    buf_printf(out, "%s\n\nusage: ", spec->summary);
    if (spec->usage != NULL)
        buf_append_str(out, spec->usage);
    else
        buf_printf(out, "millrace %s", spec->program);
    buf_printf(out, " [OPTION...]%s%s\n\n", spec->operands ? " " : "", spec->operands ? spec->operands : "");
    for (size_t t = 0; t < OPTIONS_TABLES_MAX && spec->rows[t] != NULL; t++) {
        for (const struct option_row *r = spec->rows[t]; r->name != NULL; r++)
            append_option(r, out);
        buf_append_char(out, '\n');
    }
    for (const struct option_row *r = options_common_rows; r->name != NULL; r++)
        append_option(r, out);
    buf_printf(out,
        "\nEvery option is also a setting under [%s] in the configuration file, and a variable\n"
        "MILLRACE_<PROGRAM>_<OPTION>. The command line overrides the environment, which overrides the "
        "file.\n",
        spec->program);
    if (spec->more != NULL)
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
        if (v->row->flags & OPTION_COMMAND_LINE)
            continue;
        const char *text = v->is_set ? v->text : "", *source = v->is_set ? v->source : "unset";
        buf_printf(out, "%s = %s", v->row->name, v->shown ? v->shown : text);
        pad_to_source(out, start);
        buf_printf(out, " ; %s\n", v->shown ? v->shown_source : source);
    }
}

void options_show_settings(const struct options *o)
{
    const struct config *c = o->config;
    const char *kind = o->spec->sections;
    struct buf out = {0};
    options_print_settings(o, &out);
    for (size_t i = 0; kind != NULL && c != NULL && i < c->n_sections; i++) {
        const struct config_section *s = &c->sections[i];
        if (strcmp(s->kind, kind) != 0)
            continue;
        buf_printf(&out, "[%s %s]\n", s->kind, s->name);
        for (const struct config_entry *e = s->entries; e < s->entries + s->n_entries; e++) {
            size_t start = out.len;
            buf_printf(&out, "%s = %s", e->key, e->value);
            pad_to_source(&out, start);
            buf_printf(&out, " ; %s:%d\n", c->path, e->line);
        }
    }
    fwrite(out.ptr, 1, out.len, stdout);
    fflush(stdout);
    buf_free(&out);
}
