/* journal_internal: what the journal's own files share. Nobody else includes it but its tests.
 *
 * Who may touch what
 *   owner      the thread that calls journal.h: segments, `marks`, ends, readers; anything not named below
 *   committer  `struct writer`, whoever has the turn to write; the owner while it has that turn (owner_write) and
 *              while nothing of the journal is pending (opening, closing). What both committers need (position,
 *              end, durable, latched) changes under the lock
 *   set->lock  journal.pending, .dirty, .halted, the committers' turns, and the lists between the threads
 * A batch belongs to the owner while it is pending (under the lock), to the committer from when it takes it
 * until it puts it on set->finished, and then to the owner again. A job likewise, with the reader thread.
 */
#ifndef MILLRACE_JOURNAL_INTERNAL_H
#define MILLRACE_JOURNAL_INTERNAL_H

#include "base/io.h"
#include "journal/journal.h"
#include "journal/journal_format.h"

#include <pthread.h>
#include <stdatomic.h>

#define JOURNAL_ERROR_TEXT 512

/* journal_marks.c: producers and their marks */
struct mark {
    char name[NAME_LEN_MAX];
    uint8_t length; /* 0: an empty slot */
    bool known;     /* some frame with this producer is committed */
    uint64_t accepted, committed;
};
struct marks {
    struct mark *slots; /* open addressing, a power of two, at most half full */
    size_t capacity, count;
};
struct mark *marks_find(const struct marks *m, struct bytes name);
struct mark *marks_add(struct marks *m, struct bytes name); /* the one there is, or a new one at 0 */
void marks_commit(struct marks *m, struct bytes name, uint64_t mark);
/* Forgets what was accepted and not committed. */
void marks_roll_back(struct marks *m);
void marks_table(const struct marks *m, struct buf *out);
bool marks_load(struct marks *m, struct bytes table); /* replaces all; false: malformed */
void marks_copy(struct marks *to, const struct marks *from);
void marks_free(struct marks *m);

/* journal_cursor.c: frame by frame through one segment file */
struct cursor {
    int fd;        /* -1: none */
    bool borrowed; /* it is one of the set's (journal_fd_cache.c): not to be closed here */
    uint64_t seed;
    uint64_t position; /* in the file, of the next frame */
    uint64_t offset;   /* logical, of the next frame's payload */
    struct buf in;     /* file bytes from in_position on */
    uint64_t in_position;
    uint64_t verified; /* position of the frame in `in` that is already verified; 0: none */
    size_t chunk;      /* bytes to read at a time */
    int system;        /* errno of CURSOR_IO */
    struct {
        uint64_t position;   /* of a frame that was verified and is being read in pieces; 0: none */
        size_t payload_at;   /* in the frame */
        struct frame frame;  /* without its bytes */
        uint64_t *checksums; /* of each CURSOR_PIECE bytes of its payload, as verified */
    } large;
};
enum cursor_status { CURSOR_FRAME, CURSOR_END, CURSOR_BAD, CURSOR_IO };
enum cursor_status cursor_open(struct cursor *c, const char *path, uint64_t seed, uint64_t base);
void cursor_begin(struct cursor *c, int fd, uint64_t seed, uint64_t base);
/* The frame at the cursor, verified; its spans are good until the cursor moves or peeks again. END: zeros or the
 * file's end; BAD: something else that is no frame. */
enum cursor_status cursor_peek(struct cursor *c, struct frame *f);
void cursor_skip(struct cursor *c, const struct frame *f);
/* To where a frame is known to begin. */
struct index_entry;
void cursor_go(struct cursor *c, const struct index_entry *p);
/* Gives back the memory of what was read ahead, when that is more than a little: cursors may be many. */
#define CURSOR_KEPT ((size_t)4 << 10)
void cursor_rest(struct cursor *c);
/* Whether the frame at the cursor, if it is one, has more payload than that; nothing is verified. */
bool cursor_exceeds(struct cursor *c, size_t n);
/* A frame that was peeked and does not fit what is wanted at once: the cursor stays, its bytes are not kept, and what is read
 * of it later is held against checksums of its pieces that are made now. */
#define CURSOR_PIECE ((size_t)16 << 10)
void cursor_enter(struct cursor *c, const struct frame *f);
/* Whether the cursor has entered the frame it is at. */
bool cursor_is_inside(const struct cursor *c);
/* n bytes of the entered frame's payload from `skip` on. CURSOR_FRAME, or BAD when they are not what was verified. */
enum cursor_status cursor_read(struct cursor *c, size_t skip, size_t n, struct buf *out);
void cursor_close(struct cursor *c);

/* journal_dir.c */
/* A descriptor of the directory that holds its lock until it is closed; where the file system has none, just that. -1 with
 * errno: EWOULDBLOCK when another opener has it, also after a moment in which one that was killed would have let go. */
int journal_dir_lock(const char *dir);
extern usec_t journal_lock_timeout; /* that moment; replaceable for tests */
int journal_dir_sync(const struct journal *j);

/* journal_newest_marker.c */
/* The highest number that is named as the newest segment's; 0: none. -1 with errno when the directory cannot be read. */
int newest_marker_read(const char *dir, uint64_t *sequence);
char *newest_marker_path(const char *dir, uint64_t sequence); /* of the file that names it */
/* That segment is the newest, and its name durable. */
void newest_marker_write(struct journal *j, uint64_t sequence);
/* Nothing is named any more, for good. 0, or -1 with errno. */
int newest_marker_remove(const char *dir, int dir_fd);

/* journal_repair.c */
/* OK when no repair is unfinished. */
enum journal_result repair_refuses(const char *dir, char *error, size_t error_size);
/* As journal_open, for a repair, which has locked the directory: the descriptor is the journal's from now on, also when it is refused.
 * Newest segments that are missing are given up. */
enum journal_result journal_open_locked(struct journal_set *set, const struct journal_config *config,
    int dir_fd, struct journal **out, char *error, size_t error_size);

/* journal_segment.c */
struct segment {
    uint64_t sequence, base, seed;
    uint64_t end;     /* where its committed payload ends */
    uint64_t size;    /* bytes of its file */
    usec_t last_time; /* of the last frame before it */
    unsigned refs;    /* readers inside it */
    bool damaged;     /* a scrub has told so */
    bool shared;      /* its file was given out */
    char *path;
    struct frame_index *index; /* NULL: none are known */
    struct journal_file *file; /* given out at present; it tells when it goes */
};
char *segment_path(const char *dir, uint64_t sequence, const char *suffix);
/* The sequence numbers of a directory's segments, ascending; the caller frees them. NULL with errno. */
uint64_t *segments_list(const char *dir, size_t *count);
/* All its bytes; 0, or -1 with errno. */
int segment_read(const char *path, struct buf *file);
char *prealloc_path(const char *dir, const char *suffix);
/* No room to sync into is a failed sync all the same: what it left behind is unknown. */
int sync_or_eio(int failed);
/* A file with that header and table, synced, renamed into its place, the directory synced: so a segment under its own
 * name always has both. The file is the spare one if `spare`, else a new one. The descriptor, or -1 with errno; a
 * failed sync is EIO whatever the system called it, so that it always latches. */
int segment_create(const struct journal *j, const struct segment_header *h, struct bytes table, bool spare,
    uint64_t *end_position);
struct segment *segment_new(const char *dir, const struct segment_header *h);
void segment_free(struct segment *s);

/* journal_frame_index.c: where in a segment frames are known to begin; owner only.
 * Learnt from what is appended and from what readers pass, so that the next reader need not go through all that lies
 * before its place. FRAME_INDEX_SEGMENTS_MAX segments of a set have any, those used last, and FRAME_INDEX_ENTRIES_MAX each: what is known takes
 * as much memory however long journals are. A place that is not known costs time only. */
#define FRAME_INDEX_SEGMENTS_MAX 256
#define FRAME_INDEX_ENTRIES_MAX 128
extern uint64_t
    journal_index_spacing; /* bytes of file, at least; more in a segment that would have too many; replaceable for tests */
struct index_entry {
    uint64_t position, offset;
    usec_t time; /* of the last frame before it */
};
void frame_index_add(struct journal *j, struct segment *s, const struct index_entry *p);
/* The last one that is not above the offset, or before which all frames are older than `time`: the segment's beginning when
 * none is known. */
struct index_entry frame_index_find_offset(struct journal *j, struct segment *s, uint64_t offset);
struct index_entry frame_index_find_time(struct journal *j, struct segment *s, usec_t time);
void frame_index_drop(struct segment *s); /* it is being freed */
size_t frame_index_count(const struct segment *s);

/* A batch is what one commit writes; an entry is one append of it. */
struct entry {
    journal_append_fn *done;
    void *arg;
    uint64_t start, end;
    size_t frame; /* where in batch.frames; SIZE_MAX: a duplicate, no frame */
    size_t size;  /* of the frame */
};
struct batch {
    struct batch *next;
    struct journal *journal;
    struct buf frames;
    struct entry *entries;
    size_t count, capacity;
    uint64_t start, end; /* offsets */
    usec_t time;         /* of the last frame */
    size_t reserve; /* the most that one of its appends wants behind it; 0: it may use what was reserved */
    enum journal_result result;
    bool sync;               /* must be synced before it is handed back */
    uint64_t position;       /* where its frames end in the file */
    struct segment *rolled;  /* a segment was begun for it; it may be so even when the batch is refused */
    uint64_t old_size, size; /* of the segment before (when rolled) and of the current file */
};

/* The file that the next segment will begin in: allocated by the filler thread and, while nothing is being committed,
 * filled with zeros; or one that was trimmed. So that a commit writes into blocks that the file has already, and its sync
 * changes no metadata. */
enum prealloc_state {
    PREALLOC_NONE,
    PREALLOC_REQUESTED, /* on set->to_fill */
    PREALLOC_BUSY,      /* some thread is at it: the name is its own */
    PREALLOC_READY,
    PREALLOC_NO_SPACE, /* there was no room for one: the next segment asks again */
};
struct prealloc {
    enum prealloc_state state;
    bool recycled;         /* holds old bytes, not zeros */
    bool abandon;          /* the journal is being closed */
    bool allocated;        /* PREALLOC_BUSY, and good enough to be taken at once */
    bool hurry;            /* the committer waits for it */
    usec_t busy;           /* when there was a commit last */
    bool trimmed;          /* a segment was trimmed since zeros were last asked for */
    uint64_t size, filled; /* the file's; up to where it was written to, not only allocated */
    int failed;            /* errno of a write or sync that failed: the committer latches on it */
};

/* The committer's side of a journal. */
struct writer {
    int fd;
    uint64_t sequence, seed;
    uint64_t base;
    uint64_t position; /* where the next frame goes */
    uint64_t reserved; /* position up to which blocks are allocated beyond the file's end */
    uint64_t
        found; /* up to where an opening found them: what reserves nothing itself uses them up; 0 once something did */
    uint64_t
        wanted; /* what the last batch that asked for a reserve wanted: it is kept as far as it was not used */
    bool no_space; /* what was last to be reserved could not be */
    uint64_t size; /* of the file */
    uint64_t
        filled;     /* from position to here it holds zeros, or old bytes; behind, blocks at most allocated */
    uint64_t usual; /* bytes of a commit; 0: there was none */
    bool recycled;  /* old bytes: each write ends with the zeros that end a segment */
    bool prepared;  /* the segment began in a file made ahead of use */
    uint64_t end;   /* logical, of what is written */
    uint64_t durable;          /* logical, of what is synced */
    uint64_t durable_position; /* of this file: what is synced */
    usec_t last_time;
    struct marks marks; /* as of what is written and not undone: the next segment's table */
    bool announced;     /* this session's boot id and policy stand in the segment (header or OPEN frame) */
    bool latched;
    char failure[JOURNAL_ERROR_TEXT];
};

struct journal {
    unsigned magic;
    struct journal_set *set;
    struct journal *next;
    char *dir;
    int dir_fd; /* of the directory: holds its lock, and syncs need not open it, which could fail */
    uint64_t segment_bytes;
    size_t max_producers;
    bool shares_files;
    uint8_t id[16];
    char id_text[JOURNAL_ID_TEXT];

    struct segment **segments; /* by sequence; the first `doomed` only wait for readers to leave */
    size_t n_segments, n_trimmed;
    struct marks marks;
    uint64_t accepted_end, committed_end;
    usec_t accepted_time, committed_time;
    uint64_t cut_bytes;
    size_t unfinished; /* appends accepted whose callback has not run */
    size_t jobs;       /* with the reader thread */
    size_t readers;
    bool latched;
    char failure[JOURNAL_ERROR_TEXT];
    void (*observer)(struct journal *j, void *arg);
    void *observer_arg;

    struct batch *pending;
    bool dirty;  /* on set->dirty */
    bool halted; /* a batch was refused: the committer takes no more until the owner has rolled back */
    struct journal *next_dirty;

    struct writer writer;
    uint64_t
        newest_marker; /* whoever has the turn to write: the segment that newest_marker_write told of last; 0: none */
    struct prealloc prealloc; /* under the lock */
    struct journal *next_to_fill;
    bool unlink_failed; /* reader thread only; the owner when there are no jobs */
    size_t n_unlinking; /* owner only: files that are to go and are not known to have gone */
};
#define JOURNAL_MAGIC 0x4a524e4cu

/* A job is something for the reader thread. */
#define JOB_ENTRIES_MAX 4
struct job {
    struct job *next;
    struct journal *journal;
    void (*run)(struct job *job);     /* on the reader thread; NULL: nothing to do */
    void (*deliver)(struct job *job); /* on the owner's, then the job is freed */
    struct journal_reader *reader; /* owner only, as `seek`; NULL: closed meanwhile, or another kind of job */
    struct journal_seek *seek;
    struct segment *segment; /* an unlink: to be freed; else: where, held by a reference */
    struct cursor *cursor;
    uint64_t offset, limit;
    size_t max_bytes;
    struct buf out;
    bool frame_starts;
    bool again;        /* a step has ended before what is looked for: to be submitted again */
    usec_t not_before; /* monotonic: until then the reader thread does others */
    usec_t time;
    struct index_entry begin, indexed[JOB_ENTRIES_MAX];
    size_t n_indexed;
    struct span_read *span_read; /* wanted without a copy; NULL: copied */
    enum journal_result result;
    char failure[JOURNAL_ERROR_TEXT];
};
/* Bytes of a segment that one job passes at most (and one frame) on the way to what is wanted, before others' turns come;
 * replaceable for tests. */
extern uint64_t journal_step_max;

/* journal_span_request.c */
struct span_read {
    struct journal_span_request how;
    struct journal_span *spans;
    size_t n, cap;
    uint64_t bytes, stamp;
    int fd; /* -1: none */
};
/* Reader thread: spans from the cursor on. False, with nothing done, where they are to be copied. */
bool spans_fill(struct job *job, enum cursor_status *status);
/* Owner: what was located, if anything, into the window. The file is the caller's to release. */
void spans_answer(struct job *job, struct journal_window *w);
struct span_read *span_read_new(const struct journal_span_request *how);
void span_read_free(struct span_read **l);
void segment_detach_file(struct segment *s); /* it is being freed */
/* Files given out at most, of the process: past that what would be sent from others is copied. Replaceable for tests. */
extern unsigned journal_shared_files_max;
bool file_may_share(const struct segment *s);

/* journal_fd_cache.c */
#define FD_CACHE_MAX 8
struct fd_cache_entry {
    const struct segment *segment; /* NULL: free */
    int fd;
    uint64_t use;
};
struct fd_cache {
    pthread_mutex_t lock;
    struct fd_cache_entry open[FD_CACHE_MAX];
    uint64_t uses;
};
/* Reader thread: the segment's descriptor, to be asked for again for the next job; -1 with errno. */
int fd_cache_get(struct journal_set *set, const struct segment *s);
/* Its file is about to lose its name, or nobody reads it any more. Reader thread, and the owner while no read of it is under way. */
void fd_cache_drop(struct journal_set *set, const struct segment *s);

/* journal_scrub.c: owner only, but for the cursor while a step is under way */
struct scrub {
    struct journal *journal; /* where the pass is; NULL: over, or not begun */
    uint64_t sequence;       /* of the segment it is in, or from which on it looks for one */
    struct cursor cursor;
    bool under_way, in_pass;
    usec_t last, next_pass;
    int64_t credit; /* bytes that may be read */
    struct journal_scrubbed done;
    char damage[JOURNAL_ERROR_TEXT];
};
extern usec_t
    journal_scrub_interval; /* from the beginning of a pass to that of the next; replaceable for tests */
void scrub_run(struct job *job);
void scrub_deliver(struct job *job);
void scrub_close_journal(struct journal *j); /* it is being closed */

#define COMMITTERS 2
struct committer {
    struct journal_set *set;
    pthread_t thread;
    pthread_cond_t wake;
    bool idle; /* asleep, and not signalled */
};

struct journal_set {
    struct journal_set_config config;
    struct scrub scrub;
    struct fd_cache files;
    uint8_t boot[16];
    struct journal *journals;
    size_t pending_bytes;
    bool closing;
    struct batch *answered; /* owner only: duplicates of what is committed already */
    struct batch *pool;     /* owner only */
    size_t pool_bytes;
    bool poll_requested;       /* owner only: journal_set_poll was asked for */
    bool polls;                /* owner only: journal_set_poll is under way */
    usec_t owner_back;         /* owner only: 0, or until when it leaves all writing to the committers */
    struct frame_index *index; /* owner only */
    uint64_t index_clock;      /* how often: a clock */

    pthread_mutex_t lock;
    pthread_t locked_by;
    bool locked;             /* by that thread */
    pthread_cond_t reads;    /* for the reader thread */
    pthread_cond_t fills;    /* for the filler */
    pthread_cond_t progress; /* for an owner that waits */
    pthread_cond_t synced;   /* for the committer that is to sync next, or to begin a segment */
    bool awaits_sync;        /* stage one waits on `synced` */
    bool writing, syncing;   /* a thread is in that stage of a commit (journal_commit.c) */
    bool reader_waits, owner_waits, stop;
    bool hurry;        /* the owner waits: sync_ms does not hold a commit back */
    usec_t not_before; /* with sync_ms: when the next commit may begin */
    usec_t last_shortage;
    usec_t shortage_logged; /* reader thread only */
    struct journal *dirty, **dirty_tail;
    size_t dirty_bytes;
    struct batch *finished, **finished_tail;
    struct job *jobs, **jobs_tail;
    struct job *jobs_done, **jobs_done_tail;
    uint64_t syncs;
    struct journal *to_fill, **to_fill_tail;
    struct committer committers[COMMITTERS];
    pthread_t reader, filler;
};

/* journal_set.c */
void set_signal_owner(
    struct journal_set *set, bool was_empty);   /* under the lock: something is there for poll */
void set_wait(struct journal_set *set);         /* owner: until there is, then polls */
void set_request_poll(struct journal_set *set); /* owner: there will be something for poll */
struct batch *batch_new(struct journal_set *set, struct journal *j);
void batch_release(struct journal_set *set, struct batch *b);
/* The kernel's boot id; replaceable, so that a test can pretend a reboot. */
extern void (*journal_boot_id)(uint8_t out[16]);

/* The set's lock, and whether this thread has it. */
void set_lock(struct journal_set *set);
void set_unlock(struct journal_set *set);
bool set_is_locked(const struct journal_set *set);
void set_sleep(struct journal_set *set, pthread_cond_t *until);
void set_sleep_until(struct journal_set *set, pthread_cond_t *until, usec_t due);

/* journal_commit.c */
extern size_t journal_owner_write_max; /* pending bytes up to which the owner writes; replaceable for tests */
/* A write of the owner's that took longer keeps it away; replaceable for tests. */
extern usec_t journal_owner_slow_write;
/* bytes of a journal from which on an append starts a commit without waiting for a poll; replaceable for tests */
extern size_t journal_gather_max;
void *committer_main(void *committer);
void commit_start(struct journal_set *set);    /* owner: wakes a committer if there is work for it */
void commit_wake_all(struct journal_set *set); /* under the lock */
/* In stage one: until nothing is being synced. */
void commit_wait_for_sync(struct journal_set *set);
/* Owner: whether it commits what is pending itself, as far as can be said now. */
bool commit_by_owner(const struct journal_set *set);
/* Owner: commits what is pending, if that is a mere copy and the committer is not at work. */
void commit_write(struct journal_set *set);
static inline bool set_never_syncs(const struct journal_set *set)
{
    return set->config.sync_ms == JOURNAL_SYNC_NEVER;
}

static inline bool set_gathers(const struct journal_set *set, size_t bytes)
{
    return !set_never_syncs(set) && bytes < journal_gather_max;
}

/* journal_writer.c: with the turn to write or to sync; the owner at opening and closing. What becomes of a batch stands in it. */
extern size_t journal_write_chunk; /* bytes after which a batch's next write begins; replaceable for tests */
void writer_write(struct batch *b);
void writer_sync(struct batch *b); /* as the policy says */
/* Whether writing the batch is a copy into the page cache and no more. */
bool writer_only_copies(struct journal *j, const struct batch *b);
/* After the file was cut: what that gave back is taken again as far as it is still there. */
void writer_reserve_again(struct journal *j, uint64_t bytes);
/* What is left of the last reserve, in the file or behind its end; what `wanted` says is had again in the next segment. */
uint64_t writer_unused_reserve(const struct writer *w);
/* Begins the next segment at `base`; errno on -1. */
int writer_roll(struct journal *j, uint64_t base, uint64_t reach, struct segment **out);
void writer_close(struct journal *j); /* leaves the end-of-session frame and cuts the file to its end */

/* journal_prealloc.c */
extern usec_t journal_prealloc_idle; /* without a commit, until zeros are written; replaceable for tests */
void *filler_main(void *set);
void prealloc_adopt(struct journal *j);   /* opening: takes over what a session before left */
void prealloc_request(struct journal *j); /* committer: the current segment is filling up */
/* Committer: the spare file is the caller's, until prealloc_release says that its name is free; false when there is none. */
bool prealloc_take(struct journal *j, struct prealloc *out);
void prealloc_release(struct journal *j);
bool prealloc_is_ready(struct journal *j);
int prealloc_error(struct journal *j);
/* Committer, when there is no room: gives the spare file's back. */
void prealloc_discard(struct journal *j);
/* Reader thread: a trimmed segment becomes the spare file. False when it is not wanted; errno on -1. */
int prealloc_recycle(struct journal *j, const struct segment *s);
void prealloc_close(struct journal *j); /* owner: waits until nobody is at it */
uint64_t prealloc_bytes(const struct journal *j);

/* journal_append.c */
void journal_make_dirty(struct journal *j); /* under the lock */
void append_deliver(struct batch *b);       /* owner: applies a finished batch and calls back */

/* journal_read.c */
void *reader_main(void *set);
void job_deliver(struct job *job);
void job_submit(struct journal *j, struct job *job);
/* What the system lacks for a moment is no failure of the storage: then it is to be done again, in a while. */
void job_read_failed(struct job *job, enum cursor_status status);
extern usec_t journal_retry_pause; /* that while; replaceable for tests */
/* Reader thread: gives the cursor its descriptor, for this job. */
enum cursor_status job_enter(struct job *job);
/* Reader thread: a step of looking for something begins at job->begin, or where the cursor is if that is further on ... */
void job_begin(struct job *job);
/* ... and passes the frame at the cursor. job->again: that ended the step. */
void job_pass(struct job *job, const struct frame *f);
void job_learn(const struct job *job);          /* owner: the places it came by */
void job_report_failure(const struct job *job); /* owner: for journal_failure */
struct cursor *cursor_new(void);
void cursor_free(struct cursor *c);
struct segment *segment_after(const struct journal *j, const struct segment *s);
void segment_leave(struct journal *j, struct segment *s); /* gives a reference back */
void segments_reap(struct journal *j);
struct segment *journal_last_segment(const struct journal *j);
void journal_push_segment(struct journal *j, struct segment *s);

/* Whether it says that the system is out of descriptors or memory at present, and nothing of a file. */
bool is_resource_shortage(int system);
bool is_out_of_descriptors(int system);
/* "TEXT: strerror" into a failure text. */
void failure_set(char text[JOURNAL_ERROR_TEXT], const char *path, const char *what, int system);

#endif
