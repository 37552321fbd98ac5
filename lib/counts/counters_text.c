/* counters_text: compares canonical texts of counters line by line. */
#include "counts/counters.h"

#include "base/xxh3.h"

static struct bytes first_line(const char *text)
{
    return bytes_of(text, strcspn(text, "\n"));
}

static const char *next_line(const char *text)
{
    text += strcspn(text, "\n");
    return text + (*text == '\n');
}

/* A line of a counter: `total u key = l`. */
struct counter_line {
    struct bytes kind, ns, setting;
    bool is_definition; /* the key or the member: each counter has exactly one such line */
};

/* Parses a line that defines the meaning of a counter's counts. Returns false for any other line. */
static bool read_line(struct bytes line, struct counter_line *out)
{
    static const char *const kinds[] = {"total", "subtotal", "unique"}, *const settings[] = {"key", "member",
                                                                            "value", "scale", "having"};
    bool has_kind = false, has_setting = false;
    out->kind = bytes_take_word(&line);
    out->ns = bytes_take_word(&line);
    out->setting = bytes_take_word(&line);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        has_kind = has_kind || bytes_equal_str(out->kind, kinds[i]);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        has_setting = has_setting || bytes_equal_str(out->setting, settings[i]);
    out->is_definition = bytes_equal_str(out->setting, "key") || bytes_equal_str(out->setting, "member");
    return has_kind && has_setting && bytes_starts_with(line, BYTES_LITERAL("= "));
}

/* Returns the line of `text` that defines the counter, or BYTES_NONE. No two counters have the same namespace. */
static struct bytes find_line(const char *text, struct bytes ns)
{
    struct counter_line l;
    for (; *text; text = next_line(text))
        if (read_line(first_line(text), &l) && l.is_definition && bytes_equal(l.ns, ns))
            return first_line(text);
    return BYTES_NONE;
}

static bool has_line(const char *text, struct bytes line)
{
    for (; *text; text = next_line(text))
        if (bytes_equal(first_line(text), line))
            return true;
    return false;
}

/* Returns the first line of `a` that defines a counter of both texts and is not in `b`, or BYTES_NONE. */
static struct bytes find_difference(const char *a, const char *b)
{
    struct counter_line l;
    for (; *a; a = next_line(a))
        if (read_line(first_line(a), &l) && find_line(b, l.ns).len && !has_line(b, first_line(a)))
            return first_line(a);
    return BYTES_NONE;
}

uint64_t counters_hash(const struct counters *c)
{
    return XXH3_64bits(c->text, strlen(c->text));
}

struct bytes counters_text_difference(const char *a, const char *b)
{
    for (; *a; a = next_line(a))
        if (!has_line(b, first_line(a)))
            return first_line(a);
    return BYTES_NONE;
}

struct bytes counters_conflict(const char *before, const char *now)
{
    struct counter_line l;
    struct bytes line = find_difference(before, now), added = find_difference(now, before);
    if (line.len || !added.len || !read_line(added, &l))
        return line;
    return find_line(before, l.ns);
}

bool counters_text_has_having(const char *text, struct bytes total)
{
    struct counter_line l;
    for (; *text; text = next_line(text))
        if (read_line(first_line(text), &l) && bytes_equal(l.ns, total) &&
            bytes_equal_str(l.setting, "having"))
            return true;
    return false;
}

bool counters_text_next_value(const char **text, struct bytes *ns, unsigned *scale)
{
    struct counter_line l;
    while (**text) {
        struct bytes line = first_line(*text);
        *text = next_line(*text);
        if (!read_line(line, &l) || !bytes_equal_str(l.setting, "scale"))
            continue;
        *ns = l.ns;
        *scale = (unsigned)(line.ptr[line.len - 1] - '0');
        return *scale <= DECIMAL_SCALE_MAX;
    }
    return false;
}

static struct bytes total_of(struct bytes ns)
{
    const char *dot = ns.len ? memchr(ns.ptr, '.', ns.len) : NULL;
    return dot ? bytes_of(dot + 1, ns.len - (size_t)(dot + 1 - ns.ptr)) : ns;
}

void counters_append_lines(const char *text, struct bytes ns, struct buf *out)
{
    struct counter_line l;
    for (; *text; text = next_line(text)) {
        struct bytes line = first_line(text);
        if (!read_line(line, &l) || !(bytes_equal(l.ns, ns) || bytes_equal(l.ns, total_of(ns))))
            continue;
        buf_append_char(out, '\0'); /* for has_line */
        bool has = has_line(out->ptr, line);
        out->len--;
        if (has)
            continue;
        buf_append_bytes(out, line);
        buf_append_char(out, '\n');
    }
}

bool counters_text_scale(const char *text, struct bytes ns, unsigned *scale)
{
    struct bytes total;
    ns = total_of(ns);
    while (counters_text_next_value(&text, &total, scale))
        if (bytes_equal(total, ns))
            return true;
    return false;
}

void counters_append_missing(const char *before, const char *now, struct buf *out)
{
    struct counter_line l;
    for (; *before; before = next_line(before)) {
        if (!read_line(first_line(before), &l) || find_line(now, l.ns).len)
            continue;
        buf_append_bytes(out, first_line(before));
        buf_append_char(out, '\n');
    }
}

bool counters_text_is_other(const char *text, struct bytes ns, bool is_set)
{
    struct bytes line = find_line(text, ns);
    return line.len > 0 && bytes_starts_with(line, BYTES_LITERAL("unique ")) != is_set;
}

enum period_unit counters_text_period(const char *text, struct bytes ns)
{
    static const struct bytes by = BYTES_LITERAL(" by = ");
    struct bytes line = find_line(text, ns);
    enum period_unit unit = PERIOD_DAY;
    const char *space = line.len ? memrchr(line.ptr, ' ', line.len) : NULL;
    size_t before = space ? (size_t)(space - line.ptr) + 1 : 0;
    if (before >= by.len && memcmp(space + 1 - by.len, by.ptr, by.len) == 0)
        period_unit_find(bytes_of(space + 1, line.len - before), &unit);
    return unit;
}

bool counters_text_has_quarters(const char *text)
{
    for (; *text; text = next_line(text))
        if (bytes_equal_str(first_line(text), COUNTERS_QUARTERS_LINE))
            return true;
    return false;
}
