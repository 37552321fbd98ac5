#include "base/bytes.h"

#include "base/simd.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

int bytes_compare(struct bytes a, struct bytes b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n == 0 ? 0 : memcmp(a.ptr, b.ptr, n);
    if (order != 0)
        return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

bool bytes_starts_with(struct bytes a, struct bytes prefix)
{
    return a.len >= prefix.len && (prefix.len == 0 || memcmp(a.ptr, prefix.ptr, prefix.len) == 0);
}

bool bytes_to_u64(struct bytes text, uint64_t *out)
{
    uint64_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = (unsigned)((unsigned char)text.ptr[i] - '0');
        if (digit > 9 || __builtin_mul_overflow(n, UINT64_C(10), &n) || __builtin_add_overflow(n, digit, &n))
            return false;
    }
    if (text.len == 0)
        return false;
    *out = n;
    return true;
}

bool bytes_to_i64(struct bytes text, int64_t *out)
{
    bool negative = text.len > 0 && text.ptr[0] == '-';
    uint64_t n;
    if (!bytes_to_u64(negative ? bytes_of(text.ptr + 1, text.len - 1) : text, &n))
        return false;
    if (n > (uint64_t)INT64_MAX + negative)
        return false;
    *out = (int64_t)(negative ? 0 - n : n);
    return true;
}

static bool is_name_char(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

bool bytes_is_name(struct bytes text)
{
    if (text.len == 0 || text.len > NAME_LEN_MAX || bytes_equal_str(text, ".") || bytes_equal_str(text, ".."))
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (!is_name_char((unsigned char)text.ptr[i]))
            return false;
    return true;
}

bool bytes_next_word(const char **list, const char *separators, struct bytes *word)
{
    const char *at = *list ? *list + strspn(*list, separators) : "";
    *word = bytes_of(at, strcspn(at, separators));
    *list = at + word->len;
    return word->len > 0;
}

typedef unsigned char lanes __attribute__((vector_size(16), aligned(1)));
#define LANE_COUNT_MAX 255 /* a lane counts up to it */

/* For at most LANE_COUNT_MAX times 16 bytes. Comparing sets a lane to -1 where the bytes are equal. */
static uint64_t count_in_lanes(const char *at, size_t n_lanes)
{
    lanes found = {0}, v;
    uint64_t n = 0;
    for (size_t i = 0; i < n_lanes; i++) {
        memcpy(&v, at + i * sizeof v, sizeof v);
        found -= (lanes)(v == (unsigned char)'\n');
    }
    for (size_t i = 0; i < sizeof v; i++)
        n += found[i];
    return n;
}

static uint64_t count_lines(struct bytes text)
{
    const char *at = text.ptr;
    uint64_t n = 0;
    size_t left = text.len;
    while (left >= sizeof(lanes)) {
        size_t n_lanes = left / sizeof(lanes) < LANE_COUNT_MAX ? left / sizeof(lanes) : LANE_COUNT_MAX;
        n += count_in_lanes(at, n_lanes);
        at += n_lanes * sizeof(lanes);
        left -= n_lanes * sizeof(lanes);
    }
    for (; left > 0; left--)
        n += *at++ == '\n';
    return n;
}

#ifdef __x86_64__
SIMD static uint64_t count_lines_wide(struct bytes text)
{
    const char *at = text.ptr, *end = text.ptr + text.len;
    uint64_t n = 0;
    for (; (size_t)(end - at) >= SIMD_STEP; at += SIMD_STEP) {
        simd_fetch_ahead(at);
        n += (uint64_t)_mm_popcnt_u64(
            simd_bits(simd_equal(simd_at(at), '\n'), simd_equal(simd_at(at + SIMD_STEP / 2), '\n')));
    }
    return n + count_lines(bytes_of(at, (size_t)(end - at)));
}
#endif

uint64_t bytes_count_lines(struct bytes text)
{
#ifdef __x86_64__
    if (simd_available())
        return count_lines_wide(text);
#endif
    return count_lines(text);
}

char *bytes_dup(struct bytes b)
{
    char *copy = mem_alloc(b.len + 1);
    if (b.len > 0)
        memcpy(copy, b.ptr, b.len);
    copy[b.len] = '\0';
    return copy;
}

static bool size_unit(struct bytes unit, unsigned *shift)
{
    static const char letters[] = "KMGT";
    const char *at = unit.len > 0 ? strchr(letters, unit.ptr[0] & ~0x20) : NULL;
    *shift = 0;
    if (unit.len == 0)
        return true;
    if (at == NULL || *at == '\0')
        return false;
    *shift = 10 * (unsigned)(at - letters + 1);
    struct bytes rest = bytes_of(unit.ptr + 1, unit.len - 1);
    return rest.len == 0 || bytes_equal_str(rest, "B") || bytes_equal_str(rest, "iB");
}

bool bytes_to_size(struct bytes text, uint64_t *out)
{
    size_t digits = 0;
    uint64_t n;
    unsigned shift;
    while (digits < text.len && text.ptr[digits] >= '0' && text.ptr[digits] <= '9')
        digits++;
    if (!bytes_to_u64(bytes_of(text.ptr, digits), &n) ||
        !size_unit(bytes_of(text.ptr + digits, text.len - digits), &shift) || n > UINT64_MAX >> shift)
        return false;
    *out = n << shift;
    return true;
}

void buf_grow(struct buf *b, size_t more)
{
    size_t need = b->len + more;
    assert(need >= b->len);
    size_t cap = b->cap < 64 ? 64 : b->cap * 2;
    b->cap = cap < need ? need : cap;
    b->ptr = mem_realloc(b->ptr, b->cap);
}

static size_t count_digits(uint64_t n)
{
    size_t len = 1;
    for (; n >= 1000; n /= 1000)
        len += 3;
    return len + (n >= 10) + (n >= 100);
}

void buf_append_u64(struct buf *b, uint64_t n)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    size_t len = count_digits(n);
    buf_reserve(b, len);
    char *at = b->ptr + b->len + len;
    b->len += len;
    for (; n >= 10; n /= 100) {
        at -= 2;
        memcpy(at, pairs + n % 100 * 2, 2);
    }
    if (len % 2)
        at[-1] = (char)('0' + n);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    buf_reserve(b, 64); /* most texts fit at once */
    int n = vsnprintf(b->ptr + b->len, b->cap - b->len, fmt, ap);
    assert(n >= 0);
    if ((size_t)n >= b->cap - b->len) {
        buf_reserve(b, (size_t)n + 1);
        vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    b->len += (size_t)n;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void buf_free(struct buf *b)
{
    free(b->ptr);
    *b = (struct buf){0};
}

/* Length of the well-formed UTF-8 sequence at p (RFC 3629: no surrogates, nothing overlong), or 0. */
static size_t utf8_sequence(const unsigned char *p, size_t left)
{
    static const unsigned char low[] = {0xA0, 0x80, 0x90, 0x80}, high[] = {0xBF, 0x9F, 0xBF, 0x8F};
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    int edge = p[0] == 0xE0 ? 0 : p[0] == 0xED ? 1 : p[0] == 0xF0 ? 2 : p[0] == 0xF4 ? 3 : -1;
    return edge >= 0 && (p[1] < low[edge] || p[1] > high[edge]) ? 0 : n;
}

bool bytes_is_utf8(struct bytes s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    for (size_t i = 0, n; i < s.len; i += n) {
        n = utf8_sequence(p + i, s.len - i);
        if (n == 0)
            return false;
    }
    return true;
}

static void append_escaped(struct buf *b, unsigned char c)
{
    static const char names[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const char *at = c != 0 ? strchr(names, c) : NULL;
    if (at != NULL) {
        buf_append_char(b, '\\');
        buf_append_char(b, letters[at - names]);
    } else {
        buf_printf(b, "\\u%04x", c);
    }
}

void buf_append_json(struct buf *b, struct bytes s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    buf_append_char(b, '"');
    for (size_t i = 0, n; i < s.len; i += n) {
        n = utf8_sequence(p + i, s.len - i);
        if (n == 0) {
            buf_append_str(b, "\xEF\xBF\xBD");
            n = 1;
        } else if (p[i] < 0x20 || p[i] == '"' || p[i] == '\\' || p[i] == 0x7F) {
            append_escaped(b, p[i]);
        } else {
            buf_append(b, p + i, n);
        }
    }
    buf_append_char(b, '"');
}

void buf_append_csv(struct buf *b, struct bytes s)
{
    bool quote = false;
    for (size_t i = 0; i < s.len; i++)
        quote = quote || memchr(",\"\r\n", s.ptr[i], 4);
    if (quote)
        buf_append_char(b, '"');
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '"')
            buf_append_char(b, '"');
        buf_append_char(b, s.ptr[i]);
    }
    if (quote)
        buf_append_char(b, '"');
}

static void *or_abort(void *p, size_t size)
{
    if (p == NULL && size > 0) {
        fprintf(stderr, "out of memory: %zu bytes\n", size);
        abort();
    }
    return p;
}

void *mem_alloc(size_t size)
{
    return or_abort(malloc(size > 0 ? size : 1), size);
}

void *mem_zalloc(size_t size)
{
    return or_abort(calloc(1, size > 0 ? size : 1), size);
}

void *mem_realloc(void *old, size_t size)
{
    return or_abort(realloc(old, size > 0 ? size : 1), size);
}

char *mem_strdup(const char *s)
{
    return bytes_dup(bytes_str(s));
}
