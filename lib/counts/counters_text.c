/* counters_text: compares canonical texts of counters line by line. */
#include "counts/counters.h"

static struct bytes first_line(const char *text)
{
    return bytes_of(text, strcspn(text, "\n"));
}

static const char *next_line(const char *text)
{
    text += strcspn(text, "\n");
    return text + (*text == '\n');
}

/* Returns the namespace of the counter whose key or member the line defines, or BYTES_NONE. No two counters have the same
 * namespace. */
static struct bytes definition_of(struct bytes line)
{
    static const struct {
        struct bytes kind, setting;
    } kinds[] = {{BYTES_LITERAL("total "), BYTES_LITERAL(" key = ")},
        {BYTES_LITERAL("subtotal "), BYTES_LITERAL(" key = ")},
        {BYTES_LITERAL("unique "), BYTES_LITERAL(" member = ")}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct bytes kind = kinds[i].kind, setting = kinds[i].setting;
        const char *at = bytes_starts_with(line, kind)
                             ? memmem(line.ptr + kind.len, line.len - kind.len, setting.ptr, setting.len)
                             : NULL;
        if (at)
            return bytes_of(line.ptr + kind.len, (size_t)(at - line.ptr) - kind.len);
    }
    return BYTES_NONE;
}

/* Returns the line of `text` that defines the counter, or BYTES_NONE. */
static struct bytes find_line(const char *text, struct bytes ns)
{
    for (; *text; text = next_line(text))
        if (bytes_equal(definition_of(first_line(text)), ns))
            return first_line(text);
    return BYTES_NONE;
}

struct bytes counters_conflict(const char *before, const char *now)
{
    for (; *before; before = next_line(before)) {
        struct bytes line = first_line(before), ns = definition_of(line);
        struct bytes other = ns.len ? find_line(now, ns) : BYTES_NONE;
        if (other.len && !bytes_equal(other, line))
            return line;
    }
    return BYTES_NONE;
}

void counters_append_missing(const char *before, const char *now, struct buf *out)
{
    for (; *before; before = next_line(before)) {
        struct bytes line = first_line(before), ns = definition_of(line);
        if (ns.len == 0 || find_line(now, ns).len)
            continue;
        buf_append_bytes(out, line);
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
        counters_period_read(bytes_of(space + 1, line.len - before), &unit);
    return unit;
}

bool counters_text_has_quarters(const char *text)
{
    for (; *text; text = next_line(text))
        if (bytes_equal_str(first_line(text), COUNTERS_QUARTERS_LINE))
            return true;
    return false;
}

const char *counters_period_name(enum period_unit unit)
{
    return unit == PERIOD_DAY ? "day" : unit == PERIOD_HOUR ? "hour" : "quarter";
}

bool counters_period_read(struct bytes name, enum period_unit *out)
{
    for (enum period_unit unit = PERIOD_QUARTER; unit <= PERIOD_DAY; unit++)
        if (bytes_equal_str(name, counters_period_name(unit))) {
            *out = unit;
            return true;
        }
    return false;
}
