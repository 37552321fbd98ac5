/* line_source: reads lines from a file (plain, gzip or zstd, by its first bytes) or from standard input.
 *
 * Files packed in another known format are refused. Zeros after gzip data are skipped, as gzip does. Offsets count unpacked bytes. A last line
 * without LF is a line. Memory is bounded by the longest line; a line over LINE_SOURCE_LINE_MAX is skipped in steps. */
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

/* For pipes and terminals: calls `idle` every LINE_SOURCE_IDLE while there is nothing to read. If it returns false, the input ends
 * and an unfinished line is dropped. */
#define LINE_SOURCE_IDLE (100 * USEC_PER_MSEC)
void line_source_on_idle(struct line_source *s, bool (*idle)(void *arg), void *arg);
/* Skips to an offset, or to the end; *reached is the new offset. 0, or -1 with the reason, also if no line ends there (no LF before or
 * after the offset): then this is another input. */
int line_source_skip(
    struct line_source *s, uint64_t offset, uint64_t *reached, char error[LINE_SOURCE_ERROR_MAX]);
enum line_source_result {
    LINE_SOURCE_FAILED, /* with the reason: unreadable, damaged */
    LINE_SOURCE_END,
    LINE_SOURCE_LINE,
    LINE_SOURCE_SKIPPING, /* skipped a part of a line that is too long: call again */
    LINE_SOURCE_SKIPPED,  /* skipped all of that line */
};
/* The line includes its LF and is borrowed until the next call. With `more_may_come` a last line without LF waits, and the caller may call
 * again after LINE_SOURCE_END. */
enum line_source_result line_source_next(
    struct line_source *s, bool more_may_come, struct bytes *line, char error[LINE_SOURCE_ERROR_MAX]);
/* The offset after the last line returned or skipped. */
uint64_t line_source_offset(const struct line_source *s);
/* Bytes of the file itself that the returned lines took, estimated for packed files. */
uint64_t line_source_consumed(const struct line_source *s);
/* Bytes of the file itself read so far. */
uint64_t line_source_fetched(const struct line_source *s);
/* Of a plain file: up to so many buffered bytes before line_source_offset, borrowed until the next call. */
struct bytes line_source_recent(const struct line_source *s, size_t most);
int line_source_fd(const struct line_source *s);

#endif
