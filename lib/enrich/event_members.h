/* event_members: copies the members of an event, except those that only a door may set.
 *
 * 1. Members are left out by their decoded names, as the counters read names: "vis\u0069tor" is left out, too, and so
 *    is each repetition.
 * 2. The bytes of the other members do not change. Only white space between members is left out. */
#ifndef MILLRACE_EVENT_MEMBERS_H
#define MILLRACE_EVENT_MEMBERS_H

#include "base/bytes.h"

/* Appends `{` and the members of the object without the `n` names, separated by commas, but not the closing brace.
 * `event` must be a valid JSON object. The names consist of [a-z0-9_]. Returns true if a member was appended. */
bool event_members_copy(struct bytes event, const char *const *names, size_t n, struct buf *out);

#endif
