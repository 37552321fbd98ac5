/* A queue deeper than its memory: random operations on a queue over a real journal, beside a model that keeps a plain
 * array. Memory is so small that most messages are on disk most of the time, and segments so small that they are
 * trimmed on the way. Erasures run beside the operations; after each one, no file contains a message that was gone when
 * it began. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "base/io.h"
#include "simplequeue/queue/queues.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define IDS 14000
#define LONGEST 3000
#define PREFIX 16 /* the least bytes of a message: they occur in a file only if the message does */
#define MEMORY (300 << 10)
#define SEGMENT (1 << 18)

struct model {
    enum message_state state[IDS];
    uint64_t key[IDS]; /* what the message says */
    uint64_t lease[IDS];
    usec_t due[IDS];
    uint64_t next, keys;
    bool followed;
    uint64_t position, sent; /* the next id to send; ready messages below `sent` were sent */
    unsigned reads;          /* messages sent */
    bool erases;             /* an erasure is running, or has ended and is not yet checked ... */
    bool gone[IDS];          /* ... and these keys were gone when it began */
    unsigned erased;         /* erasures checked */
};

static char dir[64];
static struct queues *set;
static struct named_queue *q;
static struct queue *core;
static struct queue_now now;
static struct model *m;
static enum queue_result told;

static void notify(void *arg)
{
    (void)arg;
}

static int no_sync(int fd)
{
    (void)fd;
    return 0;
}

/* With a policy that syncs, files are recycled. */
static void open_set(void)
{
    char error[512];
    enum queue_result r;
    struct queues_config config = {.data_dir = dir,
        .limits = {.max_memory = MEMORY},
        .max_queues = 5,
        .sync_ms = rand() % 3 ? 0 : JOURNAL_SYNC_NEVER,
        .segment_bytes = SEGMENT,
        .notify = notify};
    assert_non_null(set = queues_new(&config, error, sizeof error));
    while (queues_recover(set, now, error, sizeof error) == QUEUES_MORE)
        ;
    assert_non_null(q = queues_get(set, "default", now, &r, error, sizeof error));
    core = named_queue_core(q);
    queues_flush(set);
}

static int setup(void **state)
{
    static struct io_ops fast;
    (void)state;
    fast = io_system;
    fast.fsync = fast.fdatasync = no_sync;
    io = &fast;
    seeded();
    make_test_dir(dir, sizeof dir);
    now = (struct queue_now){1000000, INT64_C(1700000000) * USEC_PER_SEC};
    m = mem_zalloc(sizeof *m);
    m->next = 1;
    open_set();
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    queues_free(&set);
    free(m);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) == 0 ? 0 : -1;
}

/* Until nothing is under way, neither a commit nor a reading. A flush would wait for an erasure. */
static void settle(void)
{
    const struct queue_state *s = queue_state(core);
    do {
        if (named_queue_erasure(q).state != QUEUE_ERASE_RUNNING)
            queues_flush(set);
        journal_set_poll(queues_journals(set));
        if (s->n[MESSAGE_BUSY])
            usleep(50);
    } while (s->n[MESSAGE_BUSY] || s->n[MESSAGE_PENDING]);
}

static void prepare(size_t items)
{
    enum queue_result r;
    while ((r = named_queue_prepare(q, items, SIZE_MAX)) == QUEUE_LOADING) {
        usleep(50);
        journal_set_poll(queues_journals(set));
    }
    if (r != QUEUE_OK)
        fail_msg("%s", named_queue_failure(q));
}

static size_t text_of(uint64_t key, char text[LONGEST + 1])
{
    size_t len = PREFIX + key * 7919 % (LONGEST - PREFIX);
    memset(text, 'a' + (int)(key % 26), len);
    char digits[32];
    size_t n = (size_t)snprintf(digits, sizeof digits, "<%llu>", (unsigned long long)key);
    memcpy(text, digits, n);
    return len;
}

static void expect_text(uint64_t id)
{
    char text[LONGEST + 1];
    size_t len = text_of(m->key[id], text);
    struct bytes is = queue_message(core, id, NULL);
    assert_int_equal(is.len, len);
    assert_non_null(is.ptr);
    assert_memory_equal(is.ptr, text, len);
}

static void on_done(const struct queue_outcome *outcome, void *arg)
{
    (void)arg;
    told = outcome->result;
}

static void put(void)
{
    static char texts[40][LONGEST + 1];
    struct bytes messages[40];
    size_t n = (size_t)rand() % 40 + 1;
    for (size_t i = 0; i < n; i++) {
        messages[i] = bytes_of(texts[i], text_of(m->keys + i, texts[i]));
        m->key[m->next + i] = m->keys + i;
        m->state[m->next + i] = MESSAGE_READY;
    }
    struct queue_put what = {.messages = messages, .n = n};
    enum queue_result r = named_queue_put(q, &what, now, on_done, NULL, NULL);
    if (queue_is_full(r))
        return;
    assert_int_equal(r, QUEUE_OK);
    settle();
    assert_int_equal(told, QUEUE_OK);
    m->next += n;
    m->keys += n;
}

/* What was taken or leased is the lowest ready, and says what was put. */
static void expect_lowest(const struct id_ranges *ids, enum message_state to, uint64_t lease)
{
    uint64_t lowest = 1;
    for (size_t r = 0; r < ids->n; r++)
        for (uint64_t id = ids->at[r].first; id <= ids->at[r].last; id++) {
            while (m->state[lowest] != MESSAGE_READY)
                lowest++;
            assert_int_equal(id, lowest);
            expect_text(id);
            m->state[id] = to;
            m->lease[id] = lease;
            m->due[id] = now.monotonic + 5000;
        }
}

static uint64_t ready(void)
{
    uint64_t n = 0;
    for (uint64_t id = 1; id < m->next; id++)
        n += m->state[id] == MESSAGE_READY;
    return n;
}

static void reserve(void)
{
    struct id_ranges ids = {0};
    size_t items = (size_t)rand() % 100 + 1;
    uint64_t there = ready();
    if (m->followed)
        return;
    prepare(items);
    uint64_t lease = queue_reserve(core, "r", items, SIZE_MAX, now.monotonic + 5000, &ids);
    assert_int_equal(ids.count, there < items ? there : items);
    expect_lowest(&ids, MESSAGE_LEASED, lease);
    id_ranges_free(&ids);
}

static void take(void)
{
    struct id_ranges ids = {0};
    size_t items = (size_t)rand() % 100 + 1;
    if (m->followed)
        return;
    prepare(items);
    queue_take(core, items, SIZE_MAX, &ids);
    expect_lowest(&ids, MESSAGE_GONE, 0);
    if (ids.count)
        assert_int_equal(named_queue_remove(q, &ids, now, on_done, NULL), QUEUE_OK);
    settle();
}

static uint64_t some_lease(void)
{
    for (int i = 0; i < 200; i++) {
        uint64_t id = (uint64_t)rand() % m->next;
        if (m->state[id] == MESSAGE_LEASED)
            return m->lease[id];
    }
    return 1;
}

/* Some of a lease's messages are acknowledged, put back, buried or delayed. */
static void finish(void)
{
    uint64_t lease = some_lease(), n = 0;
    uint64_t first = rand() % 2 ? 1 : (uint64_t)rand() % m->next + 1;
    struct id_range ids = {first, first + (uint64_t)rand() % m->next};
    enum message_state to = (enum message_state[]){
        MESSAGE_GONE, MESSAGE_GONE, MESSAGE_READY, MESSAGE_DELAYED, MESSAGE_BURIED}[rand() % 5];
    usec_t delay = rand() % 20000 + 1;
    for (uint64_t id = ids.first; id <= ids.last && id < m->next && !m->followed; id++)
        if (m->state[id] == MESSAGE_LEASED && m->lease[id] == lease) {
            m->state[id] = to;
            m->due[id] = now.monotonic + delay;
            n++;
        }
    enum queue_result expected = n ? QUEUE_OK : QUEUE_LEASE_LOST;
    assert_true(n == 0 || !m->followed);
    if (to == MESSAGE_READY)
        assert_int_equal(named_queue_return(q, lease, &ids, 1), n);
    else if (to == MESSAGE_GONE)
        assert_int_equal(named_queue_ack(q, lease, &ids, 1, now, on_done, NULL), expected);
    else if (to == MESSAGE_DELAYED)
        assert_int_equal(named_queue_delay(q, lease, &ids, 1, delay, now, on_done, NULL), expected);
    else
        assert_int_equal(
            named_queue_bury(q, lease, &ids, 1, BYTES_LITERAL("why"), now, on_done, NULL), expected);
    settle();
}

/* Changes the sent messages of the range; their number. */
static uint64_t change_sent(uint64_t first, uint64_t end, enum message_state to)
{
    uint64_t n = 0;
    for (uint64_t id = first; id < end && id < m->sent; id++)
        if (m->state[id] == MESSAGE_READY) {
            m->state[id] = to;
            n++;
        }
    return n;
}

static void follow(void)
{
    bool is_held = queue_state(core)->leases > 0;
    enum queue_result r = named_queue_follow(q, "f", now, on_done, NULL);
    assert_int_equal(r, is_held ? QUEUE_HELD : QUEUE_OK);
    if (is_held)
        return;
    queues_flush(set);
    assert_int_equal(told, QUEUE_OK);
    m->position = 0;
    m->followed = true;
}

static void unfollow(void)
{
    if (rand() % 4)
        return;
    enum queue_result r = named_queue_unfollow(q, now, on_done, NULL);
    assert_int_equal(r, m->followed ? QUEUE_OK : QUEUE_NOTHING);
    queues_flush(set);
    m->position = m->sent = 0;
    m->followed = false;
}

/* Often from where it was, at times from further back. */
static void read_sent(void)
{
    struct id_ranges ids = {0};
    size_t items = (size_t)rand() % 100 + 1;
    uint64_t from = rand() % 4 ? UINT64_MAX : (uint64_t)rand() % m->next;
    if (!m->followed || !queue_state(core)->follow)
        return;
    queue_follow_rewind(core, from);
    m->position = from < m->position ? from : m->position;
    prepare(items);
    queue_follow_read(core, items, SIZE_MAX, UINT64_MAX, &ids);
    struct id_walk w = {.ids = &ids};
    size_t n = 0;
    for (uint64_t id = m->position ? m->position : 1; id < m->next && n < items; id++)
        if (m->state[id] == MESSAGE_READY) {
            assert_true(id_walk_next(&w));
            assert_int_equal(w.id, id);
            expect_text(id);
            m->position = id + 1;
            n++;
        }
    assert_false(id_walk_next(&w));
    m->reads += n;
    m->sent = m->position > m->sent ? m->position : m->sent;
    id_ranges_free(&ids);
}

static void finish_sent(void)
{
    uint64_t id = (uint64_t)rand() % m->next + 1;
    if (!m->followed || !queue_state(core)->follow)
        return;
    if (rand() % 3 == 0) {
        uint64_t n = change_sent(id, id + 1, MESSAGE_BURIED);
        assert_int_equal(named_queue_bury_sent(q, id, BYTES_LITERAL("why"), now, on_done, NULL),
            n ? QUEUE_OK : QUEUE_LEASE_LOST);
    } else {
        uint64_t n = change_sent(1, id, MESSAGE_GONE);
        assert_int_equal(
            named_queue_settle(q, id, BYTES_LITERAL("d"), now, on_done, NULL), n ? QUEUE_OK : QUEUE_NOTHING);
    }
    settle();
}

/* Ids from m->next on are of messages that were moved: each of one in that state, and due. */
static void expect_moved(enum message_state from, uint64_t end)
{
    for (; m->next < end; m->next++) {
        while (named_queue_prepare_message(q, m->next) == QUEUE_LOADING)
            journal_set_poll(queues_journals(set));
        uint64_t old = 1;
        char text[LONGEST + 1];
        struct bytes is = queue_message(core, m->next, NULL);
        for (; old < m->next; old++)
            if (m->state[old] == from && bytes_equal(is, bytes_of(text, text_of(m->key[old], text))))
                break;
        assert_true(old < m->next);
        assert_true(from != MESSAGE_DELAYED || m->due[old] <= now.monotonic);
        m->state[old] = MESSAGE_GONE;
        m->state[m->next] = MESSAGE_READY;
        m->key[m->next] = m->key[old];
    }
}

static void kick(void)
{
    static const struct id_range every = {1, UINT64_MAX};
    struct queue_kick what = {&every, 1, (size_t)rand() % 10 + 1, BYTES_NONE, false};
    enum queue_result r = named_queue_kick(q, &what, now, on_done, NULL);
    settle();
    if (r == QUEUE_OK)
        assert_int_equal(told, QUEUE_OK);
    expect_moved(MESSAGE_BURIED, queue_state(core)->next_id);
}

static void pass_time(void)
{
    usec_t deadline;
    usec_t passed = rand() % 4000;
    now.monotonic += passed;
    now.wall += passed;
    while (queues_next_deadline(set, &deadline) && deadline <= now.monotonic)
        queues_tick(set, now);
    settle();
    for (uint64_t id = 1; id < m->next; id++)
        if (m->state[id] == MESSAGE_LEASED && m->due[id] <= now.monotonic)
            m->state[id] = MESSAGE_READY;
    expect_moved(MESSAGE_DELAYED, queue_state(core)->next_id);
    for (uint64_t id = 1; id < m->next; id++)
        assert_false(m->state[id] == MESSAGE_DELAYED && m->due[id] <= now.monotonic);
}

static void restart(void)
{
    if (rand() % 4)
        return;
    queues_free(&set);
    open_set();
    m->erases = false; /* a restart ends it */
    assert_string_equal(queue_state(core)->follower, m->followed ? "f" : "");
    m->position = m->sent = 0;
    for (uint64_t id = 1; id < m->next; id++)
        if (m->state[id] == MESSAGE_LEASED)
            m->state[id] = MESSAGE_READY;
}

static void expect_counts(void)
{
    uint64_t n[MESSAGE_STATES] = {0}, bytes = 0;
    char text[LONGEST + 1];
    for (uint64_t id = 1; id < m->next; id++) {
        n[m->state[id]]++;
        bytes += m->state[id] != MESSAGE_GONE ? text_of(m->key[id], text) : 0;
    }
    for (int s = MESSAGE_PENDING; s < MESSAGE_STATES; s++)
        assert_int_equal(queue_state(core)->n[s], n[s]);
    assert_int_equal(queue_state(core)->bytes, bytes);
    assert_int_equal(queue_state(core)->next_id, m->next);
}

/* What is not needed of the journal goes, whatever old messages are still held; reading those takes its time. */
static void expect_trimmed(void)
{
    const struct journal *j = named_queue_journal(q);
    uint64_t span, most = 2 * queue_state(core)->bytes + 12 * SEGMENT;
    usec_t end = 0;
    while ((span = journal_committed_end(j) - journal_earliest(j)) > most) {
        if (!is_early(&end))
            fail_msg(
                "%llu bytes of journal, at most %llu", (unsigned long long)span, (unsigned long long)most);
        usleep(100);
        journal_set_poll(queues_journals(set));
    }
}

static void erase(void)
{
    if (m->erases)
        return;
    assert_int_equal(named_queue_erase(q), QUEUE_OK);
    m->erases = true;
    for (uint64_t key = 0; key < m->keys; key++)
        m->gone[key] = true;
    for (uint64_t id = 1; id < m->next; id++)
        if (m->state[id] != MESSAGE_GONE)
            m->gone[m->key[id]] = false;
}

/* Notes each key whose message begins in the file's bytes. The first bytes of the message are compared, because a checksum, too, may
 * have a digit between < and >. */
static void find_keys(struct bytes file, bool found[IDS])
{
    char text[LONGEST + 1];
    const char *end = file.ptr + file.len;
    for (const char *at = file.ptr; at < end && (at = memchr(at, '<', (size_t)(end - at))); at++) {
        uint64_t key = 0;
        const char *p = at + 1;
        for (; p < end && p - at < 6 && isdigit((unsigned char)*p); p++)
            key = key * 10 + (uint64_t)(*p - '0');
        if (p == end || p == at + 1 || *p != '>' || key >= m->keys)
            continue;
        text_of(key, text);
        if (end - at >= PREFIX && memcmp(at, text, PREFIX) == 0)
            found[key] = true;
    }
}

static void expect_erased(void)
{
    static bool found[IDS];
    char path[300];
    memset(found, 0, sizeof found);
    snprintf(path, sizeof path, "%s/queues/default", dir);
    DIR *d = opendir(path);
    for (const struct dirent *entry; (entry = readdir(d));) {
        struct buf file = {0};
        snprintf(path, sizeof path, "%s/queues/default/%.200s", dir, entry->d_name);
        if (entry->d_type == DT_REG && io_read_file(path, SIZE_MAX, &file) == 0)
            find_keys(buf_bytes(&file), found);
        buf_free(&file);
    }
    closedir(d);
    for (uint64_t key = 0; key < m->keys; key++)
        if (m->gone[key] && found[key])
            fail_msg("message %llu is still in a file", (unsigned long long)key);
    for (uint64_t id = 1; id < m->next; id++)
        if (m->state[id] != MESSAGE_GONE && !found[m->key[id]])
            fail_msg("message %llu is in no file", (unsigned long long)m->key[id]);
}

static void check_erasure(void)
{
    struct queue_erasure e = named_queue_erasure(q);
    if (e.state == QUEUE_ERASE_FAILED)
        fail_msg("%s", e.error);
    if (!m->erases || e.state != QUEUE_ERASE_DONE)
        return;
    assert_int_equal(e.remaining, 0);
    expect_erased();
    m->erases = false;
    m->erased++;
}

static void finish_erasure(void)
{
    usec_t end = 0;
    for (check_erasure(); m->erases; check_erasure()) {
        assert_true(is_early(&end));
        usleep(100);
        journal_set_poll(queues_journals(set));
    }
}

static void as_the_model(void **state)
{
    static void (*const operations[])(void) = {put, put, put, put, reserve, reserve, reserve, finish, finish,
        finish, take, kick, pass_time, restart, erase, erase, follow, unfollow, read_sent, read_sent,
        read_sent, finish_sent, finish_sent};
    uint64_t deepest = 0;
    (void)state;
    while (m->next < IDS - 5000) {
        operations[(size_t)rand() % (sizeof operations / sizeof *operations)]();
        expect_counts();
        expect_trimmed();
        check_erasure();
        deepest = queue_state(core)->bytes > deepest ? queue_state(core)->bytes : deepest;
        if (queues_memory(set) > MEMORY * 5)
            fail_msg("%llu bytes of memory", (unsigned long long)queues_memory(set));
    }
    assert_true(deepest > MEMORY * 3);
    finish_erasure();
    assert_true(m->erased > 1);
    assert_true(m->reads > 100);
    erase();
    finish_erasure();
    named_queue_unfollow(q, now, on_done, NULL);
    m->followed = false;
    for (uint64_t left; (left = ready()) > 0;)
        take();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_the_model, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
