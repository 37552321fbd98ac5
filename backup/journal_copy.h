/* journal_copy: copies a consistent prefix of a journal from its files, while a daemon appends to the journal.
 *
 * 1. journal_copy_pin links every segment into the stage, a directory of the backup. A journal never overwrites a file
 *    with two names, so the linked files remain unchanged if the daemon trims the journal.
 * 2. journal_copy_extend links the segments that the journal has begun since the last link. Each further call of
 *    journal_copy_extend extends the copy.
 * 3. journal_copy_cut ends the copy after a whole frame, and replaces the links of the last two segments by copies. The
 *    daemon may be about to truncate the file of the segment before the last one. All earlier segments are complete and
 *    never change again, because the daemon truncates a segment before it begins the next but one.
 *
 * A copy may end with frames that were written but not committed, so that their appends were not acknowledged. */
#ifndef MILLRACE_JOURNAL_COPY_H
#define MILLRACE_JOURNAL_COPY_H

#include "backup/backup_result.h"
#include "journal/journal_inspect.h"

struct journal_copy_mark {
    char id[JOURNAL_ID_TEXT]; /* name of a producer, which is the id of a queue or stream */
    uint64_t mark;
};
/* A position between two frames. */
struct journal_copy_place {
    uint64_t sequence, position, offset;
};

struct journal_copy {
    char *name;                      /* name of the stream or queue */
    char *source, *stage;            /* directories of the journal and of the copy */
    bool is_queue;                   /* the payloads are records of a queue */
    char id[JOURNAL_ID_TEXT];        /* id of the journal */
    uint64_t first, newest;          /* sequence numbers of the first and newest linked segment */
    struct journal_copy_place at;    /* end of the journal in journal_copy_pin */
    struct journal_copy_place end;   /* end of the copy */
    uint64_t previous_size;          /* end of the last frame in the segment before `end` */
    struct journal_copy_mark *marks; /* marks of the producers at `end` */
    size_t n_marks, room_marks;
    uint64_t next_id;  /* for a queue: id of the next message at `end` */
    uint64_t earliest; /* earliest offset of the copy; set by journal_copy_cut */
};

/* Prepares a copy. Copies the texts. */
void journal_copy_init(struct journal_copy *c, const char *name, const char *source, const char *stage);
void journal_copy_free(struct journal_copy *c);
enum backup_result journal_copy_pin(struct journal_copy *c, struct error *error);
/* Links the segments that the journal has begun since the last link. journal_copy_extend reports a failure. */
void journal_copy_follow(struct journal_copy *c);

/* Returns whether the copy must end before the frame `f`. Called only for frames after `at`. */
typedef bool journal_copy_stop_fn(const struct frame *f, void *arg);
enum backup_result journal_copy_extend(
    struct journal_copy *c, journal_copy_stop_fn *stop, void *arg, struct error *error);
/* Returns BACKUP_DAMAGED if the journal is damaged. */
enum backup_result journal_copy_cut(struct journal_copy *c, struct error *error);
/* Returns the mark of a producer at the end of the copy, or 0 for an unknown producer. */
uint64_t journal_copy_mark(const struct journal_copy *c, const char *id);
/* Returns true if the frame removes a message of a queue whose id is `id` or higher. */
bool journal_copy_removes(const struct frame *f, uint64_t id);

#endif
