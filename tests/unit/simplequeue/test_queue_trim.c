/* What a trim of the journal leaves. Reads and KEEP records wait in system calls until the test lets them go on. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "base/io.h"
#include "simplequeue/queue/queues.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE 10000
#define KEPT 6        /* messages, of the first page */
#define MESSAGES 60   /* in total */
#define MEMORY 150000 /* of about two pages */
#define SEGMENT (16 << 10)

static char dir[64], text[MESSAGE];
static struct queues *set;
static struct named_queue *q;
static struct io_ops gated;
static atomic_bool holds_reads, holds_kept;

static void wait_while(const atomic_bool *held)
{
    while (atomic_load(held))
        usleep(100);
}

static ssize_t gated_pread(int fd, void *p, size_t n, off_t from)
{
    wait_while(&holds_reads);
    return io_system.pread(fd, p, n, from);
}

/* Only the KEEP record of a page is so long and not of zeros. */
static ssize_t gated_pwrite(int fd, const void *p, size_t n, off_t to)
{
    if (n > KEPT * MESSAGE && memcmp(p, "\0\0\0\0\0\0\0", 8) != 0)
        wait_while(&holds_kept);
    return io_system.pwrite(fd, p, n, to);
}

static void notify(void *arg)
{
    (void)arg;
}

static int setup(void **state)
{
    char error[512];
    enum queue_result r;
    struct queue_now now = {1, 1};
    struct queues_config config = {.data_dir = dir,
        .limits = {.max_memory = MEMORY},
        .max_queues = 1,
        .segment_bytes = SEGMENT,
        .notify = notify};
    (void)state;
    make_test_dir(dir, sizeof dir);
    gated = io_system;
    gated.pread = gated_pread;
    gated.pwrite = gated_pwrite;
    io = &gated;
    assert_non_null(set = queues_new(&config, error, sizeof error));
    while (queues_recover(set, now, error, sizeof error) == QUEUES_MORE)
        ;
    assert_non_null(q = queues_get(set, "default", now, &r, error, sizeof error));
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    atomic_store(&holds_reads, false);
    atomic_store(&holds_kept, false);
    queues_free(&set);
    io = &io_system;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static bool is_spilled(uint64_t id)
{
    return store_is_spilled(queue_store(named_queue_core(q)), id);
}

static uint64_t under_way(void)
{
    const struct journal *j = named_queue_journal(q);
    return journal_accepted_end(j) - journal_committed_end(j);
}

static void poll_until(bool (*is_reached)(void))
{
    for (usec_t end = 0; !is_reached();) {
        assert_true(is_early(&end));
        usleep(100);
        journal_set_poll(queues_journals(set));
    }
}

static bool keep_is_under_way(void)
{
    return under_way() > KEPT * MESSAGE;
}

static bool keep_is_committed(void)
{
    return under_way() == 0;
}

static bool erasure_has_ended(void)
{
    return named_queue_erasure(q).state != QUEUE_ERASE_RUNNING;
}

static void load(uint64_t id)
{
    enum queue_result r;
    usec_t end = 0;
    while ((r = named_queue_prepare_message(q, id)) == QUEUE_LOADING && is_early(&end)) {
        usleep(100);
        journal_set_poll(queues_journals(set));
    }
    if (r != QUEUE_OK)
        fail_msg("message %llu: %d, %s", (unsigned long long)id, r, named_queue_failure(q));
}

/* A page is spilled and loaded again while its KEEP record is under way. The load reads the page's older records. They stay until it
 * ends, although the KEEP record is committed before. */
static void a_load_during_a_rewrite(void **state)
{
    struct queue_now now = {1, 1};
    struct bytes message = bytes_of(text, sizeof text);
    struct queue_put put = {.messages = &message, .n = 1};
    struct id_ranges ids = {0};
    struct id_range all = {1, KEPT};
    (void)state;
    memset(text, 'a', sizeof text);
    for (int i = 0; i < MESSAGES; i++) {
        assert_int_equal(named_queue_put(q, &put, now, NULL, NULL, NULL), QUEUE_OK);
        queues_flush(set);
        if (i + 1 != KEPT)
            continue;
        uint64_t lease = queue_reserve(named_queue_core(q), "r", KEPT, SIZE_MAX, 100, &ids);
        assert_int_equal(ids.count, KEPT);
        assert_int_equal(
            named_queue_bury(q, lease, &all, 1, BYTES_LITERAL("why"), now, NULL, NULL), QUEUE_OK);
    }
    assert_true(is_spilled(1));
    atomic_store(&holds_kept, true);
    assert_int_equal(named_queue_erase(q), QUEUE_OK);
    poll_until(keep_is_under_way);
    for (uint64_t id = KEPT + 1; !is_spilled(1); id++) {
        assert_true(id <= MESSAGES);
        load(id);
    }
    atomic_store(&holds_reads, true);
    assert_int_equal(named_queue_prepare_message(q, 1), QUEUE_LOADING);
    atomic_store(&holds_kept, false);
    poll_until(keep_is_committed);
    atomic_store(&holds_reads, false);
    for (uint64_t id = 1; id <= MESSAGES; id++) {
        load(id);
        struct bytes is = queue_message(named_queue_core(q), id, NULL);
        assert_true(bytes_equal(is, message));
    }
    poll_until(erasure_has_ended);
    assert_int_equal(named_queue_erasure(q).state, QUEUE_ERASE_DONE);
    id_ranges_free(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_load_during_a_rewrite, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
