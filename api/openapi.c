#include "api/openapi.h"

/* The assembler includes the file api/openapi.json. OPENAPI_PATH is the path of this file, as a string literal. */
__asm__(".section .rodata\n"
        "openapi_first:\n"
        ".incbin \"" OPENAPI_PATH "\"\n"
        "openapi_last:\n"
        ".byte 0\n"
        ".text\n");
extern const char openapi_first[], openapi_last[];

struct bytes openapi_document(void)
{
    return bytes_of(openapi_first, (size_t)(openapi_last - openapi_first));
}
