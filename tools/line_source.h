/* line_source: the lines of a file, plain, gzip or zstd (told by its first bytes when they are asked for), or of standard input.
 * What is packed otherwise, as far as its first bytes tell, is refused. Zeros behind gzip, as tapes have them, are passed over as
 * gzip does.
 *
 * Offsets count the unpacked bytes. A last line without LF is a line. Memory is bounded by the longest line; one over
 * LINE_SOURCE_LINE_MAX is read past, in steps, and not given. */
#ifndef MILLRACE_LINE_SOURCE_H
#define MILLRACE_LINE_SOURCE_H

#include "base/bytes.h"
#include "base/clock.h"

#define LINE_SOURCE_LINE_MAX ((size_t)64 << 20) /* with its LF */
#define LINE_SOURCE_ERROR_MAX 400

struct line_source;

/* "-" is standard input. NULL with the reason. */
struct line_source *line_source_open(const char *path, char error[LINE_SOURCE_ERROR_MAX]);
/* From an open file, which is taken over. */
struct line_source *line_source_of(int fd, const char *name, char error[LINE_SOURCE_ERROR_MAX]);
void line_source_close(struct line_source **s);
/* Whether its first bytes are of something that is read: 0, or -1 with the reason. */
int line_source_check(struct line_source *s, char error[LINE_SOURCE_ERROR_MAX]);

/* For an input that is written as it is read (a pipe, a terminal): `idle` is called again and again while there is nothing to
 * read, LINE_SOURCE_IDLE apart. When it returns false no more comes: the next call gives 0, and what is not a whole line yet
 * is not given. */
#define LINE_SOURCE_IDLE (100 * USEC_PER_MSEC)
void line_source_on_idle(struct line_source *s, bool (*idle)(void *arg), void *arg);
/* Goes to an offset, at most the end: by a seek in a plain file, else by unpacking. 0, or -1 with the reason, also when
 * no line ends there (neither what stands before nor what follows is a LF): then this is not the input that was read up to
 * there. *reached: where it stands. */
int line_source_skip(
    struct line_source *s, uint64_t offset, uint64_t *reached, char error[LINE_SOURCE_ERROR_MAX]);
enum line_source_result {
    LINE_SOURCE_FAILED, /* with the reason: unreadable, damaged */
    LINE_SOURCE_END,
    LINE_SOURCE_LINE,
    LINE_SOURCE_SKIPPING, /* something of one that is too long was read past: ask again */
    LINE_SOURCE_SKIPPED,  /* all of it */
};
/* A line has its LF if there is one, and is borrowed until the next call. With `more_may_come` a last line without LF waits, also
 * one that is passed, and after LINE_SOURCE_END it may be asked again. */
enum line_source_result line_source_next(
    struct line_source *s, bool more_may_come, struct bytes *line, char error[LINE_SOURCE_ERROR_MAX]);
/* Behind the last line given or passed. */
uint64_t line_source_offset(const struct line_source *s);
/* Bytes of the file itself that are done with: what a progress bar goes by. Of what was unpacked and is not given yet the share is
 * reckoned. */
uint64_t line_source_consumed(const struct line_source *s);
/* Bytes of the file itself that were read so far: also those that are not given yet. */
uint64_t line_source_fetched(const struct line_source *s);
/* Of a plain file: what stands before line_source_offset, at most so many bytes, as far as it is at hand. Borrowed until the next
 * call; empty of others. */
struct bytes line_source_recent(const struct line_source *s, size_t most);
int line_source_fd(const struct line_source *s);

#endif
