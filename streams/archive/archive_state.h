/* archive_state: what ps_to_file remembers between its lives: how far it has got with the stream, and how long each of
 * its unfinished files was then. One small JSON file, replaced atomically, so that cursor and lengths are one thing:
 * everything before the cursor is in a finished file or below one of these lengths, and nothing behind it is.
 *
 *     {"format":1,"stream":"clicks","id":"62528bf0...","offset":"123456",
 *      "files":[{"name":"/var/clicks/clicks-05.ndjson","period":"/var/clicks/clicks-05.ndjson","length":"3456","lines":"12","first":"120000","end":"123456",
 *      "finishing":false}]}
 *
 * A file of another format, or of another stream, is refused, never overwritten; so is one that says what cannot be: a file
 * twice, a name that is not its period's, more lines than bytes, bytes behind the cursor. */
#ifndef MILLRACE_ARCHIVE_STATE_H
#define MILLRACE_ARCHIVE_STATE_H

#include "base/bytes.h"
#include "stream/stream_client.h"

#define ARCHIVE_STATE_FORMAT 1
#define ARCHIVE_ERROR_TEXT 512

struct archive_file_state {
    char *name;          /* the finished file's path, without what compression adds */
    char *period;        /* what strftime made: the name without .1, .2 */
    uint64_t length;     /* bytes of lines in it */
    uint64_t lines;      /* LFs */
    uint64_t first, end; /* offsets in the stream of its first line and behind its last */
    bool finishing;      /* no more lines: it waits to be compressed and named */
};

struct archive_state {
    char stream[NAME_LEN_MAX + 1];
    struct stream_cursor cursor;
    struct archive_file_state *files;
    size_t n_files;
};

void archive_state_free(struct archive_state *s); /* and zeroes it */
void archive_file_state_free(struct archive_file_state *f);
/* The copies' texts are their own. */
struct archive_file_state archive_file_state_copy(const struct archive_file_state *f);
void archive_state_add(struct archive_state *s, const struct archive_file_state *f);
void archive_state_print(const struct archive_state *s, struct buf *out);
/* 0, or -1 with the reason. *out is freed with archive_state_free. */
int archive_state_parse(struct bytes text, struct archive_state *out, char error[ARCHIVE_ERROR_TEXT]);
/* 1: it was read, and is what a power cut would leave, though a life was killed before it had made its name durable; 0: there
 * is none yet; -1 with the reason. */
int archive_state_read(const char *path, struct archive_state *out, char error[ARCHIVE_ERROR_TEXT]);
/* When it returns 0 the new state is what a power cut would leave; otherwise -1 with errno, and one of the two is. */
int archive_state_write(const char *path, const struct archive_state *s);

#endif
