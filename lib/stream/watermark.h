/* watermark: the time up to which a stream is complete, for a reader that has processed the stream up to an offset.
 *
 * pubsub *states* such times in its responses, between the lines (docs/guide/protocol.md, "Times in a response"): each event that the
 * producers' sources accepted before `until` is in the stream below `end`. A statement holds for the lines of its own response, so a
 * reader forgets the statements that it has not reached when the response ends, before its cursor moves to other lines.
 *
 * 1. A statement counts once the reader has processed the stream up to its end.
 * 2. The watermark falls if a producer states an earlier time or becomes known later, or if pubsub's clock was set back: then by as much,
 *    and a time later than pubsub's present counts no longer. It does not fall if pubsub has restarted and a restored time is some seconds too early.
 * 3. The watermark advances even if processing always lags. The oldest pending statement is kept until processing reaches
 *    it. Meanwhile only the newest of the later statements is kept. */
#ifndef MILLRACE_WATERMARK_H
#define MILLRACE_WATERMARK_H

#include "base/bytes.h"
#include "base/clock.h"

struct stream_statement {
    usec_t until; /* Unix time; 0: not known, because a producer has not stated a time yet */
    usec_t now;   /* pubsub's trusted time */
    uint64_t end; /* of the stream */
    usec_t at;    /* when the statement arrived, by the clock since boot */
    char producer[NAME_LEN_MAX + 1]; /* the producer that holds `until` back; "": none */
    bool is_restored;                /* `until` is from before pubsub's start, and may be too early */
};
/* Reads "UNTIL END NOW", with " PRODUCER" and " restored" where they apply, all but `at`. Returns false if the text is something else. */
bool stream_statement_read(struct bytes text, struct stream_statement *out);
void stream_statement_append(const struct stream_statement *s, struct buf *out);

/* Zeroed: nothing is known. */
struct watermark {
    usec_t until;
    usec_t now, at;                     /* of the latest statement */
    struct stream_statement pending[2]; /* not reached yet: the oldest, and the newest after it */
    size_t n_pending;
};
void watermark_state(struct watermark *w, const struct stream_statement *s);
/* Forgets the pending statements. */
void watermark_forget(struct watermark *w);
/* The watermark of a reader that has processed the stream up to `offset`; 0: not known. */
usec_t watermark_until(struct watermark *w, uint64_t offset);

#endif
