/* xxh3: the checksum of journals and manifests, XXH3 of 64 bits (docs/formats/journal.md), from libxxhash. On x86 by the
 * widest vectors that the processor which runs it has, as the library finds out once: what Debian builds for every
 * x86-64 takes twice the time for a frame of 476 bytes. The values are the same either way. */
#ifndef MILLRACE_XXH3_H
#define MILLRACE_XXH3_H

#include <xxhash.h>

#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> /* the names of xxhash.h are now those that choose */
#endif

#endif
