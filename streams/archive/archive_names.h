/* archive_names: derives a file's name from a line's time by strftime.
 *
 * Names are cached in spans of an hour, or of a minute in a local time zone, so most lines need no strftime. Within such a span a
 * name never changes and changes back. So if its first and last second share a name, all of its seconds do. */
#ifndef MILLRACE_ARCHIVE_NAMES_H
#define MILLRACE_ARCHIVE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct archive_names;
struct archive_part;

/* Times that share a name. */
struct archive_span {
    int64_t first, last; /* unix seconds, at least 0 */
};

/* A cached span and the file for its lines. */
struct archive_names_entry {
    struct archive_span times;
    struct archive_part *part; /* set by the caller; NULL at first */
    bool used;
};

struct archive_names *archive_names_new(const char *format, bool local_time); /* copies the format */
void archive_names_free(struct archive_names **n);
/* Returns the name, valid until the next call. If strftime fails (a time beyond the calendar, or a name too long), returns the format. */
const char *archive_names_of_time(struct archive_names *n, int64_t time);
/* Valid until the next call. */
struct archive_names_entry *archive_names_entry(struct archive_names *n, int64_t time);
/* Sets every part to NULL. */
void archive_names_forget_parts(struct archive_names *n);

#endif
