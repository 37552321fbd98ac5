/* fault_vfs: makes SQLite's reads fail. */
#ifndef MILLRACE_FAULT_VFS_H
#define MILLRACE_FAULT_VFS_H

/* Makes every read of the calling thread return an SQLite code. 0: reads succeed. Affects files opened after the first call. */
void fault_vfs_set(int code);

#endif
