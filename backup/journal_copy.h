/* journal_copy: a consistent prefix of a journal that a daemon is appending to, from its files alone.
 *
 * 1. journal_copy_pin links every segment into the stage. From then on the copy keeps what the journal had, because
 *    a journal never overwrites a file with two names.
 * 2. journal_copy_extend links the segments that began since. It may be called again, and then extends the copy.
 * 3. journal_copy_cut ends the copy behind a whole frame, and replaces the link of the last segment by a copy. All
 *    other segments are complete and never change again.
 *
 * A copy may end with frames that were written but not yet committed. Their appends were not acknowledged. */
#ifndef MILLRACE_JOURNAL_COPY_H
#define MILLRACE_JOURNAL_COPY_H

#include "backup/backup_result.h"
#include "journal/journal_inspect.h"

struct journal_copy_mark {
    char id[JOURNAL_ID_TEXT]; /* a producer whose name is the id of a queue or stream */
    uint64_t mark;
};
/* A place between two frames. */
struct journal_copy_place {
    uint64_t sequence, position, offset;
};

struct journal_copy {
    char *name, *source, *stage;  /* the stream or queue; directories */
    bool is_queue;                /* the payloads are records of a queue */
    char id[JOURNAL_ID_TEXT];     /* of the journal */
    uint64_t first, newest;       /* sequence numbers of the linked segments */
    struct journal_copy_place at; /* length of the journal when it was pinned */
    struct journal_copy_place end;
    struct journal_copy_mark *marks; /* at `end` */
    size_t n_marks, room_marks;
    uint64_t next_id;  /* of a queue, at `end` */
    uint64_t earliest; /* offset; set by journal_copy_cut */
};

/* Copies the texts. */
void journal_copy_init(struct journal_copy *c, const char *name, const char *source, const char *stage);
void journal_copy_free(struct journal_copy *c);
enum backup_result journal_copy_pin(struct journal_copy *c, struct error *error);
/* Links the segments that began since. A failure shows again in journal_copy_extend. */
void journal_copy_follow(struct journal_copy *c);

/* Says whether the copy must end before this frame. It is asked only about frames after `at`. */
typedef bool journal_copy_stop_fn(const struct frame *f, void *arg);
enum backup_result journal_copy_extend(
    struct journal_copy *c, journal_copy_stop_fn *stop, void *arg, struct error *error);
/* BACKUP_DAMAGED: the journal is damaged. */
enum backup_result journal_copy_cut(struct journal_copy *c, struct error *error);
/* The mark of a producer at the end of the copy; 0: none. */
uint64_t journal_copy_mark(const struct journal_copy *c, const char *id);
/* True if the frame removes a message of a queue with this id or a higher one. */
bool journal_copy_removes(const struct frame *f, uint64_t id);

#endif
