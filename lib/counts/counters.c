#include "counts/counters.h"
#include "base/erased_line.h"
#include "counts/condition.h"
#include "counts/event_seconds.h"
#include "json/json_fields.h"
#include "json/json_path.h"
#include "counts/key_function.h"
#include "counts/key_text.h"
#include "counts/mean.h"
#include "config/options.h"
#include "counts/records.h"
#include <stdio.h>
#include <stdlib.h>

#define REASON_MAX 200
#define OPTIONAL_SEPARATORS " ,\t"
#define MAX_AHEAD "2d"
#define MAX_AHEAD_SECONDS 172800
#define MAX_TEXT "2K"
#define MAX_TEXT_BYTES 2048
#define UNIT_MAX 16 /* bytes */
#define NOT_A_FIELD "%s must be a field (user, user.id, items[0].sku, [\"a.b\"]), not '%s'"

struct reading {
    const struct config *config;
    struct error *error;
    struct counters *out;
    struct counter *totals, *subtotals, *uniques;
};

static int refuse_unknown(struct reading *r, const struct config_section *s, const char *const *known)
{
    return config_check_keys(r->config, s, known, r->error);
}

/* Reads the setting that a row describes, or the row's default. */
static int read_number(
    struct reading *r, const struct config_section *s, const struct option_row *row, int64_t *out)
{
    struct error why;
    const char *value = s ? config_value(s, row->name) : NULL;
    if (option_value_read(row, value ? value : row->fallback, out, &why) == 0)
        return 0;
    return config_fail(r->error, r->config, config_line(s, row->name), "%s %s", row->name, why.text);
}

/* Copies a condition to *out, or leaves *out NULL if the setting is missing. */
static int read_condition(
    struct reading *r, const struct config_section *s, const char *setting, const char **out)
{
    const char *text = config_value(s, setting);
    struct error why;
    struct condition *c = text ? condition_new(bytes_str(text), &why) : NULL;
    if (text && !c)
        return config_fail(r->error, r->config, config_line(s, setting), "%s: %s", setting, why.text);
    condition_free(&c);
    *out = text ? mem_strdup(text) : NULL;
    return 0;
}

static int read_input(struct reading *r)
{
    static const char *const known[] = {"time", "time_unit", "time_format", "time_default", "skip_if",
        "keep_if", "max_ahead", "optional", "resolution", NULL};
    static const struct option_row max_ahead = {.name = "max_ahead",
        .type = OPTION_DURATION,
        .fallback = MAX_AHEAD,
        .max = HOUR_END * 1000,
        .unit = "s"};
    int64_t ahead;
    const struct config_section *s = config_section(r->config, "input", "");
    if (!s)
        return config_fail(r->error, r->config, 0, "[input] is missing; add it with time = FIELD");
    if (refuse_unknown(r, s, known) != 0)
        return -1;
    const char *time = config_value(s, "time"), *unit = config_value(s, "time_unit"),
               *format = config_value(s, "time_format"), *otherwise = config_value(s, "time_default"),
               *resolution = config_value(s, "resolution");
    if (!time || !*time)
        return config_fail(r->error, r->config, config_line(s, "time"), "[input] needs time = FIELD");
    r->out->units_a_second = event_seconds_units(unit ? unit : "s");
    if (r->out->units_a_second == 0)
        return config_fail(r->error, r->config, config_line(s, "time_unit"),
            "time_unit must be s, ms, us or ns, not '%s'", unit);
    if (format && strcmp(format, "lenient") != 0 && strcmp(format, "strict") != 0)
        return config_fail(r->error, r->config, config_line(s, "time_format"),
            "time_format must be strict or lenient, not '%s'", format);
    if (otherwise && strcmp(otherwise, "now") != 0)
        return config_fail(r->error, r->config, config_line(s, "time_default"),
            "time_default must be now, not '%s'; without time_default each event needs a time", otherwise);
    if (resolution && strcmp(resolution, "1h") != 0 && strcmp(resolution, "15m") != 0)
        return config_fail(r->error, r->config, config_line(s, "resolution"),
            "resolution must be 1h or 15m, not '%s'", resolution);
    if (!json_path_is_valid(bytes_str(time)))
        return config_fail(r->error, r->config, config_line(s, "time"), NOT_A_FIELD, "time", time);
    if (read_condition(r, s, "skip_if", &r->out->skip_if) != 0 ||
        read_condition(r, s, "keep_if", &r->out->keep_if) != 0)
        return -1;
    if (read_number(r, s, &max_ahead, &ahead) != 0)
        return -1;
    r->out->max_ahead = (ahead + 999) / 1000;
    r->out->time_field = mem_strdup(time);
    r->out->time_unit = mem_strdup(unit ? unit : "s");
    r->out->time_is_lenient = format && strcmp(format, "lenient") == 0;
    r->out->time_default_now = otherwise != NULL;
    r->out->has_quarters = resolution && strcmp(resolution, "15m") == 0;
    const char *optional = config_value(s, "optional");
    r->out->optional = optional ? mem_strdup(optional) : NULL;
    return 0;
}

static bool has_field(const struct counter *list, size_t n, struct bytes field)
{
    for (size_t i = 0; i < n; i++)
        if ((list[i].kind != COUNTER_CONSTANT && bytes_equal_str(field, list[i].field)) ||
            (list[i].value && bytes_equal_str(field, list[i].value)) ||
            (list[i].having && bytes_equal_str(field, list[i].having)))
            return true;
    return false;
}

/* Refuses an optional field that no counter has, because its name may be misspelt. Called after the counters are read. */
static int check_optional(struct reading *r)
{
    const struct counters *c = r->out;
    const char *list = c->optional;
    for (struct bytes field; list && bytes_next_word(&list, OPTIONAL_SEPARATORS, &field);)
        if (!has_field(c->totals, c->n_totals, field) && !has_field(c->subtotals, c->n_subtotals, field) &&
            !has_field(c->uniques, c->n_uniques, field))
            return config_fail(r->error, r->config,
                config_line(config_section(r->config, "input", ""), "optional"),
                "optional: no counter has the field %.*s", (int)field.len, field.ptr);
    return 0;
}

static int read_bounds(struct reading *r)
{
    static const char *const known[] = {"max_text", NULL};
    static const struct option_row max_text = {.name = "max_text",
        .type = OPTION_SIZE,
        .fallback = MAX_TEXT,
        .min = COMPONENT_BOUND_MIN,
        .max = 64 << 20,
        .unit = "bytes"};
    const struct config_section *s = config_section(r->config, "counters", "");
    int64_t bytes;
    if ((s && refuse_unknown(r, s, known) != 0) || read_number(r, s, &max_text, &bytes) != 0)
        return -1;
    r->out->max_text = (size_t)bytes;
    return 0;
}

static bool parse_key(struct bytes text, struct counter *c)
{
    struct bytes inner = text, argument = BYTES_NONE;
    c->kind = COUNTER_FIELD;
    if (text.len >= 2 && text.ptr[0] == '"' && text.ptr[text.len - 1] == '"') {
        c->kind = COUNTER_CONSTANT;
        inner = bytes_of(text.ptr + 1, text.len - 2);
    } else if ((c->function = key_function_parse(text, &inner, &argument))) {
        c->kind = COUNTER_FUNCTION;
    }
    bool is_valid = c->kind == COUNTER_CONSTANT ? inner.len > 0 && !memchr(inner.ptr, '"', inner.len)
                                                : json_path_is_valid(inner);
    if (is_valid)
        c->field = bytes_dup(inner);
    if (is_valid && argument.len > 0)
        c->argument = bytes_dup(argument);
    return is_valid;
}

static int read_label(
    struct reading *r, const struct config_section *s, struct counter *c, const char *default_label)
{
    const char *label = config_value(s, "label");
    c->label = mem_strdup(label ? label : default_label);
    if (bytes_is_name(bytes_str(c->label)))
        return 0;
    return config_fail(r->error, r->config, config_line(s, "label"),
        "invalid label '%s'; use 1 to 64 of A-Z a-z 0-9 _ . -, but not . or ..", c->label);
}

/* Reads the settings that totals and subtotals have in common. The caller has set c->ns. */
static int read_settings(
    struct reading *r, const struct config_section *s, struct counter *c, const char *default_label)
{
    const char *key = config_value(s, "key"), *max = config_value(s, "max_keys");
    if (!key)
        return config_fail(r->error, r->config, s->line,
            "[%s %s] needs key = FIELD, " KEY_FUNCTIONS " or \"CONSTANT\"", s->kind, s->name);
    if (!parse_key(bytes_str(key), c))
        return config_fail(r->error, r->config, config_line(s, "key"),
            "key must be FIELD, " KEY_FUNCTIONS " or \"CONSTANT\", not '%s'; a FIELD is user, user.id, "
            "items[0].sku or "
            "[\"a.b\"]",
            key);
    c->key_text = mem_strdup(key);
    if (read_label(r, s, c, default_label) != 0)
        return -1;
    if (max && !bytes_to_u64(bytes_str(max), &c->max_keys))
        return config_fail(
            r->error, r->config, config_line(s, "max_keys"), "max_keys must be a number, not '%s'", max);
    return 0;
}

static int section_line(const struct reading *r, const char *kind, const char *name)
{
    const struct config_section *s = config_section(r->config, kind, name);
    return s ? s->line : 0;
}

/* Queries use labels, so a duplicate would be ambiguous. The error names both lines. `list` has the counters of the
 * sections of the kind `kind`, and may include `c`. */
static int refuse_same_label(struct reading *r, const struct config_section *s, const struct counter *c,
    const char *kind, const struct counter *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (&list[i] != c && list[i].total == c->total && strcmp(list[i].label, c->label) == 0)
            return config_fail(r->error, r->config, config_line(s, "label"),
                "label '%s' is already the label of [%s %s] on line %d", c->label, kind, list[i].ns,
                section_line(r, kind, list[i].ns));
    return 0;
}

/* Reads a setting that names a field. Leaves *out NULL if the setting is missing. */
static int read_field(
    struct reading *r, const struct config_section *s, const char *setting, const char **out)
{
    const char *path = config_value(s, setting);
    if (path && !json_path_is_valid(bytes_str(path)))
        return config_fail(r->error, r->config, config_line(s, setting), NOT_A_FIELD, setting, path);
    *out = path ? mem_strdup(path) : NULL;
    return 0;
}

/* Reads `unit`, whose quotes may be missing. */
static int read_unit(struct reading *r, const struct config_section *s, struct counter *c)
{
    const char *setting = config_value(s, "unit");
    struct bytes text = bytes_str(setting);
    if (text.len >= 2 && text.ptr[0] == '"' && text.ptr[text.len - 1] == '"')
        text = bytes_of(text.ptr + 1, text.len - 2);
    if (setting && (text.len == 0 || text.len > UNIT_MAX || !bytes_is_utf8(text)))
        return config_fail(r->error, r->config, config_line(s, "unit"),
            "unit must be a text of 1 to %d bytes, not '%s'", UNIT_MAX, setting);
    c->unit = setting ? bytes_dup(text) : NULL;
    return 0;
}

/* Reads the settings that say what each event adds to a total. */
static int read_amount(struct reading *r, const struct config_section *s, struct counter *c)
{
    static const struct option_row scale_row = {
        .name = "scale", .type = OPTION_INT, .fallback = "0", .max = DECIMAL_SCALE_MAX};
    static const char *const needs_value[] = {"scale", "round", "max_value", "unit"};
    const char *round = config_value(s, "round"), *max = config_value(s, "max_value");
    int64_t scale;
    c->max_value = INT64_MAX;
    if (read_field(r, s, "value", &c->value) != 0 || read_field(r, s, "having", &c->having) != 0)
        return -1;
    if (c->value && c->having)
        return config_fail(r->error, r->config, config_line(s, "having"),
            "[total %s]: value and having exclude each other; declare another total with having", c->ns);
    for (size_t i = 0; !c->value && i < sizeof needs_value / sizeof *needs_value; i++)
        if (config_value(s, needs_value[i]))
            return config_fail(r->error, r->config, config_line(s, needs_value[i]),
                "[total %s]: %s needs value = FIELD", c->ns, needs_value[i]);
    if (read_number(r, s, &scale_row, &scale) != 0)
        return -1;
    c->decimal = (struct decimal_rule){.scale = (unsigned)scale, .rounds = round != NULL};
    if (round && strcmp(round, "half_even") != 0)
        return config_fail(
            r->error, r->config, config_line(s, "round"), "round must be half_even, not '%s'", round);
    struct decimal_rule exact = {.scale = c->decimal.scale};
    const char *why = max ? decimal_read(bytes_str(max), exact, &c->max_value) : NULL;
    if (why || c->max_value <= 0)
        return config_fail(r->error, r->config, config_line(s, "max_value"),
            "max_value must be a decimal above 0, not '%s', which %s", max, why ? why : "is not above 0");
    return read_unit(r, s, c);
}

static int read_total(struct reading *r, const struct config_section *s)
{
    static const char *const known[] = {
        "key", "label", "max_keys", "value", "scale", "round", "max_value", "unit", "having", NULL};
    if (refuse_unknown(r, s, known) != 0)
        return -1;
    if (!namespace_is_valid(bytes_str(s->name)))
        return config_fail(r->error, r->config, s->line,
            "[total %s]: invalid namespace; use 1 to 16 of a-z 0-9 _, but not 'lookup'", s->name);
    struct counter *c = &r->totals[r->out->n_totals++];
    c->ns = mem_strdup(s->name);
    if (read_settings(r, s, c, s->name) != 0 || read_amount(r, s, c) != 0)
        return -1;
    return refuse_same_label(r, s, c, s->kind, r->totals, r->out->n_totals);
}

/* Reads the name S.NS of a subtotal or of a unique counter. Sets *label to the default label. */
static int read_part_name(
    struct reading *r, const struct config_section *s, struct counter *c, char label[NAMESPACE_MAX + 1])
{
    const char *dot = strchr(s->name, '.');
    struct bytes first = bytes_of(s->name, dot ? (size_t)(dot - s->name) : 0);
    if (!dot || !namespace_is_valid(first) || !namespace_is_valid(bytes_str(dot + 1)))
        return config_fail(r->error, r->config, s->line,
            "[%s %s]: invalid name; use S.NS, each part 1 to 16 of a-z 0-9 _, but not 'lookup'", s->kind,
            s->name);
    const struct counter *total = counters_find_in(r->totals, r->out->n_totals, bytes_str(dot + 1));
    if (!total)
        return config_fail(r->error, r->config, s->line, "[%s %s]: the section [total %s] is missing",
            s->kind, s->name, dot + 1);
    c->ns = mem_strdup(s->name);
    c->total = (size_t)(total - r->totals);
    snprintf(label, NAMESPACE_MAX + 1, "%.*s", (int)first.len, first.ptr);
    return 0;
}

static int read_subtotal(struct reading *r, const struct config_section *s)
{
    char label[NAMESPACE_MAX + 1];
    static const char *const known[] = {"key", "label", "max_keys", NULL};
    struct counter *c = &r->subtotals[r->out->n_subtotals++];
    if (refuse_unknown(r, s, known) != 0 || read_part_name(r, s, c, label) != 0 ||
        read_settings(r, s, c, label) != 0)
        return -1;
    const struct counter *total = &r->totals[c->total];
    c->value = total->value;
    c->having = total->having;
    c->unit = total->unit;
    c->decimal = total->decimal;
    c->max_value = total->max_value;
    return refuse_same_label(r, s, c, s->kind, r->subtotals, r->out->n_subtotals);
}

/* Reads the setting `by` of a unique counter. */
static int read_by(struct reading *r, const struct config_section *s, struct counter *c)
{
    const char *by = config_value(s, "by");
    c->by = PERIOD_DAY;
    if (!by || (period_unit_find(bytes_str(by), &c->by) && c->by <= PERIOD_DAY)) {
        if (c->by != PERIOD_QUARTER || r->out->has_quarters)
            return 0;
        return config_fail(
            r->error, r->config, config_line(s, "by"), "by = quarter needs [input] resolution = 15m");
    }
    return config_fail(
        r->error, r->config, config_line(s, "by"), "by must be day, hour or quarter, not '%s'", by);
}

/* Reads a unique counter, after the subtotals. A subtotal and a unique counter with one name would share records. */
static int read_unique(struct reading *r, const struct config_section *s)
{
    static const char *const known[] = {"member", "label", "by", NULL};
    char label[NAMESPACE_MAX + 1];
    struct counter *c = &r->uniques[r->out->n_uniques++];
    if (refuse_unknown(r, s, known) != 0 || read_part_name(r, s, c, label) != 0)
        return -1;
    if (counters_find_in(r->subtotals, r->out->n_subtotals, bytes_str(c->ns)))
        return config_fail(r->error, r->config, s->line,
            "[unique %s]: [subtotal %s] on line %d has the same name", c->ns, c->ns,
            section_line(r, "subtotal", c->ns));
    const char *member = config_value(s, "member");
    if (!member)
        return config_fail(
            r->error, r->config, s->line, "[unique %s] needs member = FIELD or " KEY_FUNCTIONS, c->ns);
    if (!parse_key(bytes_str(member), c) || c->kind == COUNTER_CONSTANT)
        return config_fail(r->error, r->config, config_line(s, "member"),
            "member must be FIELD or " KEY_FUNCTIONS
            ", not '%s'; a FIELD is user, user.id, items[0].sku or [\"a.b\"]",
            member);
    c->key_text = mem_strdup(member);
    if (read_by(r, s, c) != 0 || read_label(r, s, c, label) != 0 ||
        refuse_same_label(r, s, c, "subtotal", r->subtotals, r->out->n_subtotals) != 0)
        return -1;
    return refuse_same_label(r, s, c, s->kind, r->uniques, r->out->n_uniques);
}

/* Reads totals first, because a subtotal may precede its total. */
static int read_sections(
    struct reading *r, const char *kind, int (*read)(struct reading *, const struct config_section *))
{
    for (size_t i = 0; i < r->config->n_sections; i++)
        if (strcmp(r->config->sections[i].kind, kind) == 0 && read(r, &r->config->sections[i]) != 0)
            return -1;
    return 0;
}

static int by_ns(const void *a, const void *b)
{
    return strcmp((*(const struct counter *const *)a)->ns, (*(const struct counter *const *)b)->ns);
}

/* Appends the lines of a total's value or `having`. The unit does not affect counts. */
static void append_amount(struct buf *text, const struct counter *total)
{
    char max[DECIMAL_TEXT_MAX];
    if (total->having)
        buf_printf(text, "total %s having = %s\n", total->ns, total->having);
    if (!total->value)
        return;
    if (total->max_value != INT64_MAX) {
        decimal_print(total->max_value, total->decimal.scale, max);
        buf_printf(text, "total %s max_value = %s\n", total->ns, max);
    }
    if (total->decimal.rounds)
        buf_printf(text, "total %s round = half_even\n", total->ns);
    buf_printf(text, "total %s scale = %u\ntotal %s value = %s\n", total->ns, total->decimal.scale, total->ns,
        total->value);
}

static void append_sorted(struct buf *text, const char *kind, const struct counter *list, size_t n)
{
    const struct counter **sorted = mem_alloc((n + 1) * sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &list[i];
    qsort(sorted, n, sizeof *sorted, by_ns);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(kind, "unique") == 0) {
            buf_printf(text, "unique %s member = %s by = %s\n", sorted[i]->ns, sorted[i]->key_text,
                period_unit_name(sorted[i]->by));
            continue;
        }
        buf_printf(text, "%s %s key = %s\n", kind, sorted[i]->ns, sorted[i]->key_text);
        if (sorted[i]->max_keys)
            buf_printf(text, "%s %s max_keys = %llu\n", kind, sorted[i]->ns,
                (unsigned long long)sorted[i]->max_keys);
        if (strcmp(kind, "total") == 0)
            append_amount(text, sorted[i]);
    }
    free(sorted);
}

static int check_means(struct reading *r)
{
    const struct counter *of, *unfit = mean_find_unfit(r->out, &of);
    return unfit ? config_fail(r->error, r->config, 0,
                       "[%s %s] counts the events for the means of [%s %s], so both need the same key and "
                       "max_keys",
                       strchr(unfit->ns, '.') ? "subtotal" : "total", unfit->ns,
                       strchr(of->ns, '.') ? "subtotal" : "total", of->ns)
                 : 0;
}

static char *canonical_text(const struct counters *c)
{
    struct buf text = {0};
    if (c->max_text != MAX_TEXT_BYTES)
        buf_printf(&text, "counters max_text = %zu\n", c->max_text);
    if (c->keep_if)
        buf_printf(&text, "input keep_if = %s\n", c->keep_if);
    if (c->max_ahead != MAX_AHEAD_SECONDS)
        buf_printf(&text, "input max_ahead = %llds\n", (long long)c->max_ahead);
    if (c->has_quarters)
        buf_append_str(&text, COUNTERS_QUARTERS_LINE "\n");
    if (c->skip_if)
        buf_printf(&text, "input skip_if = %s\n", c->skip_if);
    if (c->time_is_lenient)
        buf_printf(&text, "input time_format = lenient\n");
    buf_printf(&text, "input time = %s\ninput time_unit = %s\n", c->time_field, c->time_unit);
    append_sorted(&text, "subtotal", c->subtotals, c->n_subtotals);
    append_sorted(&text, "total", c->totals, c->n_totals);
    append_sorted(&text, "unique", c->uniques, c->n_uniques);
    char *copy = bytes_dup(buf_bytes(&text));
    buf_free(&text);
    return copy;
}

int counters_read(const struct config *config, struct counters **out, struct error *error)
{
    struct counters *c = mem_zalloc(sizeof *c);
    struct counter *totals = mem_zalloc((config->n_sections + 1) * sizeof *totals);
    struct counter *subtotals = mem_zalloc((config->n_sections + 1) * sizeof *subtotals);
    struct counter *uniques = mem_zalloc((config->n_sections + 1) * sizeof *uniques);
    c->totals = totals;
    c->subtotals = subtotals;
    c->uniques = uniques;
    struct reading r = {.config = config,
        .error = error,
        .out = c,
        .totals = totals,
        .subtotals = subtotals,
        .uniques = uniques};
    *out = c;
    if (read_input(&r) == 0 && read_bounds(&r) == 0 && read_sections(&r, "total", read_total) == 0 &&
        read_sections(&r, "subtotal", read_subtotal) == 0 && read_sections(&r, "unique", read_unique) == 0 &&
        check_optional(&r) == 0) {
        if (c->n_totals == 0)
            config_fail(error, config, 0, "no [total NAMESPACE] section; add one for each total");
        else if (c->n_totals + c->n_subtotals > COUNTERS_MAX)
            config_fail(error, config, 0, "more than %d counters", COUNTERS_MAX);
        else if (c->has_quarters && c->n_totals + c->n_subtotals > COUNTERS_QUARTERS_MAX)
            config_fail(
                error, config, 0, "more than %d counters with resolution = 15m", COUNTERS_QUARTERS_MAX);
        else if (c->n_uniques > UNIQUES_MAX)
            config_fail(error, config, 0, "more than %d unique counters", UNIQUES_MAX);
        else if (check_means(&r) == 0) {
            c->text = canonical_text(c);
            return 0;
        }
    }
    counters_free(out);
    return -1;
}

static void drop(const void *p)
{
    free((void *)(uintptr_t)p);
}

static void drop_counters(const struct counter *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        drop(list[i].ns);
        drop(list[i].label);
        drop(list[i].key_text);
        drop(list[i].field);
        drop(list[i].argument);
    }
    drop(list);
}

void counters_free(struct counters **c)
{
    if (!*c)
        return;
    for (size_t i = 0; i < (*c)->n_totals; i++) { /* subtotals borrow these texts */
        drop((*c)->totals[i].value);
        drop((*c)->totals[i].having);
        drop((*c)->totals[i].unit);
    }
    drop_counters((*c)->totals, (*c)->n_totals);
    drop_counters((*c)->subtotals, (*c)->n_subtotals);
    drop_counters((*c)->uniques, (*c)->n_uniques);
    drop((*c)->time_field);
    drop((*c)->time_unit);
    drop((*c)->skip_if);
    drop((*c)->keep_if);
    drop((*c)->optional);
    drop((*c)->text);
    free(*c);
    *c = NULL;
}

/* A distinct key or member setting, or the field of a total's value or `having`. Unlimited counters with the same key share
 * a source, so that an event's text is computed once. Unique counters with the same member also share a source. */
struct source {
    bool is_limited, is_member;
    /* whether the field was in an event of the current sample, and whether it was absent from the latest complete
     * sample */
    bool is_seen, is_absent, is_optional;
    const struct counter *counter;
    const char *field; /* NULL: the key is a constant */
    size_t value;      /* index of the field in `values` */
    struct bytes text;
    struct key_text_space space;
};

struct counters_reader {
    const struct counters *counters;
    struct condition *condition; /* of keep_if and skip_if; NULL: neither is set */
    size_t condition_values;     /* index of the first of its fields in `values` */
    struct json_fields *fields;
    struct json_value *values;
    struct source *sources;            /* of keys, then of members, then of values */
    size_t n_sources, n_keys, n_texts; /* n_texts: keys and members */
    struct counter_amount *amounts;    /* for each total; NULL: no total has a value or `having` */
    size_t *source_of;                 /* index in `sources` for each total, then each subtotal */
    size_t *member_of;                 /* index of each unique counter's source after the sources of keys */
    struct bytes *texts;
    int64_t latest;     /* the latest time that an event may have */
    int64_t beyond;     /* latest refused event time that was after `latest`; 0: none */
    unsigned to_sample; /* events until the sample is complete */
    char reason[REASON_MAX];
};

enum { VALUE_TIME, VALUE_FIRST_FIELD };

static bool is_optional(const struct counters *c, const char *field)
{
    const char *list = c->optional;
    for (struct bytes word; list && bytes_next_word(&list, OPTIONAL_SEPARATORS, &word);)
        if (bytes_equal_str(word, field))
            return true;
    return false;
}

/* Returns the index of the source of a counter's key or member. Adds the source and its field if they are new. */
static size_t find_source(struct counters_reader *r, const struct counter *counter, bool is_member,
    const char **names, size_t *n_names)
{
    size_t at = is_member ? r->n_keys : 0;
    while (at < r->n_sources && (counter->max_keys > 0 || r->sources[at].is_limited ||
                                    !counter_has_key_of(r->sources[at].counter, counter)))
        at++;
    if (at < r->n_sources)
        return at;
    struct source *s = &r->sources[r->n_sources++];
    *s = (struct source){.is_limited = counter->max_keys > 0, .is_member = is_member, .counter = counter};
    if (counter->kind == COUNTER_CONSTANT) {
        s->text = component_bound(bytes_str(counter->field), r->counters->max_text, &s->space.bound);
    } else {
        s->is_optional = is_optional(r->counters, counter->field);
        s->field = counter->field;
        s->value = *n_names;
        names[(*n_names)++] = counter->field;
    }
    return at;
}

/* Adds a source for each total with a value or `having`. */
static void add_amounts(struct counters_reader *r, const char **names, size_t *n_names)
{
    const struct counters *c = r->counters;
    for (size_t i = 0; i < c->n_totals; i++) {
        const struct counter *total = &c->totals[i];
        const char *field = total->value ? total->value : total->having;
        if (!field)
            continue;
        r->sources[r->n_sources++] = (struct source){
            .counter = total, .field = field, .value = *n_names, .is_optional = is_optional(c, field)};
        names[(*n_names)++] = field;
    }
    if (r->n_sources == r->n_texts)
        return;
    r->amounts = mem_zalloc(c->n_totals * sizeof *r->amounts);
    for (size_t i = 0; i < c->n_totals; i++)
        r->amounts[i] = (struct counter_amount){true, 1};
}

struct counters_reader *counters_reader_new(const struct counters *c)
{
    size_t n_counters = c->n_totals + c->n_subtotals, n = n_counters + c->n_uniques + c->n_totals,
           n_names = VALUE_FIRST_FIELD;
    struct counters_reader *r = mem_zalloc(sizeof *r);
    const char **names = mem_zalloc((n + VALUE_FIRST_FIELD) * sizeof *names);
    r->counters = c;
    r->latest = HOUR_END;
    r->to_sample = COUNTERS_SAMPLE;
    r->sources = mem_zalloc(n * sizeof *r->sources);
    r->source_of = mem_zalloc(n * sizeof *r->source_of);
    r->member_of = r->source_of + n_counters;
    r->texts = mem_zalloc(n * sizeof *r->texts);
    names[VALUE_TIME] = c->time_field;
    for (size_t i = 0; i < n_counters; i++)
        r->source_of[i] = find_source(r, counters_at(c, i), false, names, &n_names);
    r->n_keys = r->n_sources;
    for (size_t i = 0; i < c->n_uniques; i++)
        r->member_of[i] = find_source(r, &c->uniques[i], true, names, &n_names) - r->n_keys;
    r->n_texts = r->n_sources;
    add_amounts(r, names, &n_names);
    if (c->keep_if || c->skip_if) { /* counters_read has accepted both texts */
        r->condition = condition_new_pair(c->keep_if, c->skip_if, NULL);
        r->condition_values = condition_add_fields(r->condition, &names, &n_names);
    }
    r->values = mem_zalloc(n_names * sizeof *r->values);
    r->fields = json_fields_new(names, n_names);
    free(names);
    return r;
}

void counters_reader_free(struct counters_reader **r)
{
    if (!*r)
        return;
    for (size_t i = 0; i < (*r)->n_sources; i++)
        key_text_space_free(&(*r)->sources[i].space);
    json_fields_free(&(*r)->fields);
    condition_free(&(*r)->condition);
    free((*r)->values);
    free((*r)->sources);
    free((*r)->source_of);
    free((*r)->texts);
    free((*r)->amounts);
    free(*r);
    *r = NULL;
}

const size_t *counters_reader_text_of(const struct counters_reader *r)
{
    return r->source_of;
}

int64_t counters_reader_beyond(const struct counters_reader *r)
{
    return r->beyond;
}

void counters_reader_set_now(struct counters_reader *r, int64_t now)
{
    r->latest = HOUR_END;
    if (r->counters->max_ahead > 0 && now < HOUR_END - r->counters->max_ahead)
        r->latest = now + r->counters->max_ahead;
}

static enum counters_verdict reject(
    struct counters_reader *r, struct counters_event *out, const char *what, const char *field)
{
    snprintf(r->reason, sizeof r->reason, field ? "field %2$.64s %1$s" : "%1$s", what, field);
    for (char *p = r->reason; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    out->reason = r->reason;
    return COUNTERS_REJECTED;
}

/* Returns the reason for a time outside the range. If the number would be valid in another unit, the reason names this
 * unit. */
static const char *beyond_range(const struct counters_reader *r, int64_t t)
{
    static const struct {
        int64_t divisor;
        const char *reason;
    } units[] = {{1000, "is a time outside 2000 to 2159; milliseconds? set time_unit = ms"},
        {1000000, "is a time outside 2000 to 2159; microseconds? set time_unit = us"},
        {1000000000, "is a time outside 2000 to 2159; nanoseconds? set time_unit = ns"}};
    for (size_t i = 0; i < sizeof units / sizeof *units && r->counters->units_a_second == 1; i++)
        if (t / units[i].divisor >= HOUR_FIRST && t / units[i].divisor < HOUR_END)
            return units[i].reason;
    return "is a time outside 2000 to 2159";
}

/* Sets *out to the event's time. Returns NULL, or the reason why the time is invalid. */
static const char *time_of(struct counters_reader *r, const struct json_value *time, int64_t *out)
{
    int64_t t;
    if (time->type == JSON_MISSING)
        return "is missing: no time";
    int64_t units = r->counters->units_a_second;
    bool is_lenient = r->counters->time_is_lenient;
    if (!(is_lenient ? event_seconds_read_lenient : event_seconds_read)(time, units, &t)) {
        bool would =
            !is_lenient && event_seconds_read_lenient(time, units, &t) && t >= HOUR_FIRST && t < HOUR_END;
        return would ? "is a time only with time_format = lenient" : "is not a time";
    }
    if (t < HOUR_FIRST || t >= HOUR_END)
        return beyond_range(r, t);
    *out = t;
    if (t <= r->latest)
        return NULL;
    r->beyond = t;
    return "is a time more than max_ahead in the future";
}

/* Sets the text of the key or the member to that of the field's value. Returns NULL, or the reason why the value cannot
 * be a key. */
static const char *make_text(struct source *s, const struct json_value *v, size_t max_text)
{
    struct key_text_rule rule = {s->counter->function, s->counter->argument, max_text};
    if (s->is_member)
        return key_text_make_member(&rule, v, &s->space, &s->text);
    return key_text_make(&rule, v, &s->space, &s->text);
}

static void add_to_sample(struct counters_reader *r)
{
    bool ends = --r->to_sample == 0;
    for (size_t i = 0; i < r->n_sources; i++) {
        struct source *s = &r->sources[i];
        s->is_seen = s->is_seen || s->is_optional || !s->field || r->values[s->value].type != JSON_MISSING;
        if (!ends)
            continue;
        s->is_absent = !s->is_seen;
        s->is_seen = false;
        if (s->is_absent)
            r->to_sample = COUNTERS_SAMPLE;
    }
}

size_t counters_reader_end_sample(struct counters_reader *r)
{
    bool has_sample = r->to_sample == 0 || counters_reader_absent(r, 0);
    size_t n = has_sample ? COUNTERS_SAMPLE : COUNTERS_SAMPLE - r->to_sample;
    for (size_t i = 0; i < r->n_sources && n > 0 && r->to_sample > 0; i++) {
        struct source *s = &r->sources[i];
        s->is_absent = (has_sample ? s->is_absent : s->field && !s->is_optional) && !s->is_seen;
    }
    return n;
}

const char *counters_reader_absent(const struct counters_reader *r, size_t i)
{
    for (size_t at = 0; at < r->n_sources; at++) {
        const char *field = r->sources[at].field;
        bool is_new = r->sources[at].is_absent;
        for (size_t k = 0; k < at && is_new; k++)
            is_new = !r->sources[k].is_absent || strcmp(r->sources[k].field, field) != 0;
        if (is_new && i-- == 0)
            return field;
    }
    return NULL;
}

/* Sets the amount of a total with a value or `having`. Returns NULL, or the reason why the value is refused. */
static const char *make_amount(struct counters_reader *r, const struct source *s)
{
    const struct counter *total = s->counter;
    const struct json_value *v = &r->values[s->value];
    struct counter_amount *amount = &r->amounts[total - r->counters->totals];
    amount->is_counted = v->type != JSON_MISSING && v->type != JSON_NULL;
    if (!amount->is_counted || total->having)
        return NULL;
    const char *why = decimal_read_json(v, total->decimal, &amount->n);
    if (!why && (amount->n > total->max_value || amount->n < -total->max_value))
        why = total->max_value == INT64_MAX ? "is beyond 64 bits" : "exceeds max_value";
    return why;
}

enum counters_verdict counters_extract(
    struct counters_reader *r, struct bytes line, struct counters_event *out)
{
    const struct counters *c = r->counters;
    const char *why;
    memset(out, 0, sizeof *out);
    if (erased_line_is(line))
        return COUNTERS_SKIPPED;
    if (json_fields_extract(r->fields, line, r->values, &why) != 0)
        return reject(r, out, why, NULL);
    enum condition_result is_event =
        r->condition ? condition_test(r->condition, &r->values[r->condition_values]) : CONDITION_TRUE;
    if (is_event == CONDITION_FALSE)
        return COUNTERS_SKIPPED;
    if (is_event == CONDITION_UNDECIDED)
        return reject(r, out, "skip_if or keep_if takes too many steps", NULL);
    why = time_of(r, &r->values[VALUE_TIME], &out->time);
    if (why)
        return reject(r, out, why, c->time_field);
    out->hour = out->time - out->time % SECONDS_PER_HOUR;
    for (size_t i = 0; i < r->n_texts; i++) {
        struct source *s = &r->sources[i];
        why = s->field ? make_text(s, &r->values[s->value], c->max_text) : NULL;
        if (why)
            return reject(r, out, why, s->field);
    }
    for (size_t i = r->n_texts; i < r->n_sources; i++) {
        why = make_amount(r, &r->sources[i]);
        if (why)
            return reject(r, out, why, r->sources[i].field);
    }
    if (r->to_sample > 0)
        add_to_sample(r);
    for (size_t i = 0; i < r->n_texts; i++)
        r->texts[i] = r->sources[i].text;
    out->texts = r->texts;
    out->n_texts = r->n_keys;
    out->text_of = r->source_of;
    out->members = r->texts + r->n_keys;
    out->n_members = r->n_texts - r->n_keys;
    out->member_of = r->member_of;
    out->amounts = r->amounts;
    return COUNTERS_EVENT;
}
