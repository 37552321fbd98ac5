#include "sets/set_code.h"

#include "base/xxh3.h"

#include <stdio.h>

#define NUMBER_DIGITS 10
#define HASH_DIGITS 16

static bool read_number(struct bytes text, uint64_t *number)
{
    bool is_canonical = text.len == 1 || (text.len > 1 && text.len <= NUMBER_DIGITS && text.ptr[0] != '0');
    return is_canonical && bytes_to_u64(text, number) && *number < SET_NUMBER_END;
}

uint64_t set_code(struct bytes text)
{
    uint64_t code;
    if (read_number(text, &code))
        return code;
    code = XXH3_64bits(text.ptr, text.len);
    return code < SET_NUMBER_END ? ~code : code;
}

size_t set_code_print(uint64_t code, char out[SET_CODE_TEXT])
{
    return (size_t)snprintf(
        out, SET_CODE_TEXT, code < SET_NUMBER_END ? "%llu" : "~%016llx", (unsigned long long)code);
}

bool set_code_parse(struct bytes text, uint64_t *code)
{
    if (text.len == 0 || text.ptr[0] != '~')
        return read_number(text, code);
    uint64_t hash = 0;
    if (text.len != 1 + HASH_DIGITS)
        return false;
    for (size_t i = 1; i < text.len; i++) {
        char c = text.ptr[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        hash = hash << 4 | (uint64_t)bytes_hex_digit(c);
    }
    if (hash < SET_NUMBER_END)
        return false;
    *code = hash;
    return true;
}
