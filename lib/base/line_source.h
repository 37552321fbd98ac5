/* line_source: reads lines from a file (plain, gzip or zstd) or from standard input.
 *
 * The first bytes of a file show its format. Formats that are known but not supported are refused. Zeros may follow
 * gzip data, as with gzip itself. Offsets count unpacked bytes. A last line without an LF counts as a line. The
 * memory is limited by the longest line. A line longer than LINE_SOURCE_LINE_MAX, or than the limit that the caller sets,
 * is skipped in steps. */
#ifndef MILLRACE_LINE_SOURCE_H
#define MILLRACE_LINE_SOURCE_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"

#define LINE_SOURCE_LINE_MAX ((size_t)64 << 20) /* with its LF */

struct line_source;

/* Opens a file, or standard input if the path is "-". Returns NULL with the reason if this fails. */
struct line_source *line_source_open(const char *path, struct error *error);
/* Takes over an open file. */
struct line_source *line_source_of(int fd, const char *name, struct error *error);
void line_source_close(struct line_source **s);
/* Checks the format of the first bytes. Returns 0, or -1 with the reason. */
int line_source_check(struct line_source *s, struct error *error);
/* Sets the longest line, with its LF. */
void line_source_limit(struct line_source *s, size_t bytes);

/* Reads text of any origin as UTF-8 with LF: converts it from `encoding` (iconv; NULL: UTF-8, or UTF-16 with its byte order mark), and if
 * the first line ends in a CR alone, each CR becomes an LF. Offsets count the converted bytes. U+FFFD replaces invalid bytes of
 * `encoding`. Returns 0, or -1 with the reason. Before the first read. */
int line_source_as_text(struct line_source *s, const char *encoding, struct error *error);
/* How many times U+FFFD has replaced bytes since the last call. */
uint64_t line_source_take_replaced(struct line_source *s);
/* Skips NULs at the beginning of a line, as they are in a log that was truncated while a program writes it without O_APPEND. They count
 * in offsets, but not in lines. */
void line_source_skip_holes(struct line_source *s);
/* How many NULs were skipped since the last call. */
uint64_t line_source_take_hole(struct line_source *s);

/* For pipes and terminals: as long as there is nothing to read, calls `idle` every LINE_SOURCE_IDLE. If `idle`
 * returns false, the input ends and an unfinished line is dropped. */
#define LINE_SOURCE_IDLE (100 * USEC_PER_MSEC)
void line_source_on_idle(struct line_source *s, bool (*idle)(void *arg), void *arg);
/* Skips to `offset`, or to the end if the input is shorter. *reached is the new offset. If no line ends at the
 * offset, the input cannot be the same as before, and the function fails. Returns 0, or -1 with the reason. */
int line_source_skip(struct line_source *s, uint64_t offset, uint64_t *reached, struct error *error);
enum line_source_result {
    LINE_SOURCE_FAILED, /* unreadable or damaged; the error has the reason */
    LINE_SOURCE_END,
    LINE_SOURCE_LINE,
    LINE_SOURCE_SKIPPING, /* skipped a part of a line that is too long; call again */
    LINE_SOURCE_SKIPPED,  /* skipped all of that line */
    LINE_SOURCE_HOLE,     /* skipped NULs (line_source_skip_holes); call again */
    /* Only for a followed log (log_tail.h): */
    LINE_SOURCE_FINISHED,
    LINE_SOURCE_CUT,
};
/* Returns the next line with its LF. The line is valid until the next call. If `more_may_come` is true, a last line
 * without an LF is not returned yet, and the caller may call again after LINE_SOURCE_END. */
enum line_source_result line_source_next(
    struct line_source *s, bool more_may_come, struct bytes *line, struct error *error);
/* The offset after the last line returned or skipped. */
uint64_t line_source_offset(const struct line_source *s);
/* How many bytes of the file the returned lines occupy. For a packed file this is an estimate. */
uint64_t line_source_consumed(const struct line_source *s);
/* How many bytes of the file have been read so far. */
uint64_t line_source_fetched(const struct line_source *s);
/* For a plain file, returns up to `most` bytes before line_source_offset that are still in memory. They are valid
 * until the next call. */
struct bytes line_source_recent(const struct line_source *s, size_t most);
int line_source_fd(const struct line_source *s);

#endif
