/* key_limit: the keys that a counter with max_keys counts in a slice.
 *
 * A key is a component of the counter: of a total its key, of a subtotal the sub key, under whichever total key it
 * occurs. The first max_keys different keys of a slice are counted as they are. Every further key counts as `(other)`,
 * which is not one of the max_keys keys. So every event has one count under each counter, and the counts of a subtotal
 * still add up to the total's.
 *
 * 1. The keys of a limit are the components, except `(other)`, of the slice's counts. So key_limits_load restores
 *    the limits of a slice exactly.
 * 2. Memory is at most KEY_LIMIT_BYTES for each key of max_keys. */
#ifndef MILLRACE_KEY_LIMIT_H
#define MILLRACE_KEY_LIMIT_H

#include "counts/counters.h"
#include "counts/interner.h"
#include "counts/slice_reader.h"

#define KEY_LIMIT_BYTES 54 /* for each key, while the table grows */

/* The memory that the limits of all counters may use, in bytes; SIZE_MAX if that exceeds size_t. */
size_t key_limits_bytes_max(const struct counters *c);

struct key_limit;

struct key_limit *key_limit_new(const struct counter *counter);
void key_limit_free(struct key_limit **l);
/* Begins a slice without keys. */
void key_limit_clear(struct key_limit *l);
/* Adds the keys of an open slice's committed counts. */
enum slice_result key_limit_load(struct key_limit *l, struct slice_reader *slice, struct error *error);
/* True if the slice counts this key (a stored form, padded with NUL). A new key is added while there is room. */
bool key_limit_admits(struct key_limit *l, const char stored[COMPONENT_HASH]);
/* How often key_limit_admits returned false. */
uint64_t key_limit_exceeded(const struct key_limit *l);

#endif
