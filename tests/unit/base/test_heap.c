#include "support/cm.h"
#include "base/heap.h"
#include <stdlib.h>

#define N 500

struct item {
    struct heap_node node;
    bool in;
    unsigned put; /* when it was put in last */
};

/* The least by (priority, time of putting) among those that are in. */
static struct item *least(struct item *items)
{
    struct item *best = NULL;
    for (int i = 0; i < N; i++) {
        struct item *it = &items[i];
        if (it->in && (best == NULL || it->node.priority < best->node.priority ||
                          (it->node.priority == best->node.priority && it->put < best->put)))
            best = it;
    }
    return best;
}

static void test_against_a_plain_list(void **state)
{
    static struct item items[N];
    struct heap h = {0};
    unsigned seed = 42;
    (void)state;
    for (int i = 0; i < N; i++)
        heap_node_init(&items[i].node);
    for (unsigned step = 1; step < 20000; step++) {
        struct item *it = &items[rand_r(&seed) % N];
        if (rand_r(&seed) % 3 != 0) {
            heap_put(&h, &it->node, rand_r(&seed) % 50);
            it->in = true;
            it->put = step;
        } else {
            heap_remove(&h, &it->node);
            it->in = false;
            assert_true(it->node.index == HEAP_ABSENT);
        }
        struct item *want = least(items);
        assert_ptr_equal(heap_first(&h), want != NULL ? &want->node : NULL);
    }
    struct heap_node *first;
    int64_t last = INT64_MIN;
    while ((first = heap_first(&h)) != NULL) {
        assert_true(first->priority >= last);
        last = first->priority;
        heap_remove(&h, first);
    }
    heap_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_plain_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
