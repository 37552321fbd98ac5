/* line_source: the lines of a file, plain, gzip or zstd (told by its first bytes), or of standard input.
 *
 * Offsets count the unpacked bytes. A last line without LF is a line. Memory is bounded by the longest line, which is
 * refused over LINE_SOURCE_MAX_LINE. */
#ifndef MILLRACE_LINE_SOURCE_H
#define MILLRACE_LINE_SOURCE_H

#include "bytes.h"

#define LINE_SOURCE_MAX_LINE ((size_t)64 << 20)
#define LINE_SOURCE_ERROR_TEXT 400

struct line_source;

/* "-" is standard input. NULL with the reason. */
struct line_source *line_source_open(const char *path, char error[LINE_SOURCE_ERROR_TEXT]);
/* From an open file, which is taken over. */
struct line_source *line_source_of(int fd, const char *name, char error[LINE_SOURCE_ERROR_TEXT]);
void line_source_close(struct line_source **s);

/* Goes to an offset, at most the end: by a seek in a plain file, else by unpacking. 0, or -1 with the reason, also when
 * what stands before it is no LF: then this is not the input that was read up to there. *reached: where it stands. */
int line_source_skip(
    struct line_source *s, uint64_t offset, uint64_t *reached, char error[LINE_SOURCE_ERROR_TEXT]);
/* 1: a line, with its LF if it has one, borrowed until the next call. 0: the end. -1 with the reason: unreadable, damaged.
 * With `more_may_come` a last line without LF waits, and after 0 it may be asked again. */
int line_source_next(
    struct line_source *s, bool more_may_come, struct bytes *line, char error[LINE_SOURCE_ERROR_TEXT]);
/* Behind the last line given. */
uint64_t line_source_offset(const struct line_source *s);
/* Bytes of the file itself that are done with: what a progress bar goes by. */
uint64_t line_source_consumed(const struct line_source *s);
int line_source_fd(const struct line_source *s);

#endif
