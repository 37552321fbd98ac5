/* journal_cursor: steps through one segment file frame by frame, and verifies each frame. */
#ifndef MILLRACE_JOURNAL_CURSOR_H
#define MILLRACE_JOURNAL_CURSOR_H

#include "journal/journal.h"
#include "journal/journal_format.h"

/* A position at which a frame begins. */
struct index_entry {
    uint64_t position, offset;
    usec_t latest; /* latest time of the segment's frames before the position; 0: none */
};

struct cursor {
    int fd;           /* -1: none */
    bool borrowed;    /* the descriptor belongs to the fd cache */
    unsigned version; /* version of the segment's file (job_enter) */
    uint64_t seed;
    uint64_t position; /* file position of the next frame */
    uint64_t offset;   /* offset of the next payload */
    usec_t latest;     /* latest time of the skipped payloads in this segment; 0: none */
    struct buf in;     /* file bytes from in_position on */
    uint64_t in_position;
    uint64_t verified; /* position of a verified frame in `in`; 0: none */
    size_t chunk;      /* number of bytes to read at a time */
    int system;        /* errno of CURSOR_IO */
    struct {
        uint64_t position; /* position of the entered frame; 0: none */
        size_t payload_at; /* in the frame */
        struct frame frame;
        uint64_t *checksums; /* one checksum per CURSOR_PIECE bytes of its payload */
    } large;
};
/* CURSOR_FRAME: success, even of a function that returns no frame. CURSOR_END: zeros or the end of the file follow.
 * CURSOR_BAD: bytes that are neither zeros nor a valid frame follow. CURSOR_IO: a system call failed. */
enum cursor_status { CURSOR_FRAME, CURSOR_END, CURSOR_BAD, CURSOR_IO };

struct cursor *cursor_new(void);
void cursor_free(struct cursor *c);
enum cursor_status cursor_open(struct cursor *c, const char *path, uint64_t seed, uint64_t base);
void cursor_begin(struct cursor *c, int fd, uint64_t seed, uint64_t base);
void cursor_close(struct cursor *c);
/* After CURSOR_BAD or CURSOR_IO: writes a text that names the file and the byte. */
void cursor_failure(
    const struct cursor *c, enum cursor_status status, const char *path, char text[JOURNAL_ERROR_TEXT]);

/* Verifies the frame at the cursor and stores it in *f. Name and payload are valid until the cursor's next call. */
enum cursor_status cursor_peek(struct cursor *c, struct frame *f);
void cursor_skip(struct cursor *c, const struct frame *f);
/* True if the frame header at the cursor has a payload length above n. The frame is not verified. */
bool cursor_exceeds(struct cursor *c, size_t n);
/* Frees the buffer of an unused cursor if the buffer is larger than CURSOR_KEPT, because many cursors may exist. */
#define CURSOR_KEPT ((size_t)4 << 10)
void cursor_rest(struct cursor *c);

/* To read a large frame in parts, call cursor_peek, then cursor_enter, and then cursor_read for each part.
 * cursor_enter computes checksums of the verified frame, and cursor_read compares each part with these checksums. */
#define CURSOR_PIECE ((size_t)16 << 10)
void cursor_enter(struct cursor *c, const struct frame *f);
bool cursor_is_inside(const struct cursor *c);
/* Appends n bytes of the payload from byte `skip` on to *out. CURSOR_BAD: the payload changed since cursor_enter. */
enum cursor_status cursor_read(struct cursor *c, size_t skip, size_t n, struct buf *out);

/* Drops bytes that were read before a file with the same frames, but other payloads, replaced the segment's file. */
enum cursor_status cursor_reread(struct cursor *c);

#endif
