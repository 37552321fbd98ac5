/* archive_state: what ps_to_file remembers between two runs: its cursor in the stream, and the length of each unfinished file
 * at that cursor.
 *
 * The state is one small JSON file, replaced atomically, so cursor and lengths always belong together. Every line before the
 * cursor is in a finished file or below one of these lengths; no line behind it is.
 *
 *     {"format":2,"stream":"clicks","id":"62528bf0...","offset":"123456",
 *      "files":[{"name":"/var/clicks/clicks-05.ndjson","staged":"/var/clicks/.ps_to_file-names-00f3.staging/120000.part",
 *      "length":"3456","lines":"12","first":"120000","end":"123456","finishing":false}]}
 *
 * A state of format 1 is read too: its unfinished files lie beside the finished ones, as NAME.part, and are finished from there.
 * A state of another format or stream is refused, never overwritten, and so is one that contradicts itself: a file named twice,
 * more lines than bytes, or bytes behind the cursor. */
#ifndef MILLRACE_ARCHIVE_STATE_H
#define MILLRACE_ARCHIVE_STATE_H

#include "base/bytes.h"
#include "stream/stream_client.h"

#define ARCHIVE_STATE_FORMAT 2
#define ARCHIVE_ERROR_TEXT 512

struct archive_file_state {
    char *name;      /* the path it is published under, unless another file has that: then NAME.1 and so on */
    char *staged;    /* where its lines are until then */
    uint64_t length; /* in bytes */
    uint64_t lines;  /* LFs */
    uint64_t first, end; /* offsets in the stream of its first line and behind its last */
    bool finishing;      /* complete: waits to be compressed and published */
};

struct archive_state {
    char stream[NAME_LEN_MAX + 1];
    struct stream_cursor cursor;
    struct archive_file_state *files;
    size_t n_files;
};

void archive_state_free(struct archive_state *s); /* and zeroes it */
void archive_file_state_free(struct archive_file_state *f);
/* The copy owns its strings. */
struct archive_file_state archive_file_state_copy(const struct archive_file_state *f);
void archive_state_add(struct archive_state *s, const struct archive_file_state *f); /* copies */
/* Free *out with archive_state_free. 1: read, and durable even if the process that wrote it was killed before it synced the directory. 0: no such file. -1: failed,
 * with the reason. */
int archive_state_read(const char *path, struct archive_state *out, char error[ARCHIVE_ERROR_TEXT]);
/* 0: the new state is durable. -1 with errno: a crash leaves either the old or the new one. */
int archive_state_write(const char *path, const struct archive_state *s);

#endif
