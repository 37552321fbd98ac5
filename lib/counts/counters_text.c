/* counters_text: compares canonical texts of counters line by line. */
#include "counts/counters.h"

static const struct bytes KEY = {" key = ", 7};

static struct bytes first_line(const char *text)
{
    return bytes_of(text, strcspn(text, "\n"));
}

static const char *next_line(const char *text)
{
    text += strcspn(text, "\n");
    return text + (*text == '\n');
}

/* Returns the beginning of a line with a key, up to the value: "total u key = ". Returns BYTES_NONE for any other
 * line. */
static struct bytes definition_of(struct bytes line)
{
    const char *at = line.len ? memmem(line.ptr, line.len, KEY.ptr, KEY.len) : NULL;
    bool is_counter = bytes_starts_with(line, BYTES_LITERAL("total ")) ||
                      bytes_starts_with(line, BYTES_LITERAL("subtotal "));
    return is_counter && at ? bytes_of(line.ptr, (size_t)(at - line.ptr) + KEY.len) : BYTES_NONE;
}

/* Returns the line of `text` that starts with `beginning`, or BYTES_NONE. */
static struct bytes find_line(const char *text, struct bytes beginning)
{
    for (; *text; text = next_line(text))
        if (bytes_starts_with(first_line(text), beginning))
            return first_line(text);
    return BYTES_NONE;
}

struct bytes counters_conflict(const char *before, const char *now)
{
    for (; *before; before = next_line(before)) {
        struct bytes line = first_line(before), name = definition_of(line);
        struct bytes other = name.len ? find_line(now, name) : BYTES_NONE;
        if (other.len && !bytes_equal(other, line))
            return line;
    }
    return BYTES_NONE;
}

void counters_append_missing(const char *before, const char *now, struct buf *out)
{
    for (; *before; before = next_line(before)) {
        struct bytes line = first_line(before), name = definition_of(line);
        if (name.len == 0 || find_line(now, name).len)
            continue;
        buf_append_bytes(out, line);
        buf_append_char(out, '\n');
    }
}
