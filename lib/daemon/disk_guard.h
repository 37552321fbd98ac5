/* disk_guard: keeps a part of the disk free, for acknowledgements, counts and compactions, by refusing new events in time.
 *
 * 1. Below twice `min_free`, /health has a warning. Below `min_free`, disk_guard_refuses returns true until a twentieth more is free.
 * 2. `on_look` also tells a daemon whose write found no space when there is room again, so that it resumes without a write.
 * 3. The disk is looked at every DISK_GUARD_EVERY. Loop thread only.
 */
#ifndef MILLRACE_DISK_GUARD_H
#define MILLRACE_DISK_GUARD_H

#include "daemon/daemon.h"

#define DISK_GUARD_EVERY (200 * USEC_PER_MSEC)

/* A row for the daemon's table of options. */
#define DISK_GUARD_SETTING                                                                                   \
    {                                                                                                        \
        .name = "min_free", .type = OPTION_SIZE, .min = 0, .max = INT64_C(1) << 50, .unit = "bytes",         \
        .help = "refuse new events while less of the disk is free; 0: only when it is full; unset: 5 % of "  \
                "the disk, at most 1G"                                                                       \
    }

struct disk_guard;

struct disk_guard_config {
    struct daemon *daemon; /* has the setting */
    const char *dir;       /* a directory on the disk; copied */
    const char *what;      /* that is refused: "puts"; borrowed */
    void (*on_look)(void *arg, bool has_room);
    void *arg;
};

struct disk_guard *disk_guard_new(const struct disk_guard_config *config);
void disk_guard_free(struct disk_guard **g);
/* The guard may be NULL, and then never refuses. */
bool disk_guard_refuses(const struct disk_guard *g);
/* "the disk is full", with the free bytes, unless a write found no space. Valid until the next look. */
const char *disk_guard_why(const struct disk_guard *g);
/* A write found no space. There is room again once DISK_GUARD_ROOM more is free than now. */
#define DISK_GUARD_ROOM (256 << 10)
void disk_guard_note_full(struct disk_guard *g);

#endif
