/* named_queue over a real journal: refusals of the storage, retries on the way, and what an opening finds. */
#include "support/cm.h"

#include "base/io.h"
#include "simplequeue/queue/queues.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char dir[64];
static struct queues *set;
static struct named_queue *q;
static int fail_with; /* errno of every write, 0: none fails; */
static int bits_fail; /* of one to the file of bits, this instead */
static struct io_ops faulty;

static bool holds_bits(int fd)
{
    char link[64], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path);
    return n > 5 && memcmp(path + n - 5, "/gone", 5) == 0;
}

static int holes; /* made in files */
static char long_text[70001];

/* The file of bits: errno of making it and of allocating in it, and what was allocated. Then only there can be written, if it is tight. */
static int making_fails, allocating_fails;
static struct {
    off_t from, to;
} rooms[8];
static size_t n_rooms;
static bool tight;

static int faulty_open(const char *path, int flags, mode_t mode)
{
    size_t n = strlen(path);
    errno = making_fails;
    return making_fails && flags & O_CREAT && n > 5 && memcmp(path + n - 5, "/gone", 5) == 0
               ? -1
               : io_system.open(path, flags, mode);
}

static int faulty_fallocate(int fd, int mode, off_t at, off_t length)
{
    holes += (mode & FALLOC_FL_PUNCH_HOLE) != 0;
    if (mode == 0 && holds_bits(fd)) {
        errno = allocating_fails;
        if (allocating_fails)
            return -1;
        rooms[n_rooms % 8].from = at;
        rooms[n_rooms++ % 8].to = at + length;
    }
    return io_system.fallocate(fd, mode, at, length);
}

static bool has_room(off_t at)
{
    for (size_t i = 0; i < n_rooms && i < 8; i++)
        if (at >= rooms[i].from && at < rooms[i].to)
            return true;
    return !tight;
}

static ssize_t faulty_pwrite(int fd, const void *p, size_t n, off_t at)
{
    int fails = 0;
    if (fail_with || bits_fail)
        fails = !holds_bits(fd) ? fail_with : bits_fail ? bits_fail : has_room(at) ? 0 : ENOSPC;
    if (fails) {
        errno = fails;
        return -1;
    }
    return io_system.pwrite(fd, p, n, at);
}

static bool unlink_fails;

static int faulty_unlink(const char *path)
{
    errno = EIO;
    return unlink_fails ? -1 : io_system.unlink(path);
}

static void notify(void *arg)
{
    (void)arg;
}

static struct queue_now at(usec_t seconds)
{
    return (struct queue_now){seconds * USEC_PER_SEC, (seconds + 1000000) * USEC_PER_SEC};
}

static void open_set(void)
{
    char error[512];
    enum queue_result r;
    struct queues_config config = {.data_dir = dir,
        .max_queues = 5,
        .sync_ms = JOURNAL_SYNC_NEVER,
        .segment_bytes = 1 << 16,
        .notify = notify};
    assert_non_null(set = queues_new(&config, error, sizeof error));
    while (queues_recover(set, at(1), error, sizeof error) == QUEUES_MORE)
        ;
    assert_non_null(q = queues_get(set, "default", at(1), &r, error, sizeof error));
}

static void reopen(void)
{
    queues_free(&set);
    open_set();
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/millrace-unit-queue-XXXXXX");
    assert_non_null(mkdtemp(dir));
    faulty = io_system;
    faulty.pwrite = faulty_pwrite;
    faulty.open = faulty_open;
    faulty.fallocate = faulty_fallocate;
    faulty.unlink = faulty_unlink;
    unlink_fails = false;
    io = &faulty;
    fail_with = bits_fail = making_fails = allocating_fails = 0;
    tight = false;
    n_rooms = 0;
    open_set();
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    queues_free(&set);
    io = &io_system;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static struct queue_outcome outcomes[64];
static size_t n_outcomes;

static void note(const struct queue_outcome *outcome, void *arg)
{
    (void)arg;
    outcomes[n_outcomes++] = *outcome;
}

static const struct queue_state *state_of(void)
{
    return queue_state(named_queue_core(q));
}

static usec_t put_at = 2;

static void put_marked(const char *text, const char *producer, uint64_t mark, uint64_t next)
{
    struct bytes message = bytes_str(text);
    struct queue_put put = {&message, 1, bytes_str(producer), mark, next, 0};
    assert_int_equal(named_queue_put(q, &put, at(put_at), note, NULL, NULL), QUEUE_OK);
}

static void put(const char *text)
{
    put_marked(text, "", 0, 0);
}

static uint64_t reserve_all(struct id_ranges *ids)
{
    id_ranges_free(ids);
    return queue_reserve(named_queue_core(q), "r", 100, SIZE_MAX, at(60).monotonic, ids);
}

static void flush(void)
{
    n_outcomes = 0;
    queues_flush(set);
}

/* Nothing is ready before the commit, and all of it is after. */
static void shown_when_committed(void **state)
{
    (void)state;
    struct id_ranges ids = {0};
    put("a");
    put("b");
    assert_int_equal(state_of()->n[MESSAGE_PENDING], 2);
    assert_int_equal(reserve_all(&ids), 0);
    flush();
    assert_int_equal(n_outcomes, 2);
    assert_int_equal(outcomes[1].first_id, 2);
    assert_int_not_equal(reserve_all(&ids), 0);
    id_ranges_free(&ids);
}

/* A full disk refuses and heals; ids of what it refused are given to what comes next, here and after a
 * restart. */
static void full_disk(void **state)
{
    (void)state;
    put("a");
    flush();
    fail_with = ENOSPC;
    put("b");
    put_marked("c", "p", 0, 5);
    put_marked("c", "p", 0, 5);
    flush();
    assert_int_equal(n_outcomes, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(outcomes[i].result, QUEUE_NO_SPACE);
    assert_int_equal(queue_depth(named_queue_core(q)), 1);
    fail_with = 0;
    struct bytes soon = BYTES_LITERAL("soon");
    struct queue_put again = {.messages = &soon, .n = 1};
    assert_int_equal(named_queue_put(q, &again, at(put_at), note, NULL, NULL), QUEUE_NO_SPACE);
    put_at += 2;
    put_marked("d", "p", 0, 5);
    put_marked("d", "p", 0, 5);
    flush();
    assert_int_equal(outcomes[0].result, QUEUE_OK);
    assert_int_equal(outcomes[0].first_id, 2);
    assert_false(outcomes[0].duplicate);
    assert_true(outcomes[1].duplicate);
    reopen();
    assert_int_equal(state_of()->next_id, 3);
    assert_int_equal(state_of()->n[MESSAGE_READY], 2);
}

/* An ack that the disk refuses leaves the message under its lease; one that failed storage does, too. */
static void refused_acks(void **state)
{
    (void)state;
    struct id_ranges ids = {0};
    put("a");
    put("b");
    flush();
    uint64_t lease = reserve_all(&ids);
    struct id_range first = {1, 1}, second = {2, 2};
    int errors[] = {ENOSPC, EIO};
    enum queue_result results[] = {QUEUE_NO_SPACE, QUEUE_LATCHED};
    for (size_t i = 0; i < 2; i++) {
        fail_with = bits_fail = errors[i];
        assert_int_equal(named_queue_ack(q, lease, &first, 1, at(3), note, NULL), QUEUE_OK);
        assert_int_equal(state_of()->n[MESSAGE_BUSY], 1);
        flush();
        assert_int_equal(outcomes[0].result, results[i]);
        assert_int_equal(state_of()->n[MESSAGE_LEASED], 2);
    }
    assert_non_null(named_queue_failure(q));
    fail_with = bits_fail = 0;
    assert_int_equal(named_queue_ack(q, lease, &second, 1, at(3), note, NULL), QUEUE_LATCHED);
    assert_int_equal(state_of()->n[MESSAGE_LEASED], 2);
    id_ranges_free(&ids);
    reopen();
    assert_int_equal(state_of()->n[MESSAGE_READY], 2);
}

static uint64_t lease_now;

static void ack(uint64_t id)
{
    struct id_range range = {id, id};
    assert_int_equal(named_queue_ack(q, lease_now, &range, 1, at(3), note, NULL), QUEUE_OK);
}

static void delay(uint64_t id)
{
    struct id_range range = {id, id};
    usec_t second = USEC_PER_SEC;
    assert_int_equal(named_queue_delay(q, lease_now, &range, 1, 100 * second, at(3), note, NULL), QUEUE_OK);
}

static void bury(uint64_t id)
{
    struct id_range range = {id, id};
    struct bytes reason = BYTES_LITERAL("why");
    assert_int_equal(named_queue_bury(q, lease_now, &range, 1, reason, at(3), note, NULL), QUEUE_OK);
}

static void kick(uint64_t n)
{
    assert_int_equal(named_queue_kick(q, n, at(3), note, NULL), QUEUE_OK);
}

static void come_due(uint64_t seconds)
{
    queues_tick(set, at((usec_t)seconds));
}

static void every_record_recovers(void **state)
{
    static const struct {
        void (*fn)(uint64_t arg);
        uint64_t arg, ready, delayed, buried, next_id;
    } steps[] = {
        {ack, 1, 4, 0, 0, 6},
        {delay, 2, 3, 1, 0, 6},
        {bury, 3, 2, 1, 1, 6},
        {bury, 4, 1, 1, 2, 6},
        {come_due, 102, 1, 1, 2, 6},
        {come_due, 104, 2, 0, 2, 7},
        {kick, 5, 4, 0, 0, 9},
        {ack, 7, 3, 0, 0, 9},
    };
    struct id_ranges ids = {0};
    uint64_t leases = 0;
    (void)state;
    for (int i = 0; i < 5; i++)
        put("m");
    flush();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        lease_now = reserve_all(&ids);
        assert_true(lease_now > leases);
        leases = lease_now;
        steps[i].fn(steps[i].arg);
        flush();
        uint64_t epoch;
        queue_release(named_queue_core(q), "r", &epoch);
        reopen();
        assert_int_equal(state_of()->n[MESSAGE_READY], steps[i].ready);
        assert_int_equal(state_of()->n[MESSAGE_DELAYED], steps[i].delayed);
        assert_int_equal(state_of()->n[MESSAGE_BURIED], steps[i].buried);
        assert_int_equal(state_of()->next_id, steps[i].next_id);
    }
    id_ranges_free(&ids);
}

/* All is acknowledged on a full disk, which gives the oldest segment back although the record of the lease numbers in it finds no room
 * elsewhere. */
static void bits_let_go_of_segments(void **state)
{
    struct id_ranges ids = {0};
    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    put("a");
    put(long_text);
    flush();
    put_at += 2;
    put("b");
    flush();
    lease_now = reserve_all(&ids);
    fail_with = ENOSPC;
    for (uint64_t id = 3; id > 0; id--)
        ack(id);
    flush();
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(outcomes[i].result, QUEUE_OK);
    assert_true(journal_earliest(named_queue_journal(q)) > 70000);
    assert_null(named_queue_failure(q));
    fail_with = 0;
    reopen();
    assert_int_equal(queue_depth(named_queue_core(q)), 0);
    assert_int_equal(state_of()->next_id, 4);
    id_ranges_free(&ids);
}

/* In the next life that id is the last. */
static void last_id_is(uint64_t id)
{
    char path[128], error[256], journal[JOURNAL_ID_TEXT];
    struct id_range last = {id, id};
    snprintf(journal, sizeof journal, "%s", named_queue_id(q));
    queues_free(&set);
    snprintf(path, sizeof path, "%s/queues/default", dir);
    struct gone *g = gone_open(path, journal, false, error, sizeof error);
    assert_non_null(g);
    assert_int_equal(gone_set(g, &(struct id_ranges){.at = &last, .n = 1, .count = 1}), 0);
    gone_free(&g);
    open_set();
}

/* As where the records behind a message's were appended before it was committed, and its own is trimmed. */
static void the_last_id_may_be_in_the_bits_alone(void **state)
{
    (void)state;
    put("a");
    flush();
    last_id_is(7);
    assert_int_equal(state_of()->next_id, 8);
    assert_int_equal(state_of()->n[MESSAGE_READY], 1);
}

static void wait_until_trimmed(void)
{
    while (!journal_trim_is_done(named_queue_journal(q))) {
        queues_poll(set);
        sched_yield();
    }
}

/* Segment after segment is emptied until bits are given back, which waits for a thread to remove the files. */
static void turn_over(void)
{
    struct id_ranges ids = {0};
    holes = 0;
    for (size_t i = 0; i < 2000 && holes == 0; i++) {
        put(long_text);
        flush();
        put_at += 2;
        lease_now = reserve_all(&ids);
        assert_int_equal(named_queue_ack(q, lease_now, ids.at, 1, at(3), note, NULL), QUEUE_OK);
        flush();
        wait_until_trimmed();
    }
    id_ranges_free(&ids);
}

static void put_many(size_t n)
{
    struct bytes *all = mem_alloc(n * sizeof *all);
    struct queue_put many = {.messages = all, .n = n};
    for (size_t i = 0; i < n; i++)
        all[i] = bytes_str("x");
    assert_int_equal(named_queue_put(q, &many, at(put_at), note, NULL, NULL), QUEUE_OK);
    flush();
    free(all);
}

enum { MANY = 40000 };

/* A long one is leased, and the last of those behind it in a segment; bits alone say that the others are gone. The disk is full. */
static void mark_many_gone(void)
{
    struct id_ranges ids = {0};
    struct id_range most = {2, MANY};
    memset(long_text, 'x', sizeof long_text - 1);
    put(long_text);
    flush();
    put_many(MANY);
    lease_now = queue_reserve(named_queue_core(q), "r", MANY + 1, SIZE_MAX, at(60).monotonic, &ids);
    assert_int_equal(ids.count, MANY + 1);
    id_ranges_free(&ids);
    fail_with = ENOSPC;
    assert_int_equal(named_queue_ack(q, lease_now, &most, 1, at(3), note, NULL), QUEUE_OK);
    flush();
    assert_int_equal(outcomes[0].result, QUEUE_OK);
}

/* A segment that stays holds more messages than a block has bits, of which all but the last are said to be gone by bits alone: those stay
 * while what they speak of is in the journal. */
static void bits_stay_with_their_messages(void **state)
{
    (void)state;
    mark_many_gone();
    ack(1);
    flush();
    assert_int_equal(outcomes[0].result, QUEUE_OK);
    assert_true(journal_earliest(named_queue_journal(q)) > 70000);
    fail_with = 0;
    reopen();
    assert_int_equal(queue_depth(named_queue_core(q)), 1);
    turn_over();
    assert_int_equal(holes, 1);
}

/* A segment that holds messages which bits alone say to be gone is let go of, but its file cannot be removed: the next
 * opening finds it, so it must find the bits too. */
static void bits_outlive_a_segment_that_cannot_be_removed(void **state)
{
    (void)state;
    mark_many_gone();
    fail_with = 0;
    ack(1);
    flush();
    wait_until_trimmed();
    uint64_t earliest = journal_earliest(named_queue_journal(q));
    assert_true(earliest > 70000);
    unlink_fails = true;
    put_at += 2;
    put(long_text);
    flush();
    ack(MANY + 1);
    flush();
    assert_true(journal_earliest(named_queue_journal(q)) > earliest);
    reopen();
    assert_int_equal(queue_depth(named_queue_core(q)), 1);
}

/* The disk is full but for what was allocated: the ack of a message is taken, and the next life knows of it. */
static void check_acked_on_a_full_disk(uint64_t id)
{
    struct id_ranges ids = {0};
    uint64_t held = queue_depth(named_queue_core(q));
    while (named_queue_prepare(q, 1, SIZE_MAX) == QUEUE_LOADING) { /* said again, and read from there */
        queues_poll(set);
        sched_yield();
    }
    lease_now = reserve_all(&ids);
    id_ranges_free(&ids);
    assert_true(lease_now > 0);
    tight = true;
    fail_with = ENOSPC;
    ack(id);
    flush();
    assert_int_equal(outcomes[0].result, QUEUE_OK);
    fail_with = 0;
    reopen();
    assert_int_equal(queue_depth(named_queue_core(q)), held - 1);
}

/* The put behind them, or the next life, has place for the bits of what was put while the file could not be made. */
static void bits_that_are_owed_are_had_later(void **state)
{
    (void)state;
    for (int restarts = 0; restarts < 2; restarts++) {
        making_fails = EMFILE;
        put_many(MANY);
        assert_int_equal(n_rooms, 0);
        making_fails = 0;
        if (restarts)
            reopen();
        else
            put("behind them");
        flush();
        assert_int_equal(n_rooms, 2);
        check_acked_on_a_full_disk(1);
        teardown(state);
        setup(state);
    }
}

/* A start that finds no room for them serves what is there; what is put next is refused until there is some for all. */
static void a_start_without_room_owes_bits(void **state)
{
    struct bytes message = BYTES_LITERAL("b");
    struct queue_put next = {.messages = &message, .n = 1};
    (void)state;
    making_fails = EMFILE;
    put_many(MANY);
    making_fails = 0;
    allocating_fails = ENOSPC;
    reopen();
    assert_int_equal(named_queue_put(q, &next, at(put_at), note, NULL, NULL), QUEUE_NO_SPACE);
    allocating_fails = 0;
    put_at += 2;
    put("b");
    flush();
    check_acked_on_a_full_disk(1);
}

/* Behind a hole ids are higher by thousands of millions: what is between has no place. */
static void ids_that_nobody_has_take_no_room(void **state)
{
    const uint64_t far = UINT64_C(1) << 40;
    struct id_ranges ids = {0};
    (void)state;
    put("a");
    put("b");
    flush();
    lease_now = reserve_all(&ids);
    id_ranges_free(&ids);
    bury(2);
    flush();
    last_id_is(far);
    put("c");
    flush();
    n_rooms = 0;
    reopen();
    assert_int_equal(n_rooms, 2);
    assert_true(rooms[0].to <= 2 * GONE_BLOCK && rooms[1].to == rooms[1].from + GONE_BLOCK);
    check_acked_on_a_full_disk(far + 1);
}

/* The segment that a message keeps is to go when its removal is written and not yet told: were the message said again behind that,
 * it would be back in the next life. */
static void what_is_being_removed_is_not_said_again(void **state)
{
    struct id_ranges ids = {0};
    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    put("old");
    put(long_text);
    flush();
    lease_now = reserve_all(&ids);
    id_ranges_free(&ids);
    ack(2);
    flush();
    put(long_text);
    put(long_text);
    ack(1);
    flush();
    assert_int_equal(outcomes[2].result, QUEUE_OK);
    reopen();
    assert_int_equal(queue_depth(named_queue_core(q)), 2);
    assert_int_equal(state_of()->n[MESSAGE_READY], 2);
}

/* Whether a bit is there is not known any more: nothing is said by bits, and the queue says that it is not well. */
static void failing_bits_latch(void **state)
{
    struct id_ranges ids = {0};
    (void)state;
    put("a");
    put("b");
    flush();
    lease_now = reserve_all(&ids);
    fail_with = ENOSPC;
    bits_fail = EIO;
    ack(1);
    flush();
    assert_int_equal(outcomes[0].result, QUEUE_LATCHED);
    assert_non_null(strstr(named_queue_failure(q), "gone: "));
    bits_fail = 0;
    ack(2);
    flush();
    assert_int_equal(outcomes[0].result, QUEUE_NO_SPACE);
    fail_with = 0;
    ack(2);
    flush();
    assert_int_equal(outcomes[0].result, QUEUE_OK);
    id_ranges_free(&ids);
    reopen();
    assert_int_equal(state_of()->n[MESSAGE_READY], 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(shown_when_committed),
        TEST(full_disk),
        TEST(refused_acks),
        TEST(every_record_recovers),
        TEST(bits_let_go_of_segments),
        TEST(the_last_id_may_be_in_the_bits_alone),
        TEST(bits_stay_with_their_messages),
        TEST(bits_outlive_a_segment_that_cannot_be_removed),
        TEST(bits_that_are_owed_are_had_later),
        TEST(a_start_without_room_owes_bits),
        TEST(ids_that_nobody_has_take_no_room),
        TEST(what_is_being_removed_is_not_said_again),
        TEST(failing_bits_latch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
