/* set_chunk: the codes of a set that share their chunk id, as bytes.
 *
 * The id of a number is 00 and bits 31 to 16 of the code. The id of a hash is 01 and bits 63 to 48. Ids in byte order
 * are in the order of the codes.
 *
 * A set has one chunk of numbers for each id. The hashes of an id are in one or more chunks of at most SET_CHUNK_HASHES
 * hashes, in ascending order.
 *
 * The bytes of a chunk of numbers are the lower 16 bits of each code (little endian), ascending, if the chunk has less
 * than 4,096 codes; otherwise a bitmap of 8,192 bytes. The bytes of a chunk of hashes are the codes (64 bits, little
 * endian), ascending.
 *
 * 1. A chunk has at least one code, and at most 64 KB. Clients choose members, and so how many hashes have one id.
 *    Therefore no function needs the memory of all hashes of an id.
 * 2. set_chunk_check accepts exactly the bytes that set_chunk_append writes. The other functions require bytes that
 *    set_chunk_check has accepted. Equal chunks have equal bytes.
 */
#ifndef MILLRACE_SET_CHUNK_H
#define MILLRACE_SET_CHUNK_H

#include "base/bytes.h"

#include <stdint.h>

#define SET_CHUNK_ID 3 /* bytes */
#define SET_CHUNK_BITMAP 8192
#define SET_CHUNK_HASHES 8192 /* maximum number of hashes of a chunk */

void set_chunk_id(uint64_t code, char id[SET_CHUNK_ID]);
bool set_chunk_check(struct bytes id, struct bytes chunk);
static inline bool set_chunk_is_hashes(struct bytes id)
{
    return id.ptr[0] != 0;
}
uint64_t set_chunk_hash(struct bytes chunk, size_t i); /* the i-th hash of a chunk of hashes */
/* True if this chunk is before the chunk of `code`, whether or not the set contains `code`. */
bool set_chunk_is_before(struct bytes id, struct bytes chunk, uint64_t code);
/* Appends the chunk of `n` codes, which ascend and have the same id. */
void set_chunk_append(const uint64_t *codes, size_t n, struct buf *out);
/* Appends the chunk of numbers whose lower 16 bits are set in a bitmap of 8,192 bytes. At least one bit is set. */
void set_chunk_append_bits(const uint64_t *bits, struct buf *out);
/* Appends the union of two chunks with the same id. The union of hashes may be longer than a chunk. */
void set_chunk_append_union(struct bytes id, struct bytes a, struct bytes b, struct buf *out);
bool set_chunk_has(struct bytes id, struct bytes chunk, uint64_t code); /* `code` has this id */
uint64_t set_chunk_size(struct bytes id, struct bytes chunk);           /* number of codes */
/* Writes up to `most` codes, ascending, to `out`. Returns their number. */
size_t set_chunk_codes(struct bytes id, struct bytes chunk, uint64_t *out, size_t most);
/* Appends the chunk without `code`. Appends nothing if no code remains. */
void set_chunk_append_without(struct bytes id, struct bytes chunk, uint64_t code, struct buf *out);

#endif
