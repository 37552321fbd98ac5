/* line_sort: sorts lines in memory in the byte order of LC_ALL=C sort.
 *
 * Each line has a reference of 16 bytes into one block of text. The sort moves only references, and compares eight
 * bytes at a time, which each reference caches. line_sort is an in-place radix sort that begins at the first byte in
 * which the lines differ, so a shared prefix is read once.
 *
 * 1. No line contains a NUL. A line that is a prefix of another line sorts first.
 * 2. The block is followed by LINE_SORT_PADDING readable bytes. */
#ifndef MILLRACE_LINE_SORT_H
#define MILLRACE_LINE_SORT_H

#include "base/bytes.h"

#define LINE_SORT_PADDING 8

struct line_ref {
    uint64_t cache;   /* used by the sort */
    uint32_t at, len; /* offset in the block, and length without LF */
};

/* Sets ref->cache. Call line_sort_prepare for each reference before line_sort. */
void line_sort_prepare(const char *block, struct line_ref *ref);
void line_sort(const char *block, struct line_ref *refs, size_t n);

#endif
