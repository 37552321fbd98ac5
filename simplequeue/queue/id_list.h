/* id_list: parses a list of message ids and ranges, "A-B,C", as in /ack?id=.
 *
 * 1. The ranges in *out are sorted, do not overlap, and are merged if adjacent. An operation therefore visits each
 *    message once, even if a list repeats an id.
 * 2. A list may end with a line ending. */
#ifndef SIMPLEQUEUE_ID_LIST_H
#define SIMPLEQUEUE_ID_LIST_H

#include "simplequeue/queue/queue.h"

/* Stores the ranges in *out, which the caller frees. If the text is not a list, returns false, and *out is NULL. */
bool id_list_parse(struct bytes text, struct id_range **out, size_t *n);

#endif
