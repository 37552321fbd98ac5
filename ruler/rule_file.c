#include "ruler/rule_file.h"

#include "base/io.h"
#include "metrics/exposition.h"
#include "metrics/metric_duration.h"
#include "ruler/alert_text.h"

#include <glob.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <yaml.h>

#define FILE_MAX ((size_t)16 << 20)
#define DURATION_MAX (INT64_C(100) * 365 * 86400 * 1000)
#define INTERVAL_MIN 100 /* milliseconds */

struct reading {
    const char *path;
    yaml_document_t document;
    int64_t interval;
    struct rule_groups *out;
    struct rule_group *group;
    struct rule *rule;
    struct error *error;
};

/* A key of a map, and the function that reads its value into the member at an offset. */
struct key {
    const char *name;
    int (*read)(struct reading *r, const yaml_node_t *value, void *out);
    size_t at;
};

static int fail(const struct reading *r, size_t line, const char *why)
{
    return error_set(r->error, -1, "%s:%zu: %s", r->path, line + 1, why);
}

static int fail_at(const struct reading *r, const yaml_node_t *node, const char *why)
{
    return fail(r, node->start_mark.line, why);
}

static const char *text_of(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

static bool is_text(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE && strlen(text_of(node)) == node->data.scalar.length;
}

static int read_text(const struct reading *r, const yaml_node_t *value, char **out)
{
    if (!is_text(value))
        return fail_at(r, value, "expected a text");
    *out = mem_strdup(text_of(value));
    return 0;
}

bool rule_duration_read(const char *text, int64_t *ms)
{
    return !metric_duration_read(bytes_str(strcmp(text, "0") == 0 ? "0s" : text), ms) && *ms <= DURATION_MAX;
}

static int read_duration(struct reading *r, const yaml_node_t *value, void *out)
{
    if (is_text(value) && rule_duration_read(text_of(value), out))
        return 0;
    return fail_at(r, value, "expected a duration such as 30s or 1h30m");
}

static int read_number(struct reading *r, const yaml_node_t *value, void *out)
{
    if (is_text(value) && bytes_to_u64(bytes_str(text_of(value)), out))
        return 0;
    return fail_at(r, value, "expected a number");
}

/* Reads the keys of a map into the members of *out. */
static int read_map(
    struct reading *r, const yaml_node_t *map, const struct key *keys, void *out, const char *what)
{
    char why[200];
    if (map->type != YAML_MAPPING_NODE) {
        snprintf(why, sizeof why, "expected a map: %s", what);
        return fail_at(r, map, why);
    }
    uint64_t seen = 0;
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *name = yaml_document_get_node(&r->document, p->key);
        size_t k = 0;
        while (keys[k].name && (!is_text(name) || strcmp(keys[k].name, text_of(name)) != 0))
            k++;
        if (!keys[k].name || seen & (UINT64_C(1) << k)) {
            snprintf(why, sizeof why, "%s key \"%.60s\" of %s", keys[k].name ? "repeated" : "unknown",
                is_text(name) ? text_of(name) : "", what);
            return fail_at(r, name, why);
        }
        seen |= UINT64_C(1) << k;
        if (keys[k].read(r, yaml_document_get_node(&r->document, p->value), (char *)out + keys[k].at) != 0)
            return -1;
    }
    return 0;
}

/* Calls `read` for each item of a list. */
static int read_list(
    struct reading *r, const yaml_node_t *list, int (*read)(struct reading *r, const yaml_node_t *item))
{
    if (list->type != YAML_SEQUENCE_NODE)
        return fail_at(r, list, "expected a list");
    for (const yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top; i++)
        if (read(r, yaml_document_get_node(&r->document, *i)) != 0)
            return -1;
    return 0;
}

static int read_labels(struct reading *r, const yaml_node_t *map, void *out)
{
    static const struct label_set none;
    if (map->type != YAML_MAPPING_NODE)
        return fail_at(r, map, "expected a map of texts");
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *name = yaml_document_get_node(&r->document, p->key),
                          *value = yaml_document_get_node(&r->document, p->value);
        struct buf expanded = {0};
        if (!is_text(name) || !exposition_is_label_name(bytes_str(text_of(name))) ||
            strcmp(text_of(name), "__name__") == 0)
            return fail_at(r, name, "invalid name of a label or annotation");
        if (!is_text(value))
            return fail_at(r, value, "expected a text");
        int rc = alert_text_expand(bytes_str(text_of(value)), &none, 0, &expanded, r->error);
        buf_free(&expanded);
        if (rc != 0)
            return fail_at(r, value, r->error->text);
        if (!label_set_add(out, bytes_str(text_of(name)), bytes_str(text_of(value))))
            return fail_at(r, name, "the name occurs twice");
    }
    return 0;
}

static int read_rule_name(struct reading *r, const yaml_node_t *value, void *out)
{
    char **name = out;
    return *name ? fail_at(r, value, "a rule is either record or alert") : read_text(r, value, name);
}

static int read_record(struct reading *r, const yaml_node_t *value, void *out)
{
    if (read_rule_name(r, value, out) != 0)
        return -1;
    char *name = mem_strdup(*(char **)out); /* a name of a metric may also have colons */
    for (char *p = name; *p != '\0'; p++)
        *p = *p == ':' ? '_' : *p;
    bool is_valid = exposition_is_label_name(bytes_str(name));
    free(name);
    return is_valid ? 0 : fail_at(r, value, "invalid name of a metric");
}

static int read_alert(struct reading *r, const yaml_node_t *value, void *out)
{
    if (read_rule_name(r, value, out) != 0)
        return -1;
    r->rule->is_alert = true;
    return *r->rule->name ? 0 : fail_at(r, value, "the name of the alert is empty");
}

static int read_expr(struct reading *r, const yaml_node_t *value, void *out)
{
    if (read_text(r, value, out) != 0)
        return -1;
    return bytes_trim(bytes_str(r->rule->expr)).len > 0 ? 0 : fail_at(r, value, "the expression is empty");
}

static int read_rule(struct reading *r, const yaml_node_t *item)
{
    static const struct key keys[] = {{"record", read_record, offsetof(struct rule, name)},
        {"alert", read_alert, offsetof(struct rule, name)}, {"expr", read_expr, offsetof(struct rule, expr)},
        {"for", read_duration, offsetof(struct rule, hold)},
        {"keep_firing_for", read_duration, offsetof(struct rule, keep_firing)},
        {"labels", read_labels, offsetof(struct rule, labels)},
        {"annotations", read_labels, offsetof(struct rule, annotations)}, {0}};
    struct rule_group *g = r->group;
    struct rule *rule = r->rule = ARRAY_ADD(g->rules, g->n_rules, g->cap_rules);
    *rule = (struct rule){0};
    if (read_map(r, item, keys, rule, "a rule") != 0)
        return -1;
    if (!rule->name)
        return fail_at(r, item, "the rule has neither record nor alert");
    if (!rule->expr)
        return fail_at(r, item, "the rule has no expr");
    if (!rule->is_alert && (rule->hold > 0 || rule->keep_firing > 0 || rule->annotations.n > 0))
        return fail_at(r, item, "for, keep_firing_for and annotations belong to alerts");
    return 0;
}

static int read_group_name(struct reading *r, const yaml_node_t *value, void *out)
{
    if (read_text(r, value, out) != 0)
        return -1;
    for (struct rule_group *g = r->out->all; g < r->group; g++)
        if (strcmp(g->name, r->group->name) == 0 && strcmp(g->file, r->path) == 0)
            return fail_at(r, value, "the file has two groups with this name");
    return *r->group->name ? 0 : fail_at(r, value, "the name of the group is empty");
}

static int read_interval(struct reading *r, const yaml_node_t *value, void *out)
{
    if (read_duration(r, value, out) != 0)
        return -1;
    if (r->group->interval == 0)
        r->group->interval = r->interval;
    return r->group->interval >= INTERVAL_MIN ? 0 : fail_at(r, value, "the interval is below 100ms");
}

static int read_rules(struct reading *r, const yaml_node_t *value, void *out)
{
    (void)out;
    return read_list(r, value, read_rule);
}

static int read_group(struct reading *r, const yaml_node_t *item)
{
    static const struct key keys[] = {{"name", read_group_name, offsetof(struct rule_group, name)},
        {"interval", read_interval, offsetof(struct rule_group, interval)},
        {"limit", read_number, offsetof(struct rule_group, limit)},
        {"query_offset", read_duration, offsetof(struct rule_group, offset)}, {"rules", read_rules, 0}, {0}};
    r->group = ARRAY_ADD(r->out->all, r->out->n, r->out->cap);
    *r->group = (struct rule_group){.file = mem_strdup(r->path), .interval = r->interval};
    if (read_map(r, item, keys, r->group, "a group") != 0)
        return -1;
    return r->group->name ? 0 : fail_at(r, item, "the group has no name");
}

static int read_groups(struct reading *r, const yaml_node_t *value, void *out)
{
    (void)out;
    return read_list(r, value, read_group);
}

int rules_parse(
    const char *path, struct bytes text, int64_t interval, struct rule_groups *out, struct error *error)
{
    static const struct key keys[] = {{"groups", read_groups, 0}, {0}};
    struct reading r = {.path = path, .interval = interval, .out = out, .error = error};
    yaml_parser_t parser;
    int rc = -1;
    if (!yaml_parser_initialize(&parser))
        abort(); /* out of memory */
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.ptr, text.len);
    if (!yaml_parser_load(&parser, &r.document)) {
        fail(&r, parser.problem_mark.line, parser.problem ? parser.problem : "unreadable");
    } else {
        const yaml_node_t *root = yaml_document_get_root_node(&r.document);
        rc = root ? read_map(&r, root, keys, out, "the file") : 0;
        yaml_document_delete(&r.document);
    }
    yaml_parser_delete(&parser);
    return rc;
}

static int read_file(const char *path, int64_t interval, struct rule_groups *out, struct error *error)
{
    struct buf text = {0};
    int rc = io_read_file(path, FILE_MAX, &text);
    rc = rc != 0 ? error_errno(error, -1, path) : rules_parse(path, buf_bytes(&text), interval, out, error);
    buf_free(&text);
    return rc;
}

static void note_unmatched(struct rule_groups *out, const char *pattern)
{
    char *before = out->unmatched;
    out->unmatched = mem_printf("%s%s%s", before ? before : "", before ? " " : "", pattern);
    free(before);
}

int rules_read(const char *patterns, int64_t interval, struct rule_groups *out, struct error *error)
{
    struct bytes word;
    int rc = 0;
    while (rc == 0 && bytes_next_word(&patterns, " ", &word)) {
        char *pattern = bytes_dup(word);
        glob_t found;
        if (!strpbrk(pattern, "*?[")) {
            rc = read_file(pattern, interval, out, error);
        } else if (glob(pattern, 0, NULL, &found) == 0) {
            for (size_t i = 0; i < found.gl_pathc && rc == 0; i++)
                rc = read_file(found.gl_pathv[i], interval, out, error);
            globfree(&found);
        } else {
            note_unmatched(out, pattern);
        }
        free(pattern);
    }
    if (rc != 0)
        rules_free(out);
    return rc;
}

void rules_free(struct rule_groups *groups)
{
    for (struct rule_group *g = groups->all; g < groups->all + groups->n; g++) {
        for (struct rule *rule = g->rules; rule < g->rules + g->n_rules; rule++) {
            free(rule->name);
            free(rule->expr);
            label_set_free(&rule->labels);
            label_set_free(&rule->annotations);
        }
        free(g->rules);
        free(g->name);
        free(g->file);
    }
    free(groups->all);
    free(groups->unmatched);
    *groups = (struct rule_groups){0};
}
