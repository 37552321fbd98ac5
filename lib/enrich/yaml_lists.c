#include "enrich/yaml_lists.h"

#include <stdio.h>
#include <stdlib.h>
#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    struct yaml_item item;
    size_t cap;
    char *list;
    int (*found)(void *arg, const struct yaml_item *item, struct error *error);
    void *arg;
    struct error *error;
};

const char *yaml_item_get(const struct yaml_item *item, const char *name)
{
    for (size_t i = 0; i < item->n_fields; i++) {
        if (strcmp(item->fields[i].name, name) == 0)
            return item->fields[i].value;
    }
    return NULL;
}

static size_t line_of(yaml_mark_t mark)
{
    return mark.line + 1;
}

static void clear_item(struct reader *r)
{
    for (size_t i = 0; i < r->item.n_fields; i++) {
        free(r->item.fields[i].name);
        free(r->item.fields[i].value);
    }
    r->item.n_fields = 0;
}

/* Reads the next event, and expects one of two types. Returns the type, or 0 with the error. */
static yaml_event_type_t next(
    struct reader *r, yaml_event_type_t one, yaml_event_type_t other, yaml_event_t *event)
{
    if (!yaml_parser_parse(&r->parser, event)) {
        error_set(r->error, -1, "line %zu: %s", line_of(r->parser.problem_mark),
            r->parser.problem ? r->parser.problem : "unreadable");
        return YAML_NO_EVENT;
    }
    if (event->type == one || event->type == other)
        return event->type;
    error_set(
        r->error, -1, "line %zu: the file is not a map of lists of flat maps", line_of(event->start_mark));
    yaml_event_delete(event);
    return YAML_NO_EVENT;
}

/* As next, for events of which only the type counts. */
static yaml_event_type_t next_type(struct reader *r, yaml_event_type_t one, yaml_event_type_t other)
{
    yaml_event_t event;
    yaml_event_type_t type = next(r, one, other, &event);
    if (type != YAML_NO_EVENT)
        yaml_event_delete(&event);
    return type;
}

/* Reads a text, or the end of a map. Sets *text to a copy of the text, or to NULL at the end of the map. */
static int next_text(struct reader *r, yaml_event_type_t end, char **text)
{
    yaml_event_t event;
    *text = NULL;
    yaml_event_type_t type = next(r, YAML_SCALAR_EVENT, end, &event);
    if (type == YAML_NO_EVENT)
        return -1;
    if (type == YAML_SCALAR_EVENT)
        *text = mem_strdup((const char *)event.data.scalar.value);
    yaml_event_delete(&event);
    return 0;
}

static int read_item(struct reader *r)
{
    char *name, *value;
    clear_item(r);
    r->item.line = line_of(r->parser.mark);
    for (;;) {
        if (next_text(r, YAML_MAPPING_END_EVENT, &name) != 0)
            return -1;
        if (!name)
            break;
        if (next_text(r, YAML_SCALAR_EVENT, &value) != 0) {
            free(name);
            return -1;
        }
        *ARRAY_ADD(r->item.fields, r->item.n_fields, r->cap) = (struct yaml_field){name, value};
    }
    if (r->found(r->arg, &r->item, r->error) == 0)
        return 0;
    error_set(r->error, -1, "line %zu: %s", r->item.line, r->error->text);
    return -1;
}

static int read_lists(struct reader *r)
{
    if (!next_type(r, YAML_STREAM_START_EVENT, YAML_STREAM_START_EVENT) ||
        !next_type(r, YAML_DOCUMENT_START_EVENT, YAML_DOCUMENT_START_EVENT) ||
        !next_type(r, YAML_MAPPING_START_EVENT, YAML_MAPPING_START_EVENT))
        return -1;
    for (;;) {
        free(r->list);
        if (next_text(r, YAML_MAPPING_END_EVENT, &r->list) != 0)
            return -1;
        if (!r->list)
            return 0;
        r->item.list = r->list;
        if (!next_type(r, YAML_SEQUENCE_START_EVENT, YAML_SEQUENCE_START_EVENT))
            return -1;
        yaml_event_type_t type;
        while ((type = next_type(r, YAML_MAPPING_START_EVENT, YAML_SEQUENCE_END_EVENT)) ==
               YAML_MAPPING_START_EVENT) {
            if (read_item(r) != 0)
                return -1;
        }
        if (type == YAML_NO_EVENT)
            return -1;
    }
}

int yaml_lists_read(const char *path,
    int (*found)(void *arg, const struct yaml_item *item, struct error *error), void *arg,
    struct error *error)
{
    struct reader r = {.found = found, .arg = arg, .error = error};
    FILE *file = fopen(path, "re");
    if (!file)
        return error_errno(error, -1, path);
    if (!yaml_parser_initialize(&r.parser))
        abort(); /* out of memory */
    yaml_parser_set_input_file(&r.parser, file);
    int rc = read_lists(&r);
    if (rc != 0)
        error_set(error, -1, "%s: %s", path, error->text);
    clear_item(&r);
    free(r.item.fields);
    free(r.list);
    yaml_parser_delete(&r.parser);
    fclose(file);
    return rc;
}
