/* disk_guard: refuses new events while little disk space is free. The space kept free is for acknowledgements, counts
 * and compactions.
 *
 * 1. Below twice `min_free`, /health shows a warning. Below `min_free`, disk_guard_refuses returns true until
 *    1.05 * min_free is free.
 * 2. After a write has found no space (disk_guard_note_full), on_look reports when the disk has room again, so that the
 *    daemon need not try a write.
 * 3. The guard checks the disk every DISK_GUARD_EVERY. Only the loop's thread may call the functions. */
#ifndef MILLRACE_DISK_GUARD_H
#define MILLRACE_DISK_GUARD_H

#include "daemon/daemon.h"

#define DISK_GUARD_EVERY (200 * USEC_PER_MSEC)

/* A row for the daemon's table of options. */
#define DISK_GUARD_SETTING                                                                                   \
    {                                                                                                        \
        .name = "min_free", .type = OPTION_SIZE, .min = 0, .max = INT64_C(1) << 50, .unit = "bytes",         \
        .help = "free disk space below which new events are refused; 0: only a full disk refuses events; "   \
                "unset: 5 % of the disk, at most 1G"                                                         \
    }

struct disk_guard;

struct disk_guard_config {
    struct daemon *daemon;                     /* a daemon with the row DISK_GUARD_SETTING */
    const char *dir;                           /* a directory on the disk; copied */
    const char *what;                          /* the refused events in warnings, such as "puts"; borrowed */
    void (*on_look)(void *arg, bool has_room); /* called after each check of the disk; may be NULL */
    void *arg;
};

struct disk_guard *disk_guard_new(const struct disk_guard_config *config);
void disk_guard_free(struct disk_guard **g);
/* Returns whether to refuse events. `g` may be NULL: the result is then false. */
bool disk_guard_refuses(const struct disk_guard *g);
/* Returns "the disk is full", and the number of free bytes if disk_guard_refuses is true. The text is valid until the
 * next check of the disk. */
const char *disk_guard_why(const struct disk_guard *g);
/* Records that a write found no space. The disk has room again once DISK_GUARD_ROOM more bytes are free than now. */
#define DISK_GUARD_ROOM (256 << 10)
void disk_guard_note_full(struct disk_guard *g);

#endif
