/* line_source: reads lines from a file (plain, gzip or zstd) or from standard input.
 *
 * The first bytes of a file decide its format; other known formats are refused. Zeros may follow gzip data, as gzip
 * itself allows. Offsets count unpacked bytes. A last line without LF counts as a line. The longest line bounds the
 * memory; a line over LINE_SOURCE_LINE_MAX is skipped in steps. */
#ifndef MILLRACE_LINE_SOURCE_H
#define MILLRACE_LINE_SOURCE_H

#include "base/bytes.h"
#include "base/clock.h"

#define LINE_SOURCE_LINE_MAX ((size_t)64 << 20) /* with its LF */
#define LINE_SOURCE_ERROR_MAX 400

struct line_source;

/* "-" is standard input. NULL with the reason. */
struct line_source *line_source_open(const char *path, char error[LINE_SOURCE_ERROR_MAX]);
/* Takes over an open file. */
struct line_source *line_source_of(int fd, const char *name, char error[LINE_SOURCE_ERROR_MAX]);
void line_source_close(struct line_source **s);
/* Checks the format by the first bytes: 0, or -1 with the reason. */
int line_source_check(struct line_source *s, char error[LINE_SOURCE_ERROR_MAX]);

/* For pipes and terminals: calls `idle` every LINE_SOURCE_IDLE while there is nothing to read. If `idle` returns false, the input ends
 * and an unfinished line is dropped. */
#define LINE_SOURCE_IDLE (100 * USEC_PER_MSEC)
void line_source_on_idle(struct line_source *s, bool (*idle)(void *arg), void *arg);
/* Skips to an offset, or to the end; *reached is the new offset. 0, or -1 with the reason. An input in which no line
 * ends at the offset is refused, because it must be another input. */
int line_source_skip(
    struct line_source *s, uint64_t offset, uint64_t *reached, char error[LINE_SOURCE_ERROR_MAX]);
enum line_source_result {
    LINE_SOURCE_FAILED, /* with the reason: unreadable, damaged */
    LINE_SOURCE_END,
    LINE_SOURCE_LINE,
    LINE_SOURCE_SKIPPING, /* skipped a part of a line that is too long: call again */
    LINE_SOURCE_SKIPPED,  /* skipped all of that line */
    /* Only for a followed log (log_tail.h): */
    LINE_SOURCE_FINISHED,
    LINE_SOURCE_CUT,
};
/* The line includes its LF and is borrowed until the next call. With `more_may_come` a last line without LF is not
 * returned yet, and the caller may call again after LINE_SOURCE_END. */
enum line_source_result line_source_next(
    struct line_source *s, bool more_may_come, struct bytes *line, char error[LINE_SOURCE_ERROR_MAX]);
/* The offset after the last line returned or skipped. */
uint64_t line_source_offset(const struct line_source *s);
/* Size of the returned lines in the file itself, estimated for packed files. */
uint64_t line_source_consumed(const struct line_source *s);
/* Bytes of the file itself read so far. */
uint64_t line_source_fetched(const struct line_source *s);
/* For a plain file, returns up to `most` buffered bytes before line_source_offset, borrowed until the next call. */
struct bytes line_source_recent(const struct line_source *s, size_t most);
int line_source_fd(const struct line_source *s);

#endif
