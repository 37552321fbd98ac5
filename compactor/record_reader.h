/* record_reader: reads sorted records from a file or from memory through one buffer, as a source of counts (count_merge.h)
 * or in large pieces.
 *
 * 1. Lines of counts of any length pass through the buffer; `line` is set only for a line that the buffer holds whole. The
 *    buffer grows for a longer key or lookup.
 * 2. With `expected`, the end of the file is compared with it: records, bytes and checksum. If they differ, the call that
 *    reaches the end fails. So nothing may be published before every reader has ended.
 * 3. Pieces are searched by bisection, so their order is not verified line by line. So readers that are copied in
 *    pieces need `expected`, which shows that the order was verified when the file was written.
 *
 * A reader that lives in another struct is initialized with record_reader_of_memory or record_reader_of_range and ended with
 * record_reader_end. One thread at a time. */
#ifndef MILLRACE_RECORD_READER_H
#define MILLRACE_RECORD_READER_H

#include "counts/count_merge.h"
#include "counts/manifest.h"

#define RECORD_READER_BYTES_MIN ((size_t)16 << 10) /* of a buffer */

struct record_reader {
    struct count_source base; /* first */
    int fd;                   /* -1: memory */
    uint64_t next, end;       /* the part of the file that is not in the buffer yet */
    char *window;
    size_t room, at, len,
        whole;       /* bytes [at, len) are unread; `whole` is the end of the last complete line */
    size_t line_end; /* of the current record, or SIZE_MAX if the buffer does not hold it */
    bool in_record, has_text, is_checked;
    struct buf text;
    struct record_file *file; /* a whole file, which is verified; NULL: a part */
};

/* Lines in memory, borrowed. */
void record_reader_of_memory(struct record_reader *r, const char *name, struct bytes lines);
/* The lines of a part of a file. `name` stands for the file in errors. Borrows fd and name. */
void record_reader_of_range(struct record_reader *r, int fd, const char *name, uint64_t from, uint64_t len);
void record_reader_end(struct record_reader *r);

/* A whole file. Takes over fd; copies `name` and `expected`. Closed by count_source_close. */
struct record_reader *record_reader_new(
    int fd, const char *name, const struct manifest_file *expected, size_t buffer_bytes);

/* Takes a piece of the file: whole lines, or a part of a long line. Returns 0, or -1 to stop. */
typedef int record_reader_take(void *arg, struct bytes piece);

enum record_reader_place { READER_AT_KEY, READER_AFTER_KEY, READER_ENDED, READER_FAILED };
/* Passes all records before `key` to `take`. The key ends with the separator; BYTES_NONE: all records. READER_AT_KEY: the
 * next record has this key. READER_AFTER_KEY: it is absent. READER_FAILED: see base.error; empty if `take` has failed. */
enum record_reader_place record_reader_copy_before(
    struct record_reader *r, struct bytes key, record_reader_take *take, void *arg);
/* True if all records were read, and the file is verified. */
static inline bool record_reader_has_ended(const struct record_reader *r)
{
    return r->is_checked;
}
/* After READER_AT_KEY: the next record's line without LF, or BYTES_NONE if it is longer than the buffer. Valid until another
 * call. The reader stays before the record. On a failed read base.error is not empty. */
struct bytes record_reader_line(struct record_reader *r);
/* Leaves out the line that record_reader_line returned. */
void record_reader_skip(struct record_reader *r, struct bytes line);
/* Both: call after READER_AFTER_KEY. */
/* True if the next record's key starts with the prefix. */
bool record_reader_is_in(const struct record_reader *r, struct bytes prefix);
/* False only if the next record is after this key, which is at most a period longer than the key copied before. */
bool record_reader_reaches(const struct record_reader *r, struct bytes key);

#endif
