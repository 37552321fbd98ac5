#define PCRE2_CODE_UNIT_WIDTH 8
#include "enrich/agent_rules.h"

#include "enrich/yaml_lists.h"
#include <pcre2.h>
#include <stdlib.h>
#include <sys/param.h>

#define GROUPS_MAX 10 /* $1 to $9, and the whole match */

/* For each value of a list: the field with its replacement, and the group of the match that becomes the value if
 * the list has no replacement (0: no group). */
static const struct list_form {
    const char *name;
    size_t n_values;
    struct {
        const char *replacement;
        uint32_t group;
    } values[AGENT_VALUES];
} forms[AGENT_LISTS] = {
    [AGENT_BROWSER] = {"user_agent_parsers", 4,
        {{"family_replacement", 1}, {"v1_replacement", 2}, {"v2_replacement", 3}, {"v3_replacement", 4}}},
    [AGENT_OS] = {"os_parsers", 5,
        {{"os_replacement", 1}, {"os_v1_replacement", 2}, {"os_v2_replacement", 3}, {"os_v3_replacement", 4},
            {"os_v4_replacement", 5}}},
    [AGENT_DEVICE] = {"device_parsers", 3,
        {{"device_replacement", 1}, {"brand_replacement", 0}, {"model_replacement", 1}}},
};

struct rule {
    pcre2_code *code;
    char *replacements[AGENT_VALUES];
};

struct found {
    struct bytes text;
    const PCRE2_SIZE *ends; /* two offsets for each group */
    uint32_t n_groups;
};

struct agent_rules {
    struct {
        struct rule *rules;
        size_t n, cap;
    } lists[AGENT_LISTS];
    pcre2_match_data *match;
    pcre2_match_context *context;
    struct buf values; /* the memory of the last answer */
};

static int compile(const char *regex, const char *flag, struct rule *rule, struct error *error)
{
    int code;
    PCRE2_SIZE at;
    unsigned char why[120];
    uint32_t options = PCRE2_DOLLAR_ENDONLY | (flag && strcmp(flag, "i") == 0 ? PCRE2_CASELESS : 0);
    rule->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, options, &code, &at, NULL);
    if (rule->code) {
        pcre2_jit_compile(rule->code, PCRE2_JIT_COMPLETE);
        return 0;
    }
    pcre2_get_error_message(code, why, sizeof why);
    return error_set(error, -1, "invalid regular expression at character %zu: %s", at + 1, (char *)why);
}

static int add_rule(void *arg, const struct yaml_item *item, struct error *error)
{
    struct agent_rules *rules = arg;
    size_t list = 0;
    while (list < AGENT_LISTS && strcmp(forms[list].name, item->list) != 0)
        list++;
    if (list == AGENT_LISTS)
        return 0; /* a list of a later uap-core */
    const char *regex = yaml_item_get(item, "regex");
    if (!regex)
        return error_set(error, -1, "the rule has no regex");
    struct rule *rule = ARRAY_ADD(rules->lists[list].rules, rules->lists[list].n, rules->lists[list].cap);
    *rule = (struct rule){.code = NULL};
    for (size_t i = 0; i < forms[list].n_values; i++) {
        const char *replacement = yaml_item_get(item, forms[list].values[i].replacement);
        rule->replacements[i] = replacement ? mem_strdup(replacement) : NULL;
    }
    return compile(regex, yaml_item_get(item, "regex_flag"), rule, error);
}

struct agent_rules *agent_rules_open(const char *path, struct error *error)
{
    struct agent_rules *rules = mem_zalloc(sizeof *rules);
    rules->match = pcre2_match_data_create(GROUPS_MAX, NULL);
    rules->context = pcre2_match_context_create(NULL);
    if (!rules->match || !rules->context)
        abort();
    pcre2_set_match_limit(rules->context, AGENT_STEPS_MAX);
    int rc = yaml_lists_read(path, add_rule, rules, error);
    for (size_t i = 0; rc == 0 && i < AGENT_LISTS; i++) {
        if (rules->lists[i].n == 0)
            rc = error_set(error, -1, "%s: there are no %s", path, forms[i].name);
    }
    if (rc != 0)
        agent_rules_free(&rules);
    return rules;
}

void agent_rules_free(struct agent_rules **rp)
{
    struct agent_rules *rules = *rp;
    *rp = NULL;
    if (!rules)
        return;
    for (size_t list = 0; list < AGENT_LISTS; list++) {
        for (size_t i = 0; i < rules->lists[list].n; i++) {
            struct rule *rule = &rules->lists[list].rules[i];
            for (size_t j = 0; j < AGENT_VALUES; j++)
                free(rule->replacements[j]);
            pcre2_code_free(rule->code);
        }
        free(rules->lists[list].rules);
    }
    pcre2_match_data_free(rules->match);
    pcre2_match_context_free(rules->context);
    buf_free(&rules->values);
    free(rules);
}

static struct bytes group(const struct found *found, uint32_t n)
{
    const PCRE2_SIZE *ends = found->ends + (size_t)2 * n;
    if (n >= found->n_groups || ends[0] == PCRE2_UNSET || ends[0] > ends[1])
        return BYTES_NONE;
    return bytes_of(found->text.ptr + ends[0], ends[1] - ends[0]);
}

/* Appends a replacement with the groups that $1 to $9 name. */
static void append_replaced(struct buf *out, const char *replacement, const struct found *found)
{
    for (const char *p = replacement; *p; p++) {
        if (*p == '$' && p[1] >= '1' && p[1] <= '9')
            buf_append_bytes(out, group(found, (uint32_t)(*++p - '0')));
        else
            buf_append_char(out, *p);
    }
}

static void set_values(struct buf *memory, const struct list_form *form, const struct rule *rule,
    const struct found *found, struct bytes values[AGENT_VALUES])
{
    size_t ends[AGENT_VALUES + 1] = {0};
    for (size_t i = 0; i < form->n_values; i++) {
        if (rule->replacements[i])
            append_replaced(memory, rule->replacements[i], found);
        else if (form->values[i].group > 0)
            buf_append_bytes(memory, group(found, form->values[i].group));
        ends[i + 1] = memory->len;
    }
    for (size_t i = 0; i < form->n_values; i++)
        values[i] = bytes_trim(bytes_of(memory->ptr + ends[i], ends[i + 1] - ends[i]));
}

void agent_rules_find(
    struct agent_rules *rules, enum agent_list list, struct bytes text, struct bytes values[AGENT_VALUES])
{
    text.len = MIN(text.len, AGENT_TEXT_MAX);
    memset(values, 0, AGENT_VALUES * sizeof *values);
    buf_clear(&rules->values);
    for (size_t i = 0; i < rules->lists[list].n; i++) {
        const struct rule *rule = &rules->lists[list].rules[i];
        int rc = pcre2_match(rule->code, (PCRE2_SPTR)text.ptr, text.len, 0, 0, rules->match, rules->context);
        if (rc >= 0) { /* 0: there are more groups */
            struct found found = {
                text, pcre2_get_ovector_pointer(rules->match), rc > 0 ? (uint32_t)rc : GROUPS_MAX};
            set_values(&rules->values, &forms[list], rule, &found, values);
        }
        if (rc != PCRE2_ERROR_NOMATCH)
            break;
    }
    if (values[AGENT_FAMILY].len == 0)
        values[AGENT_FAMILY] = BYTES_LITERAL("Other");
}
