/* clickgen: writes generated clicks to standard output, one JSON object a line, with the fields of bitly's public feed.
 *
 * 1. The same settings produce the same bytes on every machine. So clickgen uses no clock, no locale, and no floating
 *    point, which may round differently on another machine.
 * 2. A link belongs to one user and has one address. Users, links, countries and referrers are Zipf-distributed.
 * 3. Times rise from `start` to just before `end` in a daily rhythm. Lines may be a few seconds out of order.
 * 4. The sample configuration (etc/clicks.conf) must reject a damaged line. A hostile line is valid, with a key
 *    that is hard to store: reserved or control bytes, very long, not ASCII, or about 12 bytes. */
#include "base/io.h"
#include "base/progress.h"
#include "config/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define FEED_MILLION 1000000 /* shares are parts per million */

struct feed_settings {
    uint64_t events, seed;
    int64_t start, end; /* unix seconds; start < end */
    unsigned zipf_milli;
    uint32_t heartbeats, damaged, hostile; /* shares of the lines, in parts per million */
};

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define ONE_BITS 31
#define ONE (UINT64_C(1) << ONE_BITS)
#define FRACTION_BITS 24

/* Ranks 0..n-1, where rank r has the weight 1 / (r + 1)^(exponent_milli / 1000). */
struct zipf {
    size_t n;
    uint64_t *up_to; /* sum of the weights of ranks 0..i */
};

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). */
static uint64_t random_next(uint64_t *state)
{
    return mix(*state += GOLDEN);
}

/* The n-th number of a seed. */
static uint64_t random_of(uint64_t seed, uint64_t n)
{
    return mix(mix(seed + GOLDEN) ^ (n + 1) * GOLDEN);
}

/* 0 <= result < bound. */
static uint64_t scale(uint64_t random, uint64_t bound)
{
    return (uint64_t)((unsigned __int128)random * bound >> 64);
}

/* log2(x) with FRACTION_BITS bits: squaring a number in [1, 2) doubles its logarithm, and the next bit is 1 if the
 * square reaches 2. */
static uint64_t log2_fixed(uint64_t x)
{
    unsigned whole = 63 - (unsigned)__builtin_clzll(x);
    uint64_t log = whole, m = whole > ONE_BITS ? x >> (whole - ONE_BITS) : x << (ONE_BITS - whole);
    for (int i = 0; i < FRACTION_BITS; i++) {
        m = m * m >> ONE_BITS;
        bool bit = m >= 2 * ONE;
        m >>= bit;
        log = log << 1 | bit;
    }
    return log;
}

/* roots[k] is 2^-(2^-(k+1)), the factor of fraction bit k of an exponent. Each root is the square root of the previous root. */
static void make_roots(uint64_t roots[FRACTION_BITS])
{
    uint64_t root = ONE / 2;
    for (int i = 0; i < FRACTION_BITS; i++) {
        uint64_t square = root << ONE_BITS;
        root = 0;
        for (uint64_t bit = UINT64_C(1) << 31; bit; bit >>= 1)
            if ((root | bit) * (root | bit) <= square)
                root |= bit;
        roots[i] = root;
    }
}

/* 2^-e, where e is a fixed-point number with FRACTION_BITS bits. The result is never 0, so that every rank can
 * occur. */
static uint64_t exp2_minus(uint64_t e, const uint64_t roots[FRACTION_BITS])
{
    uint64_t whole = e >> FRACTION_BITS, value = ONE;
    for (int i = 0; i < FRACTION_BITS; i++)
        if (e >> (FRACTION_BITS - 1 - i) & 1)
            value = value * roots[i] >> ONE_BITS;
    value = whole > ONE_BITS ? 0 : value >> whole;
    return value ? value : 1;
}

/* n >= 1, exponent up to 3000. The caller frees up_to. */
static struct zipf zipf_new(size_t n, unsigned exponent_milli)
{
    struct zipf z = {.n = n, .up_to = mem_alloc(n * sizeof *z.up_to)};
    uint64_t roots[FRACTION_BITS], sum = 0;
    make_roots(roots);
    for (size_t i = 0; i < n; i++)
        z.up_to[i] = sum += exp2_minus(log2_fixed(i + 1) * exponent_milli / 1000, roots);
    return z;
}

/* `random` is a uniform 64-bit number. */
static size_t zipf_rank(const struct zipf *z, uint64_t random)
{
    uint64_t at = scale(random, z->up_to[z->n - 1]);
    size_t low = 0, high = z->n - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (at < z->up_to[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

#define SECONDS_PER_DAY 86400
#define SECONDS_PER_HOUR 3600
#define LATE_MAX 4 /* seconds */
#define COUNT(list) (sizeof list / sizeof *(list))

/* Each purpose has its own sequence of random numbers. So if one purpose uses more numbers, the numbers of the others
 * stay the same. */
enum purpose { FOR_USER = 1, FOR_LINK, FOR_OWNER, FOR_REFERRER, FOR_CITY, FOR_LINES };

struct click_feed {
    struct feed_settings s;
    struct zipf users, links, countries, referrers, agents;
    uint64_t state, done;
};

struct place {
    const char *country, *zone, *region, *city, *language; /* as written in JSON */
    int latitude, longitude;                               /* in millionths of a degree */
};

static const struct place places[] = {
    {"US", "America\\/New_York", "NY", "New York", "en-US,en;q=0.8", 40714270, -74005970},
    {"US", "America\\/Chicago", "IL", "Chicago", "en-us", 41850030, -87650050},
    {"US", "America\\/Los_Angeles", "CA", "Sunnyvale", "en-US,en;q=0.5", 37368832, -122036346},
    {"US", "America\\/Denver", "CO", "Denver", "en-US", 39739200, -104984700},
    {"US", "America\\/New_York", "DC", "Washington", "en-US,en;q=0.8", 38895110, -77036370},
    {"GB", "Europe\\/London", "H9", "London", "en-GB,en;q=0.8", 51508530, -125740},
    {"CA", "America\\/Toronto", "ON", "Toronto", "en-CA,en;q=0.7", 43700110, -79416300},
    {"BR", "America\\/Sao_Paulo", "27", "S\\u00e3o Paulo", "pt-BR,pt;q=0.8", -23547500, -46636110},
    {"DE", "Europe\\/Berlin", "16", "Berlin", "de-DE,de;q=0.8", 52524370, 13410530},
    {"JP", "Asia\\/Tokyo", "40", "Tokyo", "ja,en-US;q=0.8", 35689500, 139691710},
    {"FR", "Europe\\/Paris", "A8", "Paris", "fr-FR,fr;q=0.8", 48853410, 2348800},
    {"IN", "Asia\\/Kolkata", "07", "Delhi", "en-US,en;q=0.8", 28651950, 77231490},
    {"ES", "Europe\\/Madrid", "29", "Madrid", "es-ES,es;q=0.8", 40416500, -3702560},
    {"AU", "Australia\\/Sydney", "02", "Sydney", "en-AU,en;q=0.7", -33867850, 151207320},
    {"MX", "America\\/Mexico_City", "09", "Mexico City", "es-MX,es;q=0.8", 19428470, -99127660},
    {"NP", "Asia\\/Kathmandu", "00", "Kathmandu", "en-US,en;q=0.8", 27701690, 85320600},
};

static const char *const agents[] = {
    "Mozilla\\/5.0 (Windows NT 6.1; WOW64) AppleWebKit\\/537.17 (KHTML, like Gecko) Chrome\\/24.0.1312.57 "
    "Safari\\/537.17",
    "Mozilla\\/5.0 (compatible; MSIE 9.0; Windows NT 6.1; WOW64; Trident\\/5.0)",
    "Mozilla\\/5.0 (Windows NT 6.1; WOW64; rv:18.0) Gecko\\/20100101 Firefox\\/18.0",
    "Mozilla\\/5.0 (iPhone; CPU iPhone OS 6_1 like Mac OS X) AppleWebKit\\/536.26 (KHTML, like Gecko) "
    "Mobile\\/10B143 "
    "[FBAN\\/FBIOS;FBAV\\/5.4;FBBV\\/138712;FBDV\\/iPhone5,1;FBMD\\/iPhone;FBSN\\/iPhone "
    "OS;FBSV\\/6.1;FBSS\\/2]",
    "Mozilla\\/5.0 (Macintosh; Intel Mac OS X 10_8_2) AppleWebKit\\/536.26.17 (KHTML, like Gecko) "
    "Version\\/6.0.2 "
    "Safari\\/536.26.17",
    "Mozilla\\/4.0 (compatible; MSIE 8.0; Windows NT 5.1; Trident\\/4.0; .NET CLR 2.0.50727; .NET CLR "
    "3.5.30729)",
    "Mozilla\\/5.0 (Linux; U; Android 4.0.4; en-us; SCH-I535 Build\\/IMM76D) AppleWebKit\\/534.30 (KHTML, "
    "like Gecko) "
    "Version\\/4.0 Mobile Safari\\/534.30",
    "GoogleMaps\\/RochesterNY",
    "Opera\\/9.80 (Windows NT 6.1; WOW64) Presto\\/2.12.388 Version\\/12.14",
};

static const char *const short_domains[] = {"1.usa.gov", "bit.ly", "go.nasa.gov", "j.mp", "1.usa.gov"};
static const char *const hosts[] = {"www.nasa.gov", "www.fda.gov", "www.irs.gov", "www.nps.gov",
    "www.noaa.gov", "earthquake.usgs.gov", "www.ncbi.nlm.nih.gov", "www.whitehouse.gov", "www.cdc.gov",
    "www.state.gov", "www.army.mil"};
static const char *const words[] = {"news", "press", "release", "mission", "image", "report", "weather",
    "health", "travel", "science", "budget", "update", "storm", "mars", "data", "park"};
static const char *const syllables[] = {
    "ka", "ro", "mi", "te", "lu", "sa", "ne", "vo", "di", "pa", "gov", "usa", "tex", "nor"};

/* Relative numbers of clicks in the hours of a day. */
static const unsigned char rhythm[24] = {
    30, 22, 16, 13, 12, 14, 20, 30, 42, 52, 58, 61, 62, 63, 64, 63, 60, 56, 52, 50, 50, 48, 44, 38};

static void append_base62(struct buf *out, uint64_t bits, size_t n)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (size_t i = 0; i < n; i++, bits /= 62)
        buf_append_char(out, digits[bits % 62]);
}

/* The random bits of the n-th user, link, ... */
static uint64_t bits_of(const struct click_feed *f, enum purpose what, uint64_t n)
{
    return random_of(f->s.seed * 8 + (uint64_t)what, n);
}

static void append_user(const struct click_feed *f, struct buf *out, uint64_t user)
{
    uint64_t bits = bits_of(f, FOR_USER, user);
    if (user == 0) {
        buf_append_str(out, "bitly");
    } else if (bits % 4 == 0) {
        buf_append_str(out, "o_");
        append_base62(out, bits >> 8, 10);
    } else {
        for (uint64_t n = 2 + bits % 3, rest = bits >> 8; n > 0; n--, rest /= COUNT(syllables))
            buf_append_str(out, syllables[rest % COUNT(syllables)]);
        buf_append_u64(out, user);
    }
}

static void append_referrer(const struct click_feed *f, struct buf *out, uint64_t rank)
{
    static const char *const first[] = {"direct", "http:\\/\\/www.facebook.com\\/",
        "http:\\/\\/t.co\\/03elZC4Q", "http:\\/\\/twitter.com\\/", "http:\\/\\/m.facebook.com\\/l.php"};
    uint64_t bits = bits_of(f, FOR_REFERRER, rank);
    if (rank < COUNT(first)) {
        buf_append_str(out, first[rank]);
        return;
    }
    buf_printf(out, "http:\\/\\/%s%u.example.com\\/", words[bits % COUNT(words)], (unsigned)rank);
    if (bits >> 8 & 1)
        buf_printf(out, "%s?q=%u", words[(bits >> 16) % COUNT(words)], (unsigned)(bits >> 40));
}

/* Clicks follow the daily rhythm; a partial last day has an even rate. */
static int64_t time_of(const struct click_feed *f, uint64_t i)
{
    uint64_t span = (uint64_t)(f->s.end - f->s.start), total = 0, done = 0;
    uint64_t at = (uint64_t)((unsigned __int128)span * i / f->s.events),
             day = at / SECONDS_PER_DAY * SECONDS_PER_DAY;
    if (day + SECONDS_PER_DAY > span)
        return f->s.start + (int64_t)at;
    for (size_t h = 0; h < COUNT(rhythm); h++)
        total += rhythm[h];
    uint64_t target = (at - day) * total;
    size_t h = 0;
    for (; done + rhythm[h] <= target / SECONDS_PER_DAY; h++)
        done += rhythm[h];
    uint64_t part = (target - done * SECONDS_PER_DAY) / 24 / rhythm[h];
    return f->s.start + (int64_t)(day + h * SECONDS_PER_HOUR + part);
}

/* A JSON value that is hard to store. */
static void append_hostile(struct buf *out, uint64_t bits)
{
    static const char *const texts[] = {"\"a b:c,d.e|f\\u007f\\u0000\\u0001\\n\\t\\\\\"", "\"\\u0000\"",
        "\" \"", "\":\"", "\",\"", "\".\"", "\"|\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"None\"",
        "\"(other)\"", "\"eleven_byte\"", "\"twelve_bytes\"", "\"h0aMB8AuNw4=\"",
        "\"z\\u017c\\u00f3\\u0142w\"", "\"\\ud83d\\ude00\\ud83d\\ude00\\ud83d\\ude00\"",
        "\"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\"", "\"lookup\"", "\"\"", "-0", "42", "18446744073709551615",
        "-9223372036854775808", "true", "false", "null", "\"HTTP://User:Pw@[2001:DB8::1]:80/x\"",
        "\"http://\"", "\"http://Ex\xc3\x84mple.COM:8080?x\"", "\"\\\\x00\"", "\"\x7f\""};
    if (bits % 32 < COUNT(texts)) {
        buf_append_str(out, texts[bits % 32]);
        return;
    }
    buf_append_char(out, '"');
    for (uint64_t n = 200 + (bits >> 8) % 4000; n > 0; n--)
        buf_append_char(out, (char)('a' + n % 26));
    buf_append_char(out, '"');
}

struct click {
    uint64_t link, user, referrer, bits;
    const struct place *place; /* NULL: unknown */
    uint64_t country;
    int64_t time;
    uint64_t hostile; /* 0, or the bits of a hostile value */
};

/* Appends `, "name": "`. Returns false if it appended a hostile value instead of the last quote. */
static bool open_text(const struct click *c, struct buf *out, const char *name, unsigned which)
{
    buf_printf(out, ", \"%s\": ", name);
    if (c->hostile && c->hostile % 4 == which) {
        append_hostile(out, c->hostile >> 2);
        return false;
    }
    buf_append_char(out, '"');
    return true;
}

static void append_degrees(struct buf *out, int millionths)
{
    unsigned n = (unsigned)(millionths < 0 ? -millionths : millionths);
    buf_printf(out, "%s%u.%06u", millionths < 0 ? "-" : "", n / FEED_MILLION, n % FEED_MILLION);
}

static void append_click(const struct click_feed *f, const struct click *c, struct buf *out)
{
    const struct place *place = c->place;
    uint64_t link = bits_of(f, FOR_LINK, c->link);
    buf_printf(out, "{ \"a\": \"%s\"", agents[zipf_rank(&f->agents, random_of(c->bits, 3))]);
    if (open_text(c, out, "c", 0)) {
        if (!place) {
            out->len--;
            buf_append_str(out, "null");
        } else if (c->country < COUNT(places)) {
            buf_printf(out, "%s\"", place->country);
        } else { /* a country without a name */
            buf_printf(out, "%c%c\"", (char)('A' + c->country / 26 % 26), (char)('A' + c->country % 26));
        }
    }
    buf_printf(out, ", \"nk\": %d, \"tz\": \"%s\"", (int)(c->bits & 1), place ? place->zone : "");
    if (place)
        buf_printf(out, ", \"gr\": \"%s\"", place->region);
    buf_append_str(out, ", \"g\": \"");
    append_base62(out, random_of(link, 1), 6);
    buf_append_char(out, '"');
    if (open_text(c, out, "h", 1)) {
        append_base62(out, link, 6 + link % 2);
        buf_append_char(out, '"');
    }
    if (open_text(c, out, "l", 2)) {
        append_user(f, out, c->user);
        buf_append_char(out, '"');
    }
    if (place && c->bits % 8)
        buf_printf(out, ", \"al\": \"%s\"", place->language);
    buf_printf(out, ", \"hh\": \"%s\"", short_domains[link % COUNT(short_domains)]);
    if (open_text(c, out, "r", 3)) {
        append_referrer(f, out, c->referrer);
        buf_append_char(out, '"');
    }
    buf_append_str(out, ", \"u\": \"");
    uint64_t address = random_of(link, 2);
    buf_printf(out, "http:\\/\\/%s", hosts[address % COUNT(hosts)]);
    for (uint64_t n = 1 + (address >> 8) % 5, rest = address >> 16; n > 0; n--, rest /= COUNT(words))
        buf_printf(out, "\\/%s", words[rest % COUNT(words)]);
    buf_printf(out, "\\/%u.html", (unsigned)(address >> 44));
    if ((address >> 40) % 4 == 0)
        buf_printf(out, "?id=%u&navtype=BROWSE&src=feed", (unsigned)(address >> 48));
    buf_printf(out, "\", \"t\": %lld, \"hc\": %lld", (long long)c->time,
        (long long)(f->s.start - (int64_t)(link >> 40)));
    if (!(link >> 8 & 15))
        buf_printf(out, ", \"kw\": \"%s%u\"", words[link % COUNT(words)], (unsigned)(link >> 52));
    if (place) {
        buf_printf(out, ", \"cy\": \"%s\", \"ll\": [ ", place->city);
        append_degrees(out, place->latitude + (int)(c->bits >> 48 & 1023));
        buf_append_str(out, ", ");
        append_degrees(out, place->longitude + (int)(c->bits >> 38 & 1023));
        buf_append_str(out, " ]");
    }
    buf_append_str(out, " }");
}

/* Replaces the value of `name` in the line that starts at `start`. */
static void replace_value(struct buf *out, size_t start, const char *name, const char *value)
{
    char *at = memmem(out->ptr + start, out->len - start, name, strlen(name));
    size_t head = (size_t)(at - out->ptr) + strlen(name);
    size_t tail = head;
    bool quoted = false;
    for (; quoted || (out->ptr[tail] != ',' && out->ptr[tail] != ' '); tail++) {
        if (out->ptr[tail] == '\\')
            tail++;
        else if (out->ptr[tail] == '"')
            quoted = !quoted;
    }
    struct buf rest = {0};
    buf_append(&rest, out->ptr + tail, out->len - tail);
    out->len = head;
    buf_append_str(out, value);
    buf_append_bytes(out, buf_bytes(&rest));
    buf_free(&rest);
}

static void damage(struct buf *out, size_t start, uint64_t bits)
{
    static const struct {
        const char *name, *value;
    } wrong[] = {
        {"\"t\": ", "null"},
        {"\"t\": ", "\"1360356480\""},
        {"\"t\": ", "12"},
        {"\"t\": ", "1e300"},
        {"\"l\": ", "[\"a\"]"},
        {"\"c\": ", "{\"x\": 1}"},
        {"\"h\": ", "1.5"},
        {"\"r\": ", "[]"},
        {"\"l\": ", "\"\\ud800\""},
        {"\"l\": ", "\"\xff\xfe\""},
        {"\"hc\": ", "99999999999999999999999"},
        {"\"a\": ", "\"\xed\xa0\x80\""},
        {"\"nk\": ", "NaN"},
        {"\"u\": ", "\"a\tb\""},
        {"\"nk\": ", "01"},
        {"\"g\": ", "'x'"},
    };
    size_t kind = bits % (2 * COUNT(wrong));
    if (kind < COUNT(wrong))
        replace_value(out, start, wrong[kind].name, wrong[kind].value);
    else if (kind == COUNT(wrong))
        buf_append_str(out, ",");
    else
        out->len = start + 1 + (bits >> 8) % (out->len - start - 1);
}

/* Appends the next line with its LF. After the last line, returns false and appends nothing. `events` counts every
 * line. */
static bool append_line(struct click_feed *f, struct buf *out)
{
    if (f->done == f->s.events)
        return false;
    struct click c = {0};
    size_t start = out->len;
    uint64_t kind = scale(random_next(&f->state), FEED_MILLION), bits = random_next(&f->state);
    c.link = zipf_rank(&f->links, random_next(&f->state));
    c.user = zipf_rank(&f->users, bits_of(f, FOR_OWNER, c.link));
    c.referrer = zipf_rank(&f->referrers, random_next(&f->state));
    c.country = zipf_rank(&f->countries, random_next(&f->state));
    c.bits = random_next(&f->state);
    c.place = (c.bits >> 8) % 8 ? &places[c.country % COUNT(places)] : NULL;
    c.time = time_of(f, f->done) - (int64_t)((c.bits >> 16) % (LATE_MAX + 1));
    if (c.time < f->s.start)
        c.time = f->s.start;
    if (kind < f->s.heartbeats) {
        buf_printf(out, "{ \"_heartbeat_\": %lld }", (long long)c.time);
    } else {
        bool damaged = kind - f->s.heartbeats < f->s.damaged;
        if (!damaged && kind - f->s.heartbeats - f->s.damaged < f->s.hostile)
            c.hostile = bits | UINT64_C(1) << 63;
        append_click(f, &c, out);
        if (damaged)
            damage(out, start, bits);
    }
    buf_append_char(out, '\n');
    f->done++;
    return true;
}

#define WRITE_SIZE (256 * 1024)
#define YEAR_2000 INT64_C(946684800)
#define YEAR_2160 INT64_C(5995814400)
#define COUNT_MAX 10000000

static const struct option_row rows[] = {
    SETTING_INT("events", "50000", 0, INT64_C(1000000000000), "number of lines"),
    SETTING_INT(
        "seed", "1", 0, INT64_MAX, "random seed; the same seed produces the same bytes on every machine"),
    SETTING_INT("start", "1360281600", YEAR_2000 + 4, YEAR_2160 - 1, "Unix time of the first click"),
    SETTING_INT(
        "end", NULL, YEAR_2000 + 5, YEAR_2160, "Unix time after the last click (default: start + span)"),
    SETTING_DURATION(
        "span", "7d", 1000, INT64_C(160) * 366 * 86400 * 1000, "s", "time from the first click to the last"),
    SETTING_INT("users", "2000", 1, COUNT_MAX, "number of users"),
    SETTING_INT("links", "20000", 1, COUNT_MAX, "number of links; each belongs to one user"),
    SETTING_INT("countries", "150", 1, 676, "number of countries"),
    SETTING_INT("referrers", "5000", 1, COUNT_MAX, "number of referrers"),
    SETTING_STRING("zipf", "exponent of the distributions, 0 to 3", .fallback = "1.05"),
    SETTING_STRING("heartbeats", "share of heartbeats, 0 to 1", .fallback = "0.027"),
    SETTING_STRING("damaged", "share of lines that must be rejected, 0 to 1", .fallback = "0"),
    SETTING_STRING("hostile", "share of clicks with a key that is hard to store, 0 to 1", .fallback = "0"),
    {.name = NULL},
};

/* Parses a decimal such as 0.027 into units of 10^-digits; more digits are refused. */
static bool parse_decimal(const char *text, int digits, uint64_t max, uint64_t *out)
{
    const char *dot = strchr(text, '.');
    struct bytes whole = bytes_of(text, dot ? (size_t)(dot - text) : strlen(text)),
                 rest = bytes_str(dot ? dot + 1 : "");
    uint64_t high, low = 0, unit = 1;
    if (!bytes_to_u64(whole, &high) || high > max || rest.len > (size_t)digits ||
        (dot && !bytes_to_u64(rest, &low)))
        return false;
    for (int i = 0; i < digits; i++) {
        unit *= 10;
        if ((size_t)i >= rest.len)
            low *= 10;
    }
    *out = high * unit + low;
    return *out <= max * unit;
}

static bool read_share(const struct options *o, const char *name, uint32_t *out)
{
    uint64_t n;
    if (!parse_decimal(options_string(o, name), 6, 1, &n)) {
        fprintf(stderr, "clickgen: %s=%s: %s must be a share from 0 to 1, with up to six decimals\n",
            options_source(o, name), options_string(o, name), name);
        return false;
    }
    *out = (uint32_t)n;
    return true;
}

static bool read_settings(const struct options *o, struct feed_settings *s)
{
    uint64_t zipf;
    s->events = (uint64_t)options_int(o, "events");
    s->seed = (uint64_t)options_int(o, "seed");
    s->start = options_int(o, "start");
    s->end = options_is_set(o, "end") ? options_int(o, "end") : s->start + options_int(o, "span") / 1000;
    if (!parse_decimal(options_string(o, "zipf"), 3, 3, &zipf)) {
        fprintf(stderr, "clickgen: zipf must be 0 to 3, with up to three decimals\n");
        return false;
    }
    s->zipf_milli = (unsigned)zipf;
    if (options_is_set(o, "end") && options_is_set(o, "span")) {
        fprintf(stderr, "clickgen: set either end or span\n");
        return false;
    }
    if (s->end <= s->start || s->end > YEAR_2160) {
        fprintf(stderr, "clickgen: end must be after start and before 2160\n");
        return false;
    }
    if (!read_share(o, "heartbeats", &s->heartbeats) || !read_share(o, "damaged", &s->damaged) ||
        !read_share(o, "hostile", &s->hostile))
        return false;
    if (s->heartbeats + s->damaged + s->hostile <= FEED_MILLION)
        return true;
    fprintf(stderr, "clickgen: heartbeats, damaged and hostile add up to more than 1\n");
    return false;
}

static int write_feed(const struct options *o, const struct feed_settings *s)
{
    struct progress progress;
    struct click_feed f = {.s = *s,
        .users = zipf_new((size_t)options_int(o, "users"), s->zipf_milli),
        .links = zipf_new((size_t)options_int(o, "links"), s->zipf_milli),
        .countries = zipf_new((size_t)options_int(o, "countries"), s->zipf_milli),
        .referrers = zipf_new((size_t)options_int(o, "referrers"), s->zipf_milli),
        .agents = zipf_new(COUNT(agents), 1000)};
    struct buf out = {0};
    bool more = true;
    f.state = bits_of(&f, FOR_LINES, 0);
    progress_begin(&progress, "lines", isatty(STDOUT_FILENO), clock_monotonic());
    while (more && !ferror(stdout)) {
        for (buf_clear(&out); out.len < WRITE_SIZE && (more = append_line(&f, &out));)
            ;
        if (out.len)
            fwrite(out.ptr, 1, out.len, stdout);
        progress_show(&progress, NULL, f.done, s->events, f.done, !more, clock_monotonic());
    }
    buf_free(&out);
    free(f.users.up_to);
    free(f.links.up_to);
    free(f.countries.up_to);
    free(f.referrers.up_to);
    free(f.agents.up_to);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "clickgen: cannot write to standard output: %s\n", strerror(errno));
    return EX_IOERR;
}

int main(int argc, char **argv)
{
    static const struct options_spec spec = {
        .program = "clickgen",
        .summary =
            "generates clicks with the fields of a real feed, one JSON object a line, on standard output",
        .rows = {rows, NULL},
    };
    struct options *o;
    struct feed_settings s = {0};
    int status = 0;
    io_reserve_stdio();
    switch (options_parse(&spec, argc, argv, &o)) {
    case OPTIONS_OK:
        status = !read_settings(o, &s) ? EX_USAGE : options_check_only(o) ? 0 : write_feed(o, &s);
        break;
    case OPTIONS_EXIT:
        break;
    case OPTIONS_USAGE:
    case OPTIONS_CONFIG:
        fprintf(stderr, "clickgen: %s\n", options_error(o));
        status = EX_USAGE;
        break;
    }
    options_free(&o);
    return status;
}
