/* archive_state: the state file of ps_to_file: its cursor in the stream, and the length of each unfinished file at that
 * cursor.
 *
 * The state is one small JSON file, replaced atomically, so cursor and lengths always belong together. Every line
 * before the cursor is in a finished file, or in an unfinished file within its recorded length. No line after the
 * cursor is.
 *
 *     {"format":2,"stream":"clicks","id":"62528bf0...","opening":"c7ef...","offset":"123456",
 *      "files":[{"name":"/var/clicks/clicks-05.ndjson","staged":"/var/clicks/.ps_to_file-names-00f3.staging/120000.part",
 *      "length":"3456","lines":"12","first":"120000","end":"123456","opening":"c7ef...","finishing":false}]}
 *
 * Each `opening` is that of the byte before `offset` or `end` (stream_client.h). It is omitted at
 * offset 0.
 *
 * A state of another format version, or one that contradicts itself, is refused and never overwritten. A state contradicts itself if a file is named twice, has more lines than bytes, or bytes after the
 * cursor. */
#ifndef MILLRACE_ARCHIVE_STATE_H
#define MILLRACE_ARCHIVE_STATE_H

#include "base/bytes.h"
#include "base/error.h"
#include "stream/stream_client.h"

#define ARCHIVE_STATE_FORMAT 2

struct archive_file_state {
    char *name;      /* the path of the published file; if the path exists, NAME.1 and so on */
    char *staged;    /* the path until the file is published */
    uint64_t length; /* in bytes */
    uint64_t lines;
    uint64_t first, end;               /* stream offsets of the first line's start and the last line's end */
    char opening[STREAM_OPENING_TEXT]; /* of the byte before `end`; "": unknown */
    bool finishing;                    /* complete: to be compressed and published */
};

struct archive_state {
    char stream[NAME_LEN_MAX + 1];
    struct stream_cursor cursor;
    struct archive_file_state *files;
    size_t n_files, room;
};

void archive_state_free(struct archive_state *s); /* and zeroes it */
void archive_file_state_free(struct archive_file_state *f);
/* The copy owns its strings. */
struct archive_file_state archive_file_state_copy(const struct archive_file_state *f);
void archive_state_add(struct archive_state *s, const struct archive_file_state *f); /* copies */
/* Reads and syncs a state; free *out with archive_state_free. Returns 1, or 0 if the file does not exist, or -1 with
 * the reason. The sync is needed if a process was killed before it synced the directory. */
int archive_state_read(const char *path, struct archive_state *out, struct error *error);
/* Replaces the state durably. Returns 0, or -1 with errno. After a failure the file holds either the old or the new
 * state. */
int archive_state_write(const char *path, const struct archive_state *s);

#endif
