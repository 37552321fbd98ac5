/* lists: opens, copies, stamps and damage; an author with many followers; and the forms of operations and lists. */
#include "support/cm.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include "lists/list_code.h"
#include "lists/lists.h"

#include <stdio.h>
#include <unistd.h>

#define FOLLOWERS 5000

static char dir[64];
static struct lists *lists;
static usec_t now;
static int done;

static void ignore(void *arg)
{
    (void)arg;
}

static struct lists *open_lists(const char *where, struct error *error)
{
    return lists_open(
        &(struct lists_config){.dir = where, .keep = 10, .memory = 1 << 20, .notify = ignore}, now, error);
}

static int setup(void **state)
{
    (void)state;
    struct error error;
    make_test_dir(dir, sizeof dir);
    lists = open_lists(dir, &error);
    return lists ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    lists_close(&lists);
    remove_tree(dir);
    return 0;
}

static void on_done(struct lists_change *c, enum journal_result r)
{
    assert_int_equal(r, JOURNAL_OK);
    done++;
    buf_free(&c->ops);
}

static void turn(void)
{
    lists_poll(lists, ++now);
    lists_tick(lists, now);
}

static void change(
    struct lists_change *c, enum list_op_type type, const char *id, const char *data, struct bytes names)
{
    *c = (struct lists_change){.done = on_done};
    list_op_append(&c->ops, &(struct list_op){.type = type,
                                .id = bytes_str(id),
                                .data = bytes_str(data),
                                .names = names,
                                .time = *data ? 1 : 0});
    assert_int_equal(lists_change(lists, c, 1), JOURNAL_OK);
}

static void make(enum list_op_type type, const char *id, const char *data, struct bytes names)
{
    struct lists_change c;
    int until = done + 1;
    change(&c, type, id, data, names);
    for (usec_t end = 0; done < until && is_early(&end);)
        turn();
    assert_int_equal(done, until);
}

static void save(void)
{
    for (usec_t end = 0; lists_stats(lists).oldest_change != 0 && is_early(&end); usleep(100))
        turn();
    assert_int_equal(lists_stats(lists).oldest_change, 0);
}

static void count(const struct lists_shown *item, void *n)
{
    (void)item;
    ++*(size_t *)n;
}

static size_t shown(const char *key)
{
    size_t n = 0;
    struct error error;
    assert_int_equal(lists_get(lists, bytes_str(key), 100, NULL, count, &n, &error), LISTS_OK);
    return n;
}

static void reopen_fails(enum lists_result code)
{
    struct error error;
    struct lists *again = open_lists(dir, &error);
    assert_null(again);
    assert_int_equal(error.code, code);
}

static void test_many_followers(void **state)
{
    (void)state;
    struct buf names = {0};
    struct lists_change c;
    char name[16];
    for (int i = 0; i < FOLLOWERS; i++) {
        snprintf(name, sizeof name, "f%d", i);
        list_name_append(&names, bytes_str(name));
        if (i == FOLLOWERS / 2) {
            make(LIST_FOLLOW, "author", "", buf_bytes(&names));
            save();
            buf_clear(&names);
        }
    }
    make(LIST_FOLLOW, "author", "", buf_bytes(&names)); /* half saved, half not */
    int before = done;
    uint64_t entries = lists_stats(lists).entries;
    change(&c, LIST_ADD_BY_AUTHOR, "item", "data", BYTES_LITERAL("\006author"));
    for (usec_t end = 0; done == before && is_early(&end);) {
        turn();
        uint64_t more = lists_stats(lists).entries - entries;
        assert_in_range(more, 0, LISTS_TURN + 100); /* each turn is bounded, */
        assert_in_range(shown("f7"), 0, 1);         /* and reads are answered in between */
        entries += more;
    }
    assert_int_equal(done, before + 1);
    save();
    for (int i = 0; i < FOLLOWERS; i += 7) {
        snprintf(name, sizeof name, "f%d", i);
        assert_int_equal(shown(name), 1);
    }
    assert_int_equal(lists_stats(lists).items, 1);
    assert_int_equal(lists_stats(lists).keys, FOLLOWERS);
    buf_free(&names);
}

static void test_every_entry_of_a_batch_is_saved(void **state)
{
    (void)state;
    struct buf names = {0};
    struct error error;
    char name[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "k%d", i);
        list_name_append(&names, bytes_str(name));
    }
    make(LIST_ADD, "item", "data", buf_bytes(&names));
    save();
    lists_close(&lists);

    lists = open_lists(dir, &error); /* the store has all, and the journal nothing to repeat */
    assert_non_null(lists);
    assert_int_equal(lists_stats(lists).ops, 0);
    assert_int_equal(lists_stats(lists).keys, 1000);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(shown(name), 1);
    }
    buf_free(&names);
}

static void make_add(const char *id, usec_t time, struct bytes names)
{
    struct lists_change c = {.done = on_done};
    int until = done + 1;
    list_op_append(
        &c.ops, &(struct list_op){.type = LIST_ADD, .id = bytes_str(id), .names = names, .time = time});
    assert_int_equal(lists_change(lists, &c, 1), JOURNAL_OK);
    for (usec_t end = 0; done < until && is_early(&end);)
        lists_poll(lists, now); /* saves nothing */
    assert_int_equal(done, until);
}

static void copy_id(const struct lists_shown *item, void *text)
{
    snprintf(text, 16, "%.*s", (int)item->id.len, item->id.ptr);
}

static void assert_first(const char *id)
{
    char text[16] = "";
    struct error error;
    assert_int_equal(lists_get(lists, BYTES_LITERAL("key"), 1, NULL, copy_id, text, &error), LISTS_OK);
    assert_string_equal(text, id);
}

/* The item keeps its late time, although the log of the key has many later entries than the new one. */
static void test_an_item_returns_to_a_busy_list(void **state)
{
    (void)state;
    char id[24];
    struct error error;
    lists_close(&lists);
    lists = lists_open(
        &(struct lists_config){.dir = dir, .keep = 10, .memory = 1 << 20, .delay = 1000, .notify = ignore},
        now, &error);
    make_add("item", 1000, BYTES_LITERAL("\003key"));
    make(LIST_REMOVE_FROM, "item", "", BYTES_LITERAL("\003key"));
    now += 1000;
    save();
    uint64_t saves = lists_stats(lists).saves;
    make_add("item", 1, BYTES_LITERAL("\003key\005other"));
    for (int i = 0; i < 60; i++) {
        snprintf(id, sizeof id, "later%d", i);
        make_add(id, 500 + i, BYTES_LITERAL("\003key"));
    }
    assert_int_equal(lists_stats(lists).saves, saves);
    assert_first("item");
    now += 1000;
    save();
    assert_first("item");
}

static void test_stamps_increase(void **state)
{
    (void)state;
    struct error error;
    usec_t stamp = lists_stamp(lists, 1000);
    assert_int_equal(stamp, 1000);
    assert_int_equal(lists_stamp(lists, 1000), 1001);
    assert_int_equal(lists_stamp(lists, 5), 1002); /* the clock went back */
    make(LIST_ADD, "item", "data", BYTES_LITERAL("\003key"));
    lists_close(&lists);
    lists = open_lists(dir, &error);
    assert_non_null(lists);
    assert_true(lists_stamp(lists, 5) > 1002);
}

static void test_a_copy_equals(void **state)
{
    (void)state;
    char copy[64], from[100], to[100];
    struct error error;
    make(LIST_ADD, "item", "data", BYTES_LITERAL("\003key"));
    save();
    make(LIST_ADD, "other", "data", BYTES_LITERAL("\003key"));
    make_test_dir(copy, sizeof copy);
    assert_int_equal(list_store_copy(dir, copy, &error), LISTS_OK); /* while the lists are open */
    lists_close(&lists);
    snprintf(from, sizeof from, "%s/journals", dir);
    snprintf(to, sizeof to, "%s/journals", copy);
    copy_tree(from, to, false);
    lists = open_lists(copy, &error);
    assert_non_null(lists);
    assert_int_equal(shown("key"), 2);
    lists_close(&lists);
    remove_tree(copy);
}

static void test_store_and_journal_belong_together(void **state)
{
    (void)state;
    char path[100], aside[100];
    make(LIST_ADD, "item", "data", BYTES_LITERAL("\003key"));
    save();
    lists_close(&lists);
    snprintf(path, sizeof path, "%s/journals", dir);
    snprintf(aside, sizeof aside, "%s/aside", dir);
    assert_int_equal(rename(path, aside), 0);
    reopen_fails(LISTS_DAMAGED); /* a new journal */
    remove_tree(path);
    assert_int_equal(rename(aside, path), 0);
    snprintf(path, sizeof path, "%s/lists.mdb", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 3000; i++)
        fputs("no store", f);
    assert_int_equal(fclose(f), 0);
    reopen_fails(LISTS_DAMAGED);
}

static void test_operations_are_checked(void **state)
{
    (void)state;
    struct list_op op = {.type = LIST_ADD, .id = BYTES_LITERAL("i"), .names = BYTES_LITERAL("\001k")}, taken;
    struct buf ops = {0};
    assert_null(list_op_error(&op));
    list_op_append(&ops, &op);
    for (size_t n = 0; n < ops.len; n++) { /* no prefix is an operation */
        struct bytes part = bytes_of(ops.ptr, n);
        assert_false(list_op_take(&part, &taken));
        assert_int_equal(part.len, n);
    }
    struct bytes all = buf_bytes(&ops);
    assert_true(list_op_take(&all, &taken));
    assert_int_equal(all.len, 0);
    static const struct list_op bad[] = {
        {.type = (enum list_op_type)'x', .id = {"i", 1}, .names = {"\001k", 2}},
        {.type = LIST_ADD, .id = {"", 0}, .names = {"\001k", 2}},
        {.type = LIST_ADD, .id = {"i", 1}},
        {.type = LIST_ADD, .id = {"i", 1}, .names = {"\000k", 2}},
        {.type = LIST_ADD, .id = {"i", 1}, .names = {"\002k", 2}},
        {.type = LIST_ADD, .id = {"i", 1}, .names = {"\001k", 2}, .time = -1},
        {.type = LIST_ADD_BY_AUTHOR, .id = {"i", 1}, .names = {"\001a\001b", 4}},
        {.type = LIST_REMOVE, .id = {"i", 1}, .names = {"\001k", 2}},
        {.type = LIST_REMOVE_FROM, .id = {"i", 1}, .names = {"\001k", 2}, .data = {"x", 1}},
        {.type = LIST_FOLLOW, .id = {"i", 1}, .names = {"\001k", 2}, .time = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_non_null(list_op_error(&bad[i]));
    buf_free(&ops);
}

/* Random bytes are refused or decoded, and never read beyond their end. */
static void test_damaged_code(void **state)
{
    (void)state;
    struct list list = {0};
    struct list_item item;
    unsigned seed = 1, decoded = 0;
    for (int round = 0; round < 20000; round++) {
        size_t n = (size_t)rand_r(&seed) % 40;
        char *code = malloc(n + 1); /* of this size, for the address sanitizer */
        for (size_t i = 0; i < n; i++)
            code[i] = (char)(rand_r(&seed) % (rand_r(&seed) % 2 ? 8 : 256));
        decoded += list_decode(&list, bytes_of(code, n));
        (void)!list_item_decode(&item, bytes_of(code, n));
        free(code);
    }
    assert_true(decoded > 0);
    list_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many_followers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_entry_of_a_batch_is_saved, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_item_returns_to_a_busy_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stamps_increase, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_copy_equals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_store_and_journal_belong_together, setup, teardown),
        cmocka_unit_test(test_operations_are_checked),
        cmocka_unit_test(test_damaged_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
