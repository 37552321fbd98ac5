/* heap: a binary min-heap of int64 priorities whose members know their place, so that any can be removed or
 * moved in O(log n). One heap holds all timers of a daemon: deadlines of leases, delays, backoff.
 *
 * The caller embeds a struct heap_node in what it keeps; a node is in one heap at most; index is
 * HEAP_ABSENT when it is in none (heap_node_init). Equal priorities leave in the order they were put in. */
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
void heap_put(struct heap *h, struct heap_node *n, int64_t priority); /* or moves it when it is in already */
struct heap_node *heap_first(const struct heap *h);                   /* NULL when empty */
void heap_remove(struct heap *h, struct heap_node *n);                /* nothing when it is out */
void heap_free(struct heap *h);                                       /* the nodes are the caller's */

#endif
