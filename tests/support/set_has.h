/* set_has: whether a set has a code. */
#ifndef MILLRACE_SET_HAS_H
#define MILLRACE_SET_HAS_H

#include "sets/set.h"

#include <roaring/roaring.h>

static inline bool set_view_has(const struct set_view *v, uint64_t code)
{
    size_t i = 0;
    if (code < SET_NUMBER_END)
        return v->numbers && roaring_bitmap_contains(v->numbers, (uint32_t)code);
    for (size_t n = v->n_hashes; n > 0; n /= 2) {
        size_t step = n - n / 2;
        i += i + step <= v->n_hashes && v->hashes[i + step - 1] < code ? step : 0;
    }
    return i < v->n_hashes && v->hashes[i] == code;
}

#endif
