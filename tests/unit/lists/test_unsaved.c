/* unsaved: versions of items, logs of keys, walks over edges, and batches, without a store. */
#include "support/cm.h"

#include "lists/unsaved.h"

#include <stdio.h>

#define LIMIT 4

static struct unsaved u;
static const char *stored; /* the id of the only stored item */

static bool is_stored(struct bytes id, void *arg)
{
    assert_ptr_equal(arg, &u);
    return stored && bytes_equal_str(id, stored);
}

static int setup(void **state)
{
    (void)state;
    stored = NULL;
    unsaved_init(&u, LIMIT, is_stored, &u);
    return 0;
}

/* Nothing is left after the last batch. */
static int teardown(void **state)
{
    (void)state;
    unsaved_free(&u);
    assert_int_equal(u.memory, 0);
    assert_int_equal(u.n_keys + u.n_entries + u.n_edges, 0);
    assert_null(u.items);
    assert_null(u.edges);
    assert_null(u.authors);
    return 0;
}

static void add(const char *key, const char *id, const char *data, usec_t time, uint64_t sequence)
{
    struct unsaved_item *item = unsaved_put_item(&u, bytes_str(id), bytes_str(data), false, sequence, 1);
    unsaved_put(&u, bytes_str(key), item, time, sequence, 1);
    unsaved_item_release(&u, item);
}

static void remove_from(const char *key, const char *id, uint64_t sequence)
{
    struct unsaved_item *item = unsaved_item_name(&u, bytes_str(id));
    unsaved_put(&u, bytes_str(key), item, LIST_NO_TIME, sequence, 1);
    unsaved_item_release(&u, item);
}

/* Adds enough later items to let the key's log be merged at least once. */
static void add_many(const char *key, uint64_t sequence)
{
    char id[16];
    for (uint64_t i = 0; i < 5 * LIMIT; i++) {
        snprintf(id, sizeof id, "later%d", (int)i);
        add(key, id, "", 1000 + (usec_t)i, sequence + i);
    }
}

/* Returns the data of the last of the key's entries of an id, or NULL without such an entry. */
static const char *data_of(const char *key, const char *id, size_t *n)
{
    struct list list = {0};
    static char data[100];
    bool found = false;
    unsaved_append_all(&u, bytes_str(key), &list);
    *n = list.n;
    for (size_t i = 0; i < list.n; i++) {
        if (!bytes_equal_str(list.entries[i].id, id))
            continue;
        const struct unsaved_item *item = list.entries[i].item;
        found = true;
        snprintf(data, sizeof data, "%.*s", (int)item->data_len, item->text + item->id_len);
    }
    list_free(&list);
    return found ? data : NULL;
}

static const struct unsaved_item *find(const char *id)
{
    return unsaved_find_item(&u, bytes_str(id), (uint32_t)text_hash(bytes_str(id)));
}

static void test_a_log_is_merged(void **state)
{
    (void)state;
    size_t n;
    add("k", "old", "data", 1, 1);
    add_many("k", 100);
    assert_null(data_of("k", "old", &n));
    assert_in_range(n, LIMIT, 3 * LIMIT);
    assert_non_null(find("old")); /* until it is saved */
}

static void test_newer_data_of_a_stored_item_stays(void **state)
{
    (void)state;
    size_t n;
    stored = "old";
    add("k", "old", "newer", 1, 1);
    add_many("k", 100);
    assert_string_equal(data_of("k", "old", &n), "newer");
}

static void test_the_log_of_a_key_in_the_batch_stays(void **state)
{
    (void)state;
    size_t n;
    add("k", "old", "older", 2000, 1);
    unsaved_begin_batch(&u, 2, SIZE_MAX); /* the item and the key */
    add("k", "old", "newer", 1, 2);
    add_many("k", 100);
    assert_string_equal(data_of("k", "old", &n), "newer");
    unsaved_end_batch(&u);
    assert_string_equal(data_of("k", "old", &n), "newer");
}

static void test_versions(void **state)
{
    (void)state;
    size_t n;
    add("k", "i", "first", 1, 1);
    add("other", "i", "second", 1, 2);
    assert_string_equal(data_of("k", "i", &n), "first");
    const struct unsaved_item *newest = find("i");
    assert_int_equal(newest->added, 2);
    unsaved_item_release(&u, unsaved_put_item(&u, BYTES_LITERAL("i"), BYTES_NONE, true, 3, 1));
    add("third", "i", "fourth", 1, 4);
    newest = find("i");
    assert_int_equal(newest->added, 4);
    assert_int_equal(newest->removed, 3);
}

static void test_a_removal_keeps_the_data(void **state)
{
    (void)state;
    size_t n;
    stored = "i";
    add("k", "i", "data", 2000, 1);
    remove_from("k", "i", 2);
    add_many("k", 100);
    assert_string_equal(data_of("k", "i", &n), "data");
}

static void test_a_removal_waits_for_its_entry(void **state)
{
    (void)state;
    size_t n;
    remove_from("k", "i", 2);
    add_many("k", 100);
    assert_non_null(data_of("k", "i", &n));
}

static void follow(const char *follower, bool follows, uint64_t sequence)
{
    unsaved_put_edge(&u, BYTES_LITERAL("a"), bytes_str(follower), follows, sequence, 1);
}

static void assert_next(const char *follower)
{
    const struct unsaved_edge *edge = unsaved_walk_next(&u);
    assert_non_null(edge);
    assert_true(bytes_equal_str(bytes_of(edge->text + 2, edge->follower_len), follower));
}

static void test_edges_may_be_saved_during_a_walk(void **state)
{
    (void)state;
    follow("f1", true, 1);
    follow("f2", false, 2);
    follow("f3", true, 3);
    follow("f2", true, 4);
    unsaved_walk_begin(&u, BYTES_LITERAL("a"));
    assert_next("f1");
    unsaved_begin_batch(&u, 3, SIZE_MAX); /* with the next edge */
    unsaved_end_batch(&u);
    assert_next("f2");
    assert_null(unsaved_walk_next(&u));
    unsaved_walk_begin(&u, BYTES_LITERAL("b"));
    assert_null(unsaved_walk_next(&u));
}

static void test_batches_are_bounded(void **state)
{
    (void)state;
    char key[16], data[1000] = {0};
    memset(data, 'x', sizeof data - 1);
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "k%d", i);
        add(key, key, data, 1, (uint64_t)i + 1);
    }
    unsaved_begin_batch(&u, 100, 6000); /* an item and its key count its data each */
    assert_int_equal(unsaved_oldest(&u)->sequence, 4);
    unsaved_end_batch(&u);
    unsaved_begin_batch(&u, 4, SIZE_MAX);
    assert_int_equal(unsaved_oldest(&u)->sequence, 6);
    unsaved_end_batch(&u);
    assert_int_equal(u.n_keys, 5);
    assert_in_range(u.memory, 5 * 1000, 5 * 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_log_is_merged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newer_data_of_a_stored_item_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_log_of_a_key_in_the_batch_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_versions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_removal_keeps_the_data, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_removal_waits_for_its_entry, setup, teardown),
        cmocka_unit_test_setup_teardown(test_edges_may_be_saved_during_a_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_batches_are_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
