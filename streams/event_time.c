#include "event_time.h"

#include "json_fields.h"

#include <endian.h>
#include <stdlib.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* What is beyond is no time. */
#define MOST INT64_C(1000000000000000)
/* So many digits, a point among them or not, are an int64_t, and a double holds all of them. */
#define PLAIN_DIGITS 15

typedef unsigned char lanes __attribute__((vector_size(16), aligned(1)));

typedef const char *last_mark_fn(const struct event_time *e, const char *begin, const char *end);

struct event_time {
    struct json_fields *fields;
    char *name;
    size_t name_length;
    bool plain;              /* the name can stand in a line in one way only, but for \u */
    lanes last_letter;       /* of a plain name, in each of them */
    last_mark_fn *last_mark; /* by the processor's widest vectors */
    int64_t divisor;
    bool divides; /* told apart from a divisor of 1, whose division the compiler would do as well */
};

/* A name of ASCII whose bytes need no escape, and have none but \u: a slash may also be written \/. */
static bool is_plain(const char *name)
{
    for (const char *at = name; *at != '\0'; at++)
        if (*at < ' ' || *at > '~' || strchr("\"\\/", *at) != NULL)
            return false;
    return *name != '\0';
}

/* At a glance, from the end.
 *
 * Parsing all of a line costs more than all else that is done with it. Of the members of one name the last counts, so it is
 * looked for from the line's end on, and what stands before it does not matter. In a JSON object the bytes "NAME" with a brace
 * or a comma before them and a colon behind are a member's name: in a string a quote has a backslash before it, and behind a
 * string no letter follows. When only the line's last brace is behind it, it is a member of the line's own object; when no \u
 * that could spell the name is behind it, it is the last one. A line in which neither these bytes nor such a \u nor another
 * brace stands has no such member. Whatever is less plain is left to the parser. */

enum telling { TOLD, HAS_NONE, UNSURE };

static inline lanes lanes_at(const char *at)
{
    lanes v;
    memcpy(&v, at, sizeof v);
    return v;
}

static inline lanes equal(lanes v, char c)
{
    return (lanes)(v == (lanes){0} + (unsigned char)c);
}

/* Where in 16 bytes something to look at ends: a brace, \u, or perhaps the name, of which the last letter and the quotes are
 * compared. Looks at what stands before them, and at nothing behind. */
static inline lanes marks_at(const struct event_time *e, const char *at)
{
    lanes here = lanes_at(at), before = lanes_at(at - 1);
    return equal(here, '{') | equal(here, '}') | (equal(here, 'u') & equal(before, '\\')) |
           (equal(here, '"') & (lanes)(before == e->last_letter) &
               equal(lanes_at(at - e->name_length - 1), '"'));
}

static bool is_mark(const struct event_time *e, const char *begin, const char *at)
{
    if (*at == '{' || *at == '}')
        return true;
    if (*at == 'u')
        return at > begin && at[-1] == '\\';
    return *at == '"' && (size_t)(at - begin) > e->name_length && at[-(ptrdiff_t)e->name_length - 1] == '"';
}

/* Where in 8 of them, of which one at least is set, the last one is. */
static inline int last_set(uint64_t eight)
{
    return 7 - __builtin_clzll(le64toh(eight)) / 8;
}

/* -1: none is set. */
static inline int last_lane(lanes v)
{
    uint64_t halves[2];
    memcpy(halves, &v, sizeof halves);
    return halves[1] != 0 ? 8 + last_set(halves[1]) : halves[0] != 0 ? last_set(halves[0]) : -1;
}

/* The last one in [begin, end), of which the byte before is there too; NULL: none. */
static const char *last_mark(const struct event_time *e, const char *begin, const char *end)
{
    size_t reach = sizeof(lanes) + e->name_length + 1;
    for (; (size_t)(end - begin) >= reach; end -= sizeof(lanes)) {
        int lane = last_lane(marks_at(e, end - sizeof(lanes)));
        if (lane >= 0)
            return end - sizeof(lanes) + lane;
    }
    while (end > begin)
        if (is_mark(e, begin, --end))
            return end;
    return NULL;
}

#ifdef __x86_64__
#define WIDE __attribute__((target("avx2")))
#define STEP 64

WIDE static inline __m256i wide_at(const char *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

WIDE static inline __m256i wide_equal(__m256i v, char c)
{
    return _mm256_cmpeq_epi8(v, _mm256_set1_epi8(c));
}

/* As marks_at, of 32 bytes, a bit for each. */
WIDE static inline uint32_t wide_marks_at(const struct event_time *e, const char *at)
{
    __m256i here = wide_at(at), before = wide_at(at - 1), first = wide_at(at - e->name_length - 1);
    __m256i brace = wide_equal(here, '{') | wide_equal(here, '}');
    __m256i escape = wide_equal(here, 'u') & wide_equal(before, '\\');
    __m256i name =
        wide_equal(here, '"') & wide_equal(before, (char)e->last_letter[0]) & wide_equal(first, '"');
    return (uint32_t)_mm256_movemask_epi8(brace | escape | name);
}

/* As last_mark, which looks through what is left at the beginning. */
WIDE static const char *last_mark_wide(const struct event_time *e, const char *begin, const char *end)
{
    size_t reach = STEP + e->name_length + 1;
    for (; (size_t)(end - begin) >= reach; end -= STEP) {
        uint64_t bits = (uint64_t)wide_marks_at(e, end - STEP / 2) << STEP / 2 | wide_marks_at(e, end - STEP);
        if (bits != 0)
            return end - 1 - __builtin_clzll(bits);
    }
    return last_mark(e, begin, end);
}
#endif

/* \u0074 may be a letter of the name; `at` is the u. */
static bool spells_ascii(const char *at, const char *end)
{
    return end - at < 4 || (at[1] == '0' && at[2] == '0' && at[3] >= '2' && at[3] <= '7');
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    return at;
}

static bool is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* All eight are told to be digits, and added up, at once: in pairs, in fours, both fours. */
static bool read_eight_digits(const char *at, int64_t *out)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    v = le64toh(v);
    uint64_t high = v & 0xF0F0F0F0F0F0F0F0, carried = (v + 0x0606060606060606) & 0xF0F0F0F0F0F0F0F0;
    if ((high | carried >> 4) != 0x3333333333333333)
        return false;
    v = (v & 0x0F0F0F0F0F0F0F0F) * (10 * (1 << 8) + 1) >> 8 & 0x00FF00FF00FF00FF;
    v = v * (100 * (1 << 16) + 1) >> 16 & 0x0000FFFF0000FFFF;
    *out = (int64_t)(v * (10000 * (UINT64_C(1) << 32) + 1) >> 32);
    return true;
}

/* A number without sign and exponent, and what ends a member. With no more digits than a double tells apart, cutting the
 * fraction off is what the parser's number comes to as well. */
static bool read_number(const char *begin, const char *end, int64_t *out)
{
    const char *at = begin;
    int64_t n = 0;
    if (end - at >= 8 && read_eight_digits(at, &n))
        at += 8;
    while (is_digit(at, end) && at - begin <= PLAIN_DIGITS)
        n = 10 * n + (*at++ - '0');
    if (at == begin || (*begin == '0' && at - begin > 1))
        return false;
    if (at < end && *at == '.') {
        if (!is_digit(++at, end))
            return false;
        while (is_digit(at, end))
            at++;
    }
    if (at - begin > PLAIN_DIGITS)
        return false;
    at = skip_space(at, end);
    *out = n;
    return at < end && (*at == ',' || *at == '}');
}

/* From the quote that ends the name. */
static enum telling read_member(struct bytes line, const char *name, const char *behind, int64_t *out)
{
    const char *before = name - 1, *end = line.ptr + line.len; /* the line's first byte is a brace */
    while (is_space(*before))
        before--;
    const char *at = skip_space(behind, end);
    if ((*before != '{' && *before != ',') || at == end || *at != ':')
        return UNSURE;
    return read_number(skip_space(at + 1, end), end, out) ? TOLD : UNSURE;
}

static enum telling glance(const struct event_time *e, struct bytes line, int64_t *out)
{
    if (!e->plain || line.len < 2 || line.ptr[0] != '{' || line.ptr[line.len - 1] != '}')
        return UNSURE;
    const char *begin = line.ptr + 1, *end = line.ptr + line.len, *mark = end - 1;
    while ((mark = e->last_mark(e, begin, mark)) != NULL) {
        const char *name = mark - e->name_length;
        if (*mark == '"' && memcmp(name, e->name, e->name_length) == 0)
            return read_member(line, name - 1, mark + 1, out);
        if (*mark == '{' || *mark == '}' || (*mark == 'u' && spells_ascii(mark, end)))
            return UNSURE;
    }
    return HAS_NONE;
}

static bool parse(struct event_time *e, struct bytes line, int64_t *out)
{
    struct json_value v;
    const char *reason;
    if (json_fields_extract(e->fields, line, &v, &reason) != 0)
        return false;
    if (v.type == JSON_F64 && v.v.f64 >= 0 && v.v.f64 <= (double)MOST)
        *out = (int64_t)v.v.f64;
    else if (v.type == JSON_I64 && v.v.i64 >= 0)
        *out = v.v.i64;
    else
        return false;
    return true;
}

static last_mark_fn *widest_last_mark(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        return last_mark_wide;
#endif
    return last_mark;
}

struct event_time *event_time_new(const char *field, int64_t divisor)
{
    struct event_time *e = mem_zalloc(sizeof *e);
    e->fields = json_fields_new(&field, 1);
    e->name = mem_strdup(field);
    e->name_length = strlen(field);
    e->plain = is_plain(field);
    if (e->plain)
        memset(&e->last_letter, field[e->name_length - 1], sizeof e->last_letter);
    e->divisor = divisor;
    e->divides = divisor != 1;
    e->last_mark = widest_last_mark();
    return e;
}

void event_time_free(struct event_time **ep)
{
    struct event_time *e = *ep;
    if (e == NULL)
        return;
    json_fields_free(&e->fields);
    free(e->name);
    free(e);
    *ep = NULL;
}

bool event_time_of(struct event_time *e, struct bytes line, int64_t *seconds)
{
    int64_t n;
    enum telling told = glance(e, line, &n);
    if (told == HAS_NONE || (told == UNSURE && !parse(e, line, &n)) || n > MOST)
        return false;
    *seconds = e->divides ? n / e->divisor : n;
    return true;
}
