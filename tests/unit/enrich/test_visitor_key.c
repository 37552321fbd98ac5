/* visitor_key: a period has one key, from its first use until a day after its end, for all processes and after any crash. */
#include "support/cm.h"
#include "support/power.h"
#include "support/shell.h"
#include "support/test_dir.h"
#include "base/io.h"
#include "enrich/visitor_key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DAY INT64_C(86400)
#define TODAY (INT64_C(20420) * DAY) /* a Friday */
#define PROCESSES 8

static char dir[64], path[sizeof dir + 8];
static struct error error;

static int set_up(void **state)
{
    (void)state;
    make_test_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/keys", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    io = &io_system;
    shell("rm -r %s", dir);
    return 0;
}

static struct visitor_keys *open_at(int64_t now)
{
    return visitor_keys_open(path, VISITOR_DAY, now, &error);
}

/* Copies the key of a time. */
static enum visitor_key_result find(
    struct visitor_keys *k, int64_t time, int64_t now, struct visitor_key *out)
{
    const struct visitor_key *key;
    enum visitor_key_result r = visitor_keys_find(k, time, now, &key);
    if (r == VISITOR_KEY_OK)
        *out = *key;
    return r;
}

static void assert_same(const struct visitor_key *a, const struct visitor_key *b)
{
    assert_int_equal(a->number, b->number);
    assert_memory_equal(a->secret, b->secret, VISITOR_KEY_BYTES);
}

static void read_text(struct buf *out)
{
    buf_clear(out);
    assert_int_equal(io_read_file(path, 4096, out), 0);
    buf_append_char(out, '\0');
}

static void hex_of(const struct visitor_key *key, char out[2 * VISITOR_KEY_BYTES + 1])
{
    for (size_t i = 0; i < VISITOR_KEY_BYTES; i++)
        sprintf(out + 2 * i, "%02x", key->secret[i]);
}

static void write_text(const char *text, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_periods(void **state)
{
    (void)state;
    assert_int_equal(visitor_period_number(VISITOR_DAY, 0), 0);
    assert_int_equal(visitor_period_number(VISITOR_DAY, DAY - 1), 0);
    assert_int_equal(visitor_period_number(VISITOR_DAY, -1), -1);
    assert_int_equal(visitor_period_end(VISITOR_DAY, 0), DAY);
    /* 1970-01-05 was a Monday. */
    assert_int_equal(visitor_period_number(VISITOR_WEEK, 4 * DAY - 1), 0);
    assert_int_equal(visitor_period_number(VISITOR_WEEK, 4 * DAY), 1);
    assert_int_equal(visitor_period_number(VISITOR_WEEK, -3 * DAY), 0);
    assert_int_equal(visitor_period_number(VISITOR_WEEK, -3 * DAY - 1), -1);
    assert_int_equal(visitor_period_end(VISITOR_WEEK, 1), 11 * DAY);
}

static void test_a_key_lives_until_a_day_after_its_period(void **state)
{
    (void)state;
    struct visitor_key first, second, again;
    struct buf text = {0};
    char hex[2 * VISITOR_KEY_BYTES + 1];
    struct stat st;
    struct visitor_keys *k = open_at(TODAY), *other;
    assert_non_null(k);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(find(k, TODAY + 5, TODAY, &first), VISITOR_KEY_OK);
    assert_int_equal(find(k, TODAY + DAY, TODAY + DAY - 1, &again), VISITOR_KEY_EARLY);
    assert_int_equal(find(k, TODAY - 1, TODAY, &again), VISITOR_KEY_LATE);
    assert_int_equal(find(k, TODAY + DAY, TODAY + DAY, &second), VISITOR_KEY_OK);
    assert_memory_not_equal(first.secret, second.secret, VISITOR_KEY_BYTES);
    other = open_at(TODAY + 2 * DAY - 1);
    for (int i = 0; i < 2; i++) { /* the process that made the keys, and one that reads them */
        struct visitor_keys *reader = i == 0 ? k : other;
        assert_int_equal(find(reader, TODAY + DAY - 1, TODAY + 2 * DAY - 1, &again), VISITOR_KEY_OK);
        assert_same(&again, &first);
        assert_int_equal(find(reader, TODAY + DAY, TODAY + 2 * DAY - 1, &again), VISITOR_KEY_OK);
        assert_same(&again, &second);
    }
    hex_of(&first, hex);
    read_text(&text);
    assert_non_null(strstr(text.ptr, hex));
    assert_int_equal(visitor_keys_tend(k, TODAY + 2 * DAY, &error), 0);
    read_text(&text);
    assert_null(strstr(text.ptr, hex));
    for (int i = 0; i < 2; i++)
        assert_int_equal(find(i == 0 ? k : other, TODAY, TODAY + 2 * DAY, &again), VISITOR_KEY_LATE);
    /* The clock is set back to the first day. */
    assert_int_equal(find(k, TODAY, TODAY + 5, &again), VISITOR_KEY_LATE);
    assert_int_equal(find(k, TODAY + DAY, TODAY + 5, &again), VISITOR_KEY_EARLY);
    assert_int_equal(find(k, TODAY + DAY, TODAY + DAY, &again), VISITOR_KEY_OK);
    assert_same(&again, &second);
    visitor_keys_free(&k);
    visitor_keys_free(&other);
    buf_free(&text);
}

static void test_weeks(void **state)
{
    (void)state;
    struct visitor_key first, second, again;
    int64_t monday = TODAY + 3 * DAY;
    struct visitor_keys *k = visitor_keys_open(path, VISITOR_WEEK, TODAY, &error);
    assert_int_equal(find(k, monday - 7 * DAY, monday - 1, &first), VISITOR_KEY_OK);
    assert_int_equal(find(k, monday - 1, monday - 1, &again), VISITOR_KEY_OK);
    assert_same(&first, &again);
    assert_int_equal(find(k, monday, monday, &second), VISITOR_KEY_OK);
    assert_int_equal(find(k, monday - 1, monday + DAY - 1, &again), VISITOR_KEY_OK);
    assert_same(&first, &again);
    assert_int_equal(find(k, monday - 1, monday + DAY, &again), VISITOR_KEY_LATE);
    assert_int_equal(find(k, monday + 7 * DAY - 1, monday + 7 * DAY - 1, &again), VISITOR_KEY_OK);
    assert_same(&second, &again);
    visitor_keys_free(&k);
    assert_null(open_at(monday + 7 * DAY - 1));
    assert_non_null(strstr(error.text, "a key for each week, and visitor_key_period is day"));
}

static void test_errors_of_the_clock_are_bounded(void **state)
{
    (void)state;
    struct visitor_key key;
    struct visitor_keys *k = open_at(TODAY);
    for (int i = VISITOR_KEYS_MAX - 1; i > 0; i--) /* backwards, so that no key expires */
        assert_int_equal(find(k, TODAY, TODAY + 1000 * i * DAY, &key), VISITOR_KEY_LATE);
    visitor_keys_free(&k);
    k = open_at(TODAY + 10 * DAY);
    for (int i = 0; i < VISITOR_KEYS_MAX + 5; i++) {
        int64_t now = TODAY + (100 - i) * DAY;
        (void)visitor_keys_tend(k, now, &error);
    }
    visitor_keys_free(&k);
    struct visitor_key_set set;
    struct buf text = {0};
    assert_int_equal(io_read_file(path, VISITOR_FILE_MAX, &text), 0);
    assert_int_equal(visitor_key_set_parse(buf_bytes(&text), &set, &error), 0);
    buf_free(&text);
    assert_in_range(set.n, 1, VISITOR_KEYS_MAX);
}

static void assert_refused(const char *why)
{
    struct buf before = {0}, after = {0};
    bool has_text = io_read_file(path, 4096, &before) == 0;
    assert_null(open_at(TODAY + 5 * DAY));
    if (!strstr(error.text, why))
        fail_msg("%s, not %s", error.text, why);
    assert_non_null(strstr(error.text, path));
    assert_int_equal(io_read_file(path, 4096, &after) == 0, has_text);
    assert_true(bytes_equal(buf_bytes(&before), buf_bytes(&after)));
    buf_free(&before);
    buf_free(&after);
}

static void test_wrong_files_are_refused_and_kept(void **state)
{
    (void)state;
    struct buf text = {0};
    struct visitor_keys *k = open_at(TODAY);
    visitor_keys_free(&k);
    assert_int_equal(io_read_file(path, 4096, &text), 0);
    for (size_t i = 0; i < text.len; i++) {
        char was = text.ptr[i];
        text.ptr[i] = (char)(was ^ 1);
        write_text(text.ptr, text.len);
        assert_null(open_at(TODAY));
        write_text(text.ptr, i);
        assert_refused(i < sizeof "millrace-visitor-keys" ? "is not a file of visitor keys; delete it"
                                                          : "is damaged; delete it");
        text.ptr[i] = was;
    }
    buf_append_char(&text, '\n');
    write_text(text.ptr, text.len);
    assert_refused("is damaged");
    write_text("millrace-visitor-keys 2\n", 24);
    assert_refused("has an unknown format version: 2");
    write_text(text.ptr, text.len - 1);
    assert_int_equal(chmod(path, 0640), 0);
    assert_refused("is open to other users: chmod 600");
    assert_int_equal(chmod(path, 0600), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 1, 1), 0);
        assert_refused("belongs to user 1");
        assert_int_equal(chown(path, 0, 0), 0);
    }
    shell("mv %s %s.real && ln -s %s.real %s", path, path, path, path);
    assert_refused("is a symbolic link");
    shell("rm %s && mkdir %s", path, path);
    assert_refused("is not a file");
    shell("rmdir %s && mv %s.real %s", path, path, path);
    k = open_at(TODAY + DAY);
    assert_non_null(k);
    visitor_keys_free(&k);
    buf_free(&text);
}

/* What a life of a door has used. */
struct used {
    bool has_first, has_second, has_third; /* the third day has begun */
    struct visitor_key first, second;
};

static void note(struct visitor_keys *k, int64_t day, int64_t now, bool *has, struct visitor_key *used)
{
    struct visitor_key key;
    if (find(k, day, now, &key) != VISITOR_KEY_OK)
        return;
    if (*has)
        assert_same(&key, used);
    *has = true;
    *used = key;
}

/* A door works on the first day, and until the third, when the first key expires. */
static void live(struct used *u)
{
    struct visitor_keys *k = open_at(TODAY);
    if (!k)
        return;
    note(k, TODAY, TODAY, &u->has_first, &u->first);
    note(k, TODAY, TODAY + DAY, &u->has_first, &u->first);
    note(k, TODAY + DAY, TODAY + DAY, &u->has_second, &u->second);
    u->has_third = !power_is_cut();
    (void)visitor_keys_tend(k, TODAY + 2 * DAY, NULL);
    visitor_keys_free(&k);
}

static void test_a_used_key_survives_a_stop_at_every_step(void **state)
{
    (void)state;
    unsigned seed = 1, lived = 0;
    for (enum power_fault fault = POWER_CUT; fault <= POWER_KILL; fault++) {
        bool stopped = fault != POWER_FAULTS;
        for (unsigned at = 1; stopped; at++) {
            struct used u = {.has_first = false};
            power_on(fault, at);
            live(&u);
            stopped = power_operations() >= at;
            bool is_killed = fault == POWER_KILL && power_is_cut();
            if (is_killed)
                power_revive(POWER_NONE, 0);
            else
                power_off(&seed);
            struct visitor_keys *k = open_at(TODAY + DAY);
            assert_non_null(k);
            struct visitor_key key;
            if (u.has_first && find(k, TODAY, TODAY + DAY, &key) == VISITOR_KEY_OK)
                assert_same(&key, &u.first);
            else if (u.has_first)
                assert_true(u.has_third);
            bool has = u.has_second;
            note(k, TODAY + DAY, TODAY + DAY, &has, &u.second);
            assert_true(has);
            visitor_keys_free(&k);
            if (is_killed)
                power_off(&seed);
            shell("rm -f %s %s.new", path, path);
            lived += u.has_second;
        }
    }
    assert_true(lived > 0);
}

static void test_a_key_that_another_process_renamed_is_synced_before_its_use(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (unsigned at = 1;; at++) {
        struct visitor_key used, key;
        power_on(POWER_KILL, at);
        struct visitor_keys *k = open_at(TODAY);
        bool killed = power_is_cut();
        visitor_keys_free(&k);
        power_revive(POWER_NONE, 0);
        k = open_at(TODAY);
        assert_non_null(k);
        assert_int_equal(find(k, TODAY, TODAY, &used), VISITOR_KEY_OK);
        visitor_keys_free(&k);
        power_cut_now();
        power_off(&seed);
        k = open_at(TODAY);
        assert_int_equal(find(k, TODAY, TODAY, &key), VISITOR_KEY_OK);
        assert_same(&key, &used);
        visitor_keys_free(&k);
        shell("rm -f %s %s.new", path, path);
        if (!killed)
            return;
    }
}

static int fail_open(const char *file, int flags, mode_t mode)
{
    (void)file, (void)flags, (void)mode;
    errno = EIO;
    return -1;
}

static void test_an_unusable_file_keeps_no_key_too_long(void **state)
{
    (void)state;
    struct visitor_key first, key;
    struct io_ops failing = io_system;
    failing.open = fail_open;
    struct visitor_keys *k = open_at(TODAY);
    assert_int_equal(find(k, TODAY, TODAY, &first), VISITOR_KEY_OK);
    io = &failing;
    assert_int_equal(visitor_keys_tend(k, TODAY + DAY, &error), -1);
    assert_non_null(strstr(error.text, strerror(EIO)));
    assert_int_equal(find(k, TODAY, TODAY + DAY, &key), VISITOR_KEY_OK);
    assert_same(&key, &first);
    assert_int_equal(find(k, TODAY + DAY, TODAY + DAY, &key), VISITOR_KEY_FAILED);
    io = &io_system;
    assert_int_equal(find(k, TODAY + DAY, TODAY + DAY + VISITOR_RETRY - 1, &key), VISITOR_KEY_FAILED);
    assert_int_equal(find(k, TODAY + DAY, TODAY + DAY + VISITOR_RETRY, &key), VISITOR_KEY_OK);
    io = &failing;
    assert_int_equal(find(k, TODAY, TODAY + 2 * DAY, &key), VISITOR_KEY_LATE);
    visitor_keys_free(&k);
}

static int n_locks;
static int fail_lock(int fd, int how)
{
    (void)fd, (void)how;
    n_locks++;
    errno = EWOULDBLOCK;
    return -1;
}

static void test_a_kept_lock_is_waited_for_once(void **state)
{
    (void)state;
    struct visitor_key key;
    struct io_ops kept = io_system;
    kept.flock = fail_lock;
    struct visitor_keys *k = open_at(TODAY);
    io = &kept;
    n_locks = 0;
    assert_int_equal(find(k, TODAY + DAY, TODAY + DAY, &key), VISITOR_KEY_FAILED);
    assert_true(n_locks > 1);
    n_locks = 0;
    assert_int_equal(find(k, TODAY + DAY, TODAY + DAY + VISITOR_RETRY, &key), VISITOR_KEY_FAILED);
    assert_int_equal(n_locks, 1);
    io = &io_system;
    assert_int_equal(find(k, TODAY + DAY, TODAY + DAY + 2 * VISITOR_RETRY, &key), VISITOR_KEY_OK);
    visitor_keys_free(&k);
}

/* Gives the other processes time between the read and the write. */
static int slow_rename(const char *from, const char *to)
{
    clock_sleep(2 * USEC_PER_MSEC);
    return io_system.rename(from, to);
}

static void run_process(int to, int go)
{
    char byte;
    struct io_ops slow = io_system;
    slow.rename = slow_rename;
    io = &slow;
    struct visitor_key keys[2];
    if (read(go, &byte, 1) != 0) /* the parent closes the pipe */
        _exit(1);
    struct visitor_keys *k = open_at(TODAY);
    for (int day = 0; day < 2; day++)
        if (!k || find(k, TODAY + day * DAY, TODAY + day * DAY, &keys[day]) != VISITOR_KEY_OK)
            _exit(2);
    _exit(write(to, keys, sizeof keys) == sizeof keys ? 0 : 3);
}

static void test_processes_that_race_share_each_key(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        int out[2], go[2], status;
        struct visitor_key keys[PROCESSES][2];
        assert_int_equal(pipe(out) + pipe(go), 0);
        for (int i = 0; i < PROCESSES; i++)
            if (fork() == 0) {
                close(go[1]);
                run_process(out[1], go[0]);
            }
        close(go[0]);
        close(go[1]);
        for (int i = 0; i < PROCESSES; i++) {
            assert_true(wait(&status) > 0);
            assert_int_equal(status, 0);
        }
        for (int i = 0; i < PROCESSES; i++) {
            assert_int_equal(read(out[0], keys[i], sizeof keys[i]), sizeof keys[i]);
            for (int day = 0; day < 2; day++)
                assert_same(&keys[i][day], &keys[0][day]);
        }
        close(out[0]);
        close(out[1]);
        shell("rm %s", path);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(periods),
        TEST(a_key_lives_until_a_day_after_its_period),
        TEST(weeks),
        TEST(errors_of_the_clock_are_bounded),
        TEST(wrong_files_are_refused_and_kept),
        TEST(a_used_key_survives_a_stop_at_every_step),
        TEST(a_key_that_another_process_renamed_is_synced_before_its_use),
        TEST(an_unusable_file_keeps_no_key_too_long),
        TEST(a_kept_lock_is_waited_for_once),
        TEST(processes_that_race_share_each_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
