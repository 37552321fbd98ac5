#include "streams/archive/event_time.h"

#include "counts/event_seconds.h"
#include "json/json_path.h"
#include "base/simd.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>

#define SECONDS_MAX INT64_C(1000000000000000)
/* A double holds this many decimal digits exactly, with or without a point. */
#define PLAIN_DIGITS 15
#define INTEGER_DIGITS 19 /* any number of 19 digits fits an unsigned 64-bit integer */
/* The first 8 digits of a time of 10 digits are compared with the previous line's time. */
#define REPEAT_DIGITS 8
#define REPEAT_REST 3 /* the last two digits, and the byte after the number */
#define REPEAT_MIN INT64_C(1000000000)
#define REPEAT_MAX INT64_C(9999999999)
#define INLINED static inline __attribute__((always_inline))

/* A text from the latest line with a ten-digit time: from the comma or brace before the member up to the eighth digit.
 * Lines of one log usually repeat this text, because the eight digits change only every hundred seconds. */
struct repeat {
    char text[64];
    size_t length;   /* length of the text; 0: no line had a ten-digit time yet */
    size_t lead;     /* number of bytes in `text` before the name's first quote */
    int64_t hundred; /* the number of the eight digits, times 100 */
};

enum scan_result { FOUND, ABSENT, UNSURE };
typedef enum scan_result scan_fn(struct event_time *e, struct bytes line, int64_t *out);
typedef const char *last_mark_fn(const struct event_time *e, const char *begin, const char *end);

struct event_time {
    struct json_fields *fields;
    char *name;
    size_t name_length;
    bool plain;       /* is_plain(name), and the path has no other names */
    char last_letter; /* last letter of a plain name */
    scan_fn *scan;    /* a scan with vector instructions if the processor has them */
    struct repeat repeat;
    int64_t divisor;
    bool divides; /* divisor != 1, so that a division is needed */
};

/* Returns whether the name is ASCII and has no byte that JSON can spell by an escape other than \u. */
static bool is_plain(struct bytes name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] < ' ' || name.ptr[i] > '~' || strchr("\"\\/", name.ptr[i]))
            return false;
    return name.len > 0;
}

/* Parsing the whole line would dominate the cost of a line, so the scan searches for the member backwards from the
 * line's end. If a name occurs twice, the last member counts, so the scan can stop at the first match.
 *
 * Inside a JSON string a backslash precedes every quote. Therefore the bytes "NAME" between a brace or comma and a
 * colon are a member's name. The scan has three results:
 * - FOUND: the name is followed by no brace except the line's last brace, and by no \u that could spell the name. The
 *   member therefore belongs to the outermost object, and is the last member with this name.
 * - ABSENT: the line has no member with the name, because it has no such bytes, no such \u and no inner brace.
 * - UNSURE: any other line, which must be parsed. */

/* Returns the last mark in [begin, end), or NULL. A mark is a brace, the u of \u, or the closing quote of a text that
 * may be the name. For the name, only both quotes and the last letter are compared. */
static const char *last_mark(const struct event_time *e, const char *begin, const char *end)
{
    while (end-- > begin) {
        bool name = *end == '"' && (size_t)(end - begin) > e->name_length && end[-1] == e->last_letter &&
                    end[-(ptrdiff_t)e->name_length - 1] == '"';
        if (name || *end == '{' || *end == '}' || (*end == 'u' && end > begin && end[-1] == '\\'))
            return end;
    }
    return NULL;
}

#ifdef __x86_64__
/* Finds the marks in the 32 bytes at `at`. Also reads bytes before `at`, but no byte after the 32 bytes. */
SIMD static inline __m256i simd_marks_at(const struct event_time *e, const char *at)
{
    __m256i here = simd_at(at), before = simd_at(at - 1), first = simd_at(at - e->name_length - 1);
    __m256i brace = simd_equal(here, '{') | simd_equal(here, '}');
    __m256i escape = simd_equal(here, 'u') & simd_equal(before, '\\');
    __m256i name = simd_equal(here, '"') & simd_equal(before, e->last_letter) & simd_equal(first, '"');
    return brace | escape | name;
}

/* Like last_mark, but with vector instructions. Calls last_mark for the first bytes, which are too few for a vector. */
SIMD INLINED const char *last_mark_wide(const struct event_time *e, const char *begin, const char *end)
{
    size_t reach = SIMD_STEP + e->name_length + 1;
    for (; (size_t)(end - begin) >= reach; end -= SIMD_STEP) {
        uint64_t bits = simd_bits(simd_marks_at(e, end - SIMD_STEP), simd_marks_at(e, end - SIMD_STEP / 2));
        if (bits != 0)
            return end - 1 - __builtin_clzll(bits);
    }
    return last_mark(e, begin, end);
}
#endif

static inline bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static inline const char *skip_space(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    return at;
}

static inline bool is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* Checks and converts eight digits in parallel: first pairs, then fours, then all eight. */
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

/* Reads a number without sign and exponent. Returns false if the number is not followed by a comma or brace. *out is
 * the number without its fraction. A number with a point must have at most PLAIN_DIGITS digits, so that *out equals the
 * result of the parser. */
static bool read_number(const char *begin, const char *end, int64_t *out)
{
    const char *at = begin;
    int64_t first = 0;
    if (end - at >= 8 && read_eight_digits(at, &first))
        at += 8;
    uint64_t n = (uint64_t)first;
    while (is_digit(at, end) && at - begin < INTEGER_DIGITS)
        n = 10 * n + (uint64_t)(*at++ - '0');
    if (at == begin || (*begin == '0' && at - begin > 1))
        return false;
    if (at < end && *at == '.') {
        if (!is_digit(++at, end))
            return false;
        while (is_digit(at, end))
            at++;
        if (at - begin > PLAIN_DIGITS)
            return false;
    }
    at = skip_space(at, end);
    *out = (int64_t)n;
    return n <= INT64_MAX && at < end && (*at == ',' || *at == '}');
}

/* Parses and remembers the member. `name` points to the opening quote of the member's name, and `behind` to the byte
 * after the closing quote. */
static enum scan_result read_member(
    struct event_time *e, struct bytes line, const char *name, const char *behind, int64_t *out)
{
    const char *before = name - 1, *end = line.ptr + line.len; /* the line starts with a brace */
    while (is_space(*before))
        before--;
    const char *at = skip_space(behind, end);
    if ((*before != '{' && *before != ',') || at == end || *at != ':')
        return UNSURE;
    at = skip_space(at + 1, end);
    if (!read_number(at, end, out))
        return UNSURE;
    struct repeat *repeat = &e->repeat;
    size_t length = (size_t)(at + REPEAT_DIGITS - before);
    bool fits = length <= sizeof repeat->text && *out >= REPEAT_MIN && *out <= REPEAT_MAX;
    repeat->length = fits ? length : 0;
    repeat->lead = (size_t)(name - before);
    repeat->hundred = fits ? *out - *out % 100 : 0;
    if (fits)
        memcpy(repeat->text, before, length);
    return FOUND;
}

/* Returns whether the member's bytes equal the remembered text. The remembered text was parsed before, so only the last
 * two digits and the end of the number are checked. */
INLINED bool repeats_last_member(
    const struct event_time *e, struct bytes line, const char *name, int64_t *out)
{
    const struct repeat *repeat = &e->repeat;
    if ((size_t)(name - line.ptr) < repeat->lead)
        return false;
    const char *from = name - repeat->lead, *rest = from + repeat->length;
    size_t left = (size_t)(line.ptr + line.len - from);
    if (left < repeat->length + REPEAT_REST || memcmp(from, repeat->text, repeat->length) != 0)
        return false;
    unsigned tens = (unsigned char)rest[0] - '0', ones = (unsigned char)rest[1] - '0';
    *out = repeat->hundred + 10 * tens + ones;
    return repeat->length > 0 && tens <= 9 && ones <= 9 && (rest[2] == ',' || rest[2] == '}');
}

/* Always inlined, so that the compiler specializes the scan for each function `last`. */
INLINED enum scan_result scan_by(last_mark_fn *last, struct event_time *e, struct bytes line, int64_t *out)
{
    if (!e->plain || line.len < 2 || line.ptr[0] != '{' || line.ptr[line.len - 1] != '}')
        return UNSURE;
    const char *begin = line.ptr + 1, *end = line.ptr + line.len, *mark = end - 1;
    while ((mark = last(e, begin, mark))) {
        const char *name = mark - e->name_length - 1;
        if (*mark == '"' && repeats_last_member(e, line, name, out))
            return FOUND;
        /* `last` has already compared the last letter. */
        if (*mark == '"' && memcmp(name + 1, e->name, e->name_length - 1) == 0)
            return read_member(e, line, name, mark + 1, out);
        if (*mark == '{' || *mark == '}')
            return UNSURE;
        /* An escape such as \u0074 may spell a letter of the name. */
        if (*mark == 'u' &&
            (end - mark < 4 || (mark[1] == '0' && mark[2] == '0' && mark[3] >= '2' && mark[3] <= '7')))
            return UNSURE;
    }
    return ABSENT;
}

static enum scan_result scan(struct event_time *e, struct bytes line, int64_t *out)
{
    return scan_by(last_mark, e, line, out);
}

#ifdef __x86_64__
SIMD static enum scan_result scan_wide(struct event_time *e, struct bytes line, int64_t *out)
{
    return scan_by(last_mark_wide, e, line, out);
}
#endif

struct event_time *event_time_new(const char *field, int64_t divisor)
{
    struct event_time *e = mem_zalloc(sizeof *e);
    struct json_path path = {.rest = bytes_str(field)};
    struct json_step step;
    e->fields = json_fields_new(&field, 1);
    assert(e->fields);
    /* The scan can only find a member of the outermost object. Longer paths need the parser. */
    json_path_next(&path, &step);
    e->name = bytes_dup(step.name);
    e->name_length = step.name.len;
    e->plain = path.rest.len == 0 && is_plain(step.name);
    if (e->plain)
        e->last_letter = e->name[e->name_length - 1];
    e->divisor = divisor;
    e->divides = divisor != 1;
    e->scan = scan;
#ifdef __x86_64__
    if (simd_available())
        e->scan = scan_wide;
#endif
    return e;
}

void event_time_free(struct event_time **ep)
{
    struct event_time *e = *ep;
    if (!e)
        return;
    json_fields_free(&e->fields);
    free(e->name);
    free(e);
    *ep = NULL;
}

bool event_time_of(struct event_time *e, struct bytes line, int64_t *seconds)
{
    int64_t n = -1;
    struct json_value v;
    const char *reason;
    enum scan_result result = e->scan(e, line, &n);
    if (result == ABSENT)
        return false;
    if (result == FOUND)
        n = e->divides ? n / e->divisor : n;
    else if (json_fields_extract(e->fields, line, &v, &reason) != 0 ||
             !event_seconds_read(&v, e->divisor, &n))
        return false;
    if (n < 0 || n > SECONDS_MAX)
        return false;
    *seconds = n;
    return true;
}
