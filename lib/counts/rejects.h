/* rejects: the lines that the aggregator could not count, each with its origin and the reason.
 *
 *     {"stream":"clicks","offset":"8120","reason":"not JSON: ...","time":1331923249,"bytes":42,"line":"{\"t\": oops",
 *      "xxh3":"6fd1a2c07b5e3349"}
 *
 * In the entry of a line from a file, `file` replaces `stream`, and `content` identifies the file whatever its name. If the line is not valid UTF-8, U+FFFD replaces the
 * invalid bytes in `line`, and a member `hex` has the original bytes. A line over max_line is truncated: it is shorter
 * than `bytes`. `xxh3` is the XXH3 of the entry's bytes before it.
 *
 * The entries of slice N form a sequence of bytes. The sequence begins in the file N.ndjson and continues in files
 * N-OFFSET.ndjson, where OFFSET is the position in the sequence at which the file begins.
 *
 * 1. Entries are synced before the slice's transaction records their length, and rejects_open truncates them to it,
 *    so every rejected line is there once. If the sequence is shorter, rejects_open fails.
 * 2. Once a file has an eighth of max_bytes, or is an eighth of max_age old, writing continues in a new file.
 * 3. rejects_expire deletes whole files, but never the newest: those before the front, those older than max_age,
 *    and the oldest over max_bytes. So a put back, which moves entries from the front to the end, lets no entry
 *    expire. */
#ifndef MILLRACE_REJECTS_H
#define MILLRACE_REJECTS_H

#include "base/clock.h"
#include "json/json_fields.h"
#include "counts/slice_state.h"

struct rejects_entry {
    bool is_file;
    struct bytes name;    /* of the stream or file */
    struct bytes content; /* of a file: the FIRST of its cursor's id (file_input.h); empty: a stream */
    uint64_t offset;
    struct bytes reason;
    int64_t time;    /* when the line was rejected; wall clock, seconds; 0: unknown */
    uint64_t length; /* of the whole line */
    struct bytes line;
};
/* Appends an entry and LF. */
void rejects_format(struct buf *out, const struct rejects_entry *entry);
/* Parses an entry. Its texts are valid until *doc and *bytes are freed. False: the entry is damaged. */
bool rejects_parse(struct bytes text, struct rejects_entry *out, struct json_doc **doc, struct buf *bytes);

/* Makes an entry of the same length (with its LF) whose line is erased (base/erased_line.h). False: no erased
 * entry has this length. */
bool rejects_format_erased(struct buf *out, struct bytes text, const struct rejects_entry *entry);

/* Selects entries; a zeroed filter selects all. */
struct rejects_filter {
    struct bytes reason; /* text that the reason contains */
    struct bytes name;   /* stream or file */
    int64_t since;       /* wall clock, seconds */
};
bool rejects_match(const struct rejects_filter *filter, const struct rejects_entry *entry);

/* A position in the sequence of a slice. */
struct rejects_place {
    uint64_t slice, offset;
};
/* The front: the cursor of this name has the slice's number as its id. Entries before the front were put back. */
#define REJECTS_CURSOR ".rejects"
struct rejects_place rejects_front(const struct slice_cursor *cursors, size_t n);
int rejects_compare(struct rejects_place x, struct rejects_place y);

struct rejects_limits {
    uint64_t max_bytes; /* 0: unlimited */
    usec_t max_age;     /* 0: unlimited */
};

/* Writing; one thread. Each function returns 0, or -1 with errno. */
struct rejects;
/* Opens or creates the sequence of a slice and truncates it to `length`. ERANGE: the sequence is shorter. Syncs the
 * directory. */
int rejects_open(const char *dir, uint64_t slice, uint64_t length, struct rejects **out);
void rejects_close(struct rejects **r);
/* Writes at offset `at` of the sequence and syncs. This overwrites entries whose transaction failed, and deletes files
 * that it began. Before each new file, deletes files that max_bytes no longer allows, but not the file in which the
 * committed entries end. So even a burst needs at most two files more than max_bytes. `now` is monotonic. */
int rejects_write(struct rejects *r, struct bytes entries, uint64_t at, const struct rejects_limits *limits,
    struct rejects_place front, usec_t now);
int rejects_expire(
    const char *dir, const struct rejects_limits *limits, struct rejects_place front, usec_t wall);

/* Reads the entries from `from` up to `end`, across slices. Skips expired entries; without the directory there is none. */
struct rejects_reader;
struct rejects_reader *rejects_reader_new(
    const char *dir, struct rejects_place from, struct rejects_place end);
void rejects_reader_free(struct rejects_reader **r);
/* Sets *text to the next entry without its LF, valid until the next call, and *after to the place behind the entry.
 * Returns 1, or 0 at the end, or -1 with errno: an entry may remain unread. EBADMSG: a file ends inside an entry or
 * before its listed size. */
int rejects_reader_next(struct rejects_reader *r, struct bytes *text, struct rejects_place *after);
/* The file of the latest entry, which the caller frees, and the byte at which the entry begins. */
char *rejects_reader_where(const struct rejects_reader *r, uint64_t *offset);

#endif
