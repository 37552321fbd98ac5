#include "counts/records.h"
#include <assert.h>
#include <md5.h>
#include <zlib.h>

#define CENTURY_YEAR 100 /* 2100 is divisible by four but has no 29 February */
#define BASE 32
#define LONG_YEAR_LEADS "wxyz"
#define HASHED_BYTES 8                  /* number of MD5 bytes in a hash */
#define CUT_MARK (1 + 4 * HASHED_BYTES) /* number of bytes that component_bound appends to a cut text */

static const char DIGITS[] = "0123456789abcdefghijklmnopqrstuv";
static const char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int year_first_day(int year)
{
    return 365 * year + (year + 3) / 4 - (year > CENTURY_YEAR);
}

/* Returns the days of a year before each month, from January (0) to the month after December (12). */
static const short *month_starts(int year)
{
    static const short days[2][13] = {{0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365},
        {0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335, 366}};
    return days[year % 4 == 0 && year != CENTURY_YEAR];
}

size_t hour_encode(int64_t seconds, char out[HOUR_TEXT_MAX + 1])
{
    if (seconds < HOUR_FIRST || seconds >= HOUR_END)
        return 0;
    int64_t since = seconds - HOUR_FIRST;
    int day = (int)(since / SECONDS_PER_DAY), year = day / 366;
    while (year_first_day(year + 1) <= day)
        year++;
    day -= year_first_day(year);
    const short *starts = month_starts(year);
    int month = day / 31 + 1; /* `month` is now the month of `day` or the next month */
    month += day >= starts[month];
    day -= starts[month - 1];
    size_t n = 0;
    if (year >= BASE)
        out[n++] = LONG_YEAR_LEADS[year / BASE - 1];
    out[n++] = DIGITS[year % BASE];
    out[n++] = DIGITS[month];
    out[n++] = DIGITS[day + 1];
    out[n++] = DIGITS[since % SECONDS_PER_DAY / SECONDS_PER_HOUR];
    out[n] = '\0';
    return n;
}

/* Returns the value of a digit, or -1. A table avoids branches that the processor cannot predict. */
static int digit_of(char c)
{
    static const signed char values_plus_1[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 12, 13, 14,
        15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};
    unsigned i = (unsigned)(unsigned char)c - '0';
    return i < sizeof values_plus_1 ? values_plus_1[i] - 1 : -1;
}

static const char *const unit_names[] = {"quarter", "hour", "day", "month"}; /* from PERIOD_QUARTER on */

const char *period_unit_name(enum period_unit unit)
{
    return unit_names[unit - PERIOD_QUARTER];
}

bool period_unit_find(struct bytes name, enum period_unit *unit)
{
    int i = PERIOD_QUARTER;
    while (i <= PERIOD_MONTH && !bytes_equal_str(name, period_unit_name((enum period_unit)i)))
        i++;
    if (i <= PERIOD_MONTH)
        *unit = (enum period_unit)i;
    return i <= PERIOD_MONTH;
}

size_t period_encode(enum period_unit unit, int64_t seconds, char out[PERIOD_TEXT_MAX + 1])
{
    size_t n = hour_encode(seconds, out);
    if (n == 0)
        return 0;
    if (unit == PERIOD_QUARTER)
        out[n] = DIGITS[(seconds - HOUR_FIRST) % SECONDS_PER_HOUR / SECONDS_PER_QUARTER];
    n -= (size_t)(unit - PERIOD_HOUR);
    out[n] = '\0';
    return n;
}

bool period_decode(struct bytes text, enum period_unit *unit, int64_t *seconds)
{
    size_t has_lead = text.len > 0 && text.ptr[0] >= 'w' && text.ptr[0] <= 'z', n = text.len - has_lead;
    if (n < 2 || n > 5)
        return false;
    const char *p = text.ptr + has_lead;
    int first = digit_of(p[0]), month = digit_of(p[1]), day = n > 2 ? digit_of(p[2]) : 1,
        hour = n > 3 ? digit_of(p[3]) : 0, quarter = n > 4 ? digit_of(p[4]) : 0;
    int year = has_lead ? BASE * (text.ptr[0] - 'w' + 1) + first : first;
    const short *starts = month_starts(year);
    if (first < 0 || month < 1 || month > 12 || day < 1 || day > starts[month] - starts[month - 1] ||
        hour < 0 || hour > 23 || quarter < 0 || quarter > 3)
        return false;
    int64_t days = year_first_day(year) + starts[month - 1] + day - 1;
    *unit = PERIOD_MONTH - (int)(n - 2);
    *seconds = HOUR_FIRST + days * SECONDS_PER_DAY + hour * SECONDS_PER_HOUR + quarter * SECONDS_PER_QUARTER;
    return true;
}

bool total_period_decode(struct bytes text, enum period_unit *unit, int64_t *seconds)
{
    return period_decode(text, unit, seconds) && *unit <= PERIOD_HOUR;
}

int64_t period_end(enum period_unit unit, int64_t start)
{
    char text[HOUR_TEXT_MAX + 1];
    int64_t next = HOUR_END;
    if (unit != PERIOD_MONTH)
        return start + (unit == PERIOD_DAY       ? SECONDS_PER_DAY
                           : unit == PERIOD_HOUR ? SECONDS_PER_HOUR
                                                 : SECONDS_PER_QUARTER);
    size_t n = hour_encode(start + 31 * SECONDS_PER_DAY, text); /* a time within the next month */
    if (n > 0)
        period_decode(period_enclosing(bytes_of(text, n), PERIOD_HOUR, PERIOD_MONTH), &unit, &next);
    return next;
}

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

static const bool RESERVED[256] = {
    [0 ... ' '] = true, [':'] = true, [','] = true, ['.'] = true, ['|'] = true, [0x7f] = true};

static bool has_reserved(struct bytes text)
{
    bool found = false;
    for (size_t i = 0; i < text.len; i++)
        found |= RESERVED[(unsigned char)text.ptr[i]];
    return found;
}

size_t component_length(struct bytes text)
{
    size_t n = 0;
    while (n < text.len && !RESERVED[(unsigned char)text.ptr[n]])
        n++;
    return n;
}

bool component_is_plain(struct bytes text)
{
    return text.len < COMPONENT_HASH && !has_reserved(text);
}

static void digest_of(struct bytes text, unsigned char out[MD5_DIGEST_LENGTH])
{
    MD5_CTX md5;
    MD5Init(&md5);
    if (text.len)
        MD5Update(&md5, (const uint8_t *)text.ptr, text.len);
    MD5Final(out, &md5);
}

static int hex_of(char c)
{
    int d = digit_of(c);
    return d < 16 ? d : -1;
}

/* Returns the length of a cut text without the bytes that component_bound has appended. Sets `hash` to the first bytes
 * of the MD5 of the whole text. If the text is not cut, returns its length. */
static size_t uncut_length(struct bytes text, unsigned char hash[HASHED_BYTES])
{
    unsigned char hex[2 * HASHED_BYTES], digest[MD5_DIGEST_LENGTH];
    if (text.len < CUT_MARK || text.ptr[text.len - CUT_MARK] != '~')
        return text.len;
    for (size_t i = 0; i < sizeof hex; i++) {
        int high = hex_of(text.ptr[text.len - CUT_MARK + 1 + 2 * i]),
            low = hex_of(text.ptr[text.len - CUT_MARK + 2 + 2 * i]);
        if (high < 0 || low < 0)
            return text.len;
        hex[i] = (unsigned char)(high * 16 + low);
    }
    digest_of(bytes_of(text.ptr, text.len - 2 * HASHED_BYTES), digest);
    if (memcmp(digest, hex + HASHED_BYTES, HASHED_BYTES) != 0)
        return text.len;
    memcpy(hash, hex, HASHED_BYTES);
    return text.len - CUT_MARK;
}

struct bytes component_bound(struct bytes text, size_t max, struct buf *space)
{
    unsigned char digest[MD5_DIGEST_LENGTH];
    if (text.len <= max && uncut_length(text, digest) == text.len)
        return text;
    size_t n = max - CUT_MARK < text.len ? max - CUT_MARK : text.len;
    while (n > 0 && n < text.len && (text.ptr[n] & 0xc0) == 0x80)
        n--;
    digest_of(text, digest);
    buf_clear(space);
    buf_append(space, text.ptr, n);
    buf_append_char(space, '~');
    buf_append_hex(space, bytes_of(digest, HASHED_BYTES));
    digest_of(buf_bytes(space), digest);
    buf_append_hex(space, bytes_of(digest, HASHED_BYTES));
    return buf_bytes(space);
}

void component_hash(struct bytes text, char out[COMPONENT_HASH + 1])
{
    unsigned char digest[MD5_DIGEST_LENGTH];
    if (uncut_length(text, digest) == text.len)
        digest_of(text, digest);
    digest[HASHED_BYTES] =
        0; /* pads the last group of three bytes; the last character of this group becomes '=' */
    for (size_t in = 0, o = 0; in < HASHED_BYTES + 1; in += 3, o += 4) {
        uint32_t three = (uint32_t)digest[in] << 16 | (uint32_t)digest[in + 1] << 8 | digest[in + 2];
        for (int i = 0; i < 4; i++)
            out[o + (size_t)i] = BASE64[three >> (18 - 6 * i) & 63];
    }
    out[COMPONENT_HASH - 1] = '=';
    out[COMPONENT_HASH] = '\0';
}

bool component_is_same(struct bytes a, struct bytes b)
{
    unsigned char hash[HASHED_BYTES];
    size_t n_a = uncut_length(a, hash), n_b = uncut_length(b, hash);
    return bytes_equal(a, b) || (n_a < a.len && n_a <= n_b && bytes_starts_with(b, bytes_of(a.ptr, n_a))) ||
           (n_b < b.len && n_b <= n_a && bytes_starts_with(a, bytes_of(b.ptr, n_b)));
}

struct bytes component_store(struct bytes text, char space[COMPONENT_HASH + 1])
{
    if (component_is_plain(text))
        return text;
    component_hash(text, space);
    return bytes_of(space, COMPONENT_HASH);
}

bool component_is_hash(struct bytes stored)
{
    return stored.len == COMPONENT_HASH && stored.ptr[COMPONENT_HASH - 1] == '=';
}

void lookup_escape(struct bytes text, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c == '\\')
            buf_append_str(out, "\\\\");
        else if (is_control(c))
            buf_printf(out, "\\x%02x", c);
        else
            buf_append_char(out, (char)c);
    }
}

/* Decodes the escape at the start of `text` and sets *len to the escape's length. Returns -1 if the escape is
 * invalid. */
static int unescape_one(struct bytes text, size_t *len)
{
    if (text.len >= 2 && text.ptr[1] == '\\') {
        *len = 2;
        return '\\';
    }
    if (text.len < 4 || text.ptr[1] != 'x')
        return -1;
    int high = hex_of(text.ptr[2]), low = hex_of(text.ptr[3]);
    if (high < 0 || low < 0 || !is_control((unsigned char)(high * 16 + low)))
        return -1;
    *len = 4;
    return high * 16 + low;
}

int lookup_unescape(struct bytes text, struct buf *out)
{
    for (size_t i = 0; i < text.len;) {
        if (text.ptr[i] != '\\') {
            buf_append_char(out, text.ptr[i++]);
            continue;
        }
        size_t len;
        int c = unescape_one(bytes_of(text.ptr + i, text.len - i), &len);
        if (c < 0)
            return -1;
        buf_append_char(out, (char)c);
        i += len;
    }
    return 0;
}

#define COMMA_ESCAPE "\\x2c"

void text_key_escape(struct bytes escaped, struct buf *out)
{
    for (const char *comma; escaped.len > 0 && (comma = memchr(escaped.ptr, ',', escaped.len));) {
        size_t n = (size_t)(comma - escaped.ptr);
        buf_append(out, escaped.ptr, n);
        buf_append_str(out, COMMA_ESCAPE);
        escaped = bytes_of(comma + 1, escaped.len - n - 1);
    }
    buf_append_bytes(out, escaped);
}

void text_key_unescape(struct bytes key, struct buf *out)
{
    size_t n = sizeof COMMA_ESCAPE - 1;
    for (size_t i = 0; i < key.len;) {
        if (key.len - i >= n && memcmp(key.ptr + i, COMMA_ESCAPE, n) == 0) {
            buf_append_char(out, ',');
            i += n;
            continue;
        }
        bool is_pair =
            key.ptr[i] == '\\' && i + 1 < key.len; /* the second of two backslashes begins no escape */
        buf_append(out, key.ptr + i, is_pair ? 2 : 1);
        i += is_pair ? 2 : 1;
    }
}

void text_key_encode(struct bytes text, struct buf *out)
{
    struct buf escaped = {0};
    lookup_escape(text, &escaped);
    text_key_escape(buf_bytes(&escaped), out);
    buf_free(&escaped);
}

void text_key_decode(struct bytes key, struct buf *out)
{
    struct buf escaped = {0};
    text_key_unescape(key, &escaped);
    lookup_unescape(buf_bytes(&escaped), out);
    buf_free(&escaped);
}

/* Among plain keys, an escape sorts as `\x`. Plain keys with a backslash at the escape's position sort before the
 * escape, because the backslash is doubled. Keys with a larger byte sort after the escape. So the search begins after
 * all keys with the backslash, which are shorter than a hash. */
void text_order_seek_plain(struct bytes text, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        if (is_control((unsigned char)text.ptr[i]) || text.ptr[i] == ',') {
            buf_append_char(out, '\\');
            for (int k = 0; k < COMPONENT_HASH; k++)
                buf_append_char(out, '\xff');
            return;
        }
        buf_append_char(out, text.ptr[i]);
    }
}

/* Returns the number of bytes of [a-z0-9_] at the beginning of `text`. Namespaces and the parts of subtotals' names
 * consist of [a-z0-9_]. */
static size_t namespace_length(struct bytes text)
{
    static const bool allowed[256] = {['0' ... '9'] = true, ['a' ... 'z'] = true, ['_'] = true};
    size_t n = 0;
    while (n < text.len && allowed[(unsigned char)text.ptr[n]])
        n++;
    return n;
}

static bool is_length_of_namespace(size_t n)
{
    return n >= 1 && n <= NAMESPACE_MAX;
}

bool namespace_is_valid(struct bytes text)
{
    return namespace_length(text) == text.len && is_length_of_namespace(text.len) &&
           !bytes_equal(text, BYTES_LITERAL("lookup"));
}

bool record_split(struct bytes line, char separator, struct record *out)
{
    const char *at = line.len ? memchr(line.ptr, separator, line.len) : NULL;
    if (!at)
        return false;
    size_t n = (size_t)(at - line.ptr);
    out->key = bytes_of(line.ptr, n);
    out->value = bytes_of(at + 1, line.len - n - 1);
    return true;
}

bool record_next_count(struct bytes *rest, struct bytes *name, int64_t *count, bool *bad)
{
    *bad = false;
    if (rest->len == 0)
        return false;
    const char *p = rest->ptr, *end = p + rest->len, *colon = p;
    while (colon < end && *colon != ':' && *colon != ' ')
        colon++;
    const char *space = colon;
    while (space < end && *space != ' ')
        space++;
    *bad = colon == end || *colon != ':' || space + 1 == end ||
           !bytes_to_i64(bytes_of(colon + 1, (size_t)(space - colon - 1)), count);
    if (*bad)
        return false;
    *name = bytes_of(p, (size_t)(colon - p));
    space += space < end;
    *rest = bytes_of(space, (size_t)(end - space));
    return true;
}

void record_append_count(struct buf *out, int64_t count)
{
    if (count < 0)
        buf_append_char(out, '-');
    buf_append_u64(out, count < 0 ? 0 - (uint64_t)count : (uint64_t)count);
}

bool component_is_stored(struct bytes component)
{
    return !has_reserved(component) && (component.len < COMPONENT_HASH || component_is_hash(component));
}

static bool take_period(struct record_key *out)
{
    const char *end = out->key.ptr + out->key.len, *dot = end;
    size_t n = 0;
    while (n < out->key.len && n <= PERIOD_TEXT_MAX && *--dot != '.')
        n++;
    if (n == out->key.len || n > PERIOD_TEXT_MAX)
        return false;
    out->period = bytes_of(dot + 1, n);
    out->key.len -= n + 1;
    return period_decode(out->period, &out->unit, &out->start);
}

bool record_key_parse(struct bytes key, struct record_key *out)
{
    *out = (struct record_key){.period = {"", 0}};
    size_t n = namespace_length(key), first = n;
    bool has_dot = n < key.len && key.ptr[n] == '.';
    if (has_dot)
        n += 1 + namespace_length(bytes_of(key.ptr + n + 1, key.len - n - 1));
    if (n == key.len || key.ptr[n] != '|')
        return false;
    out->ns = bytes_of(key.ptr, n);
    out->key = bytes_of(key.ptr + n + 1, key.len - n - 1);
    struct bytes last = has_dot ? bytes_of(key.ptr + first + 1, n - first - 1) : out->ns;
    if (!is_length_of_namespace(first) || !is_length_of_namespace(last.len))
        return false;
    bool is_lookup = bytes_equal(last, BYTES_LITERAL("lookup"));
    out->is_lookup = is_lookup && !has_dot;
    out->is_subtotal = has_dot;
    if (is_lookup)
        return !has_dot && component_is_hash(out->key) && !has_reserved(out->key);
    return (!has_dot || take_period(out)) && component_is_stored(out->key);
}

static struct bytes shard_namespace(const struct record_key *k)
{
    if (!k->is_subtotal)
        return k->ns;
    const char *dot = memchr(k->ns.ptr, '.', k->ns.len);
    assert(dot);
    return bytes_of(dot + 1, k->ns.len - (size_t)(dot - k->ns.ptr) - 1);
}

uint32_t record_shard(const struct record_key *k, uint32_t shards)
{
    if (shards <= 1)
        return 0;
    struct bytes ns = shard_namespace(k);
    uLong crc = crc32_z(0, (const Bytef *)ns.ptr, ns.len);
    crc = crc32_z(crc, (const Bytef *)"|", 1);
    if (k->key.len)
        crc = crc32_z(crc, (const Bytef *)k->key.ptr, k->key.len);
    return (uint32_t)(crc % shards);
}
