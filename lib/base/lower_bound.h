/* lower_bound: a binary search, as an expression. The caller names the index, and says which items are before the place.
 *
 *     return LOWER_BOUND(i, 0, list->n, list->items[i].id < id); // the first item whose id is at least `id`, or list->n
 *
 * The items for which the condition is true precede those for which it is false. */
#ifndef MILLRACE_LOWER_BOUND_H
#define MILLRACE_LOWER_BOUND_H

#include <stddef.h>

/* Returns the first index of FROM to END for which IS_BEFORE is false, or END. Evaluates FROM and END once. */
#define LOWER_BOUND(INDEX, FROM, END, IS_BEFORE)                                                             \
    ({                                                                                                       \
        size_t INDEX##_low = (FROM), INDEX##_high = (END);                                                   \
        while (INDEX##_low < INDEX##_high) {                                                                 \
            size_t INDEX = INDEX##_low + (INDEX##_high - INDEX##_low) / 2;                                   \
            if (IS_BEFORE)                                                                                   \
                INDEX##_low = INDEX + 1;                                                                     \
            else                                                                                             \
                INDEX##_high = INDEX;                                                                        \
        }                                                                                                    \
        INDEX##_low;                                                                                         \
    })

#endif
