/* set_algebra: sizes of unions, intersections and differences of sets, without making these sets.
 *
 * An operand is the union of its views, such as the days of a period. A code is counted if it is in every operand of
 * SET_ALL, in at least one operand of SET_ANY (if there are any), and in no operand of SET_NOT.
 *
 * Numbers: for each chunk of 65,536 numbers, the containers of an operand are united in one accumulator of 8 KB, which
 * stays in the processor's cache. The accumulators are combined, and the bits are counted. Hashes: all lists are read in
 * ranges of some ten thousand hashes. A small table has, for each hash of the range, the operands that contain the hash.
 *
 * 1. Memory: 8 KB for each operand, 24 bytes for each container of 65,536 numbers, and the table of one range, at
 *    most 32 MB.
 * 2. Clients choose members, and so hashes. Therefore the table's places depend on a random number of the process, and a
 *    range with many hashes is divided.
 */
#ifndef MILLRACE_SET_ALGEBRA_H
#define MILLRACE_SET_ALGEBRA_H

#include "sets/set.h"
#include "sets/set_bits.h"

#define SET_OPERANDS_MAX 64

enum set_role { SET_ALL, SET_ANY, SET_NOT };

struct set_operand {
    enum set_role role;
    const struct set_view *views;
    size_t n;
};

/* Returns the number of codes of the cohort. At least one operand has another role than SET_NOT. */
uint64_t set_cohort_size(const struct set_operand *operands, size_t n);
/* The number of different codes in all views. */
uint64_t set_union_size(const struct set_view *views, size_t n);

/* The visitors below get, for all views together, each chunk of numbers or each different hash once. group_of[i] is the
 * group of views[i], below SET_OPERANDS_MAX. `groups` has the bit of each group of which a view has the chunk or the hash.
 * bits[g] has the numbers of the group g if `groups` has its bit. The visitor may change `bits`. */
typedef void set_visit_chunk(void *arg, uint64_t (*bits)[SET_BITS_WORDS], uint64_t groups);
typedef void set_visit_hash(void *arg, uint64_t groups);
void set_visit_chunks(const struct set_view *views, const uint32_t *group_of, size_t n, size_t n_groups,
    set_visit_chunk *visit, void *arg);
void set_visit_hashes(
    const struct set_view *views, const uint32_t *group_of, size_t n, set_visit_hash *visit, void *arg);

#endif
