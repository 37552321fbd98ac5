/* untils: the latest time up to which each producer of a stream is complete.
 *
 * A producer *states* a time: each event that its source accepted before that time is in the stream. With the least time of all
 * producers, a consumer knows which events it has (stream/watermark.h).
 *
 * 1. A statement counts once the lines published with it are committed.
 * 2. The latest statement of a producer counts, even if its time is earlier: the producer's clock was set back.
 * 3. Times are on this daemon's trusted clock. If that clock is set back, all times stated before fall by the same amount, also in the log.
 *    If the clock is behind the log at the start, the stored times are unknown until the next statement.
 * 4. A statement without a time (0) makes the producer known. It does not change an earlier time.
 * 5. The times are stored in the stream's log, in the tags of the producers' marks, so a copy of a stream has the times of the lines that it
 *    has. The tag of a publish has the time stated with it. A statement without lines is stored after UNTILS_STORE_EVERY at the latest, or
 *    after a 64th of the time since the producer's last publish, if that is longer, so that the log of an idle stream hardly grows; and by
 *    untils_close. After a kill, a time may be older by as much; `is_restored` is true until the next statement.
 * 6. A producer's silence counts only while this daemon runs. It is stored in eighths of the timeout, so after a restart a producer has an
 *    eighth more at most. A producer that was silent for the timeout is left out until its next statement.
 * 7. A new producer is known once its first statement is stored, so that a kill does not forget a known producer.
 *
 * For the loop's thread only, except untils_open. The streams must be freed after the untils. */
#ifndef MILLRACE_PUBSUB_UNTILS_H
#define MILLRACE_PUBSUB_UNTILS_H

#include "pubsub/stream/streams.h"

#define UNTILS_STORE_EVERY (10 * USEC_PER_SEC)

struct untils;

/* Read only. */
struct until {
    struct stream *stream;
    char producer[NAME_LEN_MAX + 1];
    char name[NAME_LEN_MAX + 1]; /* that people know; "": none stated */
    usec_t time;      /* by this daemon's clock and the producer's, whichever is earlier; 0: not known */
    usec_t silence;   /* as of the last tick */
    bool is_restored; /* the time is from before the start */
    bool is_known;    /* invariant 7 */
    void *arg;        /* of the config */
};

struct untils_config {
    struct streams *streams;                        /* recovered */
    usec_t timeout;                                 /* a producer that is silent for so long is left out */
    void (*made)(void *arg, const struct until *u); /* a producer became known */
    void (*removed)(void *arg, const struct until *u);
    void *arg;
};
struct untils *untils_open(const struct untils_config *config);
/* Stores all times and waits for the commits. */
void untils_close(struct untils **us);
/* Call this about once a second, with the trusted time and the clock since boot: the time up to now counts as silence. */
void untils_tick(struct untils *us, usec_t trusted, usec_t boot);

struct until_statement {
    struct bytes producer; /* a name */
    struct bytes name;     /* a name, or empty: unchanged */
    usec_t time;           /* not later than the trusted time; 0: not known */
    usec_t booted;         /* when the machine booted, by the trusted time with which `time` was compared */
};
/* The statement counts. is_stored: the commit stored the tag that untils_tag made of it. */
void untils_state(
    struct untils *us, struct stream *s, const struct until_statement *statement, bool is_stored);
/* As after a silence of the timeout. False: the producer has stated nothing. */
bool untils_leave_out(struct untils *us, const struct stream *s, struct bytes producer);
/* Forgets a producer. */
void untils_remove(struct untils *us, const struct stream *s, struct bytes producer);

/* The tag of a mark is the text "OPENING[ UNTIL SILENCE NAME]": the opening that the producer stores with its mark, and what it has stated;
 * UNTIL and SILENCE in microseconds. Returns the tag to store with a publish; `statement` NULL: the publish states nothing. An opening
 * has at most NAME_LEN_MAX bytes. */
#define UNTILS_TAG_TEXT MARK_LABEL_MAX
struct bytes untils_tag(const struct untils *us, const struct stream *s, struct bytes producer,
    struct bytes opening, const struct until_statement *statement, char out[UNTILS_TAG_TEXT]);
struct bytes untils_tag_opening(struct bytes tag);

/* NULL: the producer has stated nothing. */
const struct until *untils_find(const struct untils *us, const struct stream *s, struct bytes producer);
/* The producer whose name for people this is; NULL: none, or several. */
const struct until *untils_find_named(const struct untils *us, const struct stream *s, const char *name);
void untils_each(
    const struct untils *us, void (*fn)(void *arg, const struct until *u), void *arg); /* in no order */
/* The least time of the stream's producers that are known and not left out, and the producer in *held_by. 0: the time of a producer is not
 * known. If no producer counts, returns `trusted`, with *held_by NULL. */
usec_t untils_least(
    const struct untils *us, const struct stream *s, usec_t trusted, const struct until **held_by);

#endif
