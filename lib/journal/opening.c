#include "journal/opening.h"

#include "base/random_id.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define TIME_DIGITS ((size_t)12)
#define MILLISECOND (USEC_PER_SEC / 1000)

static uint64_t milliseconds(const char *opening)
{
    char digits[TIME_DIGITS + 1] = "";
    memcpy(digits, opening, TIME_DIGITS);
    return strtoull(digits, NULL, 16);
}

void opening_new(const char *before, usec_t wall, char out[OPENING_TEXT])
{
    char random[RANDOM_ID_SIZE];
    uint64_t time = wall > 0 ? (uint64_t)(wall / MILLISECOND) : 0;
    if (before[0] != '\0' && milliseconds(before) >= time)
        time = milliseconds(before) + 1;
    random_id(random);
    snprintf(out, OPENING_TEXT, "%012" PRIx64 "%.12s", time & ((UINT64_C(1) << 48) - 1), random);
}

bool opening_is_valid(struct bytes text)
{
    size_t digits = 0;
    while (digits < text.len && text.ptr[digits] != '\0' && strchr("0123456789abcdef", text.ptr[digits]))
        digits++;
    return digits == text.len && digits == OPENING_TEXT - 1;
}

usec_t opening_time(const char *opening)
{
    return (usec_t)milliseconds(opening) * MILLISECOND;
}

bool opening_is_after(const char *opening, struct bytes text)
{
    return opening_is_valid(text) && opening[0] != '\0' && !bytes_equal_str(text, opening) &&
           milliseconds(opening) >= milliseconds(text.ptr);
}

static int digit_value(char digit)
{
    return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

void opening_encode(const char *opening, char out[OPENING_BYTES])
{
    memset(out, 0, OPENING_BYTES);
    for (size_t i = 0; i < OPENING_BYTES && opening[0] != '\0'; i++)
        out[i] = (char)(digit_value(opening[2 * i]) << 4 | digit_value(opening[2 * i + 1]));
}

void opening_decode(const char in[OPENING_BYTES], char out[OPENING_TEXT])
{
    static const char none[OPENING_BYTES];
    for (size_t i = 0; i < OPENING_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", (unsigned char)in[i]);
    if (memcmp(in, none, OPENING_BYTES) == 0)
        out[0] = '\0';
}
