/* queue_id: what tells one queue from every other, also from the one it was copied from.
 *
 * A queue's id is its journal's, but for a copy that was given its own: that stands in the file `queue-id` beside the
 * segments, 32 hex digits and a line end, and goes before the journal's.
 *
 * 1. The file is there whole and synced, or not at all; whatever else is in it is an error, not another id. */
#ifndef SIMPLEQUEUE_QUEUE_ID_H
#define SIMPLEQUEUE_QUEUE_ID_H

#include "journal.h"

void queue_id_random(char id[JOURNAL_ID_TEXT]);
/* The file's of that directory; "" when there is none. 0, or -1 with the error. */
int queue_id_read(const char *dir, char id[JOURNAL_ID_TEXT], char *error, size_t error_size);
int queue_id_write(const char *dir, const char *id, char *error, size_t error_size);

#endif
