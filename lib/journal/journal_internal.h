/* journal_internal: the structures and functions that the journal's source files share, ordered by file. Only the
 * journal's source files and their tests include this header.
 *
 * This table shows which thread may use which fields of the structures below:
 *
 *     owner       the thread that calls journal.h: segments, marks, ends, readers, and every field not named below
 *     commit      `struct writer` and newest_marker: the thread in stage one (journal_commit.c), or the owner while
 *                 nothing is pending (opening, closing). Stage two reads end, position, durable and latched, which
 *                 change under the lock
 *     set->lock   pending, dirty, halted and prealloc of a journal, and the fields of a set that are marked so
 *
 * A pending batch belongs to the owner, under the lock. The batch then belongs to the committer that takes it, and from
 * set->finished on to the owner again. A job moves between owner and reader thread in the same way. */
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

/* journal_marks: producers and their marks. An append updates `accepted`, and the commit of the append updates
 * `committed`. The *label* of a producer in frames and tables is its name, or name, NUL and tag. The name is the
 * key. */
struct mark {
    char label[MARK_LABEL_MAX]; /* label in the last committed append */
    uint8_t length, name;       /* bytes of label and name; 0: an empty slot */
    bool known;                 /* a frame of this producer is committed */
    bool being_set;             /* an append with sets_mark is pending, and further appends are refused */
    uint64_t accepted, committed;
};
struct marks {
    struct mark *slots; /* hash table with open addressing, at most half full */
    size_t capacity, count;
};

/* Finds the producer of the label, whatever the tag; NULL: an unknown producer. */
struct mark *marks_find(const struct marks *m, struct bytes label);
struct mark *marks_add(struct marks *m, struct bytes label); /* finds the producer, or adds it with mark 0 */
/* Sets the committed mark and keeps the accepted mark. A mark of 0 removes the producer. */
void marks_commit(struct marks *m, struct bytes label, uint64_t mark);
void marks_set(struct marks *m, struct bytes label, uint64_t mark); /* sets both marks of a producer */
/* Replaces `to` by the committed marks of `from`, which may be the same table. */
void marks_copy(struct marks *to, const struct marks *from);
/* marks_table encodes the committed marks as the payload of a table frame. marks_load replaces all marks by those of a
 * payload, and returns false if the payload is malformed. */
void marks_table(const struct marks *m, struct buf *out);
bool marks_load(struct marks *m, struct bytes table);
void marks_free(struct marks *m);

/* The fd cache (journal_handoff.c): a set reads its segments through cached descriptors, one per segment and at most
 * FD_CACHE_MAX. If the process has no free descriptor, the cache closes a cached descriptor to open another.
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

/* Reader thread: returns a descriptor of the segment that is valid during the current job, or -1 with errno. */
int fd_cache_get(struct fd_cache *cache, const struct segment *s);
void fd_cache_drop(struct fd_cache *cache, const struct segment *s);

/* journal_frame_index: some positions at which frames begin, so that a search need not start at a segment's beginning.
 *
 * Appends and readers add entries: at most FRAME_INDEX_ENTRIES_MAX entries for each of the FRAME_INDEX_SEGMENTS_MAX
 * most recently used segments. Without an entry a search takes longer, but finds the same frame. */
#define FRAME_INDEX_SEGMENTS_MAX 256
#define FRAME_INDEX_ENTRIES_MAX 128

struct frame_index {
    struct segment *segment; /* NULL: free */
    uint64_t used;           /* value of index_clock at the last use of this index */
    uint64_t spacing;        /* minimum bytes between two entries; doubled when the entries are full */
    size_t n;
    struct index_entry at[FRAME_INDEX_ENTRIES_MAX]; /* ascending */
};
extern uint64_t journal_index_spacing; /* initial value of spacing; replaceable for tests */

void frame_index_add(struct journal *j, struct segment *s, const struct index_entry *p);
/* Returns the last entry at or below `offset` that has only frames older than `time` before it. Without such an entry,
 * returns the beginning of the segment. */
struct index_entry frame_index_find(struct journal *j, struct segment *s, uint64_t offset, usec_t time);

/* journal_prealloc: prepares the file `spare` for the next segment, so that the sync of a commit changes no metadata.
 * The filler thread allocates the file and fills it with zeros while no commit runs, or a trimmed segment's file
 * becomes the spare file.
 *
 * The content of the spare file has no meaning until the writer writes a header with a new salt and renames the file. A
 * crash may therefore leave any content in the spare file. */
#define PREALLOC_NAME "spare"

enum prealloc_state {
    PREALLOC_NONE,
    PREALLOC_REQUESTED, /* on set->to_fill */
    PREALLOC_BUSY,      /* a thread uses the name of the spare file */
    PREALLOC_READY,
    PREALLOC_NO_SPACE, /* no spare file; the next segment repeats the request */
};
struct prealloc {
    enum prealloc_state state;
    bool recycled;  /* the spare file has old bytes instead of zeros */
    bool abandon;   /* the journal is being closed */
    bool paused;    /* files of trimmed segments are not recycled */
    bool allocated; /* a committer may take the file although the state is BUSY: its blocks are allocated */
    bool hurry;     /* a committer waits for the spare file */
    bool trimmed;   /* a segment was trimmed since the last request */
    usec_t busy;    /* time of the last commit */
    uint64_t size;
    uint64_t filled; /* bytes written; the rest of the file is only allocated */
    int failed;      /* errno of a failed write or sync; if not 0, the next commit latches the journal */
};
/* The filler thread writes zeros after this time without a commit. Replaceable for tests. */
extern usec_t journal_prealloc_idle;

void *filler_main(void *set);

/* The functions below belong to stage one of a commit. */
void prealloc_request(struct journal *j); /* called while the current segment fills up */
bool prealloc_is_ready(struct journal *j);
/* Takes the spare file; false: no spare file is ready. The caller uses the file name until prealloc_release. */
bool prealloc_take(struct journal *j, struct prealloc *out);
void prealloc_release(struct journal *j);
void prealloc_discard(struct journal *j); /* frees the spare file's blocks for a commit on a full disk */

/* Reader thread: makes a trimmed segment's file the spare file. Returns 1, 0 if no spare file is wanted, or -1 with
 * errno. */
int prealloc_recycle(struct journal *j, const struct segment *s);
/* Owner: prealloc_recycle does nothing while recycling is paused. */
void prealloc_pause_recycling(struct journal *j, bool paused);

/* Owner. */
void prealloc_adopt(struct journal *j); /* journal_open takes over the spare file of an earlier session */
void prealloc_close(struct journal *j); /* waits until no thread uses the spare file */
uint64_t prealloc_bytes(const struct journal *j);

/* journal_writer: writes batches to the newest segment of a journal, begins the next segment, and syncs. The stages of
 * a commit use the writer (journal_commit.c), and so does the owner while it opens or closes a journal.
 *
 * Two threads may use a writer at the same time, one in each stage. The fields that the second stage reads (end,
 * position, durable, latched) change only under the lock. */
struct writer {
    int fd;
    uint64_t sequence, seed, base;
    uint64_t position; /* of the next frame */
    uint64_t size;     /* of the file */
    uint64_t filled;   /* position at which the zeros or old bytes after the frames end */
    uint64_t usual;    /* mean bytes of a commit; 0: no commit yet */
    bool recycled;     /* the file contains old bytes, so zeros follow each write */
    bool prepared;     /* the segment began in a spare file */

    uint64_t reserved; /* blocks beyond the file's end are allocated up to this position */
    /* End of an earlier session's reserve, for appends without a reserve; 0 after a new reserve. */
    uint64_t found;
    uint64_t wanted; /* bytes of the current reserve */
    bool no_space;   /* the last attempt to reserve failed */
    /* After a failed attempt to begin the next segment, the next attempt is made at this position; 0: at any. */
    uint64_t retry_roll;

    uint64_t end;                    /* offset at the end of the last written frame */
    uint64_t durable;                /* offset before which everything is synced */
    uint64_t durable_position;       /* this file is synced up to this position */
    usec_t last_time;                /* of the last frame */
    usec_t latest;                   /* the latest time of a payload in this segment; 0: none */
    struct marks marks;              /* marks of the written frames, for the next segment's table */
    bool announced;                  /* the segment contains this session's boot id and policy */
    char last_opening[OPENING_TEXT]; /* opening of the last written byte; "": none */
    bool latched;
    char failure[JOURNAL_ERROR_TEXT];
};
extern size_t journal_write_chunk; /* bytes of one pwrite; replaceable for tests */

void writer_write(struct batch *b); /* stage one */
/* Stage two. Does nothing if the batch requires no sync, or an earlier sync included the batch. */
void writer_sync(struct batch *b);
/* True if writing the batch only copies bytes into the page cache. */
bool writer_only_copies(struct journal *j, const struct batch *b);

/* Begins the next segment at offset `base`. `reach` is the end of the commit for which the segment is created. Reserves
 * `reserve` bytes in the next segment before the current segment frees its reserve. Returns 0, or -1 with errno and the
 * current segment unchanged. */
int writer_roll(struct journal *j, uint64_t base, uint64_t reach, uint64_t reserve, struct segment **out);
/* Returns the number of unused bytes of the current reserve. */
uint64_t writer_unused_reserve(const struct writer *w);
/* After a truncation, reserves `bytes` bytes again, or as many bytes as the disk has room for. */
void writer_reserve_again(struct journal *j, uint64_t bytes);
/* Records in the newest marker that the newest segment is synced (journal_dir.h). The segment must be synced. */
void writer_state_synced_end(struct journal *j);
/* Writes the close frame and closes the file. */
void writer_close(struct journal *j);

struct segment {
    uint64_t sequence, base, seed;
    char opening[OPENING_TEXT]; /* opening in which the segment was created */
    char before[OPENING_TEXT];  /* opening of the byte before `base`; "": base is 0 */
    uint64_t end;               /* offset at which its committed payload ends */
    uint64_t size;              /* bytes of its file */
    usec_t latest;              /* the latest time of a committed payload; 0: none */
    usec_t created;             /* wall clock */
    unsigned refs;              /* readers inside it */
    bool damaged;               /* a scrub has reported its damage */
    /* The file is never recycled: a caller got the file (journal_file), or an erasure has examined the segment. */
    bool shared;
    bool recycled;    /* the file is recycled: old bytes may follow the frames */
    unsigned version; /* how often an erasure has replaced its file; used by the reader thread */
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
    usec_t latest;       /* latest time of its payloads; 0: none */
    size_t reserve;      /* largest reserve of its appends; 0: the batch may use reserved blocks */
    enum journal_result result;
    bool begins_segment;     /* ends the newest segment */
    bool sync;               /* the batch must be synced before the owner gets it back */
    uint64_t position;       /* file position at which its frames end */
    struct segment *rolled;  /* segment created for this batch, even if the batch failed later */
    uint64_t old_size, size; /* sizes of the previous segment's file (if `rolled`) and of the current file */
};

struct journal {
    unsigned magic;
    struct journal_set *set;
    struct journal *next;
    char *dir;
    int dir_fd; /* holds the lock; stays open, so a sync of the directory needs no new descriptor */
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
    size_t jobs;       /* jobs that are not delivered yet */
    size_t readers;
    bool latched;
    char failure[JOURNAL_ERROR_TEXT];
    journal_observer_fn *observer;
    void *observer_arg;
    bool unlink_failed; /* used by the reader thread, or by the owner while there are no jobs */

    /* Under the lock. */
    struct batch *pending;
    bool dirty;  /* on set->dirty */
    bool halted; /* a batch failed; committers take no batch until the owner has undone the appends */
    struct journal *next_dirty;
    struct prealloc prealloc;
    struct journal *next_to_fill;

    struct erase *erase; /* the current erasure; NULL: none */
    atomic_bool closing; /* the journal is being closed: the erasure ends with its next step */
    struct writer writer;
    uint64_t newest_marker; /* the number in the newest marker; 0: no marker */
};
#define JOURNAL_MAGIC 0x4a524e4cu

static inline int journal_dir_sync(const struct journal *j)
{
    return io->fsync(j->dir_fd);
}

/* Opens a journal for a repair, which has locked the directory with dir_fd. Always takes over dir_fd, even after an
 * error. Accepts missing newest segments. With dir_fd -1, the function works like journal_open. */
enum journal_result journal_open_locked(struct journal_set *set, const struct journal_config *config,
    int dir_fd, struct journal **out, char *error, size_t error_size);

#define COMMITTERS 2
struct committer {
    struct journal_set *set;
    pthread_t thread;
    pthread_cond_t wake;
    bool idle; /* the thread sleeps and is not signalled yet */
};

/* A pass over all segments of a set, except the newest segment of each journal. The owner chooses the next segment, and
 * the reader thread verifies the segment in steps between other jobs. All fields belong to the owner, except that the
 * reader thread uses the cursor during a step. */
struct scrub {
    struct journal *journal; /* NULL: no pass is running */
    uint64_t sequence;       /* number of the current segment, or the lowest number of the next segment */
    struct cursor cursor;
    bool under_way, in_pass;
    usec_t last, next_pass;
    int64_t credit; /* bytes that the scrub may read now */
    struct journal_scrubbed done;
    char damage[JOURNAL_ERROR_TEXT];
};
extern usec_t
    journal_scrub_interval; /* time from the start of a pass to the start of the next; replaceable for tests */
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
    usec_t owner_back;      /* time from which the owner may commit again after a slow write; 0: now */
    struct batch *answered; /* duplicates of committed appends */
    struct batch *pool;     /* unused batches, whose memory is used again */
    size_t pool_bytes;
    struct frame_index *index;
    uint64_t index_clock;
    struct scrub scrub;

    struct fd_cache files;  /* reader thread */
    usec_t shortage_logged; /* reader thread */

    pthread_mutex_t lock;
    pthread_t locked_by;
    bool locked; /* true while locked_by holds the lock */
    /* Under the lock. */
    struct journal *dirty, **dirty_tail; /* journals with a pending batch */
    size_t dirty_bytes;
    bool writing, syncing; /* true while a thread is in stage one or stage two of a commit */
    bool awaits_sync;      /* the thread in stage one waits for `synced` */
    bool hurry;            /* the owner waits, so a commit need not wait for sync_ms */
    usec_t not_before;     /* time from which the next commit may begin (sync_ms) */
    uint64_t syncs;
    struct batch *finished, **finished_tail;
    struct job *jobs, **jobs_tail;
    struct job *jobs_done, **jobs_done_tail;
    struct journal *to_fill, **to_fill_tail;
    usec_t last_shortage; /* time when a read was last postponed because descriptors or memory ran short */
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

/* Reads the kernel's boot id. Tests replace this function to simulate a reboot. */
extern void (*journal_boot_id)(uint8_t out[16]);
/* Returns the time for a new opening. Replaceable for tests. */
extern usec_t (*journal_wall)(void);

/* journal_handoff: the lock of a set, the wake-up of its threads, the dirty list, batches, and jobs. */
void set_lock(struct journal_set *set);
void set_unlock(struct journal_set *set);
bool set_is_locked(const struct journal_set *set); /* by this thread */
/* Waits for a condition without the lock. Returns at the monotonic time `due` at the latest; 0: no limit. */
void set_sleep(struct journal_set *set, pthread_cond_t *until, usec_t due);

/* Under the lock: wakes the owner if the owner waits in set_wait and was_empty is true. */
void set_signal_owner(struct journal_set *set, bool was_empty);
/* Under the lock, in stage one of a commit: waits while the other committer syncs. May return early. */
void set_wait_while_syncing(struct journal_set *set);

void journal_make_dirty(struct journal *j); /* under the lock */

/* Owner: returns an empty batch, which uses the memory of an earlier batch if possible. */
struct batch *batch_new(struct journal_set *set, struct journal *j);
void batch_release(struct journal_set *set, struct batch *b);
void batch_free(struct batch *b);

/* A job is work for the reader thread: the owner submits the job, the reader thread runs it, and journal_set_poll
 * delivers the results in the order of the jobs. A step of a long job sets `again`, so that the owner submits the next
 * step. Other jobs run between the steps. */
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
    void (*deliver)(struct job *job); /* called by the owner, which then frees the job */
    struct journal_reader *reader;    /* for the owner only; NULL: closed, or the job is not a read */
    struct journal_seek *seek;
    struct segment *segment; /* the job has a reference to it */
    struct cursor *cursor;
    uint64_t offset, limit;
    size_t max_bytes;
    struct buf out;
    bool again;        /* the job needs another step */
    usec_t not_before; /* monotonic; 0: at once */
    usec_t time;
    usec_t now;         /* of a seek */
    uint64_t candidate; /* candidate of a seek (journal_seek.c) */
    struct index_entry begin, indexed[JOB_ENTRIES_MAX];
    size_t n_indexed;
    bool wants_spans; /* false: the read copies the bytes */
    struct span_read spans;
    enum journal_result result;
    char failure[JOURNAL_ERROR_TEXT];
};
extern uint64_t journal_step_max; /* bytes that one step of a job reads; replaceable for tests */
/* Pause before a retry when descriptors or memory ran out; replaceable for tests. */
extern usec_t journal_retry_pause;

void *reader_main(void *set);

/* Owner. */
void job_submit(struct journal *j, struct job *job);
void job_deliver(struct job *job);
void job_report_failure(struct job *job); /* for journal_failure */
/* Logs `found` and counts the damage of the job's segment, unless it was counted before. */
void job_note_damage(struct job *job, const char *found);

/* Reader thread. */
enum cursor_status job_enter(struct job *job); /* sets the descriptor of the job's cursor */
/* job_begin moves the cursor to job->begin, unless the cursor is after it. job_pass skips the frame at the cursor. */
void job_begin(struct job *job);
void job_pass(struct job *job, const struct frame *f);
/* Sets result and error text of a job whose read failed, or `again` after a shortage of descriptors or memory. */
void job_read_failed(struct job *job, enum cursor_status status);

/* journal_commit: the committer threads, and commits by the owner itself. The variables are replaceable for tests. */
extern size_t journal_gather_max;      /* number of pending bytes at which an append starts a commit */
extern size_t journal_owner_write_max; /* maximum number of pending bytes that the owner commits itself */
/* If a commit by the owner takes longer than this time, the committers run the next commits. */
extern usec_t journal_owner_slow_write;

void *committer_main(void *committer);

/* Owner. */
void commit_start(struct journal_set *set);    /* wakes a committer if there is work */
void commit_wake_all(struct journal_set *set); /* under the lock */
/* True if the owner may commit the pending appends itself, without a committer. */
bool commit_by_owner(const struct journal_set *set);
/* Commits the pending appends if the commit only copies bytes into the page cache and no committer is active. */
void commit_write(struct journal_set *set);

/* journal_segment_list: a journal's segments in order of their sequence numbers. Owner thread only, except segment_new.
 *
 * The first n_trimmed segments are trimmed, but readers may still use them. Segments are removed in order, and each
 * removal is durable before the next, so the segments on disk never have a gap. */
struct segment *segment_new(const char *dir, const struct segment_header *h);
void segment_free(struct segment *s);

void segment_list_push(struct journal *j, struct segment *s);
struct segment *segment_list_last(const struct journal *j);
/* Returns the segment after s, or NULL if s is the last. */
struct segment *segment_list_after(const struct journal *j, const struct segment *s);
/* Finds the segment that contains `offset`. Returns OK, BEYOND, or GONE with *edges filled. */
enum journal_result segment_list_find(
    const struct journal *j, uint64_t offset, struct segment **out, struct journal_edges *edges);
/* Releases a reader's reference to a segment. */
void segment_list_leave(struct journal *j, struct segment *s);

/* journal_sendfile: reads without copying. The reader thread verifies frames in the file, and the owner passes the file
 * (struct journal_file) to the caller. */

/* Reader thread: collects spans from the cursor on. False: no spans, so the frames must be copied. */
bool spans_fill(struct job *job, enum cursor_status *status);
/* Owner: stores the collected spans in the window. The caller releases the window's file. */
void spans_answer(struct job *job, struct journal_window *w);
/* Owner: true if a caller may get the file of this segment. */
bool file_may_share(const struct segment *s);
/* Maximum number of files that callers may have at a time. Bytes of further files are copied. Replaceable for tests. */
extern unsigned journal_shared_files_max;

void segment_detach_file(struct segment *s); /* before the segment is freed */

#endif
