/* stream_talk: how publishers and subscribers talk to each server that is measured.
 *
 * Every message is STREAM_MESSAGE bytes. A subscriber gets it as `delivered` bytes, its own beginning at `text_at` of
 * them: so what is received is counted in bytes, not looked at. */
#ifndef MILLRACE_BENCH_STREAM_TALK_H
#define MILLRACE_BENCH_STREAM_TALK_H

#include "base/bytes.h"

#define STREAM_MESSAGE 450
#define STREAM_STAMP 16 /* bytes that a message begins with: a number in hex digits */

struct stream_talk {
    const char *name;
    const char *hello;   /* a subscriber's */
    const char *greeted; /* what the answer to it ends with */
    size_t delivered, text_at;
    void (*publish)(struct buf *out, size_t messages, uint64_t stamp);
    /* The answers to a request are whole when they hold `ends` such bytes, or as many a message. */
    char end;
    size_t ends, ends_a_message;
};

/* NULL when there is none of that name: pubsub (stream s, which must be there), redis, nats. */
const struct stream_talk *stream_talk_find(const char *name);
/* How many of talk->end answer a request; 0: nothing does. */
size_t stream_talk_ends(const struct stream_talk *talk, size_t messages);
/* A connection that has subscribed, the greeting read. Ends the program when that fails. */
int stream_talk_subscribe(const struct stream_talk *talk, int port);
void stream_talk_fail(const char *what); /* ends the program; says errno */

#endif
