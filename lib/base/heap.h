/* heap: a binary min-heap of int64 priorities whose members know their index, so that any can be removed or moved in O(log n).
 * One heap holds all timers of a daemon: deadlines of leases, delays, backoff.
 *
 * The caller embeds a struct heap_node, initialized by heap_node_init. A node is in at most one heap; its index is HEAP_ABSENT
 * while it is in none. Equal priorities leave in the order of insertion. */
#ifndef MILLRACE_HEAP_H
#define MILLRACE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_ABSENT SIZE_MAX

struct heap_node {
    int64_t priority;
    uint64_t order;
    size_t index;
};
struct heap {
    struct heap_node **nodes;
    size_t n, cap;
    uint64_t next_order;
};

void heap_node_init(struct heap_node *n);
void heap_put(struct heap *h, struct heap_node *n, int64_t priority); /* moves a node that is in the heap */
struct heap_node *heap_first(const struct heap *h);                   /* NULL when empty */
void heap_remove(struct heap *h, struct heap_node *n);                /* ignores an absent node */
void heap_free(struct heap *h);                                       /* the nodes are the caller's */

#endif
