/* make_slice: writes a sealed slice, for tests of what reads slices. */
#ifndef MILLRACE_MAKE_SLICE_H
#define MILLRACE_MAKE_SLICE_H

#include <stddef.h>
#include <stdint.h>

struct slice_row {
    const char
        *key;  /* the record's key, a comma and the name of the count, or `=` for a set; NULL ends a list */
    int64_t n; /* unless text is set; of a set: the only member of a chunk */
    const char *text; /* of a lookup */
};

/* Aborts when it cannot. The rows are in order. Stream `clicks` ends at 1000 times the number, and begins where the slice
 * before ended. The unread stream `later` is complete until as many Unix seconds. */
void make_slice(const char *path, uint64_t number, const char *counters, const struct slice_row *rows);
/* Makes another one of it, whose checksum is right. */
void change_slice(const char *path, const char *sql);

#endif
