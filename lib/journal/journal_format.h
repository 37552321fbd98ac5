/* journal_format: encodes and decodes segment headers and frames in memory. docs/formats/journal.md has the tables.
 *
 * 1. The checksum covers the whole frame. The checksum's seed is derived from the journal's id, the segment's number
 *    and salt, and the frame's position, so a frame that was copied from another place is invalid. The salt is random
 *    and is stored only in the segment's file, so no payload can look like a valid frame.
 * 2. The decoding functions read only bytes of the given span and allocate no memory.
 * 3. A frame header of zeros ends the segment. */
#ifndef MILLRACE_JOURNAL_FORMAT_H
#define MILLRACE_JOURNAL_FORMAT_H

#include "base/bytes.h"
#include "base/clock.h"
#include "journal/opening.h"

#define JOURNAL_FORMAT_VERSION 2u
#define SEGMENT_HEADER ((size_t)152)
#define FRAME_HEADER ((size_t)56)
#define SEGMENT_BASE_AT                                                                                      \
    40 /* a repair reads the fields at SEGMENT_BASE_AT and FRAME_OFFSET_AT even in damaged files */
#define FRAME_OFFSET_AT 16
#define JOURNAL_OFFSET_MAX (UINT64_C(1) << 62) /* a header with a higher offset is damaged */

struct segment_header {
    uint8_t id[16];
    uint64_t sequence;
    uint64_t base;          /* offset of the first payload byte */
    uint64_t previous_end;  /* end of the previous segment's payload; lower than `base` after a hole */
    uint64_t previous_size; /* position at which the frames in the previous segment's file end */
    uint64_t durable;       /* offset before which everything was synced when this segment was created */
    uint64_t reach;         /* end of the commit for which this segment was created */
    usec_t created;
    usec_t latest;               /* latest time of a payload in the previous segment; 0: none */
    uint8_t boot[16];            /* the kernel's boot id */
    uint64_t salt;               /* random; part of the seed */
    char opening[OPENING_TEXT];  /* opening in which the segment was created */
    char previous[OPENING_TEXT]; /* the opening of the byte before `base`; "": none */
    bool never;                  /* created under JOURNAL_SYNC_NEVER */
    bool recycled;               /* an earlier segment used the file: old bytes may follow the frames */
};

enum header_status { HEADER_OK, HEADER_DAMAGED, HEADER_VERSION };
void segment_header_encode(const struct segment_header *h, char out[SEGMENT_HEADER]);
enum header_status segment_header_decode(struct bytes file, struct segment_header *out);

/* Returns the part of the checksum seed that all frames of a segment share. */
uint64_t segment_seed(const struct segment_header *h);

enum frame_kind {
    FRAME_DATA = 1, /* an append: a payload, a producer's new mark, or both */
    FRAME_TABLE,    /* table of all marks: always and only the first frame of a segment */
    FRAME_OPEN,     /* start of a session (journal_open to journal_close): boot id, opening, sync policy */
    FRAME_CLOSE,    /* clean end of a session: all earlier bytes are synced */
};

struct frame {
    enum frame_kind kind;
    uint64_t offset; /* offset of the first payload byte */
    usec_t time;
    uint64_t durable;          /* offset before which everything was synced when this frame was written */
    uint64_t durable_position; /* position up to which this file was synced when this frame was written */
    uint64_t mark;             /* the producer's new mark */
    struct bytes name;         /* label of the producer: name, or name, NUL and tag; empty: no producer */
    struct bytes payload;
};

/* Returns the number of bytes by which the frame advances the offset. */
static inline uint64_t frame_advance(const struct frame *f)
{
    return f->kind == FRAME_DATA ? f->payload.len : 0;
}

size_t frame_size(size_t name, size_t payload);
/* Appends a frame without its durable fields and its checksum. f->payload.len is the total length of the pieces. */
void frame_append(struct buf *b, const struct frame *f, const struct bytes *pieces, size_t n_pieces);
/* Sets the durable fields and the checksum of a frame that will be written at `place`. Returns the frame's size. */
struct frame_place {
    uint64_t seed, position;
    uint64_t durable, durable_position;
};
size_t frame_seal(char *at, const struct frame_place *place);

enum frame_status { FRAME_OK, FRAME_NONE, FRAME_SHORT, FRAME_BAD };
/* Checks that a frame header is plausible, without computing the checksum. FRAME_OK: *size is the frame's size.
 * FRAME_NONE: the header is all zeros. FRAME_SHORT: `at` has fewer than FRAME_HEADER bytes. */
enum frame_status frame_measure(struct bytes at, size_t *size);
/* Returns the length of the payload according to the header, or 0 if `at` is shorter than a header. */
size_t frame_payload_length(struct bytes at);
/* FRAME_OK: the frame is valid, and name and payload point into `at`. FRAME_SHORT: `at` ends before the frame. If
 * `trusted` is true, the caller has verified the bytes, and frame_decode does not compute the checksum. */
enum frame_status frame_decode(
    struct bytes at, uint64_t seed, uint64_t position, bool trusted, struct frame *out);

/* Encoding and decoding of the payloads of FRAME_TABLE and FRAME_OPEN. */
void table_append_entry(struct buf *b, struct bytes name, uint64_t mark);
/* Removes the first entry from *table. Returns false at the table's end. *bad is true if the table is malformed. */
bool table_next(struct bytes *table, struct bytes *name, uint64_t *mark, bool *bad);

#define OPEN_PAYLOAD ((size_t)36)
struct session {
    uint8_t boot[16];
    char opening[OPENING_TEXT];
    bool never;
};
void open_encode(const struct session *session, char out[OPEN_PAYLOAD]);
bool open_decode(struct bytes payload, struct session *out);

/* The result of a scan of the bytes after the end of a segment's frames. journal_open uses the result to distinguish
 * damage, a torn tail, and old bytes of a recycled file. */
struct tail_scan {
    uint64_t end;               /* end of the last intact frame in these bytes; 0: none */
    uint64_t durable, position; /* highest durable offset and position in an intact frame or the statement */
    uint64_t nonzero;           /* number of bytes up to the last nonzero byte */
    bool too_many;              /* the scan stopped because too many positions look like frames */
};

/* Encodes the statement of the newest marker, which says that the segment's file is synced up to `position`, and its
 * payload up to the offset `durable`. `seed` is the segment's seed, so the statement is valid only for this
 * segment. */
#define SYNCED_END ((size_t)24)
void synced_end_encode(uint64_t position, uint64_t durable, uint64_t seed, char out[SYNCED_END]);
/* Tries every position from `from` on and records the intact frames whose offset is at least `offset`. The scan stops
 * after checksums over a few times the file's size. Includes the statement `stated` if it belongs to this segment. */
void frames_scan_tail(struct bytes file, uint64_t from, uint64_t seed, uint64_t offset,
    const char stated[SYNCED_END], struct tail_scan *out);

#endif
