#include "counts/bucket.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGITS_FIRST 10 /* two significant digits are DIGITS_FIRST to 99 */
#define DIGITS 90
#define PLAIN_MIN (-6) /* exponents that names write without `e` */
#define PLAIN_MAX 9
#define NUMBER_TEXT 32 /* bytes of an integer, or of a double with 17 digits, with NUL */
#define SHORT_DIGITS                                                                                         \
    14 /* digits after the first one: every decimal with so many digits keeps them in a double */
#define ALL_DIGITS 16 /* digits after the first one that distinguish all doubles */

struct parts {
    bool is_negative;
    int digits;   /* DIGITS_FIRST to 99; 0: the number is zero */
    int exponent; /* of the first digit */
};

static const char *join(const struct parts *p, int *bucket)
{
    if (p->digits == 0) {
        *bucket = 0;
        return NULL;
    }
    if (p->exponent < BUCKET_EXPONENT_MIN)
        return "is nearer to zero than 1e-9";
    if (p->exponent > BUCKET_EXPONENT_MAX)
        return "is 1e19 or more";
    int n = (p->exponent - BUCKET_EXPONENT_MIN) * DIGITS + p->digits - DIGITS_FIRST + 1;
    *bucket = p->is_negative ? -n : n;
    return NULL;
}

static struct parts split(int bucket)
{
    int n = abs(bucket) - 1;
    if (bucket == 0)
        return (struct parts){0};
    return (struct parts){bucket < 0, n % DIGITS + DIGITS_FIRST, n / DIGITS + BUCKET_EXPONENT_MIN};
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads a decimal of any length. Returns false if the text is not a decimal. */
static bool read_decimal(struct bytes text, struct parts *p)
{
    const char *at = text.ptr, *end = text.ptr + text.len, *point = NULL;
    int taken = 0, integers = 0;
    *p = (struct parts){.is_negative = text.len > 0 && *at == '-'};
    at += p->is_negative;
    for (const char *first = at; at < end; at++) {
        if (*at == '.' && !point && at > first) {
            point = at;
            continue;
        }
        if (!is_digit(*at))
            return false;
        integers += !point && (taken > 0 || *at != '0');
        if (taken == 0 && *at == '0') {
            p->exponent -= point != NULL;
            continue;
        }
        if (taken++ < 2)
            p->digits = p->digits * 10 + (*at - '0');
    }
    if (text.len == 0 || !is_digit(end[-1]))
        return false;
    p->digits *= taken == 1 ? 10 : 1;
    p->exponent += integers - 1;
    return true;
}

/* Reads the two first digits of the double's shortest decimal. */
static struct parts read_double(double value)
{
    char text[NUMBER_TEXT];
    snprintf(text, sizeof text, "%.*e", SHORT_DIGITS, value);
    if (strtod(text, NULL) != value)
        snprintf(text, sizeof text, "%.*e", ALL_DIGITS, value);
    const char *p = text + (text[0] == '-');
    return (struct parts){
        text[0] == '-', (p[0] - '0') * 10 + (p[2] - '0'), (int)strtol(strchr(text, 'e') + 1, NULL, 10)};
}

const char *bucket_read(const struct json_value *v, int *bucket)
{
    char digits[NUMBER_TEXT];
    struct bytes text = bytes_of(digits, 0);
    struct parts p;
    switch (v->type) {
    case JSON_STRING:
        text = v->v.string;
        break;
    case JSON_I64:
        text.len = (size_t)snprintf(digits, sizeof digits, "%" PRId64, v->v.i64);
        break;
    case JSON_U64:
        text.len = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, v->v.u64);
        break;
    case JSON_F64:
        p = read_double(v->v.f64);
        return join(&p, bucket);
    default:
        return "is not a decimal";
    }
    return read_decimal(text, &p) ? join(&p, bucket) : "is not a decimal";
}

/* Writes the number digits * 10^(exponent - n + 1), where `digits` has n digits. */
static size_t print(bool is_negative, int digits, int exponent, char out[BUCKET_TEXT_MAX])
{
    char text[NUMBER_TEXT];
    while (digits >= 10 && digits % 10 == 0)
        digits /= 10;
    const char *sign = is_negative ? "-" : "";
    int n = snprintf(text, sizeof text, "%d", digits);
    if (exponent < PLAIN_MIN || exponent > PLAIN_MAX)
        return (size_t)snprintf(
            out, BUCKET_TEXT_MAX, "%s%c%s%.2se%d", sign, text[0], n > 1 ? "." : "", text + 1, exponent);
    if (exponent < 0)
        return (size_t)snprintf(out, BUCKET_TEXT_MAX, "%s0.%0*d", sign, n - exponent - 1, digits);
    for (; n <= exponent; n++)
        text[n] = '0';
    text[n] = '\0';
    return (size_t)snprintf(out, BUCKET_TEXT_MAX, "%s%.*s%s%.2s", sign, exponent + 1, text,
        n > exponent + 1 ? "." : "", text + exponent + 1);
}

size_t bucket_print(int bucket, char out[BUCKET_TEXT_MAX])
{
    struct parts p = split(bucket);
    return print(p.is_negative, p.digits, p.exponent, out);
}

size_t bucket_print_middle(int bucket, char out[BUCKET_TEXT_MAX])
{
    struct parts p = split(bucket);
    return print(p.is_negative, p.digits ? p.digits * 10 + 5 : 0, p.exponent, out);
}

bool bucket_parse(struct bytes name, int *bucket)
{
    char text[BUCKET_TEXT_MAX], again[BUCKET_TEXT_MAX];
    if (name.len == 0 || name.len >= sizeof text)
        return false;
    memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    double value = strtod(text, NULL);
    if (strspn(text, "-0123456789.e") != name.len || !isfinite(value))
        return false;
    struct parts p = read_double(value);
    if (join(&p, bucket) != NULL)
        return false;
    return bucket_print(*bucket, again) == name.len && memcmp(again, text, name.len) == 0;
}
