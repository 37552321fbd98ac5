/* yaml_lists: reads a YAML file whose top level names lists, and whose list items are flat maps of texts. The files of
 * uap-core have this form:
 *
 *     os_parsers:
 *       - regex: 'CrOS'
 *         os_replacement: 'Chrome OS'
 *
 * Any other form is an error that names the line. An empty value is the empty text. */
#ifndef MILLRACE_YAML_LISTS_H
#define MILLRACE_YAML_LISTS_H

#include "base/bytes.h"
#include "base/error.h"

struct yaml_item {
    const char *list; /* the name of the item's list */
    size_t line;      /* the line of the item's first field, from 1 */
    struct yaml_document_s *document;
    const struct yaml_node_s *map;
};

/* Returns the value of a field, or NULL. */
const char *yaml_item_get(const struct yaml_item *item, const char *name);

/* Calls `found` for each item in the order of the file. The item is valid until `found` returns. The walk ends if
 * `found` returns a value other than 0, with the error set. Returns 0 or -1. Each error begins with the path, and with the
 * line if there is one. */
int yaml_lists_read(const char *path,
    int (*found)(void *arg, const struct yaml_item *item, struct error *error), void *arg,
    struct error *error);

#endif
