/* heap: a binary min-heap with int64 priorities. Daemons keep their timers in heaps: the ends of leases, delays and
 * backoff.
 *
 * Each node contains its index in the heap, so the heap can remove or move any node in O(log n). The caller embeds a
 * struct heap_node and initializes the node with heap_node_init. A node is in at most one heap. heap_first returns
 * nodes of equal priority in the order of their insertion. */
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
void heap_put(struct heap *h, struct heap_node *n, int64_t priority); /* inserts or moves */
struct heap_node *heap_first(const struct heap *h);                   /* NULL when empty */
void heap_remove(struct heap *h, struct heap_node *n);                /* ignores an absent node */
void heap_free(struct heap *h);                                       /* does not free the nodes */

#endif
