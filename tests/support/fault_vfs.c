#include "support/fault_vfs.h"

#include <assert.h>
#include <sqlite3.h>
#include <stdlib.h>

struct methods {
    sqlite3_io_methods faulty; /* first: a file points to it */
    const sqlite3_io_methods *real;
};

static _Thread_local int code;
static sqlite3_vfs vfs, *real_vfs;

static int faulty_read(sqlite3_file *file, void *out, int n, sqlite3_int64 at)
{
    return code ? code : ((const struct methods *)file->pMethods)->real->xRead(file, out, n, at);
}

static int faulty_open(sqlite3_vfs *self, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    static struct methods known[8];
    int r = real_vfs->xOpen(self, name, file, flags, out_flags);
    if (r != SQLITE_OK || !file->pMethods)
        return r;
    for (int i = 0; i < 8; i++) {
        if (!known[i].real) {
            known[i] = (struct methods){*file->pMethods, file->pMethods};
            known[i].faulty.xRead = faulty_read;
        }
        if (known[i].real == file->pMethods) {
            file->pMethods = &known[i].faulty;
            return r;
        }
    }
    abort();
}

void fault_vfs_set(int next)
{
    if (!real_vfs) {
        real_vfs = sqlite3_vfs_find(NULL);
        vfs = *real_vfs;
        vfs.pNext = NULL;
        vfs.zName = "fault";
        vfs.xOpen = faulty_open;
        int r = sqlite3_vfs_register(&vfs, 1);
        assert(r == SQLITE_OK);
    }
    code = next;
}
