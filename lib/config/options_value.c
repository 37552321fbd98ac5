#include "config/options_internal.h"
#include <stdio.h>

struct unit {
    const char *name;
    int64_t ms;
};
static const struct unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}};
#define N_UNITS (sizeof duration_units / sizeof *duration_units)

static int refuse(char *why, size_t size, const char *what)
{
    snprintf(why, size, "%s", what);
    return -1;
}

static int read_bool(const struct option_row *row, const char *text, int64_t *number, char *why, size_t size)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    (void)row;
    for (int i = 0; i < 8; i++)
        if (strcmp(text, words[i]) == 0) {
            *number = i % 2;
            return 0;
        }
    return refuse(why, size, "is not a boolean (true, false, yes, no, on, off, 1, 0)");
}

const char *option_bare_unit(const struct option_row *row)
{
    return row->unit != NULL ? row->unit : "ms";
}

/* Uses the largest unit that divides the duration. */
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

void option_value_bounds(const struct option_row *row, struct buf *out)
{
    if (row->type == OPTION_DURATION) {
        append_duration(out, row->min);
        buf_append_str(out, "..");
        append_duration(out, row->max);
        return;
    }
    buf_printf(out, "%lld..%lld", (long long)row->min, (long long)row->max);
    if (row->unit != NULL)
        buf_printf(out, " %s", row->unit);
}

static int in_bounds(const struct option_row *row, int64_t n, char *why, size_t size)
{
    if ((row->min == 0 && row->max == 0) || (n >= row->min && n <= row->max))
        return 0;
    struct buf text = {0};
    option_value_bounds(row, &text);
    snprintf(why, size, "is out of bounds: %.*s", (int)text.len, text.ptr);
    buf_free(&text);
    return -1;
}

static int read_int(const struct option_row *row, const char *text, int64_t *number, char *why, size_t size)
{
    if (!bytes_to_i64(bytes_str(text), number))
        return refuse(why, size, "is not an integer");
    return in_bounds(row, *number, why, size);
}

static int read_size(const struct option_row *row, const char *text, int64_t *number, char *why, size_t size)
{
    uint64_t n;
    if (!bytes_to_size(bytes_str(text), &n) || n > INT64_MAX)
        return refuse(why, size, "is not a size in bytes (512, 64K, 64M, 2G)");
    *number = (int64_t)n;
    return in_bounds(row, *number, why, size);
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

static int read_duration(
    const struct option_row *row, const char *text, int64_t *number, char *why, size_t size)
{
    if (!parse_duration(text, option_bare_unit(row), number))
        return refuse(why, size, "is not a duration (500ms, 5s, 2m, 1h, 7d)");
    return in_bounds(row, *number, why, size);
}

static int read_string(
    const struct option_row *row, const char *text, int64_t *number, char *why, size_t size)
{
    *number = (int64_t)strlen(text);
    if (row->max != 0 && (*number < row->min || *number > row->max)) {
        snprintf(why, size, "has %lld bytes; allowed are %lld..%lld", (long long)*number, (long long)row->min,
            (long long)row->max);
        return -1;
    }
    return 0;
}

static int read_choice(
    const struct option_row *row, const char *text, int64_t *number, char *why, size_t size)
{
    size_t n = strlen(text);
    *number = 0;
    for (const char *p = row->choices; n > 0; p = strchr(p, '|') + 1) {
        if (strncmp(p, text, n) == 0 && (p[n] == '|' || p[n] == '\0'))
            return 0;
        ++*number;
        if (strchr(p, '|') == NULL)
            break;
    }
    snprintf(why, size, "is not one of %s", row->choices);
    return -1;
}

static int read_sync(const struct option_row *row, const char *text, int64_t *number, char *why, size_t size)
{
    if (strcmp(text, "never") == 0) {
        *number = -1;
        return 0;
    }
    if (!parse_duration(text, "ms", number) || *number > 60000)
        return refuse(
            why, size, "is neither `never` nor a number of milliseconds up to 60000 (0: sync each commit)");
    (void)row;
    return 0;
}

struct type {
    int (*read)(const struct option_row *row, const char *text, int64_t *number, char *why, size_t size);
    const char *word;
};
static const struct type types[] = {
    [OPTION_BOOL] = {read_bool, NULL},
    [OPTION_INT] = {read_int, "N"},
    [OPTION_SIZE] = {read_size, "SIZE"},
    [OPTION_DURATION] = {read_duration, "TIME"},
    [OPTION_STRING] = {read_string, "TEXT"},
    [OPTION_CHOICE] = {read_choice, NULL},
    [OPTION_SYNC] = {read_sync, "never|MS"},
};

int option_value_read(
    const struct option_row *row, const char *text, int64_t *number, char *why, size_t why_size)
{
    return types[row->type].read(row, text, number, why, why_size);
}

void option_value_describe(const struct option_row *row, struct buf *out)
{
    const char *word = row->type == OPTION_CHOICE ? row->choices : types[row->type].word;
    if (word != NULL)
        buf_append_str(out, word);
}
