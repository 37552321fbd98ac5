/* journal_internal: the structures that the journal's files share. Only they and their tests include it.
 *
 * Which thread may touch which fields
 *   owner       the thread that calls journal.h: segments, marks, ends, readers, and every field not named below
 *   commit      `struct writer` and newest_marker: the thread in stage one (journal_commit.c), or the owner while nothing is
 *               pending (opening, closing). Stage two reads end, position, durable and latched, which change under the lock
 *   set->lock   pending, dirty, halted and prealloc of a journal; the fields of a set that are marked so
 *
 * A pending batch belongs to the owner (under the lock). The committer that takes it owns it until it is on set->finished. Then
 * it belongs to the owner again. A job moves the same way between the owner and the reader thread. */
#ifndef MILLRACE_JOURNAL_INTERNAL_H
#define MILLRACE_JOURNAL_INTERNAL_H

#include "base/io.h"
#include "journal/journal.h"
#include "journal/journal_cursor.h"
#include "journal/journal_fd_cache.h"
#include "journal/journal_marks.h"
#include "journal/journal_prealloc.h"
#include "journal/journal_writer.h"

#include <pthread.h>

struct segment {
    uint64_t sequence, base, seed;
    uint64_t end;     /* of its committed payload */
    uint64_t size;    /* bytes of its file */
    usec_t last_time; /* of the last frame before it */
    unsigned refs;    /* readers inside it */
    bool damaged;     /* a scrub has reported it */
    bool shared;      /* its file was given out */
    char *path;
    struct frame_index *index; /* NULL: no entries */
    struct journal_file *file; /* given out at present */
};

/* One append of a batch. */
struct entry {
    journal_append_fn *done;
    void *arg;
    uint64_t start, end;
    size_t frame; /* position in batch.frames; SIZE_MAX: a duplicate without a frame */
    size_t size;  /* of the frame */
};
/* The part of a commit that concerns one journal. */
struct batch {
    struct batch *next;
    struct journal *journal;
    struct buf frames;
    struct entry *entries;
    size_t count, capacity;
    uint64_t start, end; /* offsets */
    usec_t time;         /* of the last frame */
    size_t reserve;      /* the largest of its appends; 0: it may use reserved blocks */
    enum journal_result result;
    bool sync;               /* must be synced before it is handed back */
    uint64_t position;       /* end of its frames in the file */
    struct segment *rolled;  /* a segment created for this batch; also set for some refused batches */
    uint64_t old_size, size; /* of the previous segment's file (when rolled) and of the current file */
};

struct journal {
    unsigned magic;
    struct journal_set *set;
    struct journal *next;
    char *dir;
    int dir_fd; /* holds the directory's lock; stays open so that syncing the directory needs no descriptor */
    uint64_t segment_bytes;
    size_t max_producers;
    bool shares_files;
    uint8_t id[16];
    char id_text[JOURNAL_ID_TEXT];

    struct segment **segments; /* journal_segment_list.c */
    size_t n_segments, n_trimmed;
    struct marks marks;
    uint64_t accepted_end, committed_end;
    usec_t accepted_time, committed_time;
    uint64_t cut_bytes;
    size_t unfinished; /* appends whose callback has not run */
    size_t jobs;       /* with the reader thread */
    size_t readers;
    bool latched;
    char failure[JOURNAL_ERROR_TEXT];
    void (*observer)(struct journal *j, void *arg);
    void *observer_arg;
    bool unlink_failed; /* reader thread; the owner while there are no jobs */

    /* Under the lock. */
    struct batch *pending;
    bool dirty;  /* on set->dirty */
    bool halted; /* a batch was refused: committers take no more until the owner has rolled back */
    struct journal *next_dirty;
    struct prealloc prealloc;
    struct journal *next_to_fill;

    struct writer writer;
    uint64_t newest_marker; /* the number in the newest marker; 0: there is none */
};
#define JOURNAL_MAGIC 0x4a524e4cu

static inline int journal_dir_sync(const struct journal *j)
{
    return io->fsync(j->dir_fd);
}

/* Opens for a repair, which has locked the directory: the descriptor belongs to the journal from now on, also after a failure.
 * Missing newest segments are accepted as lost. With dir_fd -1 it is journal_open. */
enum journal_result journal_open_locked(struct journal_set *set, const struct journal_config *config,
    int dir_fd, struct journal **out, char *error, size_t error_size);

#define COMMITTERS 2
struct committer {
    struct journal_set *set;
    pthread_t thread;
    pthread_cond_t wake;
    bool idle; /* asleep, and not signalled */
};

/* A pass over all sealed segments of a set, to find damage early. The owner chooses the next segment, and the reader thread
 * verifies it in steps between other jobs. Between steps the scrub holds only the descriptor, so a trim waits for one step at
 * most. The owner uses these fields, except the cursor while a step runs. */
struct scrub {
    struct journal *journal; /* NULL: no pass is running */
    uint64_t sequence;       /* of the current segment, or where to look for the next */
    struct cursor cursor;
    bool under_way, in_pass;
    usec_t last, next_pass;
    int64_t credit; /* bytes that may be read */
    struct journal_scrubbed done;
    char damage[JOURNAL_ERROR_TEXT];
};
extern usec_t journal_scrub_interval; /* between the starts of two passes; replaceable for tests */
void scrub_close_journal(struct journal *j);

struct journal_set {
    struct journal_set_config config;
    uint8_t boot[16];
    pthread_t reader, filler;
    struct committer committers[COMMITTERS];

    /* Owner. */
    struct journal *journals;
    size_t pending_bytes;
    bool closing;
    bool poll_requested;
    bool polls;             /* journal_set_poll is running */
    usec_t owner_back;      /* 0, or when the owner may commit again after a slow write */
    struct batch *answered; /* duplicates of committed appends */
    struct batch *pool;     /* released batches, kept for their memory */
    size_t pool_bytes;
    struct frame_index *index;
    uint64_t index_clock;
    struct scrub scrub;

    struct fd_cache files;  /* reader thread */
    usec_t shortage_logged; /* reader thread */

    pthread_mutex_t lock;
    pthread_t locked_by;
    bool locked; /* by that thread */
    /* Under the lock. */
    struct journal *dirty, **dirty_tail; /* journals with a pending batch */
    size_t dirty_bytes;
    bool writing, syncing; /* a thread is in that stage of a commit */
    bool awaits_sync;      /* stage one waits on `synced` */
    bool hurry;            /* the owner waits: sync_ms does not delay a commit */
    usec_t not_before;     /* with sync_ms: when the next commit may begin */
    uint64_t syncs;
    struct batch *finished, **finished_tail;
    struct job *jobs, **jobs_tail;
    struct job *jobs_done, **jobs_done_tail;
    struct journal *to_fill, **to_fill_tail;
    usec_t last_shortage; /* when a read was last postponed for want of descriptors or memory */
    bool reader_waits, owner_waits, stop;
    pthread_cond_t synced;   /* stage two is free */
    pthread_cond_t reads;    /* for the reader thread */
    pthread_cond_t fills;    /* for the filler */
    pthread_cond_t progress; /* for a thread that waits for another's work */
};

static inline bool set_never_syncs(const struct journal_set *set)
{
    return set->config.sync_ms == JOURNAL_SYNC_NEVER;
}

/* Owner: waits until journal_set_poll has something to do, and calls it. */
void set_wait(struct journal_set *set);

/* The kernel's boot id; replaceable, so that a test can pretend a reboot. */
extern void (*journal_boot_id)(uint8_t out[16]);

#endif
