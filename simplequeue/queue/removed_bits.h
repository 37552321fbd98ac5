/* removed_bits: the file `gone`, in which older versions marked removals when a full disk had no space for their records.
 *
 * An opening reads the file and the queue writes the removals into its journal. The file is deleted once this record is committed. A file
 * that names another journal is ignored. */
#ifndef SIMPLEQUEUE_REMOVED_BITS_H
#define SIMPLEQUEUE_REMOVED_BITS_H

#include "simplequeue/queue/queue.h"

/* Appends the ids marked in the directory's file, in rising order; none if there is no file. 0, or -1 with errno and the error. */
int removed_bits_read(
    const char *dir, const char *journal, struct id_ranges *out, char *error, size_t error_size);
void removed_bits_delete(const char *dir);

#endif
