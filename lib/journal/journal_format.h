/* journal_format: how a journal's bytes lie in a file. Memory only: no file is touched here.
 *
 * A segment is a header (SEGMENT_HEADER bytes), then frames, each beginning at a multiple of eight. All
 * numbers are little-endian. docs/formats/journal.md has the tables.
 *
 * 1. A frame's checksum covers all of it, padding included, seeded with the journal's id, the segment's
 *    sequence number and salt, and the frame's place in the file. So bytes that are a frame elsewhere (in
 *    another journal, an older segment, at another place) are none here, and what a file held before never
 *    matters. The salt is random and told to nobody: a payload cannot be made to look like a frame.
 * 2. Decoding reads nothing outside the span it is given and allocates nothing.
 * 3. A frame header of zeros is no frame: it ends the segment.
 */
#ifndef MILLRACE_JOURNAL_FORMAT_H
#define MILLRACE_JOURNAL_FORMAT_H

#include "base/bytes.h"
#include "base/clock.h"

#define JOURNAL_FORMAT_VERSION 1u
#define SEGMENT_HEADER ((size_t)128)
#define FRAME_HEADER ((size_t)56)
#define SEGMENT_BASE_AT 40 /* for who looks into a header that is not whole */
#define FRAME_OFFSET_AT 16
#define JOURNAL_OFFSET_MAX (UINT64_C(1) << 62) /* a header that names a later one is damaged */

struct segment_header {
    uint8_t id[16];
    uint64_t sequence;
    uint64_t base;          /* logical offset of the first payload byte */
    uint64_t previous_end;  /* where the payload of the segment before ends; below base after a hole */
    uint64_t previous_size; /* where that segment's frames end in its file */
    uint64_t durable;       /* everything below was synced when this segment was made */
    uint64_t reach;         /* where the commit ends that this segment was made for */
    usec_t created;
    usec_t last_time; /* of the last frame before this segment */
    uint8_t boot[16]; /* the kernel's boot id of the session that made it */
    uint64_t salt;    /* random: part of the seed */
    bool never;       /* that session's policy was JOURNAL_SYNC_NEVER */
    bool recycled;    /* the file was another segment's: what lies behind the frames may be anything */
};

enum header_status { HEADER_OK, HEADER_DAMAGED, HEADER_NEWER };
void segment_header_encode(const struct segment_header *h, char out[SEGMENT_HEADER]);
enum header_status segment_header_decode(struct bytes file, struct segment_header *out);

/* The part of the checksum's seed that is the same for a whole segment. */
uint64_t segment_seed(const struct segment_header *h);

enum frame_kind {
    FRAME_DATA = 1, /* an append: payload, perhaps a producer and its new mark */
    FRAME_TABLE,    /* every producer's mark; the first frame of a segment, and only that */
    FRAME_OPEN,     /* a session begins to append here: its boot id and policy */
    FRAME_CLOSE,    /* a session ended cleanly: everything before is synced */
};

struct frame {
    enum frame_kind kind;
    uint64_t offset; /* logical offset of the first payload byte */
    usec_t time;
    uint64_t durable;          /* everything below was synced when this frame was written */
    uint64_t durable_position; /* and so was this segment's file up to here: mark moves take no offset */
    uint64_t mark;             /* the producer's new mark */
    struct bytes name;
    struct bytes payload;
};

/* Payload bytes that count as the journal's: those of FRAME_DATA. */
static inline uint64_t frame_advance(const struct frame *f)
{
    return f->kind == FRAME_DATA ? f->payload.len : 0;
}

size_t frame_size(size_t name, size_t payload);
/* Appends an unsealed frame (no durable offset, no checksum); the payload comes in pieces, f->payload.len is
 * their sum and f->payload.ptr is not read. */
void frame_append(struct buf *b, const struct frame *f, const struct bytes *pieces, size_t n_pieces);
/* Completes the frame at `at`, which will stand at `position` of its file; its size. */
struct frame_place {
    uint64_t seed, position;
    uint64_t durable, durable_position;
};
size_t frame_seal(char *at, const struct frame_place *place);

enum frame_status { FRAME_OK, FRAME_NONE, FRAME_SHORT, FRAME_BAD };
/* Whether a header can be one: OK with *size the whole frame's, NONE for zeros, SHORT when fewer than
 * FRAME_HEADER bytes are there (and not all zero), BAD. Nothing is proved before frame_decode says OK. */
enum frame_status frame_measure(struct bytes at, size_t *size);
/* What a header claims; 0 when there is none. */
size_t frame_payload_length(struct bytes at);
/* OK: verified; spans point into `at`. SHORT: the frame goes on past what is there. With `trusted` the checksum
 * is not computed (it was, for these very bytes in memory). */
enum frame_status frame_decode(
    struct bytes at, uint64_t seed, uint64_t position, bool trusted, struct frame *out);

/* One checksum for each `piece` bytes, and whether bytes still have theirs: in memory only, for who reads a verified payload
 * again piece by piece. */
void piece_checksums(struct bytes payload, size_t piece, uint64_t *out);
bool pieces_match(struct bytes bytes, size_t piece, const uint64_t *checksums);

/* The payloads of FRAME_TABLE and FRAME_OPEN. */
void table_append_entry(struct buf *b, struct bytes name, uint64_t mark);
/* Takes the next entry off the front of *table; false at its end or, with *bad, when it is malformed. */
bool table_next(struct bytes *table, struct bytes *name, uint64_t *mark, bool *bad);

#define OPEN_PAYLOAD ((size_t)24)
void open_encode(const uint8_t boot[16], bool never, char out[OPEN_PAYLOAD]);
bool open_decode(struct bytes payload, uint8_t boot[16], bool *never);

/* What lies behind the place where a segment's frames end: to tell damage from a torn tail, and a torn tail from
 * what a recycled file held before. */
struct tail_scan {
    uint64_t end;               /* where the last intact frame there ends; 0: there is none */
    uint64_t durable, position; /* the highest durable offset and position that those frames name */
    uint64_t nonzero;           /* bytes up to the last that is not zero */
    bool too_many;              /* so many places look like frames that not all were tried */
};
/* Looks at every place from `from` on for frames that are intact and whose payload is at `offset` or above. Work is
 * bounded by a few times the file's size, whatever its bytes. */
void frames_scan_tail(
    struct bytes file, uint64_t from, uint64_t seed, uint64_t offset, struct tail_scan *out);

#endif
