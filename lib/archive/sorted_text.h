/* sorted_text: searches in memory over lines in the order of LC_ALL=C sort.
 *
 * A line is `key separator value LF`; the last LF may be missing. Lines are in byte order. A key ends at its first
 * separator, so lines are also in the order of key plus separator. All searches use the order of key plus separator,
 * not the order of the bare keys. For example, with a comma, `a!x,` sorts before `a,`, and `a-,` sorts after `a,`.
 *
 * 1. A search uses the text's index and reads nothing outside the text.
 * 2. A search allocates nothing and makes no system call.
 * 3. A search accepts any bytes. On unsorted text it returns some lines or none.
 * 4. Several adjacent lines may share a key.
 */
#ifndef MILLRACE_SORTED_TEXT_H
#define MILLRACE_SORTED_TEXT_H

#include "archive/sorted_index.h"

struct sorted_text {
    struct bytes text;
    char separator;                   /* not LF */
    const struct sorted_index *index; /* the index of `text`, which searches need */
};

/* A range of whole lines, by offsets in the text. */
struct sorted_span {
    size_t begin, end;
};

/* The offset after the LF of the line at `at`. */
size_t sorted_line_end(const struct sorted_text *t, size_t at);
/* The key of the line at [begin, end). */
struct bytes sorted_line_key(const struct sorted_text *t, struct sorted_span line);

/* Finds the first line with exactly this key. Returns false if there is no such line. */
bool sorted_find(const struct sorted_text *t, struct bytes key, struct sorted_span *line);
/* Returns the lines whose keys begin with `prefix`. */
struct sorted_span sorted_prefix(const struct sorted_text *t, struct bytes prefix);
/* Returns the lines with start <= key <= end. The span is empty if start sorts after end. */
struct sorted_span sorted_range(const struct sorted_text *t, struct bytes start, struct bytes end);
/* Returns the offset of the first line whose key is at or after `key`. */
size_t sorted_seek(const struct sorted_text *t, struct bytes key);

/* The next three functions find places inside one line, which may have millions of values. `line` includes the key,
 * and may include the LF. The values are `name:count`, separated by spaces, in the byte order of the names (sub keys
 * or hours). A *place* is the offset of a value's first byte in the line. The place after the last value is the end
 * of the line without LF. The functions read only a few bytes of the line, so their time hardly depends on its
 * length. If the values have another form, the functions return any place in the line. */
/* The place of the first value whose name is at or after `name`. */
size_t sorted_line_seek(struct bytes line, char separator, struct bytes name);
/* The last place at or before the offset `limit`, but not before the first value. An answer of at most `limit` bytes
 * is cut at this place. */
size_t sorted_line_cut(struct bytes line, char separator, size_t limit);
/* Returns the name of the value at `place`; empty at the end of the line. */
struct bytes sorted_line_name(struct bytes line, size_t place);

#define SORTED_NO_SEPARATOR "has no field separator" /* also an empty line */
#define SORTED_OUT_OF_ORDER "is out of order (LC_ALL=C sort)"
#define SORTED_KEY_TWICE "repeats the key of the line before" /* only if keys must be unique */

/* The state of a check of a text. The check runs in steps, so that the caller can hash the same bytes while the
 * cache holds them. Zero the struct before the first step. */
struct sorted_check {
    bool unique_keys;
    size_t at;                   /* the start of the next line to check */
    uint64_t records;            /* number of valid lines so far; the invalid line has the next number */
    struct sorted_span previous; /* the last valid line */
};
/* Checks the lines that begin at or after c->at and before `until`. Returns the fault of the first invalid line, or
 * NULL. */
const char *sorted_check_step(const struct sorted_text *t, struct sorted_check *c, size_t until);

#endif
