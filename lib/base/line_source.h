/* line_source: reads lines from a file (plain, gzip or zstd) or from standard input.
 *
 * line_source detects the format of a file from its first bytes, and refuses other compression formats that it
 * recognizes. Zeros may follow gzip data, as with gzip itself. Offsets count uncompressed bytes. A last line without
 * an LF counts as a line. Memory grows with the longest line. A line that is longer than the limit
 * (LINE_SOURCE_LINE_MAX or line_source_limit) is skipped in several calls. */
#ifndef MILLRACE_LINE_SOURCE_H
#define MILLRACE_LINE_SOURCE_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"

#define LINE_SOURCE_LINE_MAX ((size_t)64 << 20) /* with its LF */

struct line_source;

/* Opens a file, or standard input for the path "-". On failure, returns NULL with the error. */
struct line_source *line_source_open(const char *path, struct error *error);
/* Takes ownership of `fd`, also on failure. On failure, returns NULL with the error. */
struct line_source *line_source_of(int fd, const char *name, struct error *error);
void line_source_close(struct line_source **s);
/* Checks whether the format of the input is supported. Returns 0, or -1 with the error. */
int line_source_check(struct line_source *s, struct error *error);
/* Sets the limit of a line's length, in bytes with the LF. */
void line_source_limit(struct line_source *s, size_t bytes);

/* Reads text of any origin as UTF-8 with LF: converts it from `encoding` (iconv; NULL: UTF-8, or UTF-16 with its byte order mark), and if
 * the first line ends in a CR alone, each CR becomes an LF. Offsets count the converted bytes. U+FFFD replaces
 * invalid characters of `encoding`; in UTF-16 at least 2 bytes at a time, in UTF-32 at least 4. Call before the first
 * read, with an encoding that line_source_has_encoding knows. */
void line_source_as_text(struct line_source *s, const char *encoding);
bool line_source_has_encoding(const char *encoding);
/* Returns how many times U+FFFD has replaced bytes since the last call of line_source_take_replaced. */
uint64_t line_source_take_replaced(struct line_source *s);
/* Skips NULs at the beginning of a line. A log that is truncated while a program writes to it without O_APPEND has
 * such NULs. The NULs count in offsets, but not in lines. */
void line_source_skip_holes(struct line_source *s);

/* Sets a callback for pipes and terminals. While the input has nothing to read, line_source calls `idle` every LINE_SOURCE_IDLE. Once
 * `idle` returns false, the input ends and line_source drops an unfinished line. */
#define LINE_SOURCE_IDLE (100 * USEC_PER_MSEC)
void line_source_on_idle(struct line_source *s, bool (*idle)(void *arg), void *arg);
/* Skips to `offset`, or to the end of a shorter input, and stores the new offset in *reached. Returns 0, or -1 with
 * the error. line_source_skip also fails if no line ends at `offset`, because the input then differs from the input
 * of the earlier run. */
int line_source_skip(struct line_source *s, uint64_t offset, uint64_t *reached, struct error *error);
enum line_source_result {
    LINE_SOURCE_FAILED, /* the input is unreadable or damaged; the error has the reason */
    LINE_SOURCE_END,
    LINE_SOURCE_LINE,
    LINE_SOURCE_SKIPPING, /* a part of a line that is too long; call line_source_next again */
    LINE_SOURCE_SKIPPED,  /* the last part of that line */
    LINE_SOURCE_HOLE,     /* NULs before a line (line_source_skip_holes); call line_source_next again */
    /* The last two results are only for a followed log (log_tail.h). */
    LINE_SOURCE_FINISHED,
    LINE_SOURCE_CUT,
};
/* Stores the next line with its LF in *line, or the bytes that are skipped. The bytes are valid until the next call. If
 * `more_may_come` is true, line_source_next keeps a last line without an LF, and the caller may call line_source_next again
 * after LINE_SOURCE_END. */
enum line_source_result line_source_next(
    struct line_source *s, bool more_may_come, struct bytes *line, struct error *error);
/* The offset after the last line that was returned or skipped. */
uint64_t line_source_offset(const struct line_source *s);
/* The number of bytes that the lines returned so far occupy in the file. For a compressed file the number is an
 * estimate. */
uint64_t line_source_consumed(const struct line_source *s);
/* The number of bytes of the file that were read so far. */
uint64_t line_source_fetched(const struct line_source *s);
/* For a plain file, returns up to `most` bytes before line_source_offset that are still in memory. The bytes are
 * valid until the next line is read. */
struct bytes line_source_recent(const struct line_source *s, size_t most);
int line_source_fd(const struct line_source *s);

#endif
