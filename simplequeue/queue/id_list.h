/* id_list: parses a list of message ids and ranges, "A-B,C", as in /ack?id=.
 *
 * 1. The ranges are sorted, and neither overlap nor touch. So the work for a list grows with the sum of its length and
 *    its messages, not with their product.
 * 2. One line ending after the list is ignored. */
#ifndef SIMPLEQUEUE_ID_LIST_H
#define SIMPLEQUEUE_ID_LIST_H

#include "simplequeue/queue/queue.h"

/* The caller frees *out. False, with *out NULL, if the text is not a list. */
bool id_list_parse(struct bytes text, struct id_range **out, size_t *n);

#endif
