#include "lists/list_store.h"

#include "base/byte_order.h"
#include "base/errno_class.h"
#include "base/io.h"

#include <assert.h>
#include <errno.h>
#include <lmdb.h>
#include <stdlib.h>

#define FILE_NAME "lists.mdb"
#define FORMAT "1"
#define MAP_BYTES ((size_t)1 << 38) /* the limit of the file; takes only addresses */

struct list_txn {
    struct list_store *store;
    MDB_txn *txn;
    struct error *error; /* code 0: none */
};
struct list_store {
    char *path;
    MDB_env *env;
    MDB_dbi tables[LIST_TABLES];
    struct list_txn reader, writer; /* txn of the reader: NULL or reset between reads */
};

static const char *const names[] = {"lists", "items", "edges", "meta"};

static int fail(const char *path, int code, struct error *error)
{
    bool is_damage = code == MDB_CORRUPTED || code == MDB_PAGE_NOTFOUND || code == MDB_INVALID ||
                     code == MDB_VERSION_MISMATCH;
    enum lists_result r = code == MDB_MAP_FULL || errno_is_full(code) ? LISTS_NO_SPACE
                          : is_damage                                 ? LISTS_DAMAGED
                                                                      : LISTS_FAILED;
    return error_set(error, (int)r, "%.600s: %s", path, mdb_strerror(code));
}

static MDB_val val(struct bytes b)
{
    return (MDB_val){b.len, (void *)(uintptr_t)b.ptr};
}

static struct bytes of_val(MDB_val v)
{
    return bytes_of(v.mv_data, v.mv_size);
}

/* Returns 0 or a code of LMDB. The environment is freed by list_store_close. */
static int open_env(const char *path, unsigned flags, MDB_env **env)
{
    int stale, r = mdb_env_create(env);
    if (r == 0)
        r = mdb_env_set_maxdbs(*env, LIST_TABLES);
    if (r == 0)
        r = mdb_env_set_mapsize(*env, MAP_BYTES);
    if (r == 0)
        r = mdb_env_open(*env, path, MDB_NOSUBDIR | MDB_NOTLS | MDB_NORDAHEAD | flags, IO_PRIVATE_MODE);
    return r == 0 ? mdb_reader_check(*env, &stale) : r;
}

/* LMDB returns EIO for a short write, which sets no errno: the disk is full. */
static int commit(MDB_txn *txn)
{
    errno = 0;
    int r = mdb_txn_commit(txn);
    return r == EIO && errno != EIO ? ENOSPC : r;
}

static int open_tables(struct list_store *s)
{
    MDB_txn *txn;
    int r = mdb_txn_begin(s->env, NULL, 0, &txn);
    for (size_t i = 0; r == 0 && i < LIST_TABLES; i++)
        r = mdb_dbi_open(
            txn, names[i], MDB_CREATE | (i == LIST_TABLE_EDGES ? MDB_DUPSORT : 0), &s->tables[i]);
    if (r == 0)
        return commit(txn);
    mdb_txn_abort(txn);
    return r;
}

/* Checks format and journal, or stores them in a new file. */
static enum lists_result check_store(struct list_store *s, const char *journal_id, struct error *error)
{
    struct bytes format, journal = BYTES_NONE;
    struct list_txn *t = list_store_write(s, error);
    if (!t)
        return (enum lists_result)error->code;
    if (!list_txn_get(t, LIST_TABLE_META, BYTES_LITERAL("format"), &format)) {
        list_txn_put(t, LIST_TABLE_META, BYTES_LITERAL("format"), BYTES_LITERAL(FORMAT));
        list_txn_put(t, LIST_TABLE_META, BYTES_LITERAL("journal"), bytes_str(journal_id));
        return list_txn_commit(&t, 0);
    }
    list_txn_get(t, LIST_TABLE_META, BYTES_LITERAL("journal"), &journal);
    if (!bytes_equal_str(format, FORMAT))
        error_set(error, LISTS_DAMAGED, "%.600s: unknown format version", s->path);
    else if (!bytes_equal_str(journal, journal_id))
        error_set(error, LISTS_DAMAGED, "%.600s: belongs to another journal", s->path);
    return list_txn_end(&t);
}

struct list_store *list_store_open(const char *dir, const char *journal_id, struct error *error)
{
    struct list_store *s = mem_zalloc(sizeof *s);
    s->path = mem_printf("%s/" FILE_NAME, dir);
    s->reader.store = s->writer.store = s;
    int r = open_env(s->path, 0, &s->env);
    if (r == 0)
        r = open_tables(s);
    if (r == 0 && io_sync_dir(dir) != 0)
        r = errno;
    if (r != 0)
        fail(s->path, r, error);
    if (r != 0 || check_store(s, journal_id, error) != LISTS_OK)
        list_store_close(&s);
    return s;
}

void list_store_close(struct list_store **sp)
{
    struct list_store *s = *sp;
    if (!s)
        return;
    assert(!s->writer.txn);
    mdb_txn_abort(s->reader.txn);
    if (s->env)
        mdb_env_close(s->env);
    free(s->path);
    free(s);
    *sp = NULL;
}

uint64_t list_store_bytes(const struct list_store *s)
{
    MDB_envinfo info;
    MDB_stat stat;
    mdb_env_info(s->env, &info);
    mdb_env_stat(s->env, &stat);
    return ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
}

/* Transactions */

static struct list_txn *begun(struct list_txn *t, int r, struct error *error)
{
    error->code = 0;
    t->error = error;
    if (r == 0)
        return t;
    fail(t->store->path, r, error);
    return NULL;
}

struct list_txn *list_store_read(struct list_store *s, struct error *error)
{
    struct list_txn *t = &s->reader;
    int r = t->txn ? mdb_txn_renew(t->txn) : mdb_txn_begin(s->env, NULL, MDB_RDONLY, &t->txn);
    return begun(t, r, error);
}

struct list_txn *list_store_write(struct list_store *s, struct error *error)
{
    assert(!s->writer.txn);
    return begun(&s->writer, mdb_txn_begin(s->env, NULL, 0, &s->writer.txn), error);
}

enum lists_result list_txn_end(struct list_txn **tp)
{
    struct list_txn *t = *tp;
    *tp = NULL;
    if (t == &t->store->reader)
        mdb_txn_reset(t->txn);
    else {
        mdb_txn_abort(t->txn);
        t->txn = NULL;
    }
    return (enum lists_result)t->error->code;
}

enum lists_result list_txn_commit(struct list_txn **tp, uint64_t position)
{
    struct list_txn *t = *tp;
    char number[8];
    put_le64(number, position);
    list_txn_put(t, LIST_TABLE_META, BYTES_LITERAL("position"), bytes_of(number, sizeof number));
    if (t->error->code != 0)
        return list_txn_end(tp);
    int r = commit(t->txn);
    t->txn = NULL;
    *tp = NULL;
    return r == 0 ? LISTS_OK : (enum lists_result)fail(t->store->path, r, t->error);
}

/* Remembers the first error. Returns true without one. */
static bool check(struct list_txn *t, int r)
{
    if (r != 0 && r != MDB_NOTFOUND && t->error->code == 0)
        fail(t->store->path, r, t->error);
    return r == 0;
}

void list_txn_set_damaged(struct list_txn *t, enum list_table table, struct bytes key)
{
    if (t->error->code == 0)
        error_set(t->error, LISTS_DAMAGED, "%.600s: %s: the value of \"%.*s\" is damaged", t->store->path,
            names[table], (int)key.len, key.ptr);
}

bool list_txn_get(struct list_txn *t, enum list_table table, struct bytes key, struct bytes *value)
{
    MDB_val k = val(key), v;
    if (t->error->code != 0 || !check(t, mdb_get(t->txn, t->store->tables[table], &k, &v)))
        return false;
    *value = of_val(v);
    return true;
}

uint64_t list_txn_position(struct list_txn *t)
{
    struct bytes value;
    return list_txn_get(t, LIST_TABLE_META, BYTES_LITERAL("position"), &value) && value.len == 8
               ? get_le64(value.ptr)
               : 0;
}

uint64_t list_txn_count(struct list_txn *t, enum list_table table)
{
    MDB_stat stat = {0};
    if (t->error->code == 0)
        check(t, mdb_stat(t->txn, t->store->tables[table], &stat));
    return stat.ms_entries;
}

void list_txn_put(struct list_txn *t, enum list_table table, struct bytes key, struct bytes value)
{
    MDB_val k = val(key), v = val(value);
    if (t->error->code == 0)
        check(t, mdb_put(t->txn, t->store->tables[table], &k, &v, 0));
}

void list_txn_delete(struct list_txn *t, enum list_table table, struct bytes key)
{
    MDB_val k = val(key);
    if (t->error->code == 0)
        check(t, mdb_del(t->txn, t->store->tables[table], &k, NULL));
}

void list_txn_put_edge(struct list_txn *t, struct bytes author, struct bytes follower, bool follows)
{
    MDB_val k = val(author), v = val(follower);
    MDB_dbi edges = t->store->tables[LIST_TABLE_EDGES];
    if (t->error->code != 0)
        return;
    int r = follows ? mdb_put(t->txn, edges, &k, &v, MDB_NODUPDATA) : mdb_del(t->txn, edges, &k, &v);
    check(t, r == MDB_KEYEXIST ? 0 : r);
}

/* Walks from the first value for which `first` has placed the cursor, without `after`. */
static void walk(struct list_txn *t, enum list_table table, MDB_val k, MDB_val v, MDB_cursor_op first,
    MDB_cursor_op next, struct bytes after, size_t limit, list_walk_fn *fn, void *arg)
{
    MDB_cursor *cursor;
    MDB_val *name = table == LIST_TABLE_EDGES ? &v : &k;
    if (t->error->code != 0 || !check(t, mdb_cursor_open(t->txn, t->store->tables[table], &cursor)))
        return;
    int r = mdb_cursor_get(cursor, &k, &v, first);
    if (r == 0 && after.len > 0 && bytes_equal(of_val(*name), after))
        r = mdb_cursor_get(cursor, &k, &v, next);
    for (; limit > 0 && check(t, r); limit--) {
        fn(of_val(*name), arg);
        r = limit > 1 ? mdb_cursor_get(cursor, &k, &v, next) : 0;
    }
    mdb_cursor_close(cursor);
}

void list_txn_walk_keys(struct list_txn *t, struct bytes after, size_t limit, list_walk_fn *fn, void *arg)
{
    walk(t, LIST_TABLE_LISTS, val(after), (MDB_val){0}, after.len > 0 ? MDB_SET_RANGE : MDB_FIRST, MDB_NEXT,
        after, limit, fn, arg);
}

void list_txn_walk_followers(
    struct list_txn *t, struct bytes author, struct bytes after, size_t limit, list_walk_fn *fn, void *arg)
{
    walk(t, LIST_TABLE_EDGES, val(author), val(after), after.len > 0 ? MDB_GET_BOTH_RANGE : MDB_SET_KEY,
        MDB_NEXT_DUP, after, limit, fn, arg);
}

enum lists_result list_store_copy(const char *dir, const char *to, struct error *error)
{
    char *from = mem_printf("%s/" FILE_NAME, dir), *copy = mem_printf("%s/" FILE_NAME, to);
    MDB_env *env = NULL;
    int r = open_env(from, MDB_RDONLY, &env);
    if (r != 0)
        fail(from, r, error);
    else if ((r = mdb_env_copy2(env, copy, MDB_CP_COMPACT)) != 0)
        fail(copy, r, error);
    if (env)
        mdb_env_close(env);
    free(from);
    free(copy);
    return r == 0 ? LISTS_OK : (enum lists_result)error->code;
}
