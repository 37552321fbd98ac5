/* fuzz_copy: a copy of exactly that length, so that AddressSanitizer sees a read past it. The caller frees it. */
#ifndef MILLRACE_TEST_FUZZ_COPY_H
#define MILLRACE_TEST_FUZZ_COPY_H

#include "base/bytes.h"
#include <stdlib.h>

static inline char *fuzz_copy(struct bytes b)
{
    char *copy = malloc(b.len > 0 ? b.len : 1);
    if (copy == NULL)
        abort();
    if (b.len > 0)
        memcpy(copy, b.ptr, b.len);
    return copy;
}

#endif
