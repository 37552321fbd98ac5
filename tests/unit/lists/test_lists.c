/* lists: random programs of changes, reads, saves, restarts, kills and full disks equal a model. A session is a child process, which
 * dies at one of its calls that change files, or finds no space there or only for a part. The cursors of followers count the committed changes.
 *
 * MILLRACE_PROGRAMS programs (default 150) from MILLRACE_SEED (default 1). */
#include "support/cm.h"
#include "support/lists_model.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include "lists/lists.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHANGES 80
#define KILLED 9
#define FOLLOWERS 4 /* the most pending changes; a follower has only one */

/* Faults: the calls of journal and store that change files. */
static int calls, dies_at, full_from, full_to; /* 0: never */

static bool is_fault(bool takes_space)
{
    int n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (n == dies_at)
        _exit(KILLED);
    if (!takes_space || n < full_from || n >= full_to)
        return false;
    return true;
}

static int no_space(void)
{
    errno = ENOSPC;
    return -1;
}

/* `part` is the call that writes only a part. */
#define INTERPOSE(result, name, parameters, takes_space, part, ...)                                          \
    result name parameters                                                                                   \
    {                                                                                                        \
        static result(*next) parameters;                                                                     \
        if (!next)                                                                                           \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                                       \
        return is_fault(takes_space) ? part : next(__VA_ARGS__);                                             \
    }
#define PART(...) (n > 1 && calls % 2 ? next(__VA_ARGS__) : no_space())
INTERPOSE(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), at > 8192, PART(fd, p, n / 2, at), fd,
    p, n, at) /* below: the store's meta pages, which take no space */
INTERPOSE(ssize_t, pwritev, (int fd, const struct iovec *p, int n, off_t at), true, PART(fd, p, n / 2, at),
    fd, p, n, at)
INTERPOSE(ssize_t, writev, (int fd, const struct iovec *p, int n), true, PART(fd, p, n / 2), fd, p, n)
INTERPOSE(int, fdatasync, (int fd), false, -1, fd)
INTERPOSE(int, fsync, (int fd), false, -1, fd)
INTERPOSE(int, fallocate, (int fd, int mode, off_t at, off_t n), true, no_space(), fd, mode, at, n)

/* A failed check ends the session with the status 1. */
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: seed %u, change %u: %s\n", __FILE__, __LINE__, session.seed,             \
                session.made, #condition);                                                                   \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static struct session {
    unsigned seed, made, pending, random; /* changes: made by the lists and the model; not answered */
    struct lists *lists;
    struct lists_model model;
    usec_t now;
    bool is_full;
    int turns; /* polls without an answer */
} session;

struct change {
    struct lists_change change; /* first */
    unsigned i;
};

static struct bytes follower(unsigned i)
{
    static const char *const names[FOLLOWERS] = {"a", "b", "c", "d"};
    return bytes_str(names[i % FOLLOWERS]);
}

static void ignore(void *arg)
{
    (void)arg;
}

static unsigned draw(unsigned n)
{
    return (unsigned)rand_r(&session.random) % n;
}

static void on_done(struct lists_change *change, enum journal_result r)
{
    struct change *c = (struct change *)change;
    struct buf ignored = {0};
    session.pending--;
    if (r == JOURNAL_OK) {
        CHECK(c->i == session.made);
        lists_model_change(&session.model, session.seed, session.made++, &ignored);
        session.turns = 0;
    } else
        CHECK(r == JOURNAL_CLOSED || r == JOURNAL_NO_SPACE);
    buf_free(&ignored);
    buf_free(&c->change.ops);
    free(c);
}

/* Returns false if the lists refuse the change. */
static bool send(unsigned i)
{
    struct change *c = mem_zalloc(sizeof *c);
    c->i = i;
    c->change = (struct lists_change){.follower = follower(i), .cursor.offset = i + 1, .done = on_done};
    lists_model_change(NULL, session.seed, i, &c->change.ops);
    enum journal_result r = lists_change(session.lists, &c->change, 1000000 + (usec_t)i);
    if (r == JOURNAL_OK) {
        session.pending++;
        return true;
    }
    CHECK(r == JOURNAL_NO_SPACE); /* not JOURNAL_MARK_BUSY: the follower's last change is answered */
    buf_free(&c->change.ops);
    free(c);
    return false;
}

static void show(const struct lists_shown *item, void *out)
{
    lists_model_line(out, item->time, item->id, item->data);
}

static void check_list(int key)
{
    struct buf name = {0}, shown = {0}, expected = {0}, id = {0};
    struct error error;
    bool is_paged = draw(2);
    usec_t time = is_paged ? (usec_t)draw(60) : -1;
    int place = (int)draw(MODEL_IDS);
    size_t limit = draw(3) ? 100 : draw(5);
    lists_model_name(&name, 'k', key);
    lists_model_name(&id, 'i', place);
    enum lists_result r = lists_get(session.lists, buf_bytes(&name), limit,
        is_paged ? &(struct lists_place){time, buf_bytes(&id)} : NULL, show, &shown, &error);
    CHECK(r == LISTS_OK);
    lists_model_show(&session.model, key, time, place, limit, &expected);
    if (!bytes_equal(buf_bytes(&shown), buf_bytes(&expected)))
        fprintf(stderr, "key %d shows\n%.*sexpected\n%.*s", key, (int)shown.len, shown.ptr, (int)expected.len,
            expected.ptr);
    CHECK(bytes_equal(buf_bytes(&shown), buf_bytes(&expected)));
    buf_free(&name);
    buf_free(&shown);
    buf_free(&expected);
    buf_free(&id);
}

/* Lets time pass: at most as much as the delay. Refused changes are sent again. */
static void turn(void)
{
    session.now += draw(4) == 0 ? 1000 : 10;
    lists_poll(session.lists, session.now);
    if (draw(3) == 0)
        lists_tick(session.lists, session.now);
    const char *failure = lists_failure(session.lists);
    if (failure)
        fprintf(stderr, "failure: %s\n", failure);
    CHECK(!failure);
    unsigned next = session.made;
    if (next < CHANGES && session.pending == 0)
        /* One if there may be no space: the journal may refuse a change and accept the one after it. */
        for (unsigned n = full_to > 0 ? 1 : 1 + draw(FOLLOWERS); n > 0 && next < CHANGES && send(next); n--)
            next++;
    if (session.pending == 0)
        check_list((int)draw(MODEL_KEYS));
}

static struct lists *open_lists(const char *dir, unsigned seed)
{
    struct error error = {0};
    struct lists_config config = {.dir = dir,
        .keep = 1 + seed % 5,
        .delay = seed % 3 * 2000,
        .memory = seed % 4 == 0 ? 2000 : 1 << 20,
        .batch = 1 + seed % 7,
        .turn = 1 + seed % 11,
        .notify = ignore};
    struct lists *l = lists_open(&config, session.now, &error);
    if (!l)
        fprintf(stderr, "%s\n", error.text);
    if (!l && error.code != LISTS_DAMAGED && full_to > 0)
        _exit(KILLED); /* a new directory, or a restart without space for the journal */
    return l;
}

static void wait_saved(void)
{
    for (usec_t end = 0; lists_stats(session.lists).oldest_change != 0 && is_early(&end); usleep(50)) {
        lists_poll(session.lists, session.now += 100000);
        lists_tick(session.lists, session.now);
    }
    CHECK(lists_stats(session.lists).oldest_change == 0);
}

/* The store alone has everything, each item once, and numbers of lists that fit. */
static void check_saved(void)
{
    wait_saved();
    for (int key = 0; key < MODEL_KEYS; key++)
        check_list(key);
    CHECK(lists_stats(session.lists).memory == 0);
    bool is_there[MODEL_IDS] = {false};
    size_t items = 0, edges = 0, lists = 0;
    for (int key = 0; key < MODEL_KEYS; key++) {
        lists += session.model.lists[key].n > 0;
        for (size_t i = 0; i < session.model.lists[key].n; i++)
            is_there[session.model.lists[key].entries[i].id] = true;
    }
    for (size_t i = 0; i < MODEL_IDS; i++)
        items += is_there[i];
    for (int a = 0; a < MODEL_AUTHORS; a++)
        for (int key = 0; key < MODEL_KEYS; key++)
            edges += session.model.follows[a][key];
    CHECK(lists_stats(session.lists).keys == lists);
    CHECK(lists_stats(session.lists).items == items);
    CHECK(lists_stats(session.lists).edges == edges);
}

static void run_session(const char *dir, unsigned seed, unsigned random, bool is_last)
{
    struct buf ignored = {0};
    session = (struct session){.seed = seed, .random = random, .now = 1};
    session.lists = open_lists(dir, seed);
    CHECK(session.lists);
    size_t keep = 1 + seed % 5;
    lists_model_init(&session.model, seed, keep, keep + LISTS_SPARE(keep));
    uint64_t committed = 0;
    for (unsigned i = 0; i < FOLLOWERS; i++) {
        uint64_t n = lists_follower_cursor(session.lists, follower(i)).offset;
        committed = n > committed ? n : committed;
    }
    while (session.made < committed)
        lists_model_change(&session.model, seed, session.made++, &ignored);
    buf_free(&ignored);
    for (int key = 0; key < MODEL_KEYS; key++)
        check_list(key);
    unsigned until = is_last ? CHANGES : session.made + draw(CHANGES / 2);
    for (usec_t end = 0; (session.made < until && session.made < CHANGES) || session.pending > 0;) {
        turn();
        if (session.turns++ > 100)
            usleep(50);
        CHECK(session.turns < 100 || is_early(&end));
    }
    if (is_last)
        check_saved();
    lists_close(&session.lists);
}

/* Returns the status of a session. */
static int run_child(const char *dir, unsigned seed, unsigned random, bool is_last)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka's handlers would run the other tests */
        signal(SIGABRT, SIG_DFL);
        calls = dies_at = full_from = full_to = 0;
        if (!is_last && random % 3 == 0)
            dies_at = 1 + (int)(random / 3 % 150);
        else if (!is_last && random % 3 == 1) {
            full_from = 1 + (int)(random / 3 % 150);
            full_to = full_from + 1 + (int)(random / 450 % 30);
        }
        run_session(dir, seed, random, is_last);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_programs(void **state)
{
    (void)state;
    const char *n = getenv("MILLRACE_PROGRAMS"), *first = getenv("MILLRACE_SEED");
    unsigned seed = first ? (unsigned)atoi(first) : 1, kills = 0;
    for (unsigned end = seed + (n ? (unsigned)atoi(n) : 150); seed < end; seed++) {
        char dir[64];
        unsigned random = seed * 7919;
        make_test_dir(dir, sizeof dir);
        for (int sessions = 0; sessions <= 5; sessions++) {
            int status = run_child(dir, seed, (unsigned)rand_r(&random), sessions == 5);
            if (status != 0 && status != KILLED)
                fprintf(stderr, "seed %u, session %d: status %d\n", seed, sessions, status);
            assert_true(status == 0 || (status == KILLED && sessions < 5));
            kills += status == KILLED;
        }
        remove_tree(dir);
    }
    assert_true(kills > 0);
    printf("%u sessions were killed\n", kills);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
