/* queue_id: what tells one queue from every other, also from the one it was copied from.
 *
 * A queue's id is its journal's, but for a copy that was given its own: that stands in the file `queue-id` beside the
 * segments, `ID JOURNAL` and a line end, each 32 hex digits, and goes before the id of the journal it names.
 *
 * 1. The file is there whole and synced, or not at all; anything else in it is an error, not another id.
 * 2. A file that names another journal counts for nothing: when a journal was lost and a new one begins, message ids
 *    begin again, and must not do so under an id that was used.
 * 3. It is read once the journal is open, which has synced the directory by then: so no power cut takes an id that was told,
 *    also when the life that gave it was killed before it had synced the name. */
#ifndef SIMPLEQUEUE_QUEUE_ID_H
#define SIMPLEQUEUE_QUEUE_ID_H

#include "journal/journal.h"

/* The file's of that directory, whose journal's id is `journal`; "" when there is none. 0, or -1 with the error. */
int queue_id_read(
    const char *dir, const char *journal, char id[JOURNAL_ID_TEXT], char *error, size_t error_size);
int queue_id_write(const char *dir, const char *journal, const char *id, char *error, size_t error_size);

#endif
