/* json_members: finds the members of a JSON object in its text, so that a caller can remove or replace one and keep all other bytes.
 *
 * The text must be one JSON object, accepted by json_fields_extract. For any other text the result is meaningless, but no byte
 * outside the text is read. */
#ifndef MILLRACE_JSON_MEMBERS_H
#define MILLRACE_JSON_MEMBERS_H

#include "base/bytes.h"

struct json_member {
    struct bytes name;  /* between its quotes, escapes included */
    struct bytes value; /* the value's text, strings with their quotes */
    struct bytes whole; /* from the name's quote to the value's end */
};

struct json_members {
    const char *at, *end;
};
struct json_members json_members_of(struct bytes object);
/* Returns false after the last member. */
bool json_members_next(struct json_members *m, struct json_member *out);

/* Appends the text between a string's quotes, unescaped. */
void json_unescape(struct bytes text, struct buf *out);

#endif
