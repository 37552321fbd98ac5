/* id_list: the text "A-B,C" that names messages, as in /ack?id=.
 *
 * 1. The ranges come out rising, and neither overlap nor touch, whatever the text's order. So the work for a list is bounded by its
 *    length and the messages it names, not by their product.
 * 2. One line end behind the list is ignored, because files and shells add it. */
#ifndef SIMPLEQUEUE_ID_LIST_H
#define SIMPLEQUEUE_ID_LIST_H

#include "simplequeue/queue/queue.h"

/* The caller frees *out. False, with *out NULL, if the text is no list. */
bool id_list_parse(struct bytes text, struct id_range **out, size_t *n);

#endif
