#include "api/where_query.h"

#include "base/rfc3339.h"
#include "json/json_path.h"
#include <stdio.h>

/* A condition "NAME:VALUE" of the request. NAME is a counter, whose key is compared, or else a field. */
struct term {
    const struct counter *counter; /* NULL: `field` is the name in the request */
    struct bytes field;
    struct bytes value;
};

struct terms {
    struct term conditions[WHERE_MAX + 1];
    size_t n;
    struct term by;
};

static bool is_sub_of(const struct counter *c, struct bytes ns)
{
    const char *dot = strchr(c->ns, '.');
    return dot && bytes_equal(bytes_of(c->ns, (size_t)(dot - c->ns)), ns);
}

/* Finds the counter with a name: of the subtotals of `total`, of the totals, then of all subtotals. */
static const struct counter *find_named(
    const struct counters *c, const struct counter *total, struct bytes name)
{
    const struct counter *found = counters_find_sub_label(c, total, name);
    found = found ? found : counters_find_total_label(c, name);
    found = found ? found : counters_find(c, name);
    for (size_t i = 0; i < c->n_subtotals && !found; i++)
        if (bytes_equal_str(name, c->subtotals[i].label) || is_sub_of(&c->subtotals[i], name))
            found = &c->subtotals[i];
    return found;
}

static bool has_control(struct bytes text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < ' ' || text.ptr[i] == 0x7f)
            return true;
    return false;
}

static int parse_term(struct parameters *p, const char *parameter, struct bytes name, struct term *out)
{
    const struct parameters_text shown = parameters_shown(name);
    out->counter = find_named(p->context->counters, p->q->total, name);
    out->field = name;
    if (out->counter && out->counter->kind == COUNTER_CONSTANT)
        return BAD(p, "%s: every event has the key of %s", parameter, shown.text);
    if (out->counter || (json_path_is_valid(name) && !has_control(name)))
        return 0;
    return BAD(p, "%s: \"%s\" is neither a counter nor a field", parameter, shown.text);
}

/* True if the counter has the key of the term. */
static bool has_key_of(const struct counter *c, const struct term *t)
{
    return t->counter ? counter_has_key_of(c, t->counter)
                      : c->kind == COUNTER_FIELD && bytes_equal_str(t->field, c->field);
}

static bool is_same_key(const struct term *a, const struct term *b)
{
    if (a->counter || b->counter)
        return a->counter ? has_key_of(a->counter, b) : has_key_of(b->counter, a);
    return bytes_equal(a->field, b->field);
}

/* Drops the last condition if it repeats an earlier one. Refuses a second value of a key. */
static int check_repeated(struct parameters *p, struct terms *t)
{
    const struct term *last = &t->conditions[t->n - 1];
    for (size_t i = 0; i + 1 < t->n; i++) {
        if (!is_same_key(&t->conditions[i], last))
            continue;
        if (!bytes_equal(t->conditions[i].value, last->value))
            return BAD(p, "where: no event has two values of %.*s", (int)last->field.len, last->field.ptr);
        t->n--;
        return 0;
    }
    return 0;
}

static int parse_where(struct parameters *p, struct terms *t)
{
    for (size_t i = 0; i < p->given->n; i++) {
        struct bytes text = p->given->params[i].value;
        if (!bytes_equal_str(p->given->params[i].name, "where"))
            continue;
        const char *colon = text.len > 0 ? memchr(text.ptr, ':', text.len) : NULL;
        if (!colon || colon == text.ptr || colon + 1 == text.ptr + text.len || has_control(text))
            return BAD(p, "where must be LABEL:VALUE, without control characters; VALUE is None for events "
                          "without the field");
        if (t->n > WHERE_MAX)
            return BAD(p, "at most %d times where", WHERE_MAX);
        struct term *term = &t->conditions[t->n++];
        size_t len = (size_t)(colon - text.ptr);
        if (parse_term(p, "where", bytes_of(text.ptr, len), term) != 0)
            return -1;
        term->value = bytes_of(colon + 1, text.len - len - 1);
        if (check_repeated(p, t) != 0)
            return -1;
    }
    return 0;
}

/* Parses the total and its key, which is the first condition unless the key is constant. */
static int parse_total(struct parameters *p, struct terms *t)
{
    struct query *q = p->q;
    struct bytes ns;
    const struct url_param *label = parameters_label(p, &q->total);
    if (label)
        q->key = label->value;
    else if (!parameters_get(p, "ns", &ns))
        return MISSING(p, "name a counter: ns=NS&key=KEY, or LABEL=KEY");
    else if (!(q->total = counters_find(p->context->counters, ns)) || memchr(ns.ptr, '.', ns.len))
        return parameters_refuse_counter(p, ns, false);
    else
        parameters_get(p, "key", &q->key);
    if (q->total->kind == COUNTER_CONSTANT)
        return 0;
    if (q->key.len == 0 || has_control(q->key))
        return MISSING(
            p, "%s: with where=, the key must be a text without control characters", q->total->label);
    t->conditions[t->n++] = (struct term){.counter = q->total, .value = q->key};
    return 0;
}

/* Finds a total that has the key of the term and adds as `like`. */
static const struct counter *find_total(
    const struct counters *c, const struct counter *like, const struct term *t)
{
    for (size_t i = 0; i < c->n_totals; i++)
        if (has_key_of(&c->totals[i], t) && counter_adds_as(&c->totals[i], like))
            return &c->totals[i];
    return NULL;
}

/* Sets the query's subtotal if a single total has the condition as its key, and a subtotal has the key of `by`. */
static void find_counters(struct parameters *p, const struct terms *t)
{
    const struct counters *c = p->context->counters;
    for (size_t i = 0; i < c->n_subtotals && t->n == 1; i++) {
        const struct counter *sub = &c->subtotals[i], *total = &c->totals[sub->total];
        if (!counter_adds_as(total, p->q->total) || !has_key_of(total, &t->conditions[0]) ||
            !has_key_of(sub, &t->by))
            continue;
        p->q->total = total;
        p->q->sub = sub;
        p->q->key = t->conditions[0].value;
        return;
    }
}

static struct bytes key_of(const struct term *t)
{
    return t->counter ? bytes_str(t->counter->key_text) : t->field;
}

/* The name of a new counter with the term's key: that of the term's counter without its total, or the field's letters. */
static void append_name(const struct term *t, struct buf *out)
{
    struct bytes from = t->counter ? bytes_str(t->counter->ns) : t->field;
    for (size_t i = 0; i < from.len && !(t->counter && from.ptr[i] == '.'); i++) {
        char c = from.ptr[i] >= 'A' && from.ptr[i] <= 'Z' ? (char)(from.ptr[i] + 'a' - 'A') : from.ptr[i];
        buf_append_char(out, (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_');
    }
}

static bool is_unused(const struct counters *c, struct bytes name, const char *total)
{
    struct buf ns = {0};
    buf_append_bytes(&ns, name);
    if (*total)
        buf_printf(&ns, ".%s", total);
    bool is_unused = namespace_is_valid(name) && !counters_find(c, buf_bytes(&ns)) &&
                     !counters_find_unique(c, buf_bytes(&ns));
    buf_free(&ns);
    return is_unused;
}

/* Cuts the name to its limit, and appends a number if a counter has the name. `total` is the namespace of the total of a
 * subtotal, or empty. Appends a NUL behind the name. */
static void finish_name(const struct counters *c, const char *total, struct buf *name)
{
    size_t len = name->len < NAMESPACE_MAX ? name->len : NAMESPACE_MAX;
    name->len = len;
    for (unsigned n = 2; n < 100 && !is_unused(c, buf_bytes(name), total); n++) {
        name->len = len < NAMESPACE_MAX - 2 ? len : NAMESPACE_MAX - 2;
        buf_append_u64(name, n);
    }
    buf_append_char(name, '\0');
}

/* Appends the section of a total with the conditions as its key, which adds as `like`. A key has one field, so several
 * conditions need a field that has all values. Sets *ns to the namespace of the total. */
static void append_total(const struct counters *c, const struct counter *like, const struct terms *t,
    struct buf *ns, struct buf *out)
{
    struct buf field = {0};
    for (size_t i = 0; i < t->n; i++) {
        buf_append_str(&field, i ? "_" : "");
        append_name(&t->conditions[i], &field);
    }
    buf_append_bytes(ns, buf_bytes(&field));
    finish_name(c, "", ns);
    if (t->n > 1) {
        buf_printf(out,
            "the key of a counter cannot have two fields; post events with a field such as \"%.*s\":\"",
            (int)field.len, field.ptr);
        for (size_t i = 0; i < t->n; i++)
            buf_printf(
                out, "%s%.*s", i ? " " : "", (int)t->conditions[i].value.len, t->conditions[i].value.ptr);
        buf_append_str(out, "\", and add to the configuration:\n");
    }
    struct bytes key = t->n > 1 ? buf_bytes(&field) : key_of(&t->conditions[0]);
    buf_printf(out, "[total %s]\nkey = %.*s\n", ns->ptr, (int)key.len, key.ptr);
    counter_append_adding(like, out);
    buf_free(&field);
}

/* Appends the sections to add to the configuration. */
static void append_sections(
    const struct counters *c, const struct counter *like, const struct terms *t, struct buf *out)
{
    const struct counter *total = t->n == 1 ? find_total(c, like, &t->conditions[0]) : NULL;
    struct buf ns = {0}, sub = {0};
    struct bytes key = key_of(&t->by);
    if (t->n == 1)
        buf_append_str(out, "add to the configuration, and count the past with millrace recount:\n");
    if (total)
        buf_printf(&ns, "%s", total->ns);
    else
        append_total(c, like, t, &ns, out);
    append_name(&t->by, &sub);
    finish_name(c, ns.ptr, &sub);
    buf_printf(out, "[subtotal %s.%s]\nkey = %.*s\n", sub.ptr, ns.ptr, (int)key.len, key.ptr);
    if (t->by.counter && strcmp(t->by.counter->label, sub.ptr) != 0)
        buf_printf(out, "label = %s\n", t->by.counter->label);
    buf_free(&ns);
    buf_free(&sub);
}

/* Appends a text of SQL, between quotes. */
static void append_sql_text(struct bytes text, struct buf *out)
{
    buf_append_char(out, '\'');
    for (size_t i = 0; i < text.len; i++) {
        buf_append_char(out, text.ptr[i]);
        if (text.ptr[i] == '\'')
            buf_append_char(out, '\'');
    }
    buf_append_char(out, '\'');
}

static bool is_word(struct bytes name)
{
    bool is_word = name.len > 0 && (name.ptr[0] < '0' || name.ptr[0] > '9');
    for (size_t i = 0; i < name.len && is_word; i++)
        is_word = name.ptr[i] == '_' || (name.ptr[i] >= '0' && name.ptr[i] <= '9') ||
                  ((name.ptr[i] | ' ') >= 'a' && (name.ptr[i] | ' ') <= 'z');
    return is_word;
}

/* Appends the value of a field in a line. Returns false if SQL cannot name the field. */
static bool append_sql_field(struct bytes field, struct buf *out)
{
    struct json_path path = {.rest = field};
    bool ok = true;
    struct json_step step;
    struct buf text = {0};
    buf_append_char(&text, '$');
    while (json_path_next(&path, &step)) {
        ok = ok && (step.is_index || !memchr(step.name.ptr, '"', step.name.len));
        if (step.is_index)
            buf_printf(&text, "[%u]", step.index);
        else
            buf_printf(&text, is_word(step.name) ? ".%.*s" : ".\"%.*s\"", (int)step.name.len, step.name.ptr);
    }
    buf_append_str(out, "line ->> ");
    append_sql_text(buf_bytes(&text), out);
    buf_free(&text);
    return ok;
}

/* Appends the term's key of a line. Returns false if SQL does not have the function of the key, or cannot name the field. */
static bool append_sql_key(const struct term *t, struct buf *out)
{
    bool has_function = t->counter && t->counter->kind == COUNTER_FUNCTION;
    if (has_function && !bytes_starts_with(key_of(t), BYTES_LITERAL("lower(")))
        return false;
    buf_append_str(out, has_function ? "lower(" : "");
    bool ok = append_sql_field(t->counter ? bytes_str(t->counter->field) : t->field, out);
    buf_append_str(out, has_function ? ")" : "");
    return ok;
}

/* Appends a condition. A key is a text, but SQLite's ->> returns a number or a Boolean of JSON as a number. */
static bool append_sql_condition(const struct term *t, struct buf *out)
{
    int64_t n;
    char digits[24] = "";
    if (bytes_to_i64(t->value, &n))
        snprintf(digits, sizeof digits, "%lld", (long long)n);
    bool is_true = bytes_equal_str(t->value, "true"),
         is_boolean = is_true || bytes_equal_str(t->value, "false");
    bool is_number = is_boolean || bytes_equal_str(t->value, digits),
         is_none = bytes_equal_str(t->value, "None");
    buf_append_str(out, " and ");
    buf_append_str(out, is_none ? "coalesce(nullif(" : "");
    if (!append_sql_key(t, out))
        return false;
    buf_append_str(out, is_none ? ", ''), 'None')" : "");
    buf_append_str(out, is_number ? " in (" : " = ");
    append_sql_text(t->value, out);
    if (is_number)
        buf_printf(out, ", %s)", is_boolean ? (is_true ? "1" : "0") : digits);
    return true;
}

static void append_sql_time(const char *than, int64_t t, struct buf *out)
{
    char text[RFC3339_TEXT];
    rfc3339_write(t, text);
    buf_printf(out, " and time %s '%.10s %.8s'", than, text, text + sizeof "2012-03-25");
}

static bool append_statement(const struct parameters *p, const struct terms *t, struct buf *out)
{
    const char *streams = p->context->streams ? p->context->streams : "clicks";
    const struct query *q = p->q;
    const struct counter *total = q->total;
    const char *field = total->value ? total->value : total->having;
    struct bytes name;
    bool ok = true;
    buf_append_str(out, "select ");
    if (!append_sql_key(&t->by, out))
        return false;
    buf_append_str(out, total->value ? " as key, round(sum(" : " as key, count(*) as n");
    if (total->value) {
        ok = append_sql_field(bytes_str(total->value), out);
        buf_printf(out, "), %u) as n", total->decimal.scale);
    }
    buf_append_str(out, " from events where stream in (");
    for (size_t n = 0; bytes_next_word(&streams, ", ", &name); n++) {
        buf_append_str(out, n ? ", " : "");
        append_sql_text(name, out);
    }
    buf_append_char(out, ')');
    for (size_t i = 0; i < t->n; i++)
        if (!append_sql_condition(&t->conditions[i], out))
            return false;
    if (field) {
        buf_append_str(out, " and ");
        ok = append_sql_field(bytes_str(field), out) && ok;
        buf_append_str(out, " is not null");
    }
    if (!q->is_all) {
        append_sql_time(">=", q->from, out);
        append_sql_time("<", q->to, out);
    }
    buf_printf(out, " group by 1 order by n desc, key limit %llu", (unsigned long long)q->limit);
    return ok;
}

/* Appends a word of a shell in double quotes. A dollar before a dot is an ordinary character. */
static void append_shell(struct bytes text, struct buf *out)
{
    buf_append_char(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i], next = i + 1 < text.len ? text.ptr[i + 1] : '"';
        if (strchr("\"\\`", c) || (c == '$' && next != '.'))
            buf_append_char(out, '\\');
        buf_append_char(out, c);
    }
    buf_append_char(out, '"');
}

static int parse_terms(struct parameters *p, struct terms *t)
{
    struct bytes by;
    if (parse_total(p, t) != 0)
        return -1;
    if (!parameters_get(p, "by", &by))
        return MISSING(p, "a breakdown needs by=LABEL");
    return parse_term(p, "by", by, &t->by) != 0 ? -1 : parse_where(p, t);
}

int where_query_parse(struct parameters *p)
{
    struct terms t = {.n = 0};
    if (parse_terms(p, &t) != 0)
        return -1;
    find_counters(p, &t);
    return 0;
}

int where_query_refuse(struct parameters *p)
{
    const struct counters *c = p->context->counters;
    struct terms t = {.n = 0};
    struct buf hint = {0}, sql = {0};
    if (parse_terms(p, &t) != 0)
        return -1;
    append_sections(c, p->q->total, &t, &hint);
    if (append_statement(p, &t, &sql)) {
        buf_printf(&hint, "%s:\nmillrace sql ",
            c->skip_if || c->keep_if
                ? "or count the lines, including the lines that skip_if and keep_if exclude"
                : "or count the lines");
        append_shell(buf_bytes(&sql), &hint);
    } else {
        buf_append_str(&hint, "SQL over the lines has no function for one of these keys");
    }
    if (hint.len < sizeof p->error->hint)
        parameters_hint(p, "%.*s", (int)hint.len, hint.ptr);
    else
        parameters_hint(p, "declare a subtotal, or ask millrace sql; the statement is too long to print");
    buf_free(&hint);
    buf_free(&sql);
    return parameters_refuse(p, 422, "not-counted", "no counter has these conditions and this breakdown");
}
