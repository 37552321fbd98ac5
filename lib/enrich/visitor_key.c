#include "enrich/visitor_key.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/xxh3.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION 1
#define MAGIC "millrace-visitor-keys "
#define MODE 0600
#define DAY INT64_C(86400)
#define MONDAY 3 /* 1970-01-01 was a Thursday */
#define LOCK_WAIT USEC_PER_SEC
#define LOCK_POLL USEC_PER_MSEC

struct visitor_keys {
    char *path, *lock, *fresh;
    struct visitor_key_set set;
    int64_t tended_at;   /* time of the latest access */
    int64_t valid_from;  /* no access to the file is due from this time ... */
    int64_t valid_until; /* ... until here */
    bool has_failed;
    struct error error; /* of the latest access */
};

static const char *const period_names[] = {[VISITOR_DAY] = "day", [VISITOR_WEEK] = "week"};

static int64_t floor_div(int64_t n, int64_t by)
{
    return n / by - (n % by < 0);
}

int64_t visitor_period_number(enum visitor_period period, int64_t time)
{
    int64_t day = floor_div(time, DAY);
    return period == VISITOR_DAY ? day : floor_div(day + MONDAY, 7);
}

static int64_t begin_of(enum visitor_period period, int64_t number)
{
    return (period == VISITOR_DAY ? number : number * 7 - MONDAY) * DAY;
}

int64_t visitor_period_end(enum visitor_period period, int64_t number)
{
    return begin_of(period, number + 1);
}

/* ---- the file's text ---- */

void visitor_key_set_print(const struct visitor_key_set *set, struct buf *out)
{
    size_t begin = out->len;
    buf_printf(
        out, MAGIC "%d\nperiod %s\ndeleted %" PRId64 "\n", VERSION, period_names[set->period], set->deleted);
    for (size_t i = 0; i < set->n; i++) {
        buf_printf(out, "key %" PRId64 " ", set->keys[i].number);
        for (size_t k = 0; k < VISITOR_KEY_BYTES; k++)
            buf_printf(out, "%02x", set->keys[i].secret[k]);
        buf_append_char(out, '\n');
    }
    buf_printf(out, "checksum %016" PRIx64 "\n", (uint64_t)XXH3_64bits(out->ptr + begin, out->len - begin));
}

/* Reads `key NUMBER HEX`. */
static bool read_key(struct bytes line, struct visitor_key *key)
{
    struct buf secret = {0};
    bytes_take_word(&line);
    bool ok = bytes_to_i64(bytes_take_word(&line), &key->number) && line.len == (size_t)2 * VISITOR_KEY_BYTES;
    buf_reserve(&secret, VISITOR_KEY_BYTES);
    ok = ok && buf_append_unhex(&secret, line);
    if (ok)
        memcpy(key->secret, secret.ptr, VISITOR_KEY_BYTES);
    explicit_bzero(secret.ptr, secret.cap);
    buf_free(&secret);
    return ok;
}

/* Reads the lines. visitor_key_set_parse compares the result with the text, so this function may be lenient. */
static void read_lines(const char *list, struct visitor_key_set *set)
{
    for (struct bytes line; bytes_next_word(&list, "\n", &line);) {
        struct bytes value = line, name = bytes_take_word(&value);
        if (bytes_equal_str(name, "period"))
            set->period = bytes_equal_str(value, period_names[VISITOR_WEEK]) ? VISITOR_WEEK : VISITOR_DAY;
        else if (bytes_equal_str(name, "deleted"))
            (void)bytes_to_i64(value, &set->deleted);
        else if (bytes_equal_str(name, "key") && set->n < VISITOR_KEYS_MAX)
            set->n += read_key(line, &set->keys[set->n]);
    }
}

static bool is_in_order(const struct visitor_key_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->keys[i].number <= (i > 0 ? set->keys[i - 1].number : set->deleted))
            return false;
    return set->deleted >= 0;
}

int visitor_key_set_parse(struct bytes text, struct visitor_key_set *out, struct error *error)
{
    struct buf again = {0};
    uint64_t version = 0;
    struct bytes magic = BYTES_LITERAL(MAGIC);
    *out = (struct visitor_key_set){.n = 0};
    if (!bytes_starts_with(text, magic))
        return error_set(error, -1, "is not a file of visitor keys");
    struct bytes number = bytes_of(text.ptr + magic.len, text.len - magic.len);
    for (size_t i = 0; i < number.len; i++)
        if (number.ptr[i] == '\n')
            number.len = i;
    if (bytes_to_u64(number, &version) && version > VERSION)
        return error_set(error, -1,
            "has an unknown format version: %" PRIu64 "; this millrace reads version %d", version, VERSION);
    char *copy = bytes_dup(text);
    read_lines(copy, out);
    visitor_key_set_print(out, &again);
    bool ok = bytes_equal(buf_bytes(&again), text) && is_in_order(out);
    explicit_bzero(copy, text.len);
    explicit_bzero(again.ptr, again.cap);
    free(copy);
    buf_free(&again);
    return ok ? 0 : error_set(error, -1, "is damaged");
}

/* ---- the file ---- */

/* Refuses a file that other users may read, or that this process could only replace by a file of another owner. */
static int check_owner(int fd, const char *path, struct error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_errno(error, -1, path);
    if (!S_ISREG(st.st_mode))
        return error_set(error, -1, "%s is not a file", path);
    if (st.st_uid != geteuid())
        return error_set(error, -1,
            "%s belongs to user %u, and this process to user %u; run all doors as one user", path,
            (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return error_set(error, -1, "%s is open to other users: chmod 600 %s", path, path);
    return 0;
}

/* Returns 0, 1 if the file is missing, or -1 with the error. */
static int read_set(const char *path, struct visitor_key_set *out, struct error *error)
{
    char text[VISITOR_FILE_MAX];
    int fd = io->open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0 && errno == ELOOP)
        return error_set(error, -1, "%s is a symbolic link; name the file itself", path);
    if (fd < 0)
        return error_errno(error, errno == ENOENT ? 1 : -1, path);
    int r = check_owner(fd, path, error);
    ssize_t n = r == 0 ? io->pread(fd, text, sizeof text, 0) : 0;
    struct error why;
    if (n < 0)
        r = error_errno(error, -1, path);
    else if (r == 0 && visitor_key_set_parse(bytes_of(text, (size_t)n), out, &why) != 0)
        r = error_set(error, -1,
            "%s %s; delete it: visitors of the present period then count a second time, and late events of "
            "the previous period get no visitor",
            path, why.text);
    io->close(fd);
    explicit_bzero(text, sizeof text);
    return r;
}

static int write_set(const struct visitor_keys *k, const struct visitor_key_set *set, struct error *error)
{
    struct buf text = {0};
    buf_reserve(&text, VISITOR_FILE_MAX); /* so that no copy of the keys remains in freed memory */
    visitor_key_set_print(set, &text);
    int r = io_replace_file(k->path, buf_bytes(&text), MODE);
    if (r != 0)
        error_errno(error, -1, k->path);
    explicit_bzero(text.ptr, text.cap);
    buf_free(&text);
    return r;
}

/* Waits only once for a process that keeps the lock, because a door waits in its event loop. */
static int take_lock(const struct visitor_keys *k, struct error *error)
{
    int fd = io->open(k->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, MODE), r = -1;
    struct buf text = {0};
    usec_t most = k->has_failed ? 0 : LOCK_WAIT;
    for (usec_t waited = 0; fd >= 0 && (r = io->flock(fd, LOCK_EX | LOCK_NB)) != 0; waited += LOCK_POLL) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || waited >= most)
            break;
        clock_sleep(LOCK_POLL);
    }
    if (r == 0)
        return fd;
    int why = errno;
    buf_printf(&text, "%s", why == EWOULDBLOCK ? "another process holds the lock" : strerror(why));
    if (why == EACCES || why == EPERM)
        io_append_owner(k->lock, &text);
    error_set(error, -1, "%s: %s", k->lock, text.ptr);
    buf_free(&text);
    if (fd >= 0)
        io->close(fd);
    return -1;
}

/* ---- the periods ---- */

static bool is_expired(const struct visitor_key_set *set, size_t i, int64_t now)
{
    return now >= visitor_period_end(set->period, set->keys[i].number) + VISITOR_KEEP;
}

static struct visitor_key *find(struct visitor_key_set *set, int64_t number)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->keys[i].number == number)
            return &set->keys[i];
    return NULL;
}

/* Deletes the expired keys, which are the first. Returns true if there were any. */
static bool expire(struct visitor_key_set *set, int64_t now)
{
    size_t n = 0;
    while (n < set->n && is_expired(set, n, now))
        set->deleted = set->keys[n++].number;
    memmove(set->keys, set->keys + n, (set->n - n) * sizeof *set->keys);
    set->n -= n;
    explicit_bzero(set->keys + set->n, n * sizeof *set->keys);
    return n > 0;
}

/* Adds the key of the period. Returns 1, 0 if the period has a key or may get none, or -1 with the error. */
static int add(struct visitor_key_set *set, int64_t number, struct error *error)
{
    size_t at = 0;
    while (at < set->n && set->keys[at].number < number)
        at++;
    if (number <= set->deleted || find(set, number))
        return 0;
    if (set->n == VISITOR_KEYS_MAX)
        return error_set(error, -1, "the file has keys of %d future periods, because the clock was ahead",
            VISITOR_KEYS_MAX);
    struct visitor_key key = {.number = number};
    if (getrandom(key.secret, sizeof key.secret, 0) != (ssize_t)sizeof key.secret)
        return error_errno(error, -1, "getrandom");
    memmove(set->keys + at + 1, set->keys + at, (set->n++ - at) * sizeof *set->keys);
    set->keys[at] = key;
    explicit_bzero(&key, sizeof key);
    return 1;
}

static int check_period(
    const char *path, enum visitor_period has, enum visitor_period wanted, struct error *error)
{
    return has == wanted ? 0
                         : error_set(error, -1,
                               "%s has a key for each %s, and visitor_key_period is %s; name another file, "
                               "or delete this one; visitors of the present period then count a second time",
                               path, period_names[has], period_names[wanted]);
}

/* Reads the file, and changes it if the present period needs a key or a key has expired. Holds the lock. */
static int renew(struct visitor_keys *k, struct visitor_key_set *set, int64_t now, struct error *error)
{
    int r = read_set(k->path, set, error);
    if (r < 0)
        return -1;
    if (r > 0)
        *set = (struct visitor_key_set){.period = k->set.period};
    if (check_period(k->path, set->period, k->set.period, error) != 0)
        return -1;
    if (io->unlink(k->fresh) != 0 && errno != ENOENT) /* of a killed process; it may contain expired keys */
        return error_errno(error, -1, k->fresh);
    bool has_expired = expire(set, now);
    int added = add(set, visitor_period_number(set->period, now), error);
    if (added < 0)
        return -1;
    if (has_expired || added || r > 0)
        return write_set(k, set, error);
    return io_sync_name(k->path) == 0 ? 0 : error_errno(error, -1, k->path);
}

/* Sets the time during which no access to the file is due. */
static void set_validity(struct visitor_keys *k, int64_t now)
{
    enum visitor_period period = k->set.period;
    int64_t number = visitor_period_number(period, now);
    k->valid_from = begin_of(period, number);
    k->valid_until = visitor_period_end(period, number);
    for (size_t i = 0; i < k->set.n; i++) {
        int64_t end = visitor_period_end(period, k->set.keys[i].number) + VISITOR_KEEP;
        if (end < k->valid_until)
            k->valid_until = end;
    }
}

int visitor_keys_tend(struct visitor_keys *k, int64_t now, struct error *error)
{
    struct visitor_key_set set = {.n = 0};
    int64_t age = now - k->tended_at;
    bool is_due =
        k->has_failed ? age < 0 || age >= VISITOR_RETRY : now < k->valid_from || now >= k->valid_until;
    if (!is_due)
        return k->has_failed ? error_set(error, -1, "%s", k->error.text) : 0;
    k->tended_at = now;
    int lock = take_lock(k, &k->error);
    k->has_failed = lock < 0 || renew(k, &set, now, &k->error) != 0;
    if (lock >= 0)
        io->close(lock);
    if (!k->has_failed) {
        k->set = set;
        set_validity(k, now);
    }
    explicit_bzero(&set, sizeof set);
    (void)expire(&k->set, now); /* also from memory if the file cannot be changed */
    return k->has_failed ? error_set(error, -1, "%s", k->error.text) : 0;
}

enum visitor_key_result visitor_keys_find(
    struct visitor_keys *k, int64_t time, int64_t now, const struct visitor_key **key)
{
    int64_t number = visitor_period_number(k->set.period, time);
    int r = visitor_keys_tend(k, now, NULL);
    *key = find(&k->set, number);
    if (*key && visitor_period_number(k->set.period, now) >= number)
        return VISITOR_KEY_OK;
    if (number > visitor_period_number(k->set.period, now))
        return VISITOR_KEY_EARLY;
    return r != 0 && number > k->set.deleted ? VISITOR_KEY_FAILED : VISITOR_KEY_LATE;
}

struct visitor_keys *visitor_keys_open(
    const char *path, enum visitor_period period, int64_t now, struct error *error)
{
    struct visitor_keys *k = mem_zalloc(sizeof *k);
    *k = (struct visitor_keys){.path = mem_strdup(path),
        .lock = mem_printf("%s.lock", path),
        .fresh = mem_printf("%s.new", path),
        .set.period = period};
    if (visitor_keys_tend(k, now, error) != 0)
        visitor_keys_free(&k);
    return k;
}

int visitor_keys_check(const char *path, enum visitor_period period, struct error *error)
{
    struct visitor_key_set set = {.n = 0};
    int r = read_set(path, &set, error);
    if (r == 0)
        r = check_period(path, set.period, period, error);
    explicit_bzero(&set, sizeof set);
    return r < 0 ? -1 : 0;
}

void visitor_keys_free(struct visitor_keys **kp)
{
    struct visitor_keys *k = *kp;
    if (!k)
        return;
    free(k->path);
    free(k->lock);
    free(k->fresh);
    explicit_bzero(k, sizeof *k);
    free(k);
    *kp = NULL;
}
