/* forget: finds the records of a key, and the lookups that only these records use.
 *
 * Two passes over the archive. The first collects the hashes of the key's records: the key's own, also if only its lookup
 * is left, and those of its sub keys. The second removes from them each hash that another record uses. The filter then
 * leaves out the key's records and the lookups of the hashes that remain.
 *
 * 1. KEY is a text, or NS|TEXT. `u|jehiah` selects the total and its subtotals; a text selects them in every namespace.
 * 2. The text may also be given in its stored form, as a hash.
 * 3. Memory: 8 bytes for each different hash among the key's sub keys, twice that while the table grows.
 */
#ifndef MILLRACE_FORGET_H
#define MILLRACE_FORGET_H

#include "compactor/record_filter.h"
#include "compactor/result.h"
#include "counts/manifest.h"

struct forget;

/* The namespace that `key` names, borrowed; BYTES_NONE if it names none. */
struct bytes forget_namespace(const char *key);
/* Reads the current generation twice. */
enum compact_result forget_scan(
    const char *archive, const struct manifest *m, const char *key, struct forget **out, struct error *error);
void forget_free(struct forget **f);
const struct record_filter *forget_filter(const struct forget *f);
/* The number of records and lookups that the filter leaves out, and of records of other keys that have the text as a sub key. */
void forget_report(const struct forget *f, uint64_t *forgotten, uint64_t *as_sub);

#endif
