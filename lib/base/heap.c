#include "base/heap.h"
#include "base/bytes.h"
#include <stdlib.h>

static bool before(const struct heap_node *a, const struct heap_node *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->order < b->order;
}

static void place(struct heap *h, struct heap_node *n, size_t at)
{
    h->nodes[at] = n;
    n->index = at;
}

/* Moves the node towards the root from `at`. */
static void sift_up(struct heap *h, struct heap_node *n, size_t at)
{
    while (at > 0 && before(n, h->nodes[(at - 1) / 2])) {
        place(h, h->nodes[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    place(h, n, at);
}

void heap_node_init(struct heap_node *n)
{
    n->index = HEAP_ABSENT;
}

void heap_put(struct heap *h, struct heap_node *n, int64_t priority)
{
    heap_remove(h, n);
    ARRAY_ROOM(h->nodes, h->cap, h->n + 1);
    n->priority = priority;
    n->order = h->next_order++;
    sift_up(h, n, h->n++);
}

struct heap_node *heap_first(const struct heap *h)
{
    return h->n > 0 ? h->nodes[0] : NULL;
}

void heap_remove(struct heap *h, struct heap_node *n)
{
    size_t at = n->index;
    if (at == HEAP_ABSENT)
        return;
    n->index = HEAP_ABSENT;
    struct heap_node *last = h->nodes[--h->n];
    if (last == n)
        return;
    for (size_t child; (child = 2 * at + 1) < h->n; at = child) { /* the hole moves down */
        if (child + 1 < h->n && before(h->nodes[child + 1], h->nodes[child]))
            child++;
        if (!before(h->nodes[child], last))
            break;
        place(h, h->nodes[child], at);
    }
    sift_up(h, last, at);
}

void heap_free(struct heap *h)
{
    free(h->nodes);
    *h = (struct heap){0};
}
