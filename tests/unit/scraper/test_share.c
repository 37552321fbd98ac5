/* share: who has a target, and when a lease ends. The clock is an argument. */
#include "support/cm.h"

#include "scraper/share.h"

#define TARGETS 3000
#define TIMEOUT (10 * USEC_PER_SEC)

static const char *const names[] = {"a", "b", "c", "d"};

/* Sets in[i] for the targets that `own` has among the first n names. */
static void select_targets(bool *in, const char *own, const char *const *all, size_t n)
{
    struct share s = {0};
    share_set_members(&s, all, n, own);
    for (uint64_t i = 0; i < TARGETS; i++)
        in[i] = share_has(&s, i * UINT64_C(0x9e3779b97f4a7c15));
    share_free(&s);
}

/* Each target has one member, the shares are about equal, and a fourth member takes from each other without a move between
 * these. */
static void a_member_moves_only_its_share(void **state)
{
    (void)state;
    static bool three[3][TARGETS], four[4][TARGETS];
    size_t counts[4] = {0};
    for (size_t m = 0; m < 3; m++)
        select_targets(three[m], names[m], names, 3);
    for (size_t m = 0; m < 4; m++)
        select_targets(four[m], names[m], names, 4);
    for (size_t i = 0; i < TARGETS; i++) {
        assert_int_equal(three[0][i] + three[1][i] + three[2][i], 1);
        assert_int_equal(four[0][i] + four[1][i] + four[2][i] + four[3][i], 1);
        for (size_t m = 0; m < 4; m++)
            counts[m] += four[m][i];
        for (size_t m = 0; m < 3; m++)
            assert_true(!four[m][i] || three[m][i]);
    }
    for (size_t m = 0; m < 4; m++)
        assert_in_range(counts[m], TARGETS / 4 - TARGETS / 20, TARGETS / 4 + TARGETS / 20);
}

static void the_order_of_names_is_irrelevant(void **state)
{
    (void)state;
    static const char *const other[] = {"c", "a", "b"};
    struct share s = {0};
    assert_true(share_set_members(&s, names, 3, "b"));
    assert_false(share_set_members(&s, other, 3, "b"));
    assert_true(share_set_members(&s, other, 3, "c"));
    assert_true(share_set_members(&s, other, 2, "c"));
    share_free(&s);
}

/* A scraper without a node has no target, also if the list has its name: the node of another process. */
static void no_member(void **state)
{
    (void)state;
    struct share s = {0};
    assert_false(share_has(&s, 1));
    assert_true(share_set_members(&s, names, 3, NULL));
    for (uint64_t i = 0; i < 100; i++)
        assert_false(share_has(&s, i));
    share_set_members(&s, names, 2, "c");
    for (uint64_t i = 0; i < 100; i++)
        assert_false(share_has(&s, i));
    share_free(&s);
}

static void the_lease(void **state)
{
    (void)state;
    struct share s = {0};
    assert_false(share_is_certain(&s, 1));
    share_renew(&s, 100 * USEC_PER_SEC, TIMEOUT);
    usec_t end = 100 * USEC_PER_SEC + TIMEOUT / 3 * 2;
    assert_true(share_is_certain(&s, end - 1));
    assert_false(share_is_certain(&s, end));     /* a third of the timeout before the session may end */
    share_renew(&s, 99 * USEC_PER_SEC, TIMEOUT); /* an earlier request, answered later */
    assert_true(share_is_certain(&s, end - 1));
    assert_false(share_is_certain(&s, end));
    share_lose(&s);
    assert_false(share_is_certain(&s, 100 * USEC_PER_SEC));
    share_set_shard(&s, 2, 3);
    assert_true(share_is_certain(&s, INT64_MAX - 1));
    share_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_moves_only_its_share),
        cmocka_unit_test(the_order_of_names_is_irrelevant),
        cmocka_unit_test(no_member),
        cmocka_unit_test(the_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
