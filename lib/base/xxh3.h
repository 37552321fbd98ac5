/* xxh3: 64-bit XXH3 from libxxhash, the checksum of journals and manifests (docs/formats/journal.md). On x86 the
 * library selects vector instructions at run time, which do not change the checksums. */
#ifndef MILLRACE_XXH3_H
#define MILLRACE_XXH3_H

#include <xxhash.h>

#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> /* redirects the names of xxhash.h */
#endif

#endif
