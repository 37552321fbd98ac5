/* archive_names: which file a line's time belongs to: the name that strftime makes of it.
 *
 * Most lines need no strftime. Times are cached in spans of an hour, or of a minute in a local time zone: within such a span no
 * name changes and changes back, so if its first and last second share a name, all of its seconds do. */
#ifndef MILLRACE_ARCHIVE_NAMES_H
#define MILLRACE_ARCHIVE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct archive_names;
struct archive_part;

/* Times with one name. */
struct archive_span {
    int64_t first, last; /* unix seconds, at least 0 */
};

/* A cached span, and the file its lines go to. */
struct archive_names_entry {
    struct archive_span times;
    struct archive_part *part; /* the caller's; NULL at first */
    bool used;
};

struct archive_names *archive_names_new(const char *format, bool local_time); /* copies the format */
void archive_names_free(struct archive_names **n);
/* Valid until the next call. A time beyond the calendar, and a name that is too long, give the format itself. */
const char *archive_names_of_time(struct archive_names *n, int64_t time);
/* Valid until the next call. */
struct archive_names_entry *archive_names_entry(struct archive_names *n, int64_t time);
/* Sets every part to NULL. */
void archive_names_forget_parts(struct archive_names *n);

#endif
