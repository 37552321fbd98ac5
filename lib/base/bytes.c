#include "base/bytes.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

int bytes_compare(struct bytes a, struct bytes b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n == 0 ? 0 : memcmp(a.ptr, b.ptr, n);
    if (order != 0)
        return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

int bytes_compare_ended(struct bytes a, struct bytes b, char end)
{
    if (a.len > b.len)
        return -bytes_compare_ended(b, a, end);
    int order = a.len ? memcmp(a.ptr, b.ptr, a.len) : 0;
    if (order != 0 || a.len == b.len)
        return order;
    /* a is a prefix of b, so `end` and b's next byte decide. If b's next byte is also `end`, a comes before b. */
    order = (unsigned char)end - (unsigned char)b.ptr[a.len];
    return order ? order : -1;
}

bool bytes_starts_with(struct bytes a, struct bytes prefix)
{
    return a.len >= prefix.len && (prefix.len == 0 || memcmp(a.ptr, prefix.ptr, prefix.len) == 0);
}

bool bytes_equal_nocase(struct bytes a, struct bytes b)
{
    return a.len == b.len && (a.len == 0 || strncasecmp(a.ptr, b.ptr, a.len) == 0);
}

struct bytes bytes_trim(struct bytes text)
{
    while (text.len > 0 && isspace((unsigned char)text.ptr[0]))
        text = bytes_of(text.ptr + 1, text.len - 1);
    while (text.len > 0 && isspace((unsigned char)text.ptr[text.len - 1]))
        text.len--;
    return text;
}

struct bytes bytes_without_line_end(struct bytes text)
{
    text.len -= text.len && text.ptr[text.len - 1] == '\n';
    text.len -= text.len && text.ptr[text.len - 1] == '\r';
    return text;
}

struct bytes bytes_without_mark(struct bytes text)
{
    size_t n = bytes_starts_with(text, BYTES_LITERAL("\xEF\xBB\xBF")) ? 3 : 0;
    return bytes_of(text.ptr + n, text.len - n);
}

int bytes_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
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

bool bytes_to_usec(struct bytes text, int64_t *out)
{
    const char *dot = text.len ? memchr(text.ptr, '.', text.len) : NULL;
    size_t whole = dot ? (size_t)(dot - text.ptr) : text.len;
    uint64_t seconds, fraction = 0, unit = 1000000;
    if (!bytes_to_u64(bytes_of(text.ptr, whole), &seconds) || seconds >= INT64_MAX / 1000000 ||
        (dot && whole + 1 == text.len))
        return false;
    for (size_t i = whole + 1; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        unit /= 10;
        fraction += unit * (uint64_t)(text.ptr[i] - '0');
    }
    *out = (int64_t)(seconds * 1000000 + fraction);
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

/* The digits and the power of ten are exact in a double, so their quotient is rounded as strtod rounds. */
bool bytes_to_short_decimal(struct bytes text, double *out)
{
    static const double tens[] = {
        1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    bool is_negative = text.len > 0 && text.ptr[0] == '-', has_point = false;
    size_t digits = 0, places = 0;
    uint64_t n = 0;
    for (size_t i = is_negative; i < text.len; i++) {
        if (text.ptr[i] == '.' && !has_point) {
            has_point = true;
            continue;
        }
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || digits == 15)
            return false;
        n = n * 10 + (uint64_t)(text.ptr[i] - '0');
        digits++;
        places += has_point;
    }
    if (digits == 0)
        return false;
    *out = (is_negative ? -1.0 : 1.0) * (double)n / tens[places];
    return true;
}

bool bytes_is_name(struct bytes text)
{
    return text.len > 0 && text.len <= NAME_LEN_MAX && !bytes_equal_str(text, ".") &&
           !bytes_equal_str(text, "..") && bytes_are_of_name(text);
}

bool bytes_are_of_name(struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i], letter = c | 0x20;
        if (!(letter >= 'a' && letter <= 'z') && !(c >= '0' && c <= '9') && c != '_' && c != '.' && c != '-')
            return false;
    }
    return true;
}

struct bytes bytes_take_word(struct bytes *text)
{
    const char *space = text->len ? memchr(text->ptr, ' ', text->len) : NULL;
    struct bytes word = bytes_of(text->ptr, space ? (size_t)(space - text->ptr) : text->len);
    *text = space ? bytes_of(space + 1, text->len - word.len - 1) : BYTES_NONE;
    return word;
}

bool bytes_next_word(const char **list, const char *separators, struct bytes *word)
{
    const char *at = *list ? *list + strspn(*list, separators) : "";
    *word = bytes_of(at, strcspn(at, separators));
    *list = at + word->len;
    return word->len > 0;
}

#define LANE_COUNT_MAX 255 /* the highest count that fits in a lane */

/* Checks 16 bytes at once. The comparison yields -1 in the lane of each LF and 0 in the other lanes. */
uint64_t bytes_count_lines(struct bytes text)
{
    typedef unsigned char lanes __attribute__((vector_size(16), aligned(1)));
    const char *at = text.ptr;
    uint64_t n = 0;
    size_t left = text.len;
    while (left >= sizeof(lanes)) {
        lanes found = {0}, v;
        for (int i = 0; i < LANE_COUNT_MAX && left >= sizeof v; i++) {
            memcpy(&v, at, sizeof v);
            found -= (lanes)(v == (unsigned char)'\n');
            at += sizeof v;
            left -= sizeof v;
        }
        for (size_t i = 0; i < sizeof v; i++)
            n += found[i];
    }
    for (; left > 0; left--)
        n += *at++ == '\n';
    return n;
}

char *bytes_dup(struct bytes b)
{
    char *copy = mem_alloc(b.len + 1);
    if (b.len > 0)
        memcpy(copy, b.ptr, b.len);
    copy[b.len] = '\0';
    return copy;
}

bool bytes_to_size(struct bytes text, uint64_t *out)
{
    static const char letters[] = "KMGT";
    size_t digits = 0;
    uint64_t n;
    unsigned shift = 0;
    while (digits < text.len && text.ptr[digits] >= '0' && text.ptr[digits] <= '9')
        digits++;
    if (!bytes_to_u64(bytes_of(text.ptr, digits), &n))
        return false;
    if (digits < text.len) {
        char letter = (char)(text.ptr[digits] & ~0x20);
        const char *at = letter != '\0' ? strchr(letters, letter) : NULL;
        struct bytes rest = bytes_of(text.ptr + digits + 1, text.len - digits - 1);
        if (!at || (rest.len > 0 && !bytes_equal_str(rest, "B") && !bytes_equal_str(rest, "iB")))
            return false;
        shift = 10 * (unsigned)(at - letters + 1);
    }
    if (n > UINT64_MAX >> shift)
        return false;
    *out = n << shift;
    return true;
}

void buf_grow(struct buf *b, size_t more)
{
    size_t need = b->len + more;
    assert(need >= b->len);
    size_t cap = b->cap < 64 ? 64 : b->cap * 2;
#if defined(__SANITIZE_ADDRESS__)
    if (need < 1024) /* no spare bytes, so that the sanitizer finds a read past a short text */
        cap = need;
#endif
    b->cap = cap < need ? need : cap;
    b->ptr = mem_realloc(b->ptr, b->cap);
}

void buf_append_printable(struct buf *b, struct bytes s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        /* A C1 control character, U+0080 to U+009F, is the bytes C2 80 to C2 9F. */
        bool is_c1 = c == 0xC2 && i + 1 < s.len && ((unsigned char)s.ptr[i + 1] & 0xE0) == 0x80;
        if (is_c1)
            buf_printf(b, "\\xc2\\x%02x", (unsigned char)s.ptr[++i]);
        else if (c < 0x20 || c == 0x7F)
            buf_printf(b, "\\x%02x", c);
        else
            buf_append_char(b, (char)c);
    }
}

void buf_append_hex(struct buf *b, struct bytes s)
{
    for (size_t i = 0; i < s.len; i++)
        buf_printf(b, "%02x", (unsigned char)s.ptr[i]);
}

bool buf_append_unhex(struct buf *b, struct bytes hex)
{
    for (size_t i = 0; i + 1 < hex.len; i += 2) {
        int high = bytes_hex_digit(hex.ptr[i]), low = bytes_hex_digit(hex.ptr[i + 1]);
        if (high < 0 || low < 0)
            return false;
        buf_append_char(b, (char)(high * 16 + low));
    }
    return hex.len % 2 == 0;
}

void buf_append_u64(struct buf *b, uint64_t n)
{
    char digits[sizeof "18446744073709551615" - 1], *at = digits + sizeof digits;
    do
        *--at = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    buf_append(b, at, (size_t)(digits + sizeof digits - at));
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    buf_reserve(b, 64); /* enough for most texts */
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

/* The length of the UTF-8 sequence at p; 0 if the sequence is malformed, overlong or a surrogate (RFC 3629). */
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
        uint64_t eight = UINT64_MAX;
        if (s.len - i >= sizeof eight)
            memcpy(&eight, p + i, sizeof eight);
        n = (eight & UINT64_C(0x8080808080808080)) == 0 ? sizeof eight : utf8_sequence(p + i, s.len - i);
        if (n == 0)
            return false;
    }
    return true;
}

/* The length of the text before the next byte that JSON escapes or that is not ASCII. */
static size_t plain_length(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] >= 0x20 && p[i] < 0x7F && p[i] != '"' && p[i] != '\\')
        i++;
    return i;
}

void buf_append_json(struct buf *b, struct bytes s)
{
    static const char names[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const unsigned char *p = (const unsigned char *)s.ptr;
    buf_append_char(b, '"');
    for (size_t i = 0, n; i < s.len; i += n) {
        if ((n = plain_length(p + i, s.len - i)) > 0) {
            buf_append(b, p + i, n);
            continue;
        }
        n = utf8_sequence(p + i, s.len - i);
        if (n == 0) {
            buf_append_str(b, "\xEF\xBF\xBD");
            n = 1;
        } else if (p[i] < 0x20 || p[i] == '"' || p[i] == '\\' || p[i] == 0x7F) {
            const char *name = p[i] != 0 ? strchr(names, p[i]) : NULL;
            if (name)
                buf_printf(b, "\\%c", letters[name - names]);
            else
                buf_printf(b, "\\u%04x", p[i]);
        } else {
            buf_append(b, p + i, n);
        }
    }
    buf_append_char(b, '"');
}

void buf_append_utf8(struct buf *b, uint32_t character)
{
    static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
    int more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    buf_append_char(b, (char)(first[more] | character >> 6 * more));
    while (more-- > 0)
        buf_append_char(b, (char)(0x80 | (character >> 6 * more & 0x3F)));
}

/* Takes the four digits after \u. */
static bool take_unit(struct bytes *text, uint32_t *unit)
{
    *unit = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = i < text->len ? bytes_hex_digit(text->ptr[i]) : -1;
        if (digit < 0)
            return false;
        *unit = *unit * 16 + (uint32_t)digit;
    }
    *text = bytes_of(text->ptr + 4, text->len - 4);
    return true;
}

/* Takes the rest of an escape after \u, or of two escapes for a pair of surrogates. */
static bool take_character(struct bytes *text, uint32_t *c)
{
    uint32_t low;
    if (!take_unit(text, c))
        return false;
    if (*c < 0xD800 || *c >= 0xE000)
        return true;
    if (*c >= 0xDC00 || text->len < 2 || text->ptr[0] != '\\' || text->ptr[1] != 'u')
        return false;
    *text = bytes_of(text->ptr + 2, text->len - 2);
    if (!take_unit(text, &low) || low < 0xDC00 || low >= 0xE000)
        return false;
    *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

bool buf_append_json_text(struct buf *b, struct bytes text)
{
    static const char names[] = "\"\\/bfnrtu", values[] = "\"\\/\b\f\n\r\t";
    while (text.len > 0) {
        const char *back = memchr(text.ptr, '\\', text.len), *end = text.ptr + text.len;
        uint32_t c;
        buf_append(b, text.ptr, (size_t)((back ? back : end) - text.ptr));
        if (!back)
            return true;
        const char *name = back + 1 < end ? memchr(names, back[1], sizeof names - 1) : NULL;
        if (!name)
            return false;
        text = bytes_of(back + 2, (size_t)(end - back) - 2);
        if (*name != 'u')
            buf_append_char(b, values[name - names]);
        else if (take_character(&text, &c))
            buf_append_utf8(b, c);
        else
            return false;
    }
    return true;
}

void buf_append_csv(struct buf *b, struct bytes s)
{
    bool formula = s.len > 0 && memchr("=+-@\t\r", s.ptr[0], 6), quote = formula;
    for (size_t i = 0; i < s.len; i++)
        quote = quote || memchr(",\"\r\n", s.ptr[i], 4);
    if (quote)
        buf_append_char(b, '"');
    if (formula)
        buf_append_char(b, '\'');
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
    if (!p && size > 0) {
        fprintf(stderr, "out of memory: cannot allocate %zu bytes\n", size);
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

void *mem_grow(void *old, size_t *cap, size_t n, size_t size)
{
    size_t room = *cap ? 2 * *cap : 4; /* no overflow: an array has at most SIZE_MAX / 2 bytes */
    *cap = room < n ? n : room;
    return *cap <= SIZE_MAX / 2 / size ? mem_realloc(old, *cap * size) : or_abort(NULL, SIZE_MAX);
}

char *mem_strdup(const char *s)
{
    return bytes_dup(bytes_str(s));
}

char *mem_printf(const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    return text.ptr;
}
