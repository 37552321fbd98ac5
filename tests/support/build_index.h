/* Builds the index of a text. */
#ifndef MILLRACE_TEST_BUILD_INDEX_H
#define MILLRACE_TEST_BUILD_INDEX_H

#include "archive/sorted_index.h"

static inline struct sorted_index *build_index(struct bytes text)
{
    struct sorted_index *i = sorted_index_new(text);
    sorted_index_extend(i, text.len);
    return i;
}

#endif
