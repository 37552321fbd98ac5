/* bench_list_stores: LMDB and SQLite in the pattern of lists: transactions that read and replace random values, and reads of random
 * values. Shares nothing with lists/list_store.h, which uses LMDB for the reasons in docs/internals/lists.md.
 *
 *     bench_list_stores [KEYS [TRANSACTIONS]]     in thousands (default 100); transactions a size (default 20)
 *
 * The values have 100 to 2,000 bytes. A transaction replaces 100 or 1,000 of them and is synced. Prints for each store and size: values
 * written a second, bytes that the process wrote for a value byte, reads a second, and the bytes of the file for a value byte. */
#include "base/bytes.h"
#include "base/clock.h"

#include <lmdb.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define VALUE_MIN 100
#define VALUE_MAX 2000
#define READS 200000

static char dir[] = "bench-list-stores-XXXXXX";
static uint64_t state = 1, value_bytes;

static void check(bool is_ok, const char *what)
{
    if (is_ok)
        return;
    fprintf(stderr, "bench_list_stores: %s failed\n", what);
    exit(1);
}

static uint64_t draw(uint64_t n)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (z ^ z >> 31) % n;
}

static struct bytes key_of(uint64_t i)
{
    static char key[32];
    return bytes_of(key, (size_t)snprintf(key, sizeof key, "user%08d", (int)i));
}

static struct bytes draw_value(void)
{
    static char value[VALUE_MAX];
    size_t n = VALUE_MIN + (size_t)draw(VALUE_MAX - VALUE_MIN);
    for (size_t i = 0; i < n; i += 8)
        memcpy(value + i, &(uint64_t){draw(UINT64_MAX)}, n - i < 8 ? n - i : 8);
    value_bytes += n;
    return bytes_of(value, n);
}

/* A store. `get` returns the number of bytes; `put` replaces. */
struct kind {
    const char *name;
    void (*open)(void);
    void (*begin)(bool writes);
    size_t (*get)(struct bytes key);
    void (*put)(struct bytes key, struct bytes value);
    void (*commit)(void);
    const char *file;
};

static MDB_env *env;
static MDB_txn *txn;
static MDB_dbi table;

static void lmdb_begin(bool writes)
{
    check(mdb_txn_begin(env, NULL, writes ? 0 : MDB_RDONLY, &txn) == 0, "mdb_txn_begin");
}

static void lmdb_commit(void)
{
    check(mdb_txn_commit(txn) == 0, "mdb_txn_commit");
}

static void lmdb_open(void)
{
    check(mdb_env_create(&env) == 0 && mdb_env_set_mapsize(env, (size_t)1 << 40) == 0 &&
              mdb_env_open(env, "lmdb", MDB_NOSUBDIR | MDB_NORDAHEAD, 0600) == 0,
        "mdb_env_open");
    lmdb_begin(true);
    check(mdb_dbi_open(txn, NULL, 0, &table) == 0, "mdb_dbi_open");
    lmdb_commit();
}

static size_t lmdb_get(struct bytes key)
{
    MDB_val k = {key.len, (void *)(uintptr_t)key.ptr}, v;
    return mdb_get(txn, table, &k, &v) == 0 ? v.mv_size : 0;
}

static void lmdb_put(struct bytes key, struct bytes value)
{
    MDB_val k = {key.len, (void *)(uintptr_t)key.ptr}, v = {value.len, (void *)(uintptr_t)value.ptr};
    check(mdb_put(txn, table, &k, &v, 0) == 0, "mdb_put");
}

static sqlite3 *db;
static sqlite3_stmt *selects, *replaces;

static void sqlite_do(const char *sql)
{
    check(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, sql);
}

static void sqlite_open(void)
{
    check(sqlite3_open("sqlite", &db) == SQLITE_OK, "sqlite3_open");
    sqlite_do("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA mmap_size=1099511627776; PRAGMA "
              "cache_size=-65536;"
              "CREATE TABLE lists(key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID");
    check(sqlite3_prepare_v2(db, "SELECT value FROM lists WHERE key=?", -1, &selects, NULL) == SQLITE_OK &&
              sqlite3_prepare_v2(db, "REPLACE INTO lists VALUES(?,?)", -1, &replaces, NULL) == SQLITE_OK,
        "sqlite3_prepare");
}

static void sqlite_begin(bool writes)
{
    sqlite_do(writes ? "BEGIN IMMEDIATE" : "BEGIN");
}

static void sqlite_commit(void)
{
    sqlite_do("COMMIT");
}

static size_t sqlite_get(struct bytes key)
{
    sqlite3_bind_blob(selects, 1, key.ptr, (int)key.len, SQLITE_STATIC);
    size_t n = sqlite3_step(selects) == SQLITE_ROW ? (size_t)sqlite3_column_bytes(selects, 0) : 0;
    sqlite3_reset(selects);
    return n;
}

static void sqlite_put(struct bytes key, struct bytes value)
{
    sqlite3_bind_blob(replaces, 1, key.ptr, (int)key.len, SQLITE_STATIC);
    sqlite3_bind_blob(replaces, 2, value.ptr, (int)value.len, SQLITE_STATIC);
    check(sqlite3_step(replaces) == SQLITE_DONE, "REPLACE");
    sqlite3_reset(replaces);
}

/* Bytes that the process passed to write calls. */
static uint64_t written(void)
{
    char line[100];
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "r");
    check(f, "/proc/self/io");
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "wchar: %llu", &n) == 1)
            break;
    fclose(f);
    return n;
}

static void write_some(const struct kind *k, uint64_t keys, size_t transactions, size_t size)
{
    value_bytes = 0;
    uint64_t bytes = written();
    usec_t start = clock_monotonic();
    for (size_t t = 0; t < transactions; t++) {
        k->begin(true);
        for (size_t i = 0; i < size; i++) {
            uint64_t key = draw(keys);
            check(k->get(key_of(key)) > 0, "get");
            k->put(key_of(key), draw_value());
        }
        k->commit();
    }
    double seconds = (double)(clock_monotonic() - start) / USEC_PER_SEC;
    printf("%-7s %5zu values a transaction: %8.0f values/s, %.2f bytes written for a byte\n", k->name, size,
        (double)(transactions * size) / seconds, (double)(written() - bytes) / (double)value_bytes);
}

static void run(const struct kind *k, uint64_t keys, size_t transactions)
{
    struct stat st;
    state = 1;
    k->open();
    value_bytes = 0;
    for (uint64_t i = 0; i < keys;) {
        k->begin(true);
        for (uint64_t end = i + 10000 < keys ? i + 10000 : keys; i < end; i++)
            k->put(key_of(i), draw_value());
        k->commit();
    }
    uint64_t live = value_bytes;
    write_some(k, keys, 10 * transactions, 100);
    write_some(k, keys, transactions, 1000);
    usec_t start = clock_monotonic();
    for (size_t i = 0; i < READS; i++) {
        if (i % 20 == 0)
            k->begin(false);
        check(k->get(key_of(draw(keys))) > 0, "get");
        if (i % 20 == 19)
            k->commit();
    }
    double seconds = (double)(clock_monotonic() - start) / USEC_PER_SEC;
    check(stat(k->file, &st) == 0, "stat");
    printf("%-7s %.0f reads/s (20 a transaction), file %.2f bytes for a byte\n", k->name, READS / seconds,
        (double)st.st_size / (double)live);
}

int main(int argc, char **argv)
{
    static const struct kind kinds[] = {
        {"lmdb", lmdb_open, lmdb_begin, lmdb_get, lmdb_put, lmdb_commit, "lmdb"},
        {"sqlite", sqlite_open, sqlite_begin, sqlite_get, sqlite_put, sqlite_commit, "sqlite"},
    };
    uint64_t keys = (argc > 1 ? strtoull(argv[1], NULL, 10) : 100) * 1000;
    size_t transactions = argc > 2 ? strtoull(argv[2], NULL, 10) : 20;
    check(keys > 0 && mkdtemp(dir) && chdir(dir) == 0, "mkdtemp");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        run(&kinds[i], keys, transactions);
    static const char *const files[] = {"lmdb", "lmdb-lock", "sqlite", "sqlite-wal", "sqlite-shm"};
    mdb_env_close(env);
    sqlite3_finalize(selects);
    sqlite3_finalize(replaces);
    sqlite3_close(db);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i]);
    return chdir("..") == 0 && rmdir(dir) == 0 ? 0 : 1;
}
