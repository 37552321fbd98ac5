/* record_reader: reads sorted records from a file or from memory through one buffer, in large pieces or as a source of
 * counts (count_merge.h).
 *
 * 1. A line of counts or of a set may be longer than the buffer; base.line is set only if the buffer holds the whole
 *    line. The buffer grows for a longer key, lookup or chunk of a set.
 * 2. At the end of a file with `expected`, the reader compares the number of records, the number of bytes and the
 *    checksum with `expected`. If a value is not equal, the call that reaches the end fails. Therefore a generation
 *    must not be published before every reader has ended.
 * 3. Pieces are searched by bisection, so the order of lines inside a piece is not verified. Therefore a reader that is
 *    copied in pieces needs `expected`, because the order was verified when the file of this checksum was written.
 *
 * A reader inside another struct is initialized with record_reader_of_memory or record_reader_of_range, and ended
 * with record_reader_end. Only one thread at a time may use a reader. */
#ifndef MILLRACE_RECORD_READER_H
#define MILLRACE_RECORD_READER_H

#include "counts/count_merge.h"
#include "counts/manifest.h"
#include "counts/set_text.h"

#define RECORD_READER_BYTES_MIN ((size_t)16 << 10) /* size of the smallest buffer */

struct record_reader {
    struct count_source base; /* first */
    int fd;                   /* -1: the lines are in memory */
    uint64_t next, end;       /* the part of the file that is not in the buffer yet */
    char *window;
    size_t room, at, len,
        whole;       /* bytes [at, len) are unread; `whole` is the end of the last complete line */
    size_t line_end; /* end of the current record, or SIZE_MAX if the end is not in the buffer */
    bool in_record, has_text, is_checked;
    struct buf text;
    struct set_text set;
    struct record_file *file; /* the whole file, which is verified; NULL: a part of a file, or memory */
};

/* Initializes a reader of lines in memory, which are borrowed. */
void record_reader_of_memory(struct record_reader *r, const char *name, struct bytes lines);
/* Initializes a reader of the lines in a part of a file. `name` appears in errors. Borrows fd and name. */
void record_reader_of_range(struct record_reader *r, int fd, const char *name, uint64_t from, uint64_t len);
void record_reader_end(struct record_reader *r);

/* Returns a reader of a whole file, to be closed with count_source_close. Takes over fd; copies `name` and
 * `expected`. */
struct record_reader *record_reader_new(
    int fd, const char *name, const struct manifest_file *expected, size_t buffer_bytes);

/* A callback for a piece of the file, which is whole lines, or a part of a long line. Returns 0, or -1 to stop. */
typedef int record_reader_take(void *arg, struct bytes piece);

enum record_reader_place { READER_AT_KEY, READER_AFTER_KEY, READER_ENDED, READER_FAILED };
/* Passes all records before `key` to `take`. `key` ends with the separator; BYTES_NONE passes all records.
 * READER_AT_KEY: the next record has this key. READER_AFTER_KEY: no record has this key. READER_FAILED: base.error
 * has the reason, or is empty if `take` has failed. */
enum record_reader_place record_reader_copy_before(
    struct record_reader *r, struct bytes key, record_reader_take *take, void *arg);
/* Returns true if all records were read and the file is verified. */
static inline bool record_reader_has_ended(const struct record_reader *r)
{
    return r->is_checked;
}
/* Call record_reader_line after READER_AT_KEY. Returns the next record's line without LF, or BYTES_NONE if the line
 * is longer than the buffer. The line is valid until the next call, and the reader stays before the record. If a
 * read fails, base.error is not empty. */
struct bytes record_reader_line(struct record_reader *r);
/* Skips the line that record_reader_line returned. */
void record_reader_skip(struct record_reader *r, struct bytes line);
/* Returns true if the next record's key starts with the prefix. Call record_reader_is_in and record_reader_reaches only
 * after READER_AFTER_KEY. */
bool record_reader_is_in(const struct record_reader *r, struct bytes prefix);
/* Returns false only if the next record is after `key`. `key` is at most a period longer than the last key of
 * record_reader_copy_before. */
bool record_reader_reaches(const struct record_reader *r, struct bytes key);

#endif
