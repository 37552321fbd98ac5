/* removed_bits: the file `gone` of older versions, which marked removals in it when a full disk had no space for their records.
 *
 * An opening reads the file, the queue writes the removals into its journal, and the file is deleted once that is committed. Until
 * then each opening reads it again. A file that names another journal counts for nothing. */
#ifndef SIMPLEQUEUE_REMOVED_BITS_H
#define SIMPLEQUEUE_REMOVED_BITS_H

#include "simplequeue/queue/queue.h"

/* Appends the ids marked in the directory's file, in rising order; none if there is no file. 0, or -1 with errno and the error. */
int removed_bits_read(
    const char *dir, const char *journal, struct id_ranges *out, char *error, size_t error_size);
void removed_bits_delete(const char *dir);

#endif
