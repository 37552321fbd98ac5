/* sorted_text: searches in memory over lines in the order of LC_ALL=C sort.
 *
 * A line is `key separator value LF`; the last LF may be missing. Lines are in byte order. A key ends at its first separator, so lines
 * are also in the order of key plus separator. All searches use that order, not the order of the bare keys: with a comma `a!x,` sorts
 * before `a,`, and `a-,` after it.
 *
 * 1. A search uses the text's index and reads nothing outside the text.
 * 2. It allocates nothing and makes no system call.
 * 3. A search accepts any bytes. On unsorted text it returns some lines or none.
 * 4. Several adjacent lines may share a key.
 */
#ifndef MILLRACE_SORTED_TEXT_H
#define MILLRACE_SORTED_TEXT_H

#include "archive/sorted_index.h"

struct sorted_text {
    struct bytes text;
    char separator;                   /* not LF */
    const struct sorted_index *index; /* of `text`; searches need it */
};

/* Offsets of whole lines. */
struct sorted_span {
    size_t begin, end;
};

/* The offset after the line at `at` and its LF. */
size_t sorted_line_end(const struct sorted_text *t, size_t at);
/* The key of the line at [begin, end). */
struct bytes sorted_line_key(const struct sorted_text *t, struct sorted_span line);

/* Finds the first line with exactly this key. False: no such line. */
bool sorted_find(const struct sorted_text *t, struct bytes key, struct sorted_span *line);
/* Every line whose key begins with `prefix`. */
struct sorted_span sorted_prefix(const struct sorted_text *t, struct bytes prefix);
/* Every line with start <= key <= end; empty if start sorts after end. */
struct sorted_span sorted_range(const struct sorted_text *t, struct bytes start, struct bytes end);
/* The offset of the first line with key >= `key`. */
size_t sorted_seek(const struct sorted_text *t, struct bytes key);

/* Places inside one line, which may have millions of values. `line` has its key, and may have its LF. Its values are separated by
 * spaces, and each is `name:count`, in the byte order of the names (sub keys or hours). A place is the offset of a value's first byte in
 * the line; after the last value it is the end of the line without LF. The functions read only a few bytes of the line, so they are as
 * fast in a line of 100 MB. With other values they return some place in the line. */
/* The first value whose name is at or after `name`. */
size_t sorted_line_seek(struct bytes line, char separator, struct bytes name);
/* The last place at or before the offset `limit`, but not before the first value: where to cut an answer of at most `limit` bytes. */
size_t sorted_line_cut(struct bytes line, char separator, size_t limit);
/* The name of the value at this place; empty at the end of the line. */
struct bytes sorted_line_name(struct bytes line, size_t place);

#define SORTED_NO_SEPARATOR                                                                                  \
    "has no field separator (--field-separator names the byte)" /* also an empty line */
#define SORTED_OUT_OF_ORDER "is out of order (LC_ALL=C sort)"
#define SORTED_KEY_TWICE "repeats the key of the line before" /* only if keys must be unique */

/* A check in steps, so that the caller can hash the same bytes while the cache holds them. Begin with a zeroed struct. */
struct sorted_check {
    bool unique_keys;
    size_t at;                   /* the start of the next line to check */
    uint64_t records;            /* valid lines so far; the number of the bad line is one more */
    struct sorted_span previous; /* the last valid line */
};
/* Checks the lines that begin before `until`, from c->at on. Returns the fault of the first bad line, or NULL. */
const char *sorted_check_step(const struct sorted_text *t, struct sorted_check *c, size_t until);

#endif
