#include "base/line_ends.h"

#include "base/simd.h"

#include <assert.h>

/* Searches `block` from offset `from`, and returns the new number of line ends. `ends` already contains the `found`
 * line ends before `from`. */
static size_t find_from(struct bytes block, size_t from, size_t found, uint16_t *ends)
{
    const char *end = block.ptr + block.len, *at = block.ptr + from;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at))))
        ends[found++] = (uint16_t)(at++ - block.ptr);
    return found;
}

#ifdef __x86_64__
/* Each step stores a line end unconditionally, and then counts the line end only if the step contained an LF.
 * Therefore a step without an LF costs no branch. */
SIMD static size_t find_wide(struct bytes block, uint16_t *ends)
{
    size_t found = 0, at = 0;
    for (; block.len - at >= SIMD_STEP; at += SIMD_STEP) {
        simd_fetch_ahead(block.ptr + at);
        uint64_t bits = simd_bits(simd_equal(simd_at(block.ptr + at), '\n'),
            simd_equal(simd_at(block.ptr + at + SIMD_STEP / 2), '\n'));
        ends[found] = (uint16_t)(at + _tzcnt_u64(bits));
        found += bits != 0;
        while (__builtin_expect((bits &= bits - 1) != 0, 0))
            ends[found++] = (uint16_t)(at + _tzcnt_u64(bits));
    }
    return find_from(block, at, found, ends);
}
#endif

size_t line_ends_find(struct bytes block, uint16_t ends[LINE_ENDS_BLOCK_MAX])
{
    assert(block.len <= LINE_ENDS_BLOCK_MAX);
#ifdef __x86_64__
    if (simd_available())
        return find_wide(block, ends);
#endif
    return find_from(block, 0, 0, ends);
}
