#include "api/parameters.h"

#include "base/suggest.h"
#include <stdio.h>

#define ON(kind) (1u << QUERY_##kind)
#define OF_KEYS (ON(SERIES) | ON(BREAKDOWN) | ON(COMPARE) | ON(QUANTILE) | ON(UNIQUES) | ON(RETENTION))
#define OF_SETS (ON(UNIQUES) | ON(RETENTION) | ON(COHORT))
#define OF_COUNTS (ON(SERIES) | ON(BREAKDOWN) | ON(COMPARE) | ON(TOP))
#define OF_ALL (OF_COUNTS | ON(QUANTILE) | OF_SETS)
#define SEVERAL_KEYS (ON(SERIES) | ON(UNIQUES) | ON(RETENTION)) /* these endpoints take several keys */

static const char *const endpoints[] = {"series", "breakdown", "compare", "top", "quantile", "uniques",
    "retention", "cohort"}; /* indexed by enum query_kind */

/* The endpoints that take a parameter, and those that take it several times. */
struct parameter {
    const char *name;
    unsigned of, several;
};

static const struct parameter table[] = {
    {"ns", OF_KEYS, 0},
    {"key", OF_KEYS, SEVERAL_KEYS},
    {"by", ON(SERIES) | ON(BREAKDOWN) | ON(COMPARE) | ON(QUANTILE), 0},
    {"where", ON(BREAKDOWN), ON(BREAKDOWN)},
    {"sub", ON(SERIES) | ON(COMPARE), ON(SERIES)},
    {"top", ON(SERIES), 0},
    {"counter", ON(TOP), 0},
    {"limit", ON(BREAKDOWN) | ON(TOP), 0},
    {"mean", ON(SERIES) | ON(BREAKDOWN) | ON(TOP), 0},
    {"q", ON(QUANTILE), 0},
    {"after", ON(BREAKDOWN) | ON(TOP), 0},
    {"unit", OF_ALL & ~ON(COHORT), 0},
    {"units", OF_ALL, 0},
    {"unit_reference_ts", OF_ALL, 0},
    {"from", OF_ALL, 0},
    {"to", OF_ALL, 0},
    {"period", OF_ALL, 0},
    {"bounds", OF_ALL, 0},
    {"against", ON(COMPARE) | ON(BREAKDOWN) | ON(TOP), 0},
    {"timezone", OF_ALL, 0},
    {"hour_offset", OF_ALL, 0},
    {"week_start", OF_ALL, 0},
    {"round", OF_ALL, 0},
    {"partial", OF_ALL, 0},
    {"format", OF_ALL, 0},
    {"count", OF_SETS, 0},
    {"window", ON(UNIQUES), 0},
    {"stickiness", ON(UNIQUES), 0},
    {"lookback", ON(RETENTION), 0},
    {"all", ON(COHORT), ON(COHORT)},
    {"any", ON(COHORT), ON(COHORT)},
    {"not", ON(COHORT), ON(COHORT)},
};
static const struct parameter label_of_total = {"LABEL", OF_KEYS, SEVERAL_KEYS};
static const char *const excluding[][2] = {{"period", "from"}, {"period", "to"}, {"period", "units"},
    {"period", "unit_reference_ts"}, {"from", "units"}, {"from", "unit_reference_ts"},
    {"to", "unit_reference_ts"}, {"timezone", "hour_offset"}, {"top", "sub"}};
#define N_PARAMETERS (sizeof table / sizeof *table)
#define N_EXCLUDING (sizeof excluding / sizeof *excluding)

static bool is_of(const struct parameters *p, unsigned kinds)
{
    return kinds >> p->kind & 1;
}

bool parameters_is_of_sets(const struct parameters *p)
{
    return is_of(p, OF_SETS);
}

/* Returns the row of a name, the row of the labels if the name is the label of a total, or NULL. */
static const struct parameter *find(
    const struct parameters *p, struct bytes name, const struct counter **total)
{
    *total = NULL;
    for (size_t i = 0; i < N_PARAMETERS; i++)
        if (bytes_equal_str(name, table[i].name) && (table[i].of & OF_COUNTS || is_of(p, table[i].of)))
            return &table[i];
    *total = counters_find_total_label(p->context->counters, name);
    return *total ? &label_of_total : NULL;
}

int parameters_refuse(struct parameters *p, int status, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->error->detail, sizeof p->error->detail, fmt, ap);
    va_end(ap);
    p->error->status = status;
    p->error->code = code;
    return -1;
}

void parameters_hint(struct parameters *p, const char *fmt, ...)
{
    size_t len = strlen(p->error->hint);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->error->hint + len, sizeof p->error->hint - len, fmt, ap);
    va_end(ap);
}

struct parameters_text parameters_shown(struct bytes text)
{
    struct parameters_text shown;
    snprintf(shown.text, sizeof shown.text, "%.*s", (int)text.len, text.len ? text.ptr : "");
    return shown;
}

int parameters_suggest(struct parameters *p, const char *nearest)
{
    char *detail = p->error->detail;
    size_t len = strlen(detail);
    if (nearest)
        snprintf(detail + len, sizeof p->error->detail - len, ": did you mean %s?", nearest);
    return -1;
}

static void hint_totals(struct parameters *p, const char *more)
{
    const struct counters *c = p->context->counters;
    parameters_hint(p, "counters (ns, label):");
    for (size_t i = 0; i < c->n_totals; i++)
        parameters_hint(p, "%s %s %s", i ? "," : "", c->totals[i].ns, c->totals[i].label);
    parameters_hint(p, "%s", more);
}

static void hint_parameters(struct parameters *p)
{
    parameters_hint(p, "parameters:");
    for (size_t i = 0; i < N_PARAMETERS; i++)
        if (is_of(p, table[i].of))
            parameters_hint(p, " %s", table[i].name);
}

int parameters_refuse_counter(struct parameters *p, struct bytes name, bool or_label)
{
    const struct counters *c = p->context->counters;
    const struct parameters_text shown = parameters_shown(name);
    struct suggest s = suggest_for(shown.text);
    for (size_t i = 0; i < c->n_totals; i++) {
        suggest_try(&s, or_label ? c->totals[i].label : c->totals[i].ns);
        suggest_try(&s, c->totals[i].ns);
    }
    for (size_t i = 0; i < c->n_subtotals && !or_label; i++)
        suggest_try(&s, c->subtotals[i].ns);
    for (size_t i = 0; i < c->n_uniques && is_of(p, OF_SETS); i++)
        suggest_try(&s, c->uniques[i].ns);
    hint_totals(p, "");
    parameters_refuse(p, 404, "unknown-counter", "no counter \"%s\"", shown.text);
    return parameters_suggest(p, s.nearest);
}

/* Refuses an unknown parameter. If the request names no counter, the client may have meant the label of a counter
 * that is not configured. */
static int refuse_unknown(struct parameters *p, struct bytes name)
{
    const struct counters *c = p->context->counters;
    const struct counter *total;
    const struct parameters_text shown = parameters_shown(name);
    struct suggest s = suggest_for(shown.text);
    struct bytes ns;
    for (size_t i = 0; i < N_PARAMETERS; i++)
        if (is_of(p, table[i].of))
            suggest_try(&s, table[i].name);
    bool takes_label = is_of(p, label_of_total.of);
    bool is_parameter =
        s.nearest || !takes_label || parameters_get(p, "ns", &ns) || parameters_label(p, &total);
    for (size_t i = 0; i < c->n_totals && takes_label; i++)
        suggest_try(&s, c->totals[i].label);
    if (is_parameter)
        hint_parameters(p);
    else
        hint_totals(p, "; a removed counter: its ns and key");
    if (is_parameter)
        parameters_refuse(p, 400, "unknown-parameter", "unknown parameter \"%s\"", shown.text);
    else
        parameters_refuse(p, 404, "unknown-counter", "no parameter or counter \"%s\"", shown.text);
    return parameters_suggest(p, s.nearest);
}

static int refuse_misplaced(struct parameters *p, const struct parameter *known, const struct counter *total)
{
    char of[2 * PARAMETERS_SHOWN] = "";
    if (total && p->kind == QUERY_TOP)
        return BAD(p, "top takes no key; name the counter by counter=%s", total->label);
    if (total)
        return BAD(p, "a cohort takes no %s=; write all=%s:KEY, any= or not=", total->label, total->label);
    for (unsigned kind = 0, left = known->of; left; left &= ~(1u << kind++))
        if (left >> kind & 1)
            snprintf(of + strlen(of), sizeof of - strlen(of), "%s%s",
                left == known->of   ? ""
                : left & (left - 1) ? ", "
                                    : " and ",
                endpoints[kind]);
    hint_parameters(p);
    return BAD(p, "%s is a parameter of %s, not of %s", known->name, of, endpoints[p->kind]);
}

/* Counts the i-th parameter as a further value if an earlier parameter has the same name. */
static int note_repeated(struct parameters *p, size_t i, const struct parameter *known)
{
    const struct url_param *given = p->given->params;
    struct bytes name = given[i].name;
    struct query *q = p->q;
    size_t before = 0;
    while (!bytes_equal(given[before].name, name))
        before++;
    bool is_same = bytes_equal(q->repeated, name),
         is_list = !is_of(p, SEVERAL_KEYS); /* of conditions or sets */
    if (before == i)
        return 0;
    if (!is_of(p, known->several) || (q->n_values > 0 && !is_same))
        return BAD(p, "repeated parameter: %s", parameters_shown(name).text);
    q->repeated = is_list ? BYTES_NONE : name;
    q->n_values += is_list ? 0 : 1 + !is_same;
    return q->n_values <= QUERY_SERIES_MAX
               ? 0
               : BAD(p, "at most %d values of %s", QUERY_SERIES_MAX, parameters_shown(name).text);
}

int parameters_check(struct parameters *p)
{
    const struct counter *total, *label = NULL;
    struct bytes value;
    for (size_t i = 0; i < p->given->n; i++) {
        struct bytes name = p->given->params[i].name;
        const struct parameter *known = find(p, name, &total);
        if (!known)
            return refuse_unknown(p, name);
        if (!is_of(p, known->of))
            return refuse_misplaced(p, known, total);
        if (total && ((label && label != total) || parameters_get(p, "ns", &value)))
            return BAD(p, "two counters are named; ask for one");
        if (total && parameters_get(p, "key", &value))
            return BAD(p, "key= requires ns=; a label such as user= is followed by its key");
        if (note_repeated(p, i, known) != 0)
            return -1;
        label = total ? total : label;
    }
    for (size_t i = 0; i < N_EXCLUDING; i++)
        if (parameters_get(p, excluding[i][0], &value) && parameters_get(p, excluding[i][1], &value))
            return BAD(p, "%s and %s exclude each other", excluding[i][0], excluding[i][1]);
    return 0;
}

const struct url_param *parameters_label(const struct parameters *p, const struct counter **total)
{
    for (size_t i = 0; i < p->given->n; i++)
        if (find(p, p->given->params[i].name, total) && *total)
            return &p->given->params[i];
    return NULL;
}

int parameters_number(struct parameters *p, const char *name, int64_t least, int64_t most, int64_t *out)
{
    struct bytes text;
    int64_t n;
    if (!parameters_get(p, name, &text))
        return 0;
    if (!bytes_to_i64(text, &n) || n < least || n > most)
        return BAD(p, "%s must be a whole number from %lld to %lld", name, (long long)least, (long long)most);
    *out = n;
    return 0;
}

int parameters_word(struct parameters *p, const char *name, const char *word, bool *given)
{
    struct bytes text;
    *given = parameters_get(p, name, &text);
    return !*given || bytes_equal_str(text, word) ? 0 : BAD(p, "%s must be %s", name, word);
}
