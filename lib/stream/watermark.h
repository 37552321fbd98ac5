/* watermark: the time up to which a stream is complete, for a reader that has processed the stream up to an offset.
 *
 * pubsub sends *statements* in its responses, between the lines (docs/guide/protocol.md, "Times in a response"). A
 * statement means that each event that the producers' sources accepted before `until` is in the stream before `end`. A
 * statement holds only for the lines of its own response. When a response ends, a reader forgets the statements whose
 * `end` it has not reached, before its cursor moves to other lines.
 *
 * 1. A statement counts once the reader has processed the stream up to the statement's `end`.
 * 2. The watermark decreases if a producer states an earlier time or if a new producer appears. If pubsub's clock is
 *    set back, the watermark decreases by as much, and a watermark later than pubsub's present becomes unknown. After
 *    a restart of pubsub, the watermark does not decrease because of a restored time that is some seconds too early.
 * 3. The watermark advances even if the reader is always late. The oldest pending statement is kept until the reader
 *    reaches its `end`. Of the later statements, only the newest is kept. */
#ifndef MILLRACE_WATERMARK_H
#define MILLRACE_WATERMARK_H

#include "base/bytes.h"
#include "base/clock.h"

struct stream_statement {
    usec_t until; /* Unix time; 0: not known, because a producer has not stated a time yet */
    usec_t now;   /* pubsub's trusted time */
    uint64_t end; /* offset of the stream's end */
    usec_t at;    /* when the statement arrived, by the clock since boot */
    char producer[NAME_LEN_MAX +
                  1]; /* the producer with the earliest time, which determines `until`; "": none */
    bool is_restored; /* `until` is from before pubsub's start, and may be too early */
};
/* Reads all members except `at` from "UNTIL END NOW", "UNTIL END NOW PRODUCER" or "UNTIL END NOW PRODUCER restored".
 * Returns false if the text has another form. */
bool stream_statement_read(struct bytes text, struct stream_statement *out);
void stream_statement_append(const struct stream_statement *s, struct buf *out);

/* The watermark of a zeroed struct is unknown. */
struct watermark {
    usec_t until;
    usec_t now, at; /* times in the latest statement */
    /* statements that the reader has not reached: the oldest and the newest */
    struct stream_statement pending[2];
    size_t n_pending;
};
void watermark_state(struct watermark *w, const struct stream_statement *s);
/* Forgets the pending statements. */
void watermark_forget(struct watermark *w);
/* The watermark of a reader that has processed the stream up to `offset`; 0: not known. */
usec_t watermark_until(struct watermark *w, uint64_t offset);

#endif
