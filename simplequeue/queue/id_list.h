/* id_list: the text "A-B,C" that names messages, as /ack and its like take it.
 *
 * 1. The ranges that come out rise and neither overlap nor touch, whatever the text's order: so the work that a list
 *    asks for is bounded by its length and by the messages it names, not by their product.
 * 2. One line end behind the list is passed over, as files and shells put one there. */
#ifndef SIMPLEQUEUE_ID_LIST_H
#define SIMPLEQUEUE_ID_LIST_H

#include "simplequeue/queue/queue.h"

/* The caller frees *out. False, with *out NULL, when the text is no such list. */
bool id_list_parse(struct bytes text, struct id_range **out, size_t *n);

#endif
