/* Any text as a decimal, and any eight bytes as a double: an accepted text has the scaled integer of an independent
 * addition in 128 bits, and prints as a text that reads as the same integer. A double reads as its text does. */
#include "counts/decimal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The scaled integer of a text without digits beyond the scale. */
static int64_t expected(const char *text, unsigned scale)
{
    __int128 n = 0;
    bool has_point = false;
    unsigned digits = 0;
    for (const char *p = text + (*text == '-'); *p; p++) {
        if (*p == '.') {
            has_point = true;
            continue;
        }
        if (has_point && digits == scale)
            break;
        digits += has_point;
        n = n * 10 + (*p - '0');
    }
    for (; digits < scale; digits++)
        n *= 10;
    return (int64_t)(*text == '-' ? -n : n);
}

/* The text is the exact decimal of the double, which may differ from the shortest one within the double's precision. */
static void check_double(double value, struct decimal_rule rule)
{
    char text[400];
    int64_t n = 0, of_text = 0;
    struct json_value v = {.type = JSON_F64, .v.f64 = value};
    if (isfinite(value) && !decimal_read_json(&v, rule, &n) && fabs(value) < 1e15) {
        snprintf(text, sizeof text, "%.*f", DECIMAL_SCALE_MAX + 6, value);
        rule.rounds = true;
        assert(!decimal_read(bytes_str(text), rule, &of_text));
        double precision = fabs(value) * 0x1p-52;
        assert(fabs((double)(n - of_text)) <= 1 + precision * pow(10, rule.scale));
        decimal_print(n, rule.scale, text);
        assert(fabs(strtod(text, NULL) - value) <= pow(10, -(double)rule.scale) + precision);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char printed[DECIMAL_TEXT_MAX];
    int64_t n = 0, again = 0;
    double value;
    if (size < 1 || memchr(data, '\0', size))
        return 0;
    struct decimal_rule rule = {.scale = data[0] % (DECIMAL_SCALE_MAX + 1), .rounds = data[0] & 0x80};
    char *text = bytes_dup(bytes_of(data + 1, size - 1));
    if (!decimal_read(bytes_str(text), rule, &n)) {
        assert(decimal_print(n, rule.scale, printed) < sizeof printed);
        rule.rounds = false;
        assert(!decimal_read(bytes_str(printed), rule, &again) && again == n);
        if (!decimal_read(bytes_str(text), rule, &again) && strspn(text, "-0") <= 1 && strlen(text) < 30)
            assert(again == n && n == expected(text, rule.scale));
    }
    if (size > sizeof value) {
        memcpy(&value, data + 1, sizeof value);
        check_double(value, rule);
    }
    check_double(strtod(text, NULL), rule);
    free(text);
    return 0;
}
