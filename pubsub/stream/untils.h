/* untils: the latest time up to which each producer of a stream is complete.
 *
 * A producer *states* a time by a statement: each event that the producer's source accepted before that time is in
 * the stream. A stream is complete up to the earliest time of all its producers (stream/watermark.h).
 *
 * 1. A statement counts once the lines that were published with the statement are committed.
 * 2. The latest statement of a producer counts, even if its time is earlier, because the producer's clock may have
 *    been set back.
 * 3. Times refer to pubsub's trusted clock. If the trusted clock is set back, all earlier times decrease by the same
 *    amount, also in the log. If the trusted clock is earlier than the log at the start, the stored times are unknown
 *    until the next statement.
 * 4. A statement without a time (0) makes the producer known and does not change an earlier time.
 * 5. The times are stored in the stream's log, in the tags of the producers' marks. A copy of a stream therefore
 *    contains its times. The tag of a publish contains the time that was stated with the publish. A statement without
 *    lines is stored after UNTILS_STORE_EVERY, or after a 64th of the time since the producer's last publish if
 *    longer. Therefore the log of an idle stream hardly grows. untils_close stores all times. After a kill, a
 *    restored time may be older by this delay; `is_restored` is true until the next statement.
 * 6. A producer's silence counts only while pubsub runs. The silence is stored in eighths of the timeout, so a
 *    restart extends a producer's timeout by at most an eighth. A producer that was silent for the timeout is
 *    excluded until its next statement of another time. A relay that has restarted may repeat the last statement.
 * 7. A new producer is known once its first statement is stored, so that pubsub does not forget a known producer if
 *    it is killed.
 *
 * Call all functions except untils_open on the event loop's thread. The streams must be freed after the untils. */
#ifndef MILLRACE_PUBSUB_UNTILS_H
#define MILLRACE_PUBSUB_UNTILS_H

#include "pubsub/stream/streams.h"

#define UNTILS_STORE_EVERY (10 * USEC_PER_SEC)

struct untils;

/* Callers must not change a struct until. */
struct until {
    struct stream *stream;
    char producer[NAME_LEN_MAX + 1];
    char name[NAME_LEN_MAX + 1]; /* display name of the producer; "": no name was stated */
    usec_t time;                 /* stated time; 0: not known */
    usec_t silence;              /* duration since the last statement, measured at the last tick */
    bool is_restored;            /* `time` was stated before pubsub started */
    bool is_known;               /* invariant 7 */
    void *arg;                   /* `arg` of untils_config */
};

struct untils_config {
    struct streams *streams;                        /* recovered */
    usec_t timeout;                                 /* a producer that is silent for this time is excluded */
    void (*made)(void *arg, const struct until *u); /* a producer became known */
    void (*removed)(void *arg, const struct until *u);
    void *arg;
};
struct untils *untils_open(const struct untils_config *config);
/* Stores all times and waits for the commits. */
void untils_close(struct untils **us);
/* Adds the time since the last tick to the producers' silence. Call untils_tick about once per second with the
 * trusted time and clock_boot. */
void untils_tick(struct untils *us, usec_t trusted, usec_t boot);

struct until_statement {
    struct bytes producer; /* a name */
    struct bytes name;     /* a new display name; empty: unchanged */
    usec_t time;           /* the stated time, not later than the trusted time; 0: not known */
    usec_t booted;         /* boot time of the machine, computed from the trusted time at the statement */
    bool leaves_out;       /* excludes the producer, as if it had been silent for `timeout` */
};
/* Makes a statement count. is_stored is true if a commit has stored the statement's tag (untils_tag). */
void untils_state(
    struct untils *us, struct stream *s, const struct until_statement *statement, bool is_stored);
/* Forgets the time and the name of a producer. */
void untils_remove(struct untils *us, const struct stream *s, struct bytes producer);

/* The tag of a mark is the text "OPENING[ UNTIL SILENCE NAME]": the opening that the producer stores with its mark,
 * and members of struct until in microseconds. untils_tag returns the tag to store with a publish; `statement` is
 * NULL for a publish without a statement. An opening has at most NAME_LEN_MAX bytes. */
#define UNTILS_TAG_TEXT MARK_LABEL_MAX
struct bytes untils_tag(const struct untils *us, const struct stream *s, struct bytes producer,
    struct bytes opening, const struct until_statement *statement, char out[UNTILS_TAG_TEXT]);
struct bytes untils_tag_opening(struct bytes tag);

/* Returns NULL if the producer has made no statement. */
const struct until *untils_find(const struct untils *us, const struct stream *s, struct bytes producer);
/* Finds the producer with the display name `name`. Returns NULL if no producer or several producers have this display
 * name. */
const struct until *untils_find_named(const struct untils *us, const struct stream *s, const char *name);
/* in no order */
void untils_each(const struct untils *us, void (*fn)(void *arg, const struct until *u), void *arg);
/* Returns the earliest time of the stream's producers that are known and not excluded, and stores the producer with
 * this time in *held_by. Returns 0 if the time of a producer is not known. If no producer is known and not excluded,
 * returns `trusted` and sets *held_by to NULL. */
usec_t untils_least(
    const struct untils *us, const struct stream *s, usec_t trusted, const struct until **held_by);

#endif
