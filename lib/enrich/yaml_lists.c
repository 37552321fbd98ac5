#include "enrich/yaml_lists.h"

#include <stdio.h>
#include <stdlib.h>
#include <yaml.h>

struct reader {
    yaml_document_t document;
    int (*found)(void *arg, const struct yaml_item *item, struct error *error);
    void *arg;
    struct error *error;
};

static const char *text_of(yaml_document_t *d, int id)
{
    return (const char *)yaml_document_get_node(d, id)->data.scalar.value;
}

const char *yaml_item_get(const struct yaml_item *item, const char *name)
{
    const yaml_node_pair_t *pair = item->map->data.mapping.pairs.start;
    for (; pair < item->map->data.mapping.pairs.top; pair++)
        if (strcmp(text_of(item->document, pair->key), name) == 0)
            return text_of(item->document, pair->value);
    return NULL;
}

static int fail_at(const struct reader *r, size_t line, const char *why)
{
    return error_set(r->error, -1, "line %zu: %s", line + 1, why);
}

/* Returns the node if it has the type, or NULL with the error. */
static const yaml_node_t *node_of(struct reader *r, int id, yaml_node_type_t type)
{
    const yaml_node_t *node = yaml_document_get_node(&r->document, id);
    if (node && node->type == type)
        return node;
    fail_at(r, node ? node->start_mark.line : 0, "the file is not a map of lists of flat maps");
    return NULL;
}

static int read_item(struct reader *r, const char *list, int id)
{
    const yaml_node_t *map = node_of(r, id, YAML_MAPPING_NODE);
    const yaml_node_pair_t *pair = map ? map->data.mapping.pairs.start : NULL;
    for (; map && pair < map->data.mapping.pairs.top; pair++)
        if (!node_of(r, pair->key, YAML_SCALAR_NODE) || !node_of(r, pair->value, YAML_SCALAR_NODE))
            return -1;
    if (!map)
        return -1;
    struct yaml_item item = {list, map->start_mark.line + 1, &r->document, map};
    if (r->found(r->arg, &item, r->error) == 0)
        return 0;
    struct error why = *r->error;
    return fail_at(r, map->start_mark.line, why.text);
}

static int read_lists(struct reader *r)
{
    const yaml_node_t *root = node_of(r, 1, YAML_MAPPING_NODE); /* the first node is the root */
    if (!root)
        return -1;
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *list = node_of(r, p->value, YAML_SEQUENCE_NODE);
        if (!list || !node_of(r, p->key, YAML_SCALAR_NODE))
            return -1;
        const yaml_node_item_t *i = list->data.sequence.items.start;
        for (; i < list->data.sequence.items.top; i++)
            if (read_item(r, text_of(&r->document, p->key), *i) != 0)
                return -1;
    }
    return 0;
}

int yaml_lists_read(const char *path,
    int (*found)(void *arg, const struct yaml_item *item, struct error *error), void *arg,
    struct error *error)
{
    struct reader r = {.found = found, .arg = arg, .error = error};
    yaml_parser_t parser;
    int rc = -1;
    FILE *file = fopen(path, "re");
    if (!file)
        return error_errno(error, -1, path);
    if (!yaml_parser_initialize(&parser))
        abort(); /* out of memory */
    yaml_parser_set_input_file(&parser, file);
    if (!yaml_parser_load(&parser, &r.document)) {
        fail_at(&r, parser.problem_mark.line, parser.problem ? parser.problem : "unreadable");
    } else {
        rc = read_lists(&r);
        yaml_document_delete(&r.document);
    }
    if (rc != 0) {
        struct error why = *error;
        error_set(error, -1, "%s: %s", path, why.text);
    }
    yaml_parser_delete(&parser);
    fclose(file);
    return rc;
}
