/* journal_cursor: goes through one segment file frame by frame, and verifies each frame. */
#ifndef MILLRACE_JOURNAL_CURSOR_H
#define MILLRACE_JOURNAL_CURSOR_H

#include "journal/journal_error.h"
#include "journal/journal_format.h"

/* A place where a frame begins. */
struct index_entry {
    uint64_t position, offset;
    usec_t time; /* of the frame before it */
};

struct cursor {
    int fd;        /* -1: none */
    bool borrowed; /* the descriptor belongs to the fd cache */
    uint64_t seed;
    uint64_t position; /* of the next frame in the file */
    uint64_t offset;   /* of its payload */
    struct buf in;     /* file bytes from in_position on */
    uint64_t in_position;
    uint64_t verified; /* position of the frame in `in` that is verified; 0: none */
    size_t chunk;      /* bytes to read at a time */
    int system;        /* errno of CURSOR_IO */
    struct {
        uint64_t position; /* of an entered frame; 0: none */
        size_t payload_at; /* in the frame */
        struct frame frame;
        uint64_t *checksums; /* of each CURSOR_PIECE bytes of its payload */
    } large;
};
enum cursor_status { CURSOR_FRAME, CURSOR_END, CURSOR_BAD, CURSOR_IO };

struct cursor *cursor_new(void);
void cursor_free(struct cursor *c);
enum cursor_status cursor_open(struct cursor *c, const char *path, uint64_t seed, uint64_t base);
void cursor_begin(struct cursor *c, int fd, uint64_t seed, uint64_t base);
void cursor_close(struct cursor *c);
/* After BAD or IO: a text that names file and byte. */
void cursor_failure(
    const struct cursor *c, enum cursor_status status, const char *path, char text[JOURNAL_ERROR_TEXT]);
void cursor_go(struct cursor *c, const struct index_entry *p);

/* The frame at the cursor, verified. Its spans are valid until the cursor moves or peeks again. END: zeros or the end of
 * the file. BAD: anything else. */
enum cursor_status cursor_peek(struct cursor *c, struct frame *f);
void cursor_skip(struct cursor *c, const struct frame *f);
/* Whether the header at the cursor claims more than n bytes of payload; nothing is verified. */
bool cursor_exceeds(struct cursor *c, size_t n);
/* Frees the read-ahead unless it is small: there may be many cursors. */
#define CURSOR_KEPT ((size_t)4 << 10)
void cursor_rest(struct cursor *c);

/* For a frame larger than what is wanted at once: enter it after cursor_peek, then read its payload in parts. Each part is
 * checked against checksums that cursor_enter made of the verified frame. */
#define CURSOR_PIECE ((size_t)16 << 10)
void cursor_enter(struct cursor *c, const struct frame *f);
bool cursor_is_inside(const struct cursor *c);
/* Reads n bytes of the payload from `skip` on. Returns CURSOR_FRAME, or CURSOR_BAD if the file has changed since cursor_enter. */
enum cursor_status cursor_read(struct cursor *c, size_t skip, size_t n, struct buf *out);

#endif
