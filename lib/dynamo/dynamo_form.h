/* dynamo_form: makes an item of an event, in the JSON of DynamoDB's API.
 *
 * A *spec* names a field of the event, the attribute that gets its value, and the attribute's type:
 *
 *     FIELD             the attribute has the text of FIELD as its name, and the type of the value
 *     FIELD:NAME        the attribute is NAME
 *     FIELD:NAME:TYPE   S, N, BOOL, TIME or JSON
 *
 * FIELD is a path (json_path.h), or `.` for the whole event. Colons and spaces are allowed only inside of ["..."].
 * Without a type, a text is S, a number N, true is BOOL, null is NULL, an object is M and an array is L. TIME is a number of
 * Unix seconds, read from a number or RFC 3339 text. JSON is the value's JSON as S.
 *
 * 1. The attributes of key, sort and newer are in each item. An event without one of them, or with a value that cannot have
 *    the attribute's type, is refused with the reason. Other fields that the event does not have are omitted.
 * 2. Without `fields`, the item has all members of the event besides.
 * 3. An item over 400 KB, nested deeper than 32 levels, or with a number that DynamoDB does not store is refused. Sizes are
 *    computed by DynamoDB's rules, to within a few bytes for each number.
 * 4. Equal keys have equal texts in item.key. A key that is a number of more than 64 bits is refused, because the parser does
 *    not keep its digits, and several keys would become one.
 *
 * Only one thread at a time may use a form. */
#ifndef MILLRACE_DYNAMO_FORM_H
#define MILLRACE_DYNAMO_FORM_H

#include "base/bytes.h"
#include "base/error.h"

struct dynamo_form;
struct json_doc;

#define DYNAMO_ITEM_MAX ((size_t)400 << 10) /* bytes, by DynamoDB's rules */

struct dynamo_form_config {
    const char *key;    /* a spec: the partition key */
    const char *sort;   /* a spec: the sort key; NULL: none */
    const char *newer;  /* a spec; NULL: none */
    const char *fields; /* specs, separated by spaces; NULL: all members */
};

/* Memory that the caller frees with dynamo_item_free. A zeroed item is empty and ready. */
struct dynamo_item {
    struct buf json;  /* {"id":{"S":"u1"},...} */
    struct buf key;   /* "id":{"S":"u1"},"at":{"N":"3"} */
    struct buf newer; /* {"N":"3"}; empty without `newer` */
    size_t size;      /* bytes, by DynamoDB's rules */
};
void dynamo_item_free(struct dynamo_item *item);

/* Returns NULL with the error if a spec is malformed, or if two specs have the same attribute. */
struct dynamo_form *dynamo_form_new(const struct dynamo_form_config *config, struct error *error);
void dynamo_form_free(struct dynamo_form **f);
/* Replaces *item. Returns NULL, or the reason why the event is refused, which is valid until the next call. */
const char *dynamo_form_make(struct dynamo_form *f, struct bytes event, struct dynamo_item *item);
/* Appends the key of the item at a JSON pointer in DynamoDB's answer, as in item.key; DynamoDB may write numbers in another
 * form. Returns false if an attribute is missing. */
bool dynamo_form_key(
    const struct dynamo_form *f, const struct json_doc *d, const char *item, struct buf *key);
/* Returns the name of the attribute of `newer`. */
struct bytes dynamo_form_newer(const struct dynamo_form *f);

#endif
