/* key_limit: limits the keys that a counter with max_keys counts in a slice.
 *
 * For a total, a key is the total's key. For a subtotal, a key is the sub key, whichever total key it occurs under. The
 * first max_keys different keys of a slice are counted unchanged. Every further key counts as `(other)`, which is not
 * one of the max_keys keys. So every event has one count under each counter, and the counts of a subtotal still add up
 * to the total's count.
 *
 * 1. The keys of a limit are the components of the slice's counts and sets, except `(other)`. Therefore key_limit_load
 *    restores a limit exactly from the slice.
 * 2. A limit uses at most KEY_LIMIT_BYTES of memory for each of max_keys keys. */
#ifndef MILLRACE_KEY_LIMIT_H
#define MILLRACE_KEY_LIMIT_H

#include "counts/counters.h"
#include "counts/interner.h"
#include "counts/slice_reader.h"

#define KEY_LIMIT_BYTES 54 /* bytes of memory for each key while the table grows */

/* Returns the memory that the limits of all counters may use, in bytes; SIZE_MAX if the result exceeds size_t. */
size_t key_limits_bytes_max(const struct counters *c);

struct key_limit;

struct key_limit *key_limit_new(const struct counter *counter);
void key_limit_free(struct key_limit **l);
/* Removes all keys. Call key_limit_clear when a slice begins. */
void key_limit_clear(struct key_limit *l);
/* Adds the keys of an open slice's committed counts or sets under `ns`, which is the limit's counter or a unique counter
 * of this total. */
enum slice_result key_limit_load(
    struct key_limit *l, const char *ns, struct slice_reader *slice, struct error *error);
/* Returns true if the slice counts this key (a stored form, padded with NUL). Adds a new key while the limit has
 * room. */
bool key_limit_admits(struct key_limit *l, const char stored[COMPONENT_HASH]);
/* Returns the result of key_limit_admits, without a change of the limit. */
bool key_limit_would_admit(const struct key_limit *l, const char stored[COMPONENT_HASH]);
/* Returns how often key_limit_admits has returned false. */
uint64_t key_limit_exceeded(const struct key_limit *l);

#endif
