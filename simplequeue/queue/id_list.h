/* id_list: parses a list of message ids and ranges, "A-B,C", as in /ack?id=.
 *
 * 1. The ranges in *out are sorted, do not overlap, and are merged if adjacent. Thus an operation visits each message
 *    only once, even if the list repeats it.
 * 2. The list may end with one line ending. */
#ifndef SIMPLEQUEUE_ID_LIST_H
#define SIMPLEQUEUE_ID_LIST_H

#include "simplequeue/queue/queue.h"

/* Stores the ranges in *out, which the caller frees. If the text is not a list, returns false and sets *out to
 * NULL. */
bool id_list_parse(struct bytes text, struct id_range **out, size_t *n);

#endif
