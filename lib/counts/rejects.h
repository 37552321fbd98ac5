/* rejects: stores the lines that the aggregator could not count. Each entry has a line, its origin and the reason.
 *
 *     {"stream":"clicks","offset":"8120","reason":"not JSON: ...","time":1331923249,"bytes":42,"line":"{\"t\": oops",
 *      "xxh3":"6fd1a2c07b5e3349"}
 *
 * In the entry of a line from a file, `file` replaces `stream`, and `content` identifies the file even if it is
 * renamed. If the line is not valid UTF-8, U+FFFD replaces the invalid bytes in `line`, and a member `hex` has the
 * original bytes. If a line exceeds max_line, `line` has only its beginning, and `bytes` has its whole length. `xxh3`
 * is the XXH3 of all bytes of the entry before `xxh3`.
 *
 * The entries of slice N form a sequence of bytes. The sequence begins in the file N.ndjson and continues in files
 * N-OFFSET.ndjson, where OFFSET is the position in the sequence at which the file begins.
 *
 * 1. Entries are synced before the slice's transaction records their length, and rejects_open truncates the sequence to
 *    that length. So each rejected line has one entry. If the sequence is shorter, rejects_open fails.
 * 2. Writing continues in a new file once the current file has an eighth of max_bytes or an eighth of max_age.
 * 3. rejects_expire deletes whole files: files before the front, files older than max_age, and the oldest files over
 *    max_bytes. The newest file is never deleted. A put back moves entries from the front to the end, and causes no
 *    entry to expire. */
#ifndef MILLRACE_REJECTS_H
#define MILLRACE_REJECTS_H

#include "base/clock.h"
#include "json/json_fields.h"
#include "counts/slice_state.h"

struct rejects_entry {
    bool is_file;
    struct bytes name; /* name of the stream or file */
    /* part FIRST of the id of the file's cursor (file_input.h); empty: the line is from a stream */
    struct bytes content;
    uint64_t offset;
    struct bytes reason;
    int64_t time;    /* time at which the line was rejected; wall clock, seconds; 0: unknown */
    uint64_t length; /* length of the whole line in bytes */
    struct bytes line;
};
/* Appends the entry and an LF. */
void rejects_format(struct buf *out, const struct rejects_entry *entry);
/* Parses an entry. The texts of *out are valid until *doc and *bytes are freed. Returns false if the entry is
 * damaged. */
bool rejects_parse(struct bytes text, struct rejects_entry *out, struct json_doc **doc, struct buf *bytes);

/* Writes an entry that has the same length as `text` with its LF, and whose line is erased (base/erased_line.h).
 * Returns false if no erased entry has this length. */
bool rejects_format_erased(struct buf *out, struct bytes text, const struct rejects_entry *entry);

/* Selects entries; a zeroed filter selects all. */
struct rejects_filter {
    struct bytes reason; /* text that the reason contains */
    struct bytes name;   /* name of the stream or file */
    int64_t since;       /* earliest time of rejection; wall clock, seconds */
};
bool rejects_match(const struct rejects_filter *filter, const struct rejects_entry *entry);

/* A position in the sequence of entries of a slice. */
struct rejects_place {
    uint64_t slice, offset;
};
/* The front is the position before which all entries were put back. A slice stores the front as the cursor with this
 * name, whose id is the number of a slice. */
#define REJECTS_CURSOR ".rejects"
struct rejects_place rejects_front(const struct slice_cursor *cursors, size_t n);
int rejects_compare(struct rejects_place x, struct rejects_place y);

struct rejects_limits {
    uint64_t max_bytes; /* 0: unlimited */
    usec_t max_age;     /* 0: unlimited */
};

/* A writer of one slice's entries, used by one thread only. Each function returns 0, or -1 with errno. */
struct rejects;
/* Opens or creates the sequence of a slice, truncates the sequence to `length`, and syncs the directory. ERANGE: the
 * sequence is shorter than `length`. */
int rejects_open(const char *dir, uint64_t slice, uint64_t length, struct rejects **out);
void rejects_close(struct rejects **r);
/* Writes entries at offset `at` of the sequence and syncs. The write replaces entries of a failed transaction, and
 * deletes files that this transaction began. Before each new file, rejects_write deletes the files that exceed
 * max_bytes. The file in which the committed entries end is kept, so at most two files exceed max_bytes. `now` is
 * monotonic. */
int rejects_write(struct rejects *r, struct bytes entries, uint64_t at, const struct rejects_limits *limits,
    struct rejects_place front, usec_t now);
int rejects_expire(
    const char *dir, const struct rejects_limits *limits, struct rejects_place front, usec_t wall);

/* A reader of the entries from `from` up to `end`, in one or more slices. The reader skips expired entries. A missing
 * directory has no entries. */
struct rejects_reader;
struct rejects_reader *rejects_reader_new(
    const char *dir, struct rejects_place from, struct rejects_place end);
void rejects_reader_free(struct rejects_reader **r);
/* Sets *text to the next entry without its LF, valid until the next call. Sets *after to the position after the entry.
 * Returns 1, 0 at the end, or -1 with errno; after -1, entries may remain unread. EBADMSG: a file ends inside an entry,
 * or is shorter than when the reader listed the files. */
int rejects_reader_next(struct rejects_reader *r, struct bytes *text, struct rejects_place *after);
/* Returns the path of the file with the latest entry, which the caller frees. Sets *offset to the position of the entry
 * in the file. */
char *rejects_reader_where(const struct rejects_reader *r, uint64_t *offset);

#endif
