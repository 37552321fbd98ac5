#include "compactor/import_csv.h"

#include "compactor/import_date.h"
#include "counts/key_text.h"
#include "counts/records.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SHOWN_MAX 60 /* bytes of a wrong value in a reason */

enum column { DATE, KEY, SUB, COUNT, COUNTER, COLUMNS };

struct import_csv {
    const struct import_csv_spec *spec;
    int64_t quarters_since;
    enum import_unit unit;         /* IMPORT_TIME: from the form of each date */
    const struct counter *counter; /* NULL: each row names its counter */
    struct csv *csv;
    size_t columns[COLUMNS]; /* CSV_NO_COLUMN: the file does not have the column */
    bool has_columns;
    struct key_text_space key, sub;
    struct buf url; /* of a host */
    struct buf records;
    struct coarse coarse;
    char wrong[300];
};

static const struct counter *find_counter(const struct counters *c, struct bytes name)
{
    const char *slash = name.len > 0 ? memchr(name.ptr, '/', name.len) : NULL;
    size_t n = slash ? (size_t)(slash - name.ptr) : name.len;
    const struct counter *found = counters_find(c, name);
    if (found)
        return found;
    found = counters_find_total_label(c, bytes_of(name.ptr, n));
    return found && slash ? counters_find_sub_label(c, found, bytes_of(slash + 1, name.len - n - 1)) : found;
}

struct import_csv *import_csv_new(
    const struct import_csv_spec *spec, int64_t quarters_since, struct error *error)
{
    const struct counter *counter =
        spec->counter ? find_counter(spec->counters, bytes_str(spec->counter)) : NULL;
    if (spec->counter && !counter) {
        error_set(error, -1,
            "--counter: there is no counter %.100s; give a namespace, the label of a total, or TOTAL/LABEL "
            "of a "
            "subtotal (`millrace query counters`)",
            spec->counter);
        return NULL;
    }
    struct import_csv *c = mem_zalloc(sizeof *c);
    const struct csv_form form = {.delimiter = spec->delimiter, .time_column = ""};
    c->spec = spec;
    c->quarters_since = quarters_since;
    c->unit = spec->unit ? import_unit_named(spec->unit) : IMPORT_TIME;
    c->counter = counter;
    c->csv = csv_new(&form);
    return c;
}

void import_csv_free(struct import_csv **cp)
{
    struct import_csv *c = *cp;
    if (!c)
        return;
    csv_free(&c->csv);
    key_text_space_free(&c->key);
    key_text_space_free(&c->sub);
    buf_free(&c->url);
    buf_free(&c->records);
    coarse_free(&c->coarse);
    free(c);
    *cp = NULL;
}

const char *import_csv_ns(const struct import_csv *c)
{
    return c->counter ? c->counter->ns : "";
}

void import_csv_begin(struct import_csv *c)
{
    csv_begin(c->csv);
    c->has_columns = false;
}

/* Returns the total of the counter, which is the counter itself if it is a total. */
static const struct counter *total_of(const struct import_csv *c, const struct counter *counter)
{
    return strchr(counter->ns, '.') ? &c->spec->counters->totals[counter->total] : counter;
}

/* Finds the columns by name. Returns NULL, or the reason. */
static const char *find_columns(struct import_csv *c)
{
    const struct import_csv_spec *spec = c->spec;
    const struct counter *counter = c->counter, *total = counter ? total_of(c, counter) : NULL;
    const struct {
        const char *option, *given, *usual[3];
    } names[COLUMNS] = {[DATE] = {"date", spec->date, {"date", "hour", "month"}},
        [KEY] = {"key", spec->key, {"key"}},
        [SUB] = {"sub", spec->sub, {"sub"}},
        [COUNT] = {"count", spec->count, {"count"}},
        [COUNTER] = {"counter", NULL, {"counter"}}};
    const bool is_needed[COLUMNS] = {[DATE] = !spec->period,
        [KEY] = counter && total->kind != COUNTER_CONSTANT,
        [SUB] = counter && counter != total && counter->kind != COUNTER_CONSTANT,
        [COUNT] = !spec->counts_rows,
        [COUNTER] = !counter};
    for (int i = 0; i < COLUMNS; i++) {
        size_t found = names[i].given ? csv_column(c->csv, names[i].given) : CSV_NO_COLUMN;
        for (int k = 0; k < 3 && !names[i].given && found == CSV_NO_COLUMN && names[i].usual[k]; k++)
            found = csv_column(c->csv, names[i].usual[k]);
        c->columns[i] = found;
        if (found != CSV_NO_COLUMN || (!names[i].given && !is_needed[i]))
            continue;
        snprintf(c->wrong, sizeof c->wrong, "there is no column %.100s; name it with --%s=%s",
            names[i].given ? names[i].given : names[i].usual[0], names[i].option,
            i == COUNTER ? "COUNTER" : "COLUMN");
        return c->wrong;
    }
    c->has_columns = true;
    return NULL;
}

/* Sets *key to the key of an event with this value. Returns NULL, or the reason. */
static const char *make_key(struct import_csv *c, const struct counter *counter, enum column column,
    struct key_text_space *space, struct bytes *key)
{
    struct bytes text = csv_value(c->csv, c->columns[column]);
    struct key_text_rule rule = {.function = counter->function,
        .argument = counter->argument,
        .max_text = c->spec->counters->max_text};
    if (counter->kind == COUNTER_CONSTANT)
        text = bytes_str(counter->field);
    else if (c->columns[column] == CSV_NO_COLUMN)
        return "the counter needs a key, and the file has no column of keys; name it with --key or --sub";
    else if (!bytes_is_utf8(text))
        return "the key is not UTF-8";
    if (text.len == 0)
        rule.function = NULL;
    if (rule.function && strncmp(counter->key_text, "query(", 6) == 0 && !memchr(text.ptr, '?', text.len))
        rule.function = NULL;
    if (rule.function && strncmp(counter->key_text, "host(", 5) == 0 &&
        !memmem(text.ptr, text.len, "://", 3)) {
        buf_clear(&c->url);
        buf_append_str(&c->url, "http://");
        buf_append_bytes(&c->url, text);
        text = buf_bytes(&c->url);
    }
    const struct json_value value = {.type = JSON_STRING, .v.string = text};
    return key_text_make(&rule, &value, space, key);
}

static void append_lookup(struct import_csv *c, struct bytes text, struct bytes stored)
{
    struct buf escaped = {0};
    if (!component_is_hash(stored))
        return;
    lookup_escape(text, &escaped);
    buf_printf(&c->records, "lookup|%.*s,", (int)stored.len, stored.ptr);
    buf_append_bytes(&c->records, buf_bytes(&escaped));
    buf_append_char(&c->records, '\n');
    buf_free(&escaped);
}

static const char *append_records(
    struct import_csv *c, const struct counter *counter, const char *hour, int64_t count)
{
    char spaces[2][COMPONENT_HASH + 1];
    const struct counter *total = total_of(c, counter);
    struct bytes key, sub = BYTES_NONE;
    const char *why = make_key(c, total, KEY, &c->key, &key);
    if (!why && counter != total)
        why = make_key(c, counter, SUB, &c->sub, &sub);
    if (why || (count == 0 && !counter->value))
        return why;
    struct bytes stored = component_store(key, spaces[0]), stored_sub = component_store(sub, spaces[1]);
    if (counter == total)
        buf_printf(
            &c->records, "%s|%.*s,%s:%" PRId64 "\n", counter->ns, (int)stored.len, stored.ptr, hour, count);
    else
        buf_printf(&c->records, "%s|%.*s.%s,%.*s:%" PRId64 "\n", counter->ns, (int)stored.len, stored.ptr,
            hour, (int)stored_sub.len, stored_sub.ptr, count);
    append_lookup(c, key, stored);
    if (counter != total)
        append_lookup(c, sub, stored_sub);
    return NULL;
}

/* Prints the first period that starts within the unit, because a unit may begin within a UTC hour. For a time, prints
 * the period that contains the time. */
static bool print_period(
    const struct import_csv *c, const struct import_date *date, char text[PERIOD_TEXT_MAX + 1])
{
    bool has_quarters = c->quarters_since > 0 && date->from >= c->quarters_since;
    int64_t length = has_quarters ? SECONDS_PER_QUARTER : SECONDS_PER_HOUR;
    int64_t start = date->unit == IMPORT_TIME ? date->from : date->from + length - 1;
    return period_encode(has_quarters ? PERIOD_QUARTER : PERIOD_HOUR, start - start % length, text) > 0;
}

static void note_coarse(struct import_csv *c, const struct counter *counter, const struct import_date *date)
{
    struct coarse_span span = {.from = date->from, .to = date->to};
    if (date->unit < IMPORT_DAY)
        return;
    if (date->is_naive)
        snprintf(span.zone, sizeof span.zone, "%s", c->spec->zone);
    coarse_add(
        &c->coarse, bytes_str(counter->ns), date->unit == IMPORT_DAY ? COARSE_DAY : COARSE_MONTH, &span);
}

/* Appends the digits of a count whose groups of three digits are separated, such as 1,234. Returns false if the
 * number has another form. */
static bool join_groups(struct bytes number, struct buf *digits)
{
    size_t in_group = 0, groups = 1;
    for (size_t i = 0; i < number.len; i++) {
        bool is_digit = number.ptr[i] >= '0' && number.ptr[i] <= '9';
        bool ends_group = !is_digit && in_group > 0;
        if (ends_group && (groups > 1 ? in_group != 3 : in_group > 3))
            return false;
        groups += ends_group;
        in_group = is_digit ? in_group + 1 : 0;
        if (is_digit)
            buf_append_char(digits, number.ptr[i]);
        else if (!strchr(",.' _", number.ptr[i]) && (unsigned char)number.ptr[i] < 0x80)
            return false;
    }
    return groups > 1 && in_group == 3;
}

static const char *refuse_count(struct import_csv *c, struct bytes number)
{
    struct bytes shown = number.len > 0 ? number : BYTES_LITERAL("it is empty");
    struct buf digits = {0};
    int length = shown.len < SHOWN_MAX ? (int)shown.len : SHOWN_MAX;
    if (join_groups(number, &digits) && digits.len < SHOWN_MAX)
        snprintf(c->wrong, sizeof c->wrong,
            "the count is not a whole number: %.*s; if it has separators of thousands, write %.*s", length,
            shown.ptr, (int)digits.len, digits.ptr);
    else
        snprintf(c->wrong, sizeof c->wrong, "the count is not a whole number: %.*s", length, shown.ptr);
    buf_free(&digits);
    return c->wrong;
}

/* Reads the number of a row: a whole number, or a decimal of the counter's scale. Returns NULL, or the reason. */
static const char *read_number(struct import_csv *c, const struct counter *counter, int64_t *count)
{
    struct bytes number = csv_value(c->csv, c->columns[COUNT]);
    if (!counter->value)
        return bytes_to_i64(number, count) && *count >= 0 ? NULL : refuse_count(c, number);
    const char *why = decimal_read(number, counter->decimal, count);
    if (!why && (*count > counter->max_value || *count < -counter->max_value))
        why = "exceeds max_value";
    if (!why)
        return NULL;
    struct bytes shown = number.len > 0 ? number : BYTES_LITERAL("it is empty");
    snprintf(c->wrong, sizeof c->wrong, "the value %s: %.*s", why,
        shown.len < SHOWN_MAX ? (int)shown.len : SHOWN_MAX, shown.ptr);
    return c->wrong;
}

/* Returns NULL, or the reason. */
static const char *take_row(struct import_csv *c)
{
    const struct import_csv_spec *spec = c->spec;
    const struct counter *counter =
        c->counter ? c->counter : find_counter(spec->counters, csv_value(c->csv, c->columns[COUNTER]));
    struct bytes text = spec->period ? bytes_str(spec->period) : csv_value(c->csv, c->columns[DATE]);
    struct import_date date;
    char hour[PERIOD_TEXT_MAX + 1];
    int64_t count = 1;
    if (!counter)
        return "there is no such counter";
    if (spec->counts_rows && counter->value)
        return "the counter adds a value, so its rows cannot be counted; name the column with --count";
    const char *why = spec->counts_rows ? NULL : read_number(c, counter, &count);
    if (!why)
        why = import_date_read(text, c->unit, &date);
    if (!why && !print_period(c, &date, hour))
        why = "the date is not in 2000 to 2159";
    if (!why)
        why = append_records(c, counter, hour, count);
    if (!why && (count > 0 || counter->value))
        note_coarse(c, counter, &date);
    return why;
}

static enum import_csv_result take(struct import_csv *c, enum csv_result r, const char **why)
{
    buf_clear(&c->records);
    *why = r == CSV_WRONG ? csv_record(c->csv)->wrong : NULL;
    if (!*why && !c->has_columns && csv_record(c->csv)->has_names)
        *why = find_columns(c);
    if (*why && (!c->has_columns || csv_record(c->csv)->unclosed > 0))
        return IMPORT_CSV_UNREADABLE;
    if (r == CSV_EVENT)
        *why = take_row(c);
    return *why ? IMPORT_CSV_WRONG : r == CSV_EVENT ? IMPORT_CSV_RECORDS : IMPORT_CSV_NONE;
}

enum import_csv_result import_csv_add(struct import_csv *c, struct bytes line, const char **why)
{
    static const struct bytes marked = {"\xEF\xBB\xBF#", 4}; /* a byte order mark before the # */
    bool has_begun = csv_record(c->csv)->has_names || csv_record(c->csv)->is_inside;
    bool is_comment = !has_begun && line.len > 0 && (line.ptr[0] == '#' || bytes_starts_with(line, marked));
    return is_comment ? IMPORT_CSV_NONE : take(c, csv_add(c->csv, line), why);
}

enum import_csv_result import_csv_end(struct import_csv *c, const char **why)
{
    enum import_csv_result r = take(c, csv_end(c->csv), why);
    if (r != IMPORT_CSV_NONE || c->has_columns)
        return r;
    *why = "no line names the columns";
    return IMPORT_CSV_UNREADABLE;
}

size_t import_csv_lines(const struct import_csv *c)
{
    const struct csv_record *record = csv_record(c->csv);
    return record->unclosed > 0 ? record->unclosed : record->lines;
}

struct bytes import_csv_records(const struct import_csv *c)
{
    return buf_bytes(&c->records);
}

const struct coarse *import_csv_coarse(const struct import_csv *c)
{
    return &c->coarse;
}
