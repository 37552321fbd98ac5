/* untils: the latest time up to which each producer of a stream is complete.
 *
 * A producer *states* a time: each event that its source accepted before that time is in the stream, below an offset. With
 * the least time of all producers, a consumer that has read up to these offsets knows which events it has (stream/watermark.h).
 *
 * 1. A statement counts once the lines published with it are committed. Its offset is the committed end at that moment.
 * 2. The latest statement of a producer counts, even if its time is earlier: the producer's clock was set back.
 * 3. A time is never later than the moment at which the producer read it, by this daemon's trusted time. So a producer
 *    whose clock is ahead, or that states a future time, is not complete too early.
 * 4. A statement without a time (0) makes the producer known. It does not change an earlier time.
 * 5. After a restart, producers and their times are known from the file `untils`. Such a time may be some seconds older than
 *    the last statement; `is_restored` is true until the next statement. A time is dropped if the stream
 *    does not have the lines below its offset: it was restored from an older copy, also if the copy has grown past the
 *    offset since, or it has lost them in a power cut. The file has UNTILS_STORED_MAX slots. Any further producers are
 *    known again only when they state a time.
 * 6. A producer's silence counts only while this daemon runs. After a downtime or a suspension, each producer has the time to
 *    state again that it had before.
 * 7. A new producer is known once its first statement is stored, so that a kill does not forget a known producer.
 *
 * The file is a cursor_file. For the loop's thread only, except untils_open. The streams must be freed after the untils. */
#ifndef MILLRACE_PUBSUB_UNTILS_H
#define MILLRACE_PUBSUB_UNTILS_H

#include "base/clock_watch.h"
#include "pubsub/stream/cursor_file.h"
#include "pubsub/stream/streams.h"

#define UNTILS_STORED_MAX 512

struct untils;

/* Read only. */
struct until {
    struct stream *stream;
    char producer[NAME_LEN_MAX + 1];
    usec_t time;              /* as stated, by the producer's clock; 0: not known */
    struct clock_moment read; /* when the producer read it; if is_restored, at the latest */
    uint64_t offset;          /* the statement is about the lines below this offset */
    usec_t stated;            /* the last statement, with or without a time, in the time of untils_tick */
    void *arg;                /* of the config */
    bool is_restored;         /* the time is from before the start */
    bool is_known;            /* invariant 7 */
};

struct untils_config {
    struct streams *streams; /* recovered */
    const char *dir;         /* the directory of the file `untils` */
    struct clock_moment now;
    void (*notify)(void *arg);
    void *notify_arg;
    void (*made)(void *arg, const struct until *u); /* a producer became known */
    void (*removed)(void *arg, const struct until *u);
    void *arg;
};
/* Blocks. Returns false with the error text if the file is damaged. If the file cannot be read or created, as on a full disk, logs
 * a warning, and stores nothing until the next start. */
bool untils_open(const struct untils_config *config, struct untils **out, char *error, size_t error_size);
void untils_close(struct untils **us);
void untils_poll(struct untils *us);
/* Call this about once a second: the time up to now counts as silence. */
void untils_tick(struct untils *us, struct clock_moment now);

struct until_statement {
    struct bytes producer; /* a name */
    usec_t time;           /* 0: not known */
    usec_t age;            /* time since the producer read `time` */
};
void untils_state(
    struct untils *us, struct stream *s, const struct until_statement *statement, struct clock_moment now);
/* Forgets a producer. */
void untils_remove(struct untils *us, const struct stream *s, struct bytes producer);

/* NULL: the producer has stated nothing. */
const struct until *untils_find(const struct untils *us, const struct stream *s, struct bytes producer);
size_t untils_count(const struct untils *us);
const struct until *untils_at(const struct untils *us, size_t i); /* in no order */
/* The least time of the stream's producers with a mark, of those that have not been silent for longer than `timeout`, and the producer in *held_by. 0:
 * the time of a producer is not known. If no producer counts, returns the present, with *held_by NULL. */
usec_t untils_least(const struct untils *us, const struct stream *s, usec_t timeout, struct clock_moment now,
    const struct until **held_by);
/* The time up to which the producer is complete (invariant 3); 0: not known. */
usec_t until_time(const struct until *u, struct clock_moment now);
/* The time from the last statement to the last tick (invariant 6). */
usec_t untils_silence(const struct untils *us, const struct until *u);

#endif
