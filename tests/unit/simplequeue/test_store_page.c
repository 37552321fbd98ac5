/* Where the memory of a store's pages comes from, and what it costs that they are many. */
#include "support/cm.h"
#include "simplequeue/queue/store.h"

#include <sys/mman.h>
#include <unistd.h>

#define MESSAGE 450
#define PAGES 40
#define GROWING 17 /* from this page on the store is taken to go on growing */

/* Of the system's pages that lie wholly in the memory, how many are there, and how many there could be. */
static size_t resident(const char *memory, size_t size, size_t *all)
{
    unsigned char there[STORE_PAGE_BYTES / 4096 + 1];
    uintptr_t unit = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)memory;
    uintptr_t from = (start + unit - 1) / unit * unit, to = (start + size) / unit * unit;
    size_t n = 0;
    *all = (to - from) / unit;
    assert_int_equal(mincore((char *)(uintptr_t)memory + (from - start), to - from, there), 0);
    for (size_t i = 0; i < *all; i++)
        n += there[i] & 1;
    return n;
}

static bool kernel_populates(void)
{
    size_t size = STORE_PAGE_BYTES;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool does = memory != MAP_FAILED && madvise(memory, size, MADV_POPULATE_WRITE) == 0;
    munmap(memory, size);
    return does;
}

/* Message by message, looking at each page when its first message lies in it. */
static void fill(size_t *whole_pages, size_t *first_whole)
{
    static const char text[MESSAGE];
    struct store_memory memory = {0};
    struct store s;
    const char *last = NULL;
    size_t pages = 0, all;
    store_init(&s, 1, &memory);
    *whole_pages = *first_whole = 0;
    while (pages < PAGES) {
        const struct message *m = store_add(&s, bytes_of(text, sizeof text), STORE_READY);
        bool begins = m->ptr != last + MESSAGE;
        last = m->ptr;
        if (!begins)
            continue;
        pages++;
        bool whole = resident(m->ptr, STORE_PAGE_BYTES, &all) == all;
        assert_true(all >= STORE_PAGE_BYTES / 4096 - 1);
        *whole_pages += whole;
        if (whole && *first_whole == 0)
            *first_whole = pages;
    }
    store_free(&s);
}

/* One call of the kernel for 64 KiB, instead of a fault for each 4 KiB that messages reach. */
static void test_a_store_that_grows_has_its_pages_memory_at_once(void **state)
{
    size_t whole, first;
    (void)state;
    if (!kernel_populates())
        skip();
    fill(&whole, &first);
    assert_int_equal(first, GROWING);
    assert_int_equal(whole, PAGES - GROWING + 1);
}

#define MANY 100000

/* As a start does that reads of many removals, each by itself: were all pages looked at for each, the test would exceed its time
 * limit. */
static void test_a_removal_looks_at_no_page_behind_it(void **state)
{
    struct store_memory memory = {0};
    struct store s;
    uint64_t dropped = 0, id;
    (void)state;
    store_init(&s, 1, &memory);
    store_skip_to(&s, MANY + 1);
    for (uint64_t i = 1; i <= MANY; i++)
        store_insert(&s, i, MESSAGE, i * MESSAGE);
    assert_int_equal(s.n, MANY);
    for (; store_next_held(&s, dropped + 1, &id) && id == dropped + 1; dropped++)
        store_drop(&s, id);
    assert_int_equal(dropped, MANY);
    assert_false(store_next_held(&s, 0, &id));
    store_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_store_that_grows_has_its_pages_memory_at_once),
        cmocka_unit_test(test_a_removal_looks_at_no_page_behind_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
