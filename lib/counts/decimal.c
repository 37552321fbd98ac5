#include "counts/decimal.h"

#include "counts/key_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DOUBLE_DIGITS 15  /* a double preserves each decimal of at most so many digits */
#define DOUBLE_MAX 1e15   /* smaller integers have at most 15 digits */
#define EXPONENT_MAX 330  /* the decimal exponent of a double is smaller */
#define INTEGER_DIGITS 24 /* digits of a 64-bit integer, with sign and NUL */
#define MALFORMED "is not a decimal"
#define TOO_LARGE "is beyond 64 bits"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t count_digits(struct bytes text)
{
    size_t n = 0;
    while (n < text.len && is_digit(text.ptr[n]))
        n++;
    return n;
}

/* The absolute value of a scaled integer, while its digits are read. */
struct magnitude {
    uint64_t n;
    bool is_too_large;
};

static void add_digit(struct magnitude *m, char digit)
{
    m->is_too_large = m->is_too_large || __builtin_mul_overflow(m->n, 10u, &m->n) ||
                      __builtin_add_overflow(m->n, (uint64_t)(digit - '0'), &m->n);
}

/* Adds the digits after the scale, if they round up. `fraction` has no zero at its end. */
static const char *round_digits(struct magnitude *m, struct bytes fraction, struct decimal_rule rule)
{
    if (fraction.len <= rule.scale)
        return NULL;
    if (!rule.rounds)
        return "has more digits after the point than the counter's scale";
    char first = fraction.ptr[rule.scale];
    bool is_half = first == '5' && fraction.len == rule.scale + 1;
    if (is_half ? m->n % 2 == 1 : first >= '5')
        m->is_too_large = m->is_too_large || __builtin_add_overflow(m->n, 1u, &m->n);
    return NULL;
}

const char *decimal_read(struct bytes text, struct decimal_rule rule, int64_t *out)
{
    bool is_negative = text.len > 0 && text.ptr[0] == '-';
    struct bytes integer = bytes_of(text.ptr + is_negative, text.len - is_negative), fraction = BYTES_NONE;
    struct magnitude m = {0};
    size_t n = count_digits(integer), end = n;
    if (n > 0 && n < integer.len && integer.ptr[n] == '.') {
        fraction = bytes_of(integer.ptr + n + 1, integer.len - n - 1);
        fraction.len = count_digits(fraction);
        end = fraction.len > 0 ? n + 1 + fraction.len : n;
    }
    if (n == 0 || end != integer.len)
        return MALFORMED;
    while (fraction.len > 0 && fraction.ptr[fraction.len - 1] == '0')
        fraction.len--;
    for (size_t i = 0; i < n; i++)
        add_digit(&m, integer.ptr[i]);
    for (size_t i = 0; i < rule.scale; i++)
        add_digit(&m, i < fraction.len ? fraction.ptr[i] : '0');
    const char *why = round_digits(&m, fraction, rule);
    if (why)
        return why;
    if (m.is_too_large || m.n > (uint64_t)INT64_MAX + is_negative)
        return TOO_LARGE;
    *out = is_negative ? (int64_t)(0 - m.n) : (int64_t)m.n;
    return NULL;
}

/* Most doubles are decimals within the scale. A decimal of at most 15 digits whose double is `value` is the shortest decimal
 * of `value`. Division rounds correctly, so the quotient is the double of the decimal n / 10^scale. */
static bool read_exact(double value, unsigned scale, int64_t *out)
{
    static const double powers[DECIMAL_SCALE_MAX + 1] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    double scaled = value * powers[scale];
    if (!(scaled > -DOUBLE_MAX && scaled < DOUBLE_MAX))
        return false;
    int64_t n = (int64_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    bool is_exact = (double)n / powers[scale] == value;
    *out = is_exact ? n : *out;
    return is_exact;
}

/* Reads the double's 15 digits without an exponent. A double that these digits do not restore has a longer shortest
 * decimal. */
static const char *read_double(double value, struct decimal_rule rule, int64_t *out)
{
    if (read_exact(value, rule.scale, out))
        return NULL;
    char digits[DOUBLE_DIGITS + 10], text[EXPONENT_MAX + DOUBLE_DIGITS + 4], *p = text;
    snprintf(digits, sizeof digits, "%.*e", DOUBLE_DIGITS - 1, value);
    if (strtod(digits, NULL) != value)
        return "has more than 15 digits; send it as text";
    bool is_negative = digits[0] == '-';
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    digits[is_negative + 1] = digits[is_negative]; /* the first digit moves to the place of the point */
    const char *from = digits + is_negative + 1;
    if (is_negative)
        *p++ = '-';
    for (int at = exponent < 0 ? 0 : exponent; at >= 0 || at > exponent - DOUBLE_DIGITS; at--) {
        int digit = exponent - at; /* index of the digit that is worth 10^at */
        if (at == -1)
            *p++ = '.';
        *p++ = digit >= 0 && digit < DOUBLE_DIGITS ? from[digit] : '0';
    }
    return decimal_read(bytes_of(text, (size_t)(p - text)), rule, out);
}

const char *decimal_read_json(const struct json_value *v, struct decimal_rule rule, int64_t *out)
{
    char digits[KEY_TEXT_DIGITS];
    struct bytes text;
    if (v->type == JSON_F64)
        return read_double(v->v.f64, rule, out);
    if (key_text_of(v, digits, &text) || text.len == 0)
        return MALFORMED;
    return decimal_read(text, rule, out);
}

size_t decimal_print(int64_t n, unsigned scale, char out[DECIMAL_TEXT_MAX])
{
    char digits[INTEGER_DIGITS];
    uint64_t magnitude = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    int len = snprintf(digits, sizeof digits, "%0*" PRIu64, (int)scale + 1, magnitude);
    return (size_t)snprintf(out, DECIMAL_TEXT_MAX, "%s%.*s%s%s", n < 0 ? "-" : "", len - (int)scale, digits,
        scale > 0 ? "." : "", digits + len - (int)scale);
}
