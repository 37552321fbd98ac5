#include "api/day_counts.h"

#include "base/simd.h"

#define FEW_DIGITS 15 /* of a count; 24 such counts add up to less than 2^64 */

static bool is_hour(const struct day_counts *d, char c)
{
    return c >= d->first && c <= d->last && (c <= '9' || c >= 'a');
}

/* Reads a number of a few digits that a space or the end follows. Returns the place after it and the space, or NULL. */
static const char *read_count(const char *p, const char *end, uint64_t *n)
{
    const char *from = p;
    *n = 0;
    while (p < end && (unsigned)(*p - '0') < 10 && p - from < FEW_DIGITS)
        *n = *n * 10 + (unsigned)(*p++ - '0');
    if (p == from || (p < end && (*p != ' ' || p + 1 == end)))
        return NULL;
    return p + (p < end);
}

char day_counts_take_plain(const struct day_counts *d, struct bytes *value, uint64_t *sum)
{
    const char *p = value->ptr, *end = p + value->len, *next;
    uint64_t n;
    char latest = '\0';
    while ((size_t)(end - p) > d->len + 2 && memcmp(p, d->day, d->len) == 0 && is_hour(d, p[d->len]) &&
           p[d->len + 1] == ':' && (next = read_count(p + d->len + 2, end, &n))) {
        latest = p[d->len];
        *sum += n;
        p = next;
    }
    *value = bytes_of(p, (size_t)(end - p));
    return latest;
}

#ifdef __x86_64__
#define WIDE_DIGITS 7 /* of a count */
#define AHEAD (WIDE_DIGITS + 1)

struct wide {
    __m256i low, high;
};

SIMD static inline struct wide wide_at(const char *at)
{
    return (struct wide){simd_at(at), simd_at(at + SIMD_STEP / 2)};
}

SIMD static inline struct wide equal(struct wide w, char c)
{
    return (struct wide){simd_equal(w.low, c), simd_equal(w.high, c)};
}

SIMD static inline uint64_t bits(struct wide w)
{
    return simd_bits(w.low, w.high);
}

SIMD static inline struct wide both(struct wide a, struct wide b)
{
    return (struct wide){_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}

SIMD static inline struct wide between(struct wide w, char first, char last)
{
    __m256i below = _mm256_set1_epi8((char)(first - 1)), above = _mm256_set1_epi8((char)(last + 1));
    return (struct wide){_mm256_and_si256(_mm256_cmpgt_epi8(w.low, below), _mm256_cmpgt_epi8(above, w.low)),
        _mm256_and_si256(_mm256_cmpgt_epi8(w.high, below), _mm256_cmpgt_epi8(above, w.high))};
}

/* 0xFF in each byte whose bit is set. */
SIMD static inline __m256i bytes_of_bits(uint32_t word)
{
    const __m256i source = _mm256_setr_epi64x(
        0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303); /* the byte that has the bit */
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)word), source);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}

/* The sum of the bytes, in four parts. */
SIMD static inline __m256i add_bytes(struct wide w)
{
    const __m256i zero = _mm256_setzero_si256();
    return _mm256_add_epi64(_mm256_sad_epu8(w.low, zero), _mm256_sad_epu8(w.high, zero));
}

/* The places of the step at `p` where the name of one of the day's hours would be valid. A bit stands for a byte. */
SIMD static inline uint64_t find_names(const char *p, struct day_counts d)
{
    struct wide hour = wide_at(p + d.len), colon = equal(wide_at(p + d.len + 1), ':');
    struct wide found = both(between(hour, d.first, d.last), colon);
    found = both(found, both(equal(wide_at(p), d.day[0]), equal(wide_at(p + 1), d.day[1])));
    found = both(found, equal(wide_at(p + 2), d.day[2]));
    if (d.len > 3)
        found = both(found, equal(wide_at(p + 3), d.day[3]));
    return bits(found) & ~bits(between(hour, '9' + 1, 'a' - 1));
}

/* Adds the numbers of the step at `p` whose digits are the bits of `digits`: a digit's weight follows from its distance to the next space. False: a
 * number is too long. */
SIMD static inline bool add_numbers(const char *p, uint64_t digits, __m256i *parts)
{
    static const int powers[WIDE_DIGITS] = {1, 10, 100, 1000, 10000, 100000, 1000000};
    const __m256i zero = _mm256_set1_epi8('0');
    struct wide w = wide_at(p);
    w = (struct wide){_mm256_sub_epi8(w.low, zero), _mm256_sub_epi8(w.high, zero)};
    w = both(w, (struct wide){bytes_of_bits((uint32_t)digits), bytes_of_bits((uint32_t)(digits >> 32))});
    for (size_t i = 0; digits && i < WIDE_DIGITS; i++) {
        struct wide places = equal(wide_at(p + i + 1), ' ');
        *parts = _mm256_add_epi64(
            *parts, _mm256_mul_epu32(add_bytes(both(w, places)), _mm256_set1_epi32(powers[i])));
        w = (struct wide){_mm256_andnot_si256(places.low, w.low), _mm256_andnot_si256(places.high, w.high)};
        digits &= ~bits(places);
    }
    return digits == 0;
}

static size_t last_bit(uint64_t word)
{
    return 63 - (size_t)__builtin_clzll(word);
}

SIMD static uint64_t add_parts(__m256i parts)
{
    uint64_t four[4];
    _mm256_storeu_si256((__m256i *)(void *)four, parts);
    return four[0] + four[1] + four[2] + four[3];
}

/* As day_counts_take, but takes nothing if a count before the end of the day is malformed or long, or if the value ends soon. Little of a
 * step depends on the step before, so the processor works on several at once. */
SIMD static char take_wide(struct day_counts d, struct bytes *value, uint64_t *sum)
{
    const char *p = value->ptr, *end = p + value->len;
    uint64_t space_before = 1, names_before = 0, two_before = 0;
    __m256i parts = _mm256_setzero_si256();
    for (; (size_t)(end - p) >= SIMD_STEP + AHEAD; p += SIMD_STEP) {
        uint64_t spaces = bits(equal(wide_at(p), ' ')), names = spaces << 1 | space_before;
        uint64_t bad = names & ~find_names(p, d), whole = bad ? _blsi_u64(bad) - 1 : UINT64_MAX;
        uint64_t two = names | names << 1 | names_before >> 63, four = two | two << 2 | two_before >> 62;
        uint64_t digits = whole & ~(four | two << d.len | two_before >> (SIMD_STEP - d.len) | spaces);
        uint64_t ends = bits(equal(wide_at(p + 1), ' ')) & (bad ? whole >> 1 : whole);
        if ((digits & ~bits(between(wide_at(p), '0', '9'))) || (ends & ~digits) ||
            !add_numbers(p, digits, &parts))
            return '\0';
        if (bad) {
            size_t len = (size_t)(p - value->ptr) + _tzcnt_u64(bad);
            if (len == 0)
                return '\0';
            names &= whole;
            const char *latest = names ? p + last_bit(names) : p - SIMD_STEP + last_bit(names_before);
            *sum += add_parts(parts);
            *value = bytes_of(value->ptr + len, value->len - len);
            return latest[d.len];
        }
        space_before = spaces >> 63;
        names_before = names;
        two_before = two;
    }
    return '\0';
}
#endif

char day_counts_take(const struct day_counts *d, struct bytes *value, uint64_t *sum)
{
#ifdef __x86_64__
    char latest = simd_available() ? take_wide(*d, value, sum) : '\0';
    if (latest)
        return latest;
#endif
    return day_counts_take_plain(d, value, sum);
}
