/* json_members: where the members of a JSON object stand in its text, so that one can be taken out or replaced and
 * every other byte kept as it is.
 *
 * For text that is known to be one JSON object (json_fields_extract accepted it). Of any other text it may find nonsense,
 * but reads nothing outside it. */
#ifndef MILLRACE_JSON_MEMBERS_H
#define MILLRACE_JSON_MEMBERS_H

#include "base/bytes.h"

struct json_member {
    struct bytes name;  /* between its quotes, escapes as they stand */
    struct bytes value; /* the value's text, strings with their quotes */
    struct bytes whole; /* from the name's quote to the value's end */
};

struct json_members {
    const char *at, *end;
};
struct json_members json_members_of(struct bytes object);
/* The next one; false behind the last. */
bool json_members_next(struct json_members *m, struct json_member *out);

/* Appends what stands between a string's quotes with its escapes undone. */
void json_unescape(struct bytes text, struct buf *out);

#endif
