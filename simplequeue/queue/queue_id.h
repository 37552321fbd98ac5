/* queue_id: the id of a copied queue, which differs from its journal's.
 *
 * A queue's id is its journal's id, unless --restored gave the queue its own id. Then the file `queue-id` beside the segments holds both
 * ids: docs/formats/simplequeue.md.
 *
 * 1. The file is whole and synced, or absent. Any other content is an error.
 * 2. A file that names another journal is ignored: message ids begin again in a new journal, and must not repeat under a used id.
 * 3. The file is read once the journal is open, which has synced the directory. So a power cut never takes back an id that was shown.
 */
#ifndef SIMPLEQUEUE_QUEUE_ID_H
#define SIMPLEQUEUE_QUEUE_ID_H

#include "journal/journal.h"

/* Reads the queue's id from the file in `dir`; "" if there is no file for `journal`, the id of the journal. Returns 0, or -1 with the
 * error. */
int queue_id_read(
    const char *dir, const char *journal, char id[JOURNAL_ID_TEXT], char *error, size_t error_size);
int queue_id_write(const char *dir, const char *journal, const char *id, char *error, size_t error_size);

#endif
