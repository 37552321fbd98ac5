#include "event_time.h"

#include "json_fields.h"

#include <stdlib.h>

/* What is beyond is no time. */
#define MOST INT64_C(1000000000000000)
/* So many digits are always an int64_t. */
#define PLAIN_DIGITS 18

struct event_time {
    struct json_fields *fields;
    char *name;
    size_t name_length;
    bool plain; /* the name can stand in a line in one way only, but for \u */
    int64_t divisor;
};

/* A name of ASCII whose bytes need no escape, and have none but \u: a slash may also be written \/. */
static bool is_plain(const char *name)
{
    for (const char *at = name; *at != '\0'; at++)
        if (*at < ' ' || *at > '~' || strchr("\"\\/", *at) != NULL)
            return false;
    return *name != '\0';
}

struct event_time *event_time_new(const char *field, int64_t divisor)
{
    struct event_time *e = mem_zalloc(sizeof *e);
    e->fields = json_fields_new(&field, 1);
    e->name = mem_strdup(field);
    e->name_length = strlen(field);
    e->plain = is_plain(field);
    e->divisor = divisor;
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

/* At a glance.
 *
 * Parsing all of a line costs more than all else that is done with it. In an object that holds no other object the bytes
 * "NAME" can be nothing but a string of their own: inside a string a quote has a backslash before it, and behind one that
 * closes a string no letter follows. What is followed by a colon is then a member's name, and if it stands there once, and
 * no \u can spell it otherwise, it is the only one. Whatever is less plain is left to the parser. */

typedef unsigned char lanes __attribute__((vector_size(16)));

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

/* Something to look at begins in the 16 bytes: an object, \u, or perhaps the name. */
static inline lanes marks_at(const struct event_time *e, const char *at)
{
    lanes here = lanes_at(at), next = lanes_at(at + 1);
    return equal(here, '{') | (equal(here, '\\') & equal(next, 'u')) |
           (equal(here, '"') & equal(next, e->name[0]) & equal(lanes_at(at + e->name_length + 1), '"'));
}

static inline bool any(lanes v)
{
    uint64_t halves[2];
    memcpy(halves, &v, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

/* \u0074 may be a letter of the name. */
static bool spells_ascii(const char *at, const char *end)
{
    return end - at < 5 || (at[2] == '0' && at[3] == '0' && at[4] >= '2' && at[4] <= '7');
}

/* False: it is for the parser. *found is where the name's quote is. */
static bool look_at(const struct event_time *e, const char *at, const char *end, const char **found)
{
    if (*at == '{' || (*at == '\\' && end - at > 1 && at[1] == 'u' && spells_ascii(at, end)))
        return false;
    if (*at != '"' || (size_t)(end - at) < e->name_length + 2 || at[e->name_length + 1] != '"' ||
        memcmp(at + 1, e->name, e->name_length) != 0)
        return true;
    if (*found != NULL)
        return false;
    *found = at;
    return true;
}

static bool look_at_each(
    const struct event_time *e, const char *at, const char *upto, const char *end, const char **found)
{
    for (; at < upto; at++)
        if (!look_at(e, at, end, found))
            return false;
    return true;
}

/* NULL: not once, or for the parser. */
static const char *find_name(const struct event_time *e, struct bytes line)
{
    const char *at = line.ptr + 1, *end = line.ptr + line.len, *found = NULL;
    size_t reach = 2 * sizeof(lanes) + e->name_length + 1;
    for (; (size_t)(end - at) >= reach; at += 2 * sizeof(lanes))
        if (any(marks_at(e, at) | marks_at(e, at + sizeof(lanes))) &&
            !look_at_each(e, at, at + 2 * sizeof(lanes), end, &found))
            return NULL;
    return look_at_each(e, at, end, end, &found) ? found : NULL;
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

/* A whole number and what ends a member. */
static bool read_digits(const char *at, const char *end, int64_t *out)
{
    const char *begin = at;
    int64_t n = 0;
    while (at < end && *at >= '0' && *at <= '9' && at - begin < PLAIN_DIGITS)
        n = 10 * n + (*at++ - '0');
    if (at == begin || (*begin == '0' && at - begin > 1))
        return false;
    at = skip_space(at, end);
    *out = n;
    return at < end && (*at == ',' || *at == '}');
}

static bool glance(const struct event_time *e, struct bytes line, int64_t *out)
{
    if (!e->plain || line.len < 2 || line.ptr[0] != '{' || line.ptr[line.len - 1] != '}')
        return false;
    const char *name = find_name(e, line), *end = line.ptr + line.len;
    if (name == NULL)
        return false;
    const char *before = name - 1; /* the line's first byte is no space */
    while (is_space(*before))
        before--;
    const char *at = skip_space(name + e->name_length + 2, end);
    if ((*before != '{' && *before != ',') || at == end || *at != ':')
        return false;
    return read_digits(skip_space(at + 1, end), end, out);
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

bool event_time_of(struct event_time *e, struct bytes line, int64_t *seconds)
{
    int64_t n;
    if ((!glance(e, line, &n) && !parse(e, line, &n)) || n > MOST)
        return false;
    *seconds = n / e->divisor;
    return true;
}
