/* json_path: a text that names a field of a JSON object or of a nested object or array.
 *
 *     user              a member of the object
 *     user.id           a member of the object `user`
 *     items[0].sku      a member of the first element of the array `items`
 *     ["user.id"]       the member with the name user.id; also inside a path: meta["a b"].x
 *
 * If the object has a member whose whole name is the text of the path (user.id), the path names that member instead.
 *
 * A name outside of brackets is not empty, does not begin with a quote, and contains no character of . [ ] ( ). A
 * name in brackets ends at the first `"]`. An index counts from 0 and has at most nine digits. A path begins with a
 * name. */
#ifndef MILLRACE_JSON_PATH_H
#define MILLRACE_JSON_PATH_H

#include "base/bytes.h"

#ifdef __cplusplus
extern "C" {
#endif

struct json_path {
    struct bytes rest; /* the part of the path that is not read yet; steps point into the path's text */
    bool has_begun;
};

struct json_step {
    bool is_index;
    uint32_t index;
    struct bytes name;
};

/* Stores the next step in *out. Returns false at the end of the path, where `rest` is empty, or at a malformed step. */
bool json_path_next(struct json_path *p, struct json_step *out);
bool json_path_is_valid(struct bytes path);

#ifdef __cplusplus
}
#endif
#endif
