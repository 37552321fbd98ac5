/* named_queue over a real journal: refusals of the storage, retries on the way, and what an opening finds. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "base/io.h"
#include "journal/journal_internal.h"
#include "simplequeue/queue/queues.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char dir[64];
static struct queues *set;
static struct named_queue *q;
static int fail_with;      /* errno of every write; 0: none fails */
static int fail_once_open; /* after the next queue is open */
static bool no_growth;     /* no file grows */
static off_t disk_bytes;   /* of all files at most; 0: no limit */
static unsigned writes;
static struct io_ops faulty;
static char long_text[70001];
static usec_t put_at;

static off_t blocks_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return (off_t)st.st_blocks * 512;
}

static off_t bytes_on_disk(void)
{
    char path[128];
    off_t sum = 0;
    snprintf(path, sizeof path, "%s/queues/default", dir);
    DIR *d = opendir(path);
    const struct dirent *entry;
    while ((entry = readdir(d))) {
        struct stat st;
        if (entry->d_type == DT_REG && fstatat(dirfd(d), entry->d_name, &st, 0) == 0)
            sum += (off_t)st.st_blocks * 512;
    }
    closedir(d);
    return sum;
}

/* The file system rounds up, so the disk's size is the most that was ever on it. */
static bool has_blocks(int fd, off_t end)
{
    struct stat st;
    off_t more = end - blocks_of(fd), there = bytes_on_disk();
    if (disk_bytes && disk_bytes < there)
        disk_bytes = there;
    bool grows = no_growth && fstat(fd, &st) == 0 && end > st.st_size;
    errno = ENOSPC;
    return !grows && (!disk_bytes || more <= 0 || there + more <= disk_bytes);
}

static int faulty_fallocate(int fd, int mode, off_t at, off_t length)
{
    return has_blocks(fd, at + length) ? io_system.fallocate(fd, mode, at, length) : -1;
}

static ssize_t faulty_pwrite(int fd, const void *p, size_t n, off_t at)
{
    writes++;
    if (!has_blocks(fd, at + (off_t)n))
        return -1;
    errno = fail_with;
    return fail_with ? -1 : io_system.pwrite(fd, p, n, at);
}

static void notify(void *arg)
{
    (void)arg;
}

static size_t ready_calls, removals_when_ready;

/* Called again for a removal that is refused inside, but not from inside: it walks a list of waiting requests. */
static void on_ready(struct named_queue *of, void *arg)
{
    static bool inside;
    struct id_ranges taken = {0};
    (void)arg;
    assert_false(inside);
    inside = true;
    ready_calls++;
    for (; removals_when_ready; removals_when_ready--) {
        queue_take(named_queue_core(of), 1, SIZE_MAX, &taken);
        assert_int_equal(named_queue_remove(of, &taken, (struct queue_now){0}, NULL, NULL), QUEUE_LATCHED);
    }
    inside = false;
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
        .notify = notify,
        .on_ready = on_ready};
    assert_non_null(set = queues_new(&config, error, sizeof error));
    while (queues_recover(set, at(3), error, sizeof error) == QUEUES_MORE)
        fail_with = fail_once_open;
    assert_non_null(q = queues_get(set, "default", at(3), &r, error, sizeof error));
}

static void reopen(void)
{
    queues_free(&set);
    open_set();
}

static int setup(void **state)
{
    (void)state;
    make_test_dir(dir, sizeof dir);
    faulty = io_system;
    faulty.pwrite = faulty_pwrite;
    faulty.fallocate = faulty_fallocate;
    io = &faulty;
    fail_with = 0;
    no_growth = false;
    disk_bytes = 0;
    put_at = 2;
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

static void put_marked(const char *text, const char *producer, uint64_t mark, uint64_t next)
{
    struct bytes message = bytes_str(text);
    struct queue_put put = {
        .messages = &message, .n = 1, .producer = bytes_str(producer), .mark = mark, .next = next};
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

/* While a mark is being set, the answer to another put of the producer would depend on whether the set is committed. */
static void a_mark_that_is_being_set(void **state)
{
    (void)state;
    static const uint64_t others[][2] = {{450, 500}, {40, 50}, {300, 310}, {500, 501}};
    struct bytes producer = BYTES_LITERAL("p"), message = BYTES_LITERAL("b");
    struct queue_put set_down = {.producer = producer, .next = 40, .sets_mark = true};
    put_marked("a", "p", 0, 500);
    assert_int_equal(named_queue_put(q, &set_down, at(put_at), note, NULL, NULL), QUEUE_MARK_BUSY);
    flush();
    assert_int_equal(named_queue_put(q, &set_down, at(put_at), note, NULL, NULL), QUEUE_OK);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct queue_put other = {
            .messages = &message, .n = 1, .producer = producer, .mark = others[i][0], .next = others[i][1]};
        assert_int_equal(named_queue_put(q, &other, at(put_at), note, NULL, NULL), QUEUE_MARK_BUSY);
    }
    flush();
    assert_int_equal(n_outcomes, 1);
    assert_int_equal(named_queue_mark(q, "p", NULL), 40);
    put_marked("c", "p", 40, 50);
    flush();
    assert_int_equal(queue_depth(named_queue_core(q)), 2);
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
        fail_with = errors[i];
        assert_int_equal(named_queue_ack(q, lease, &first, 1, at(3), note, NULL), QUEUE_OK);
        assert_int_equal(state_of()->n[MESSAGE_BUSY], 1);
        flush();
        assert_int_equal(outcomes[0].result, results[i]);
        assert_int_equal(state_of()->n[MESSAGE_LEASED], 2);
    }
    assert_non_null(named_queue_failure(q));
    fail_with = 0;
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
    static const struct id_range every = {1, UINT64_MAX};
    assert_int_equal(
        named_queue_kick(q, &(struct queue_kick){&every, 1, n, BYTES_NONE, false}, at(3), note, NULL),
        QUEUE_OK);
}

static void come_due(uint64_t seconds)
{
    queues_tick(set, at((usec_t)seconds));
}

/* The messages of a removal that is refused at once are ready again: the waiting readers must hear of it. */
static void a_removal_refused_at_once_wakes_waiters(void **state)
{
    struct id_ranges taken = {0};
    (void)state;
    put("a");
    put("b");
    flush();
    fail_with = EIO;
    put("c");
    flush(); /* latches */
    for (int evicts = 0; evicts < 2; evicts++) {
        if (evicts)
            queue_evict(named_queue_core(q), 2, UINT64_MAX, false, &taken);
        else
            queue_take(named_queue_core(q), 2, SIZE_MAX, &taken);
        assert_int_equal(state_of()->n[MESSAGE_READY], 0);
        size_t before = ready_calls;
        assert_int_equal(named_queue_remove(q, &taken, at(3), note, NULL), QUEUE_LATCHED);
        assert_int_equal(state_of()->n[MESSAGE_READY], 2);
        assert_true(ready_calls > before);
    }
    size_t before = ready_calls;
    removals_when_ready = 2;
    named_queue_pause(q, 0, at(3));
    assert_int_equal(state_of()->n[MESSAGE_READY], 2);
    assert_int_equal(ready_calls, before + 2);
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
        queue_release(named_queue_core(q), "r");
        reopen();
        assert_int_equal(state_of()->n[MESSAGE_READY], steps[i].ready);
        assert_int_equal(state_of()->n[MESSAGE_DELAYED], steps[i].delayed);
        assert_int_equal(state_of()->n[MESSAGE_BURIED], steps[i].buried);
        assert_int_equal(state_of()->next_id, steps[i].next_id);
    }
    id_ranges_free(&ids);
}

/* Follows, and returns the number. */
static uint64_t follow(const char *reader, enum queue_result expected)
{
    n_outcomes = 0;
    enum queue_result r = named_queue_follow(q, reader, at(put_at), note, NULL);
    queues_flush(set);
    assert_int_equal(r == QUEUE_OK ? outcomes[n_outcomes - 1].result : r, expected);
    return r == QUEUE_OK ? outcomes[n_outcomes - 1].follow : 0;
}

static void unfollow(void)
{
    n_outcomes = 0;
    assert_int_equal(named_queue_unfollow(q, at(put_at), note, NULL), QUEUE_OK);
    queues_flush(set);
    assert_int_equal(outcomes[0].result, QUEUE_OK);
}

static void read_sent(uint64_t from, struct id_ranges *ids)
{
    id_ranges_free(ids);
    queue_follow_rewind(named_queue_core(q), from);
    queue_follow_read(named_queue_core(q), 100000, SIZE_MAX, UINT64_MAX, ids);
}

/* So many messages of random lengths, the short ones together; a tenth of them delayed. */
static void put_some(size_t n)
{
    struct bytes all[50];
    for (size_t done = 0; done < n; done += 50) {
        struct queue_put many = {.messages = all, .n = 50, .delay = done % 500 ? 0 : 100 * USEC_PER_SEC};
        for (size_t i = 0; i < 50; i++)
            all[i] = bytes_of(long_text, done % 200 ? 1 + (size_t)rand() % 20 : 1 + (size_t)rand() % 2000);
        assert_int_equal(named_queue_put(q, &many, at(put_at), note, NULL, NULL), QUEUE_OK);
        flush();
    }
}

static enum queue_result act(enum queue_result accepted)
{
    if (accepted != QUEUE_OK)
        return accepted;
    flush();
    return outcomes[n_outcomes - 1].result;
}

/* Buries the messages from `id` on until the disk has no space for it; the first one that is left. */
static uint64_t bury_until_refused(uint64_t id)
{
    char reason[500];
    enum queue_result r = QUEUE_OK;
    memset(reason, 'r', sizeof reason);
    for (; r == QUEUE_OK; id++) {
        struct id_range one = {id, id};
        r = act(
            named_queue_bury(q, lease_now, &one, 1, bytes_of(reason, sizeof reason), at(put_at), note, NULL));
    }
    assert_int_equal(r, QUEUE_NO_SPACE);
    return id - 1;
}

/* On a full disk every message can be removed, one by one and in any order, and every delayed one comes back. An
 * settlement that moves a destination's mark needs no more space. */
static void a_full_disk_drains(void **state)
{
    struct id_ranges ids = {0};
    struct bytes message = BYTES_LITERAL("b"), destination = BYTES_LITERAL("0123abcd");
    uint64_t last = 0;
    struct queue_put next = {.messages = &message, .n = 1};
    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    put_some(3000);
    uint64_t ready = state_of()->n[MESSAGE_READY], delayed = state_of()->n[MESSAGE_DELAYED];
    assert_true(delayed >= 300);
    lease_now = queue_reserve(named_queue_core(q), "r", 10000, SIZE_MAX, at(60).monotonic, &ids);
    assert_int_equal(ids.count, ready);
    disk_bytes = bytes_on_disk();
    while (act(named_queue_put(q, &next, at(put_at += 2), note, NULL, NULL)) == QUEUE_OK)
        assert_true(state_of()->n[MESSAGE_READY] < 100000);
    uint64_t *order = mem_alloc(ready * sizeof *order), n = 0, buried;
    for (size_t i = 0; i < ids.n; i++)
        for (uint64_t id = ids.at[i].first; id <= ids.at[i].last; id++)
            order[n++] = id;
    uint64_t first_left = bury_until_refused(order[0]);
    for (buried = 0; order[buried] < first_left; buried++)
        ;
    assert_in_range(buried, 1, ready - 1);
    for (uint64_t i = ready - 1; i > buried; i--) {
        uint64_t other = buried + (uint64_t)rand() % (i - buried + 1), id = order[i];
        order[i] = order[other];
        order[other] = id;
    }
    for (uint64_t i = buried; i < ready; i++) {
        struct id_range one = {order[i], order[i]};
        assert_int_equal(act(named_queue_ack(q, lease_now, &one, 1, at(put_at), note, NULL)), QUEUE_OK);
    }
    come_due(200);
    assert_int_equal(state_of()->n[MESSAGE_DELAYED], 0);
    uint64_t left = queue_depth(named_queue_core(q));
    assert_true(left >= delayed);
    free(order);
    id_ranges_free(&ids);
    reopen();
    assert_int_equal(queue_depth(named_queue_core(q)), left);
    follow("f", QUEUE_OK);
    read_sent(0, &ids);
    assert_int_equal(ids.count, left - state_of()->n[MESSAGE_BUSY]);
    for (size_t i = 0; i < ids.n; i++)
        for (uint64_t id = ids.at[i].first; id <= ids.at[i].last; id++) {
            last = id;
            assert_int_equal(
                act(named_queue_settle(q, id + 1, destination, at(put_at), note, NULL)), QUEUE_OK);
        }
    assert_int_equal(queue_depth(named_queue_core(q)), 0);
    assert_int_equal(named_queue_mark(q, "0123abcd", NULL), last + 1);
    id_ranges_free(&ids);
}

static void expect_follower(const char *name)
{
    assert_string_equal(state_of()->follower, name);
}

/* The name survives restarts and trimming, the number does not. */
static void a_follower_over_restarts(void **state)
{
    struct id_ranges ids = {0};
    (void)state;
    put("a");
    put("b");
    flush();
    uint64_t one = follow("f", QUEUE_OK);
    follow("g", QUEUE_FOLLOWED);
    read_sent(0, &ids);
    assert_int_equal(ids.count, 2);
    assert_int_equal(named_queue_settle(q, 1, BYTES_NONE, at(3), note, NULL), QUEUE_NOTHING);
    assert_int_equal(act(named_queue_settle(q, 2, BYTES_LITERAL("dest"), at(3), note, NULL)), QUEUE_OK);
    reopen();
    expect_follower("f");
    assert_int_equal(state_of()->follow, 0);
    assert_int_equal(state_of()->n[MESSAGE_READY], 1);
    assert_int_equal(named_queue_mark(q, "dest", NULL), 2);
    uint64_t end = journal_committed_end(named_queue_journal(q)), two = follow("f", QUEUE_OK);
    assert_true(two > one);
    assert_int_equal(journal_committed_end(named_queue_journal(q)), end); /* no record */
    read_sent(0, &ids);
    put("c");
    flush();
    assert_int_equal(named_queue_bury_sent(q, 2, BYTES_LITERAL("why"), at(3), note, NULL), QUEUE_OK);
    read_sent(UINT64_MAX, &ids);
    assert_int_equal(ids.count, 0); /* the burial may fail */
    flush();
    read_sent(UINT64_MAX, &ids);
    assert_int_equal(ids.at[0].first, 3);
    assert_int_equal(act(named_queue_settle(q, 4, BYTES_NONE, at(3), note, NULL)), QUEUE_OK);
    assert_int_equal(named_queue_bury_sent(q, 2, BYTES_NONE, at(3), note, NULL), QUEUE_LEASE_LOST);
    memset(long_text, 'x', 60000);
    for (int i = 0; i < 20; i++) {
        put(long_text);
        flush();
        read_sent(UINT64_MAX, &ids);
        act(named_queue_settle(q, UINT64_MAX, BYTES_NONE, at(3), note, NULL));
    }
    assert_true(journal_earliest(named_queue_journal(q)) > end);
    reopen();
    expect_follower("f");
    assert_int_equal(state_of()->n[MESSAGE_BURIED], 1);
    unfollow();
    reopen();
    expect_follower("");
    follow("g", QUEUE_OK);
    reopen();
    expect_follower("g");
    id_ranges_free(&ids);
}

/* A lease keeps followers out, also while its acknowledgement is under way. */
static void a_follow_beside_leases(void **state)
{
    struct id_ranges ids = {0};
    (void)state;
    put("a");
    flush();
    lease_now = reserve_all(&ids);
    follow("r", QUEUE_HELD);
    ack(1);
    assert_int_equal(queue_release(named_queue_core(q), "r"), 0);
    assert_int_equal(named_queue_follow(q, "r", at(3), note, NULL), QUEUE_HELD);
    flush();
    follow("r", QUEUE_OK);
    id_ranges_free(&ids);
}

/* Others are refused at once; the number begins once the name is recorded. */
static void one_change_of_the_name_at_a_time(void **state)
{
    (void)state;
    n_outcomes = 0;
    assert_int_equal(named_queue_follow(q, "f", at(3), note, NULL), QUEUE_OK);
    expect_follower("f");
    assert_int_equal(named_queue_follow(q, "g", at(3), note, NULL), QUEUE_FOLLOWED);
    assert_int_equal(named_queue_follow(q, "f", at(3), note, NULL), QUEUE_MARK_BUSY);
    assert_int_equal(named_queue_unfollow(q, at(3), note, NULL), QUEUE_MARK_BUSY);
    expect_follower("f");
    assert_int_equal(n_outcomes + state_of()->follow, 0);
    queues_flush(set);
    assert_int_equal(n_outcomes, 1);
    assert_int_equal(state_of()->follow, outcomes[0].follow);
    assert_false(outcomes[0].takes_over);
    uint64_t first = state_of()->follow;
    assert_true(follow("f", QUEUE_OK) > first);
    assert_true(outcomes[0].takes_over);
    unfollow();
    expect_follower("");
    assert_int_equal(named_queue_unfollow(q, at(3), note, NULL), QUEUE_NOTHING);
    reopen();
    expect_follower("");
}

static void count_producer(const struct journal_producer *p, void *arg)
{
    (void)p;
    ++*(unsigned *)arg;
}

static void the_name_is_no_producer(void **state)
{
    unsigned n = 0;
    (void)state;
    follow("f", QUEUE_OK);
    named_queue_producers(q, count_producer, &n);
    assert_int_equal(n, 0);
}

/* While the disk refuses the record, a follow is only in memory. Failed storage undoes it. */
static void a_follow_on_a_full_disk(void **state)
{
    struct id_ranges ids = {0};
    (void)state;
    put("a");
    flush();
    fail_with = ENOSPC;
    assert_true(follow("f", QUEUE_OK) > 0);
    assert_true(named_queue_disk_is_full(q));
    follow("g", QUEUE_FOLLOWED);
    unsigned before = writes;
    assert_true(follow("f", QUEUE_OK) > 0);
    assert_int_equal(writes, before); /* not tried again at once */
    read_sent(0, &ids);
    assert_int_equal(ids.count, 1);
    fail_with = 0;
    assert_int_equal(act(named_queue_settle(q, 2, BYTES_NONE, at(3), note, NULL)), QUEUE_OK);
    reopen();
    expect_follower("");
    follow("f", QUEUE_OK);
    fail_with = ENOSPC;
    put_at += 2;
    unfollow();
    expect_follower("");
    fail_with = 0;
    reopen();
    expect_follower("f"); /* the end of the follow was only in memory, too */
    put_at += 2;
    unfollow();
    fail_with = EIO;
    follow("f", QUEUE_LATCHED);
    expect_follower("");
    id_ranges_free(&ids);
}

/* However often the name changes on a full disk, the space for removals stays. */
static void names_leave_the_room(void **state)
{
    struct id_ranges ids = {0};
    struct bytes message = BYTES_LITERAL("b");
    struct queue_put next = {.messages = &message, .n = 1};
    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    put_some(1000);
    disk_bytes = bytes_on_disk();
    while (act(named_queue_put(q, &next, at(put_at += 2), note, NULL, NULL)) == QUEUE_OK)
        ;
    for (int i = 0; i < 2000; i++) {
        put_at += 2;
        follow("some-name-that-is-rather-long-to-fill-the-space-that-is-left", QUEUE_OK);
        unfollow();
    }
    assert_true(named_queue_disk_is_full(q));
    follow("f", QUEUE_OK);
    read_sent(0, &ids);
    for (size_t i = 0; i < ids.n; i++)
        for (uint64_t id = ids.at[i].first; id <= ids.at[i].last; id++)
            assert_int_equal(
                act(named_queue_settle(q, id + 1, BYTES_NONE, at(put_at), note, NULL)), QUEUE_OK);
    assert_int_equal(state_of()->n[MESSAGE_READY] + state_of()->n[MESSAGE_LEASED], 0);
    id_ranges_free(&ids);
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

static void expect_openings(size_t n, const uint64_t *firsts, char (*expected)[OPENING_TEXT])
{
    const struct queue_openings *o = named_queue_openings(q);
    assert_int_equal(o->n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(o->at[i].first, firsts[i]);
        if (i + 1 < n)
            assert_string_equal(o->at[i].opening, expected[i]);
    }
    assert_string_equal(o->at[n - 1].opening, journal_opening(named_queue_journal(q)));
}

/* Puts a message, and notes the opening that assigned its id. */
static void put_in_opening(const char *text, char opening[OPENING_TEXT])
{
    put(text);
    flush();
    memcpy(opening, journal_opening(named_queue_journal(q)), OPENING_TEXT);
}

/* Neither restarts lose them, nor trims and the copies of kept messages. */
static void openings_stay_known(void **state)
{
    static const uint64_t firsts[] = {1, 2, 3};
    char openings[3][OPENING_TEXT];
    struct id_ranges ids = {0};
    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    put_in_opening("a", openings[0]);
    for (int i = 0; i < 2 * QUEUE_OPENINGS_MAX; i++)
        reopen(); /* without a message */
    put_in_opening("b", openings[1]);
    reopen();
    put_in_opening(long_text, openings[2]);
    uint64_t begins = journal_earliest(named_queue_journal(q));
    for (uint64_t id = 3; id < 40; id++) {
        put(long_text);
        flush();
        lease_now = reserve_all(&ids);
        ack(id);
        flush();
        queue_release(named_queue_core(q), "r");
    }
    assert_true(journal_earliest(named_queue_journal(q)) > begins);
    assert_int_equal(queue_depth(named_queue_core(q)), 3);
    expect_openings(3, firsts, openings);
    reopen();
    expect_openings(4, (uint64_t[]){1, 2, 3, 41}, openings);
    id_ranges_free(&ids);
}

static void then_full(const struct queue_outcome *outcome, void *arg)
{
    note(outcome, arg);
    fail_with = ENOSPC;
}

/* The disk refuses the OPEN records, but not the put between them. */
static void openings_on_a_full_disk(void **state)
{
    struct bytes message = BYTES_LITERAL("b");
    struct queue_put next = {.messages = &message, .n = 1};
    char openings[2][OPENING_TEXT];
    (void)state;
    put_in_opening("a", openings[0]);
    fail_once_open = ENOSPC;
    reopen();
    fail_once_open = 0;
    follow("f", QUEUE_OK);
    expect_openings(2, (uint64_t[]){1, 2}, openings);
    fail_with = 0;
    put_at += 2;
    assert_int_equal(named_queue_put(q, &next, at(put_at), then_full, NULL, NULL), QUEUE_OK);
    flush();
    memcpy(openings[1], journal_opening(named_queue_journal(q)), OPENING_TEXT);
    queues_free(&set);
    fail_with = 0;
    open_set();
    expect_openings(3, (uint64_t[]){1, 2, 3}, openings);
}

static void copy_files(const char *from, const char *to)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", to, from, to);
    assert_int_equal(system(command), 0);
}

static void cut_last_put(void)
{
    static const struct bytes record = BYTES_LITERAL("\1\2\0\0\1\0\0\0\2\0\0\0\0\0\0\0");
    char path[128];
    size_t n;
    struct buf file = {0};
    snprintf(path, sizeof path, "%s/queues/default", dir);
    uint64_t *sequences = segments_list(path, &n);
    char *newest = segment_path(path, sequences[n - 1], "");
    assert_int_equal(io_read_file(newest, SIZE_MAX, &file), 0);
    const char *at = memmem(file.ptr, file.len, record.ptr, record.len);
    assert_non_null(at);
    assert_int_equal(truncate(newest, at - file.ptr), 0);
    buf_free(&file);
    free(newest);
    free(sequences);
}

static void another_boot(uint8_t out[16])
{
    memset(out, 7, 16);
}

/* A power cut takes the messages of an opening, but not its OPEN record. Their ids are skipped, so its marks are of the past. */
static void the_opening_of_lost_ids(void **state)
{
    char openings[2][OPENING_TEXT], copy[80];
    struct queue_difference differs;
    void (*boot_id)(uint8_t out[16]) = journal_boot_id;
    (void)state;
    put_in_opening("a", openings[0]);
    reopen();
    put_in_opening("b", openings[1]);
    snprintf(copy, sizeof copy, "%s.copy", dir);
    copy_files(dir, copy);
    queues_free(&set);
    copy_files(copy, dir);
    cut_last_put();
    journal_boot_id = another_boot;
    open_set();
    journal_boot_id = boot_id;
    char lost[OPENING_TEXT];
    memcpy(lost, openings[1], sizeof lost);
    openings[1][0] = '\0';
    expect_openings(3, (uint64_t[]){1, 2, 2 + QUEUE_ID_HOLE}, openings);
    assert_true(
        queue_openings_is_past(named_queue_openings(q), state_of()->next_id, 3, bytes_str(lost), &differs));
}

/* The stop ends an erasure, but the journal's part of it is still under way: no other can begin, and no storage has failed. */
static void an_erasure_at_the_stop(void **state)
{
    (void)state;
    put("a");
    flush();
    assert_int_equal(named_queue_erase(q), QUEUE_OK);
    queues_stop_erasures(set);
    assert_int_equal(named_queue_erasure(q).state, QUEUE_ERASE_FAILED);
    assert_int_equal(named_queue_erase(q), QUEUE_CLOSED);
    assert_null(named_queue_failure(q));
    reopen(); /* calls back into the queue that is being freed */
    assert_int_equal(queue_depth(named_queue_core(q)), 1);
    assert_int_equal(named_queue_erasure(q).state, QUEUE_ERASE_NONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(shown_when_committed),
        TEST(full_disk),
        TEST(refused_acks),
        TEST(a_removal_refused_at_once_wakes_waiters),
        TEST(every_record_recovers),
        TEST(a_mark_that_is_being_set),
        TEST(a_full_disk_drains),
        TEST(a_follower_over_restarts),
        TEST(a_follow_beside_leases),
        TEST(one_change_of_the_name_at_a_time),
        TEST(the_name_is_no_producer),
        TEST(a_follow_on_a_full_disk),
        TEST(names_leave_the_room),
        TEST(openings_stay_known),
        TEST(openings_on_a_full_disk),
        TEST(the_opening_of_lost_ids),
        TEST(an_erasure_at_the_stop),
        TEST(what_is_being_removed_is_not_said_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
