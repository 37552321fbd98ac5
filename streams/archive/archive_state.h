/* archive_state: the state file of ps_to_file. The state contains the cursor in the stream, and the length of each
 * unfinished file at this cursor.
 *
 * The state is one small JSON file that is replaced atomically, so that cursor and lengths always match. Finished
 * files, and unfinished files up to their recorded lengths, contain all lines before the cursor and no line after the
 * cursor.
 *
 *     {"format":2,"stream":"clicks","id":"62528bf0...","opening":"c7ef...","offset":"123456",
 *      "files":[{"name":"/var/clicks/clicks-05.ndjson",
 *      "staged":"/var/clicks/.ps_to_file-names-00f3.staging/120000.part","length":"3456","lines":"12",
 *      "first":"120000","end":"123456","opening":"c7ef...","finishing":false}]}
 *
 * Each `opening` is the opening (id of a run of pubsub, see stream_client.h) of the byte before `offset` or `end`. At
 * offset 0 the opening is omitted.
 *
 * A state with another format version, or a contradictory state, is refused and never overwritten. A state is
 * contradictory if a file is listed twice, has more lines than bytes, or has bytes after the cursor. */
#ifndef MILLRACE_ARCHIVE_STATE_H
#define MILLRACE_ARCHIVE_STATE_H

#include "base/bytes.h"
#include "base/error.h"
#include "stream/stream_client.h"

#define ARCHIVE_STATE_FORMAT 2

struct archive_file_state {
    char *name;      /* path of the published file; if this path exists, NAME.1 and so on */
    char *staged;    /* path of the file until the file is published */
    uint64_t length; /* length of the file in bytes */
    uint64_t lines;
    uint64_t first, end;               /* stream offsets of the first line's start and the last line's end */
    char opening[STREAM_OPENING_TEXT]; /* the journal opening that wrote the byte before `end`; "": unknown */
    bool finishing;                    /* the file is complete, and is to be compressed and published */
};

struct archive_state {
    char stream[NAME_LEN_MAX + 1];
    struct stream_cursor cursor;
    struct archive_file_state *files;
    size_t n_files, room;
};

void archive_state_free(struct archive_state *s); /* frees the members and zeroes *s */
void archive_file_state_free(struct archive_file_state *f);
/* Returns a copy that owns its strings. */
struct archive_file_state archive_file_state_copy(const struct archive_file_state *f);
void archive_state_add(struct archive_state *s, const struct archive_file_state *f); /* adds a copy of *f */
/* Reads and syncs a state. Returns 1, 0 if the file does not exist, or -1 with the error. The caller frees *out with
 * archive_state_free. The sync is needed because an earlier process may have been killed before its sync of the
 * directory. */
int archive_state_read(const char *path, struct archive_state *out, struct error *error);
/* Replaces the state durably. Returns 0, or -1 with errno. After a failure the file contains either the old or the new
 * state. */
int archive_state_write(const char *path, const struct archive_state *s);

#endif
