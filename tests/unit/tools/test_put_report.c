/* put_report: the numbers and texts of a follower are read as they were written. */
#include "support/cm.h"
#include "support/test_dir.h"
#include "tools/put/put_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int n_read;
static struct put_report written;

static void compare(const struct put_report *r, void *arg)
{
    assert_ptr_equal(arg, &n_read);
    assert_string_equal(r->queue, written.queue);
    assert_string_equal(r->producer, written.producer);
    assert_string_equal(r->rejects ? r->rejects : "", written.rejects ? written.rejects : "");
    assert_string_equal(r->why, written.why);
    assert_memory_equal(r->numbers, written.numbers, sizeof r->numbers);
    n_read++;
}

static void test_long_texts(void **state)
{
    char dir[64], put[80], path[100], why[1000], rejects[4000];
    (void)state;
    make_test_dir(dir, sizeof dir);
    snprintf(put, sizeof put, "%s/put", dir);
    snprintf(path, sizeof path, "%s/q.p.prom", put);
    assert_int_equal(mkdir(put, 0777), 0);
    for (size_t length = 0; length < sizeof why; length += 111) {
        memset(why, 'w', sizeof why);
        memset(rejects, '/', sizeof rejects);
        why[length] = rejects[4 * length] = '\0';
        written = (struct put_report){.queue = "q",
            .producer = "p",
            .rejects = length > 0 ? rejects : NULL,
            .why = why,
            .numbers = {1, length, 3, UINT64_MAX, 75}};
        assert_int_equal(put_report_write(path, &written), 0);
        n_read = 0;
        put_report_read(dir, compare, &n_read);
        assert_int_equal(n_read, 1);
    }
    assert_int_equal(unlink(path) + rmdir(put) + rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
