#include "sorted_peers.h"

#include "counts/records.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#if defined HAVE_LMDB || defined HAVE_CDB
/* Splits the line at *at, and moves *at behind it. */
static bool next_record(struct bytes text, size_t *at, struct record *out)
{
    if (*at >= text.len)
        return false;
    const char *lf = memchr(text.ptr + *at, '\n', text.len - *at);
    size_t end = lf ? (size_t)(lf - text.ptr) : text.len;
    bool ok = record_split(bytes_of(text.ptr + *at, end - *at), RECORD_SEPARATOR, out);
    *at = end + 1;
    return ok;
}
#endif

#ifdef HAVE_LMDB
#include <lmdb.h>

static MDB_env *lmdb;
static MDB_txn *reading;
static MDB_dbi records_db;

static MDB_val val_of(struct bytes b)
{
    return (MDB_val){b.len, (char *)(uintptr_t)b.ptr};
}

static int lmdb_load(const char *path, struct bytes text, uint64_t records)
{
    MDB_txn *writing;
    struct record r;
    int failed = mdb_env_create(&lmdb) || mdb_env_set_mapsize(lmdb, (records + 1000) * 256) ||
                 mdb_env_open(lmdb, path, MDB_NOSUBDIR | MDB_NOSYNC, 0600) ||
                 mdb_txn_begin(lmdb, NULL, 0, &writing) || mdb_dbi_open(writing, NULL, 0, &records_db);
    for (size_t at = 0; !failed && next_record(text, &at, &r);) {
        MDB_val key = val_of(r.key), value = val_of(r.value);
        failed = mdb_put(writing, records_db, &key, &value, MDB_APPEND);
    }
    failed = failed || mdb_txn_commit(writing) || mdb_txn_begin(lmdb, NULL, MDB_RDONLY, &reading);
    return failed ? -1 : 0;
}

static bool lmdb_find(struct bytes key, struct bytes *value)
{
    MDB_val k = val_of(key), v;
    if (mdb_get(reading, records_db, &k, &v) != 0)
        return false;
    *value = bytes_of(v.mv_data, v.mv_size);
    return true;
}

static void lmdb_close(const char *path)
{
    char lock[256];
    mdb_txn_abort(reading);
    mdb_env_close(lmdb);
    snprintf(lock, sizeof(lock), "%s-lock", path);
    unlink(lock);
    unlink(path);
}
#endif

#ifdef HAVE_CDB
#include <cdb.h>

static struct cdb cdb;

static int cdb_load(const char *path, struct bytes text, uint64_t records)
{
    struct cdb_make make;
    struct record r;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int failed = fd < 0 || cdb_make_start(&make, fd) != 0;
    (void)records;
    for (size_t at = 0; !failed && next_record(text, &at, &r);)
        failed = cdb_make_add(&make, r.key.ptr, (unsigned)r.key.len, r.value.ptr, (unsigned)r.value.len);
    failed = failed || cdb_make_finish(&make) != 0 || cdb_init(&cdb, fd) != 0;
    return failed ? -1 : 0;
}

static bool cdb_find_value(struct bytes key, struct bytes *value)
{
    if (cdb_find(&cdb, key.ptr, (unsigned)key.len) <= 0)
        return false;
    *value = bytes_of(cdb_get(&cdb, cdb_datalen(&cdb), cdb_datapos(&cdb)), cdb_datalen(&cdb));
    return true;
}

static void cdb_close(const char *path)
{
    close(cdb_fileno(&cdb));
    cdb_free(&cdb);
    unlink(path);
}
#endif

const struct peer sorted_peers[] = {
#ifdef HAVE_LMDB
    {"LMDB", lmdb_load, lmdb_find, lmdb_close},
#endif
#ifdef HAVE_CDB
    {"cdb", cdb_load, cdb_find_value, cdb_close},
#endif
    {NULL, NULL, NULL, NULL},
};
