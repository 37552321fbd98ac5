/* forget: finds the records of a key, and the lookups that only these records use.
 *
 * forget_scan makes two passes over the archive. The first pass collects the hash of the key, even if only the key's
 * lookup exists, and the hashes of its sub keys. The second pass removes each hash that another record uses from the
 * collection. The filter then excludes the key's records, and the lookups of the remaining hashes.
 *
 * The key, given as a text without namespace, also leaves every set that has it as a member.
 *
 * 1. KEY is a text, or NS|TEXT. `u|jehiah` selects the total and its subtotals; `jehiah` selects the key in every
 *    namespace.
 * 2. The text may also be given in its stored form, as a hash, or as the code of a member (sets/set_code.h). A hash
 *    without namespace is refused if the archive has sets.
 * 3. Memory: 8 bytes for each different hash among the key's sub keys, twice that while the table grows.
 */
#ifndef MILLRACE_FORGET_H
#define MILLRACE_FORGET_H

#include "compactor/record_filter.h"
#include "compactor/result.h"
#include "counts/manifest.h"

struct forget;

/* The namespace in `key`, borrowed, or BYTES_NONE if `key` has no namespace. */
struct bytes forget_namespace(const char *key);
/* Reads the current generation twice. *out is set also after an error. */
enum compact_result forget_scan(
    const char *archive, const struct manifest *m, const char *key, struct forget **out, struct error *error);
/* Returns COMPACT_USAGE with the error if `text` is the stored hash of a text. Sets have another code of the text, so a hash
 * cannot remove the text from sets. */
enum compact_result forget_refuse_hash(struct bytes text, struct error *error);
void forget_free(struct forget **f);
const struct record_filter *forget_filter(const struct forget *f);
/* *forgotten: the number of records and lookups that the filter excludes, and of sets that lose the member. *as_sub: the
 * number of records of other keys with the text as a sub key. */
void forget_report(const struct forget *f, uint64_t *forgotten, uint64_t *as_sub);

#endif
