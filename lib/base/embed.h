/* embed: the bytes of a file in the program.
 *
 * EMBED(NAME, PATH) includes the file PATH, a string literal, when the program is built, and EMBEDDED(NAME) is its content.
 * The build must know the file as a dependency of the object (OBJECT_DEPENDS). */
#ifndef MILLRACE_EMBED_H
#define MILLRACE_EMBED_H

#include "base/bytes.h"

/* clang-format off */
#define EMBED(NAME, PATH)                                                                                    \
    __asm__(".section .rodata\n"                                                                             \
            #NAME "_first:\n"                                                                                \
            ".incbin \"" PATH "\"\n"                                                                         \
            #NAME "_last:\n"                                                                                 \
            ".byte 0\n"                                                                                      \
            ".text\n");                                                                                      \
    extern const char NAME##_first[], NAME##_last[]
/* clang-format on */
#define EMBEDDED(NAME) bytes_of(NAME##_first, (size_t)(NAME##_last - NAME##_first))

#endif
