/* sorted_text: searching lines that are sorted as LC_ALL=C sort sorts them, in memory.
 *
 * A line is `key separator value LF`; the last LF may be missing. Lines stand in byte order. As a key ends at its first
 * separator, no `key separator` is the beginning of another, so the lines stand in the order of key plus separator as
 * well; that is the order every search here goes by, and it is not that of the bare keys: with ',' `a!x,` stands
 * before `a,`, and `a-,` behind it.
 *
 * 1. A search halves bytes and finds the line around the middle; the whole line is then out of the question. So a line is
 *    looked through once a search however long it is, and nothing before the text or behind it is ever read.
 * 2. Nothing is allocated, and no system call made.
 * 3. Any bytes may be searched: on text that is not sorted the answers are some lines of it, or none.
 * 4. Lines may share a key (files that others made); they stand together.
 */
#ifndef MILLRACE_SORTED_TEXT_H
#define MILLRACE_SORTED_TEXT_H

#include "base/bytes.h"

struct sorted_text {
    struct bytes text;
    char separator; /* not LF */
};

/* Whole lines, from the offset where one begins to that where one ends. */
struct sorted_span {
    size_t begin, end;
};

/* The offset behind the line that begins at `at`, its LF included. */
size_t sorted_line_end(const struct sorted_text *t, size_t at);
/* The key of the line at [begin, end). */
struct bytes sorted_line_key(const struct sorted_text *t, struct sorted_span line);

/* The first line with exactly this key; false when there is none. */
bool sorted_find(const struct sorted_text *t, struct bytes key, struct sorted_span *line);
/* Every line whose key begins with `prefix`. */
struct sorted_span sorted_prefix(const struct sorted_text *t, struct bytes prefix);
/* Every line with start <= key <= end; empty when start is behind end. */
struct sorted_span sorted_range(const struct sorted_text *t, struct bytes start, struct bytes end);
/* Where the first line with key >= `key` begins. */
size_t sorted_seek(const struct sorted_text *t, struct bytes key);

enum sorted_fault {
    SORTED_OK,
    SORTED_NO_SEPARATOR, /* a line without one, or an empty line */
    SORTED_OUT_OF_ORDER, /* a line that stands behind a greater one */
    SORTED_KEY_TWICE,    /* only where keys are to be unique */
};
const char *sorted_fault_text(enum sorted_fault fault);

/* A check in steps, so that its caller can do something else with the same bytes while they are near. Zeroed at first. */
struct sorted_check {
    bool unique_keys;
    size_t at;                   /* where the next line to check begins */
    uint64_t records;            /* checked and good: the line at fault is records + 1 */
    struct sorted_span previous; /* the newest good one */
};
/* Goes on with every line that begins before `until`. */
enum sorted_fault sorted_check_step(const struct sorted_text *t, struct sorted_check *c, size_t until);

#endif
