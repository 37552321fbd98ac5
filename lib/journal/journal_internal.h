/* journal_internal: the structures and functions that the journal's source files share, ordered by file. Only these
 * files and their tests include this header.
 *
 * This table shows which thread may use which fields:
 *
 *     owner       the thread that calls journal.h: segments, marks, ends, readers, and every field not named below
 *     commit      `struct writer` and newest_marker: the thread in stage one (journal_commit.c), or the owner while
 *                 nothing is pending (opening, closing). Stage two reads end, position, durable and latched, which
 *                 change under the lock
 *     set->lock   pending, dirty, halted and prealloc of a journal, and the fields of a set that are marked so
 *
 * A pending batch belongs to the owner (under the lock), to the committer that takes it, and from set->finished on
 * to the owner again. A job moves between owner and reader thread in the same way. */
#ifndef MILLRACE_JOURNAL_INTERNAL_H
#define MILLRACE_JOURNAL_INTERNAL_H

#include "base/clock.h"
#include "base/io.h"
#include "journal/journal.h"
#include "journal/journal_cursor.h"
#include "journal/journal_dir.h"

#include <pthread.h>
#include <stdatomic.h>

struct batch;
struct segment;
struct journal_reader;
struct journal_seek;

/* journal_marks: producers and their marks. An append updates `accepted`, its commit `committed`. The *label* of a
 * producer in frames and tables is the name or, with a tag, the name, NUL and the tag. Only the name is the key. */
struct mark {
    char label[MARK_LABEL_MAX]; /* as last committed */
    uint8_t length, name;       /* bytes of label and name; 0: an empty slot */
    bool known;                 /* a frame of this producer is committed */
    bool being_set;             /* an append with sets_mark is under way: others are refused */
    uint64_t accepted, committed;
};
struct marks {
    struct mark *slots; /* open addressing: a power of two, at most half full */
    size_t capacity, count;
};

/* Any label of a producer finds it. */
struct mark *marks_find(const struct marks *m, struct bytes label); /* NULL: none */
struct mark *marks_add(struct marks *m, struct bytes label);        /* finds it, or adds it with mark 0 */
/* Keeps `accepted`. A mark of 0 removes the producer. */
void marks_commit(struct marks *m, struct bytes label, uint64_t mark);
void marks_set(struct marks *m, struct bytes label, uint64_t mark); /* accepted and committed */
/* Replaces `to` by the committed marks of `from`, which may be the same table. */
void marks_copy(struct marks *to, const struct marks *from);
/* The committed marks as the payload of a table frame, and back (replaces all marks; false: malformed). */
void marks_table(const struct marks *m, struct buf *out);
bool marks_load(struct marks *m, struct bytes table);
void marks_free(struct marks *m);

/* The fd cache (journal_handoff.c): the descriptors through which a set reads its segments, one a segment, at most
 * FD_CACHE_MAX. If the process has no free descriptor, the cache closes one of its own to open another.
 *
 * The cache closes a segment's descriptor before the file is unlinked, so that its disk space is freed at once. */
#define FD_CACHE_MAX 8

struct fd_cache_entry {
    const struct segment *segment; /* NULL: free */
    int fd;
    uint64_t use;
};
struct fd_cache {
    pthread_mutex_t lock; /* journal_close uses the cache outside the reader thread */
    struct fd_cache_entry open[FD_CACHE_MAX];
    uint64_t uses;
};

/* Reader thread: returns a descriptor of the segment, valid during the current job, or -1 with errno. */
int fd_cache_get(struct fd_cache *cache, const struct segment *s);
void fd_cache_drop(struct fd_cache *cache, const struct segment *s);

/* journal_frame_index: some positions at which frames begin, so that a search need not start at the beginning of a
 * segment. Owner thread only.
 *
 * Appends and readers add entries: at most FRAME_INDEX_ENTRIES_MAX for each of the FRAME_INDEX_SEGMENTS_MAX
 * segments used last. Without an entry a search takes longer, but finds the same frame. */
#define FRAME_INDEX_SEGMENTS_MAX 256
#define FRAME_INDEX_ENTRIES_MAX 128

struct frame_index {
    struct segment *segment; /* NULL: free */
    uint64_t used;           /* value of the set's index_clock at the last use */
    uint64_t spacing;        /* least bytes between entries; doubled when the entries are full */
    size_t n;
    struct index_entry at[FRAME_INDEX_ENTRIES_MAX]; /* ascending */
};
extern uint64_t journal_index_spacing; /* initial spacing; replaceable for tests */

void frame_index_add(struct journal *j, struct segment *s, const struct index_entry *p);
/* The last entry at or below `offset` before which all frames are older than `time`; otherwise the beginning of the
 * segment. */
struct index_entry frame_index_find(struct journal *j, struct segment *s, uint64_t offset, usec_t time);

/* journal_prealloc: prepares the file `spare` for the next segment, so that the sync of a commit changes no
 * metadata. The filler thread allocates the file and fills it with zeros while no commit runs, or it is the file of
 * a trimmed segment.
 *
 * Its content has no meaning until the writer writes a header with a new salt and renames it, so a crash may leave
 * anything. */
#define PREALLOC_NAME "spare"

enum prealloc_state {
    PREALLOC_NONE,
    PREALLOC_REQUESTED, /* on set->to_fill */
    PREALLOC_BUSY,      /* a thread uses the file name */
    PREALLOC_READY,
    PREALLOC_NO_SPACE, /* requested again in the next segment */
};
struct prealloc {
    enum prealloc_state state;
    bool recycled;  /* holds old bytes instead of zeros */
    bool abandon;   /* the journal is being closed */
    bool paused;    /* no file of a trimmed segment is recycled */
    bool allocated; /* BUSY, but its blocks are allocated: a committer may take it at once */
    bool hurry;     /* a committer waits for it */
    bool trimmed;   /* a segment was trimmed after the last request */
    usec_t busy;    /* time of the last commit */
    uint64_t size;
    uint64_t filled; /* written up to here; the rest is only allocated */
    int failed;      /* errno of a failed write or sync: the next commit latches the journal */
};
extern usec_t
    journal_prealloc_idle; /* the filler waits for this time without a commit; replaceable for tests */

void *filler_main(void *set);

/* For stage one of a commit. */
void prealloc_request(struct journal *j); /* called as the current segment fills up */
bool prealloc_is_ready(struct journal *j);
/* Takes the spare file, or returns false if there is none. The caller uses the file name until prealloc_release. */
bool prealloc_take(struct journal *j, struct prealloc *out);
void prealloc_release(struct journal *j);
void prealloc_discard(struct journal *j); /* to free its blocks for a commit that found no room */

/* Reader thread: turns the file of a trimmed segment into the spare file. Returns 1 if done, 0 if no spare file is
 * wanted, or -1 with errno. */
int prealloc_recycle(struct journal *j, const struct segment *s);
/* Owner: prealloc_recycle does nothing while paused. */
void prealloc_pause_recycling(struct journal *j, bool paused);

/* Owner. */
void prealloc_adopt(struct journal *j); /* at the opening: takes over the spare file of an earlier session */
void prealloc_close(struct journal *j); /* waits until no thread uses the file */
uint64_t prealloc_bytes(const struct journal *j);

/* journal_writer: writes batches to the newest segment of a journal, begins the next segment, and syncs. Used by
 * the stages of a commit (journal_commit.c), and by the owner while it opens or closes a journal.
 *
 * Two threads may use it at the same time, one in each stage: the fields that stage two reads (end, position,
 * durable, latched) change only under the lock. */
struct writer {
    int fd;
    uint64_t sequence, seed, base;
    uint64_t position; /* of the next frame */
    uint64_t size;     /* of the file */
    uint64_t filled;   /* between position and here are zeros or old bytes; after it only allocated blocks */
    uint64_t usual;    /* mean bytes of a commit; 0: none yet */
    bool recycled;     /* the file contains old bytes, so each write ends with zeros */
    bool prepared;     /* the segment began in a spare file */

    uint64_t reserved; /* blocks beyond the file's end are allocated up to this position */
    uint64_t
        found; /* end of an earlier session's reserve, for appends without a reserve; 0 after a new one */
    uint64_t wanted; /* bytes of the current reserve */
    bool no_space;   /* the last attempt to reserve failed */
    uint64_t
        retry_roll; /* without room for the next segment, this one ends at this position at the earliest; 0: none */

    uint64_t end;                    /* offset after the last written frame */
    uint64_t durable;                /* every offset below is synced */
    uint64_t durable_position;       /* this file is synced up to here */
    usec_t last_time;                /* of the last frame */
    usec_t latest;                   /* the latest time of a payload in this segment; 0: none */
    struct marks marks;              /* of the written frames, for the next segment's table */
    bool announced;                  /* the segment contains this session's boot id and policy */
    char last_opening[OPENING_TEXT]; /* of the last written byte; "": none */
    bool latched;
    char failure[JOURNAL_ERROR_TEXT];
};
extern size_t journal_write_chunk; /* bytes of one pwrite; replaceable for tests */

void writer_write(struct batch *b); /* stage one */
void writer_sync(struct batch
        *b); /* stage two; does nothing if no sync is required or an earlier sync included the batch */
/* True if writing the batch only copies bytes into the page cache. */
bool writer_only_copies(struct journal *j, const struct batch *b);

/* Begins the next segment at offset `base`. `reach` is the end of the commit for which the segment is created. Reserves `reserve` bytes
 * in it before the current segment frees its own. Returns 0, or -1 with errno: then the current segment is as it was. */
int writer_roll(struct journal *j, uint64_t base, uint64_t reach, uint64_t reserve, struct segment **out);
/* The unused bytes of the current reserve. */
uint64_t writer_unused_reserve(const struct writer *w);
/* After a truncation: reserves `bytes` bytes again, or as many as the disk has room for. */
void writer_reserve_again(struct journal *j, uint64_t bytes);
/* Writes into the newest marker that the newest segment is synced up to its last written byte, which the caller
 * must know. */
void writer_state_synced_end(struct journal *j);
/* Writes the close frame and closes the file. */
void writer_close(struct journal *j);

struct segment {
    uint64_t sequence, base, seed;
    char opening[OPENING_TEXT]; /* of the session that created it */
    char before[OPENING_TEXT];  /* of the byte before `base`; "": base is 0 */
    uint64_t end;               /* of its committed payload */
    uint64_t size;              /* bytes of its file */
    usec_t latest;              /* the latest time of a committed payload; 0: none */
    usec_t created;             /* wall clock */
    unsigned refs;              /* readers inside it */
    bool damaged;               /* a scrub has reported its damage */
    bool
        shared; /* a caller got its file (journal_file), or an erasure has passed: the file is never recycled */
    bool recycled;    /* in a recycled file: old bytes may follow the frames */
    unsigned version; /* reader thread: how often its file was replaced */
    char *path;
    struct frame_index *index; /* NULL: no entries */
    struct journal_file *file; /* in use by callers; NULL: none */
};

/* One append of a batch. */
struct entry {
    journal_append_fn *done;
    void *arg;
    uint64_t start, end;
    size_t frame; /* index of its frame in batch.frames; SIZE_MAX: a duplicate without a frame */
    size_t size;  /* of the frame */
};
/* The frames of one journal in a commit. */
struct batch {
    struct batch *next;
    struct journal *journal;
    struct buf frames;
    struct entry *entries;
    size_t count, capacity;
    uint64_t start, end; /* offsets */
    usec_t time;         /* of the last frame */
    usec_t latest;       /* the latest time of a payload; 0: none */
    size_t reserve;      /* the largest reserve of its appends; 0: it may use reserved blocks */
    enum journal_result result;
    bool begins_segment;     /* ends the newest segment */
    bool sync;               /* must be synced before it is returned to the owner */
    uint64_t position;       /* end of its frames in the file */
    struct segment *rolled;  /* a segment created for this batch, even if the batch was refused later */
    uint64_t old_size, size; /* sizes of the previous segment's file (if rolled) and of the current file */
};

struct journal {
    unsigned magic;
    struct journal_set *set;
    struct journal *next;
    char *dir;
    int dir_fd; /* holds the lock; kept open so that a sync of the directory needs no new descriptor */
    uint64_t segment_bytes;
    size_t max_producers;
    bool shares_files, openings_begin_segments;
    uint8_t id[16];
    char id_text[JOURNAL_ID_TEXT];
    char opening[OPENING_TEXT]; /* of this session */

    struct segment **segments; /* journal_segment_list.c */
    size_t n_segments, n_trimmed, room_segments;
    struct marks marks;
    uint64_t accepted_end, committed_end;
    usec_t accepted_time, committed_time;
    uint64_t cut_bytes, cut_count;
    char cut[JOURNAL_ERROR_TEXT];
    size_t unfinished; /* appends whose callback has not run */
    size_t jobs;       /* jobs at the reader thread */
    size_t readers;
    bool latched;
    char failure[JOURNAL_ERROR_TEXT];
    journal_observer_fn *observer;
    void *observer_arg;
    bool unlink_failed; /* for the reader thread, or for the owner while there are no jobs */

    /* Under the lock. */
    struct batch *pending;
    bool dirty;  /* on set->dirty */
    bool halted; /* a batch was refused; committers take no batch until the owner has undone the appends */
    struct journal *next_dirty;
    struct prealloc prealloc;
    struct journal *next_to_fill;

    struct erase *erase; /* the erasure under way; NULL: none */
    atomic_bool closing; /* the erasure ends with its next step */
    struct writer writer;
    uint64_t newest_marker; /* the number in the newest marker; 0: there is none */
};
#define JOURNAL_MAGIC 0x4a524e4cu

static inline int journal_dir_sync(const struct journal *j)
{
    return io->fsync(j->dir_fd);
}

/* journal_open for a repair, which has locked the directory and gives up the descriptor in any case. Missing newest
 * segments are accepted. dir_fd -1: as journal_open. */
enum journal_result journal_open_locked(struct journal_set *set, const struct journal_config *config,
    int dir_fd, struct journal **out, char *error, size_t error_size);

#define COMMITTERS 2
struct committer {
    struct journal_set *set;
    pthread_t thread;
    pthread_cond_t wake;
    bool idle; /* asleep and not yet signalled */
};

/* A pass over all segments of a set except the newest ones. The owner chooses the next segment, and the reader
 * thread verifies it in steps between other jobs. All fields belong to the owner, except the cursor while a step
 * runs. */
struct scrub {
    struct journal *journal; /* NULL: no pass is running */
    uint64_t sequence;       /* of the current segment, or the number from which to look for the next */
    struct cursor cursor;
    bool under_way, in_pass;
    usec_t last, next_pass;
    int64_t credit; /* bytes that may be read now */
    struct journal_scrubbed done;
    char damage[JOURNAL_ERROR_TEXT];
};
extern usec_t journal_scrub_interval; /* from the start of one pass to the next; replaceable for tests */
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
    usec_t owner_back;      /* after a slow write: when the owner may commit again; 0: now */
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
    bool writing, syncing; /* a thread is in stage one, in stage two of a commit */
    bool awaits_sync;      /* the thread in stage one waits for `synced` */
    bool hurry;            /* the owner waits, so a commit need not wait for sync_ms */
    usec_t not_before;     /* with sync_ms: when the next commit may begin */
    uint64_t syncs;
    struct batch *finished, **finished_tail;
    struct job *jobs, **jobs_tail;
    struct job *jobs_done, **jobs_done_tail;
    struct journal *to_fill, **to_fill_tail;
    usec_t last_shortage; /* when a read was last postponed because descriptors or memory ran short */
    bool reader_waits, owner_waits, stop;
    pthread_cond_t synced;   /* stage two is free */
    pthread_cond_t reads;    /* for the reader thread */
    pthread_cond_t fills;    /* for the filler */
    pthread_cond_t progress; /* for threads that wait for another thread */
};

static inline bool set_never_syncs(const struct journal_set *set)
{
    return set->config.sync_ms == JOURNAL_SYNC_NEVER;
}

/* Owner: waits until journal_set_poll has something to do, and calls journal_set_poll. */
void set_wait(struct journal_set *set);

/* Reads the kernel's boot id. Replaceable, so that a test can simulate a reboot. */
extern void (*journal_boot_id)(uint8_t out[16]);
/* The time of an opening. Replaceable for tests. */
extern usec_t (*journal_wall)(void);

/* journal_handoff: the lock of a set, the wake-up of its threads, the dirty list, batches, and jobs. */
void set_lock(struct journal_set *set);
void set_unlock(struct journal_set *set);
bool set_is_locked(const struct journal_set *set); /* by this thread */
/* Waits for a condition and releases the lock meanwhile. Returns at `due` at the latest (monotonic time; 0: no
 * limit). */
void set_sleep(struct journal_set *set, pthread_cond_t *until, usec_t due);

/* Under the lock: if a list was empty before, wakes the owner if it waits in set_wait. */
void set_signal_owner(struct journal_set *set, bool was_empty);
/* Under the lock, in stage one of a commit: waits as long as the other committer syncs. May return early. */
void set_wait_while_syncing(struct journal_set *set);

void journal_make_dirty(struct journal *j); /* under the lock */

/* Owner: returns an empty batch, if possible in the memory of an earlier batch. */
struct batch *batch_new(struct journal_set *set, struct journal *j);
void batch_release(struct journal_set *set, struct batch *b);
void batch_free(struct batch *b);

/* A job is work for the reader thread: the owner submits it, the reader thread runs it, journal_set_poll delivers
 * the result, in the order of the jobs.
 *
 * A long job has steps: with `again` set it is submitted again, and other jobs run in between. */
/* The result of a read of spans (journal_sendfile.c). */
struct span_read {
    struct journal_span_request how;
    struct journal_span *spans;
    size_t n, cap;
    uint64_t bytes, stamp;
    int fd; /* -1: none */
};

#define JOB_ENTRIES_MAX 4
struct job {
    struct job *next;
    struct journal *journal;
    void (*run)(struct job *job);     /* reader thread; NULL: nothing to do */
    void (*deliver)(struct job *job); /* owner; the job is freed afterwards */
    struct journal_reader *reader;    /* owner only, like `seek`; NULL: closed, or another kind of job */
    struct journal_seek *seek;
    struct segment *segment; /* the job has a reference; an unlink frees it */
    struct cursor *cursor;
    uint64_t offset, limit;
    size_t max_bytes;
    struct buf out;
    bool again;        /* the step did not finish the job */
    usec_t not_before; /* monotonic; 0: at once */
    usec_t time;
    usec_t now;         /* of a seek */
    uint64_t candidate; /* of a seek: see journal_seek.c */
    struct index_entry begin, indexed[JOB_ENTRIES_MAX];
    size_t n_indexed;
    bool wants_spans; /* false: read a copy */
    struct span_read spans;
    enum journal_result result;
    char failure[JOURNAL_ERROR_TEXT];
};
extern uint64_t journal_step_max;  /* bytes that one step reads; replaceable for tests */
extern usec_t journal_retry_pause; /* pause before a retry after a shortage; replaceable for tests */

void *reader_main(void *set);

/* Owner. */
void job_submit(struct journal *j, struct job *job);
void job_deliver(struct job *job);
void job_report_failure(const struct job *job); /* for journal_failure */

/* Reader thread. */
enum cursor_status job_enter(struct job *job); /* sets the cursor's descriptor for this job */
/* job_begin moves the cursor to job->begin, unless the cursor is already further. job_pass skips the frame at the
 * cursor. */
void job_begin(struct job *job);
void job_pass(struct job *job, const struct frame *f);
/* Sets the result and the error text of the job. If descriptors or memory ran short, sets `again` instead. */
void job_read_failed(struct job *job, enum cursor_status status);

/* journal_commit: the committer threads, and the owner's own commits. The variables are replaceable for tests. */
extern size_t journal_gather_max;      /* pending bytes that make an append start a commit at once */
extern size_t journal_owner_write_max; /* largest number of pending bytes that the owner commits itself */
/* If a commit by the owner takes longer than this, the committers do the next commits. */
extern usec_t journal_owner_slow_write;

void *committer_main(void *committer);

/* Owner. */
void commit_start(struct journal_set *set);    /* wakes a committer if there is work */
void commit_wake_all(struct journal_set *set); /* under the lock */
/* True if the owner may commit the pending appends itself. */
bool commit_by_owner(const struct journal_set *set);
/* Commits the pending appends if that only copies bytes into the page cache and no committer is active. */
void commit_write(struct journal_set *set);

/* journal_segment_list: a journal's segments in order of their sequence numbers. Owner thread only, except segment_new.
 *
 * The first n_trimmed segments are trimmed, but readers may still use them. Each removal, in order, is durable
 * before the next, so the segments on disk never have a gap. */
struct segment *segment_new(const char *dir, const struct segment_header *h);
void segment_free(struct segment *s);

void segment_list_push(struct journal *j, struct segment *s);
struct segment *segment_list_last(const struct journal *j);
/* Returns the segment after s, or NULL if s is the last. */
struct segment *segment_list_after(const struct journal *j, const struct segment *s);
/* Finds the segment that contains `offset`. Returns OK, BEYOND, or GONE with *edges filled. */
enum journal_result segment_list_find(
    const struct journal *j, uint64_t offset, struct segment **out, struct journal_edges *edges);
/* Releases a reader's reference to the segment. */
void segment_list_leave(struct journal *j, struct segment *s);

/* journal_sendfile: reads without copying. The reader thread verifies frames in the file; the owner passes the file
 * (struct journal_file) to the caller. */

/* Reader thread: collects spans, beginning at the cursor. If the result is false, there are none, and the frames must
 * be copied. */
bool spans_fill(struct job *job, enum cursor_status *status);
/* Owner: stores the spans, if any, in the window. The caller releases the file. */
void spans_answer(struct job *job, struct journal_window *w);
/* Owner: true if a caller may get the file of this segment. */
bool file_may_share(const struct segment *s);
/* The number of files that callers may have at a time. The bytes of other files are copied. Replaceable for tests. */
extern unsigned journal_shared_files_max;

void segment_detach_file(struct segment *s); /* before the segment is freed */

#endif
