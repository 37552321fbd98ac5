/* stream_talk: the protocols of publishers and subscribers, one for each measured server.
 *
 * Every message has STREAM_MESSAGE bytes. With the framing of the protocol, a subscriber receives `delivered` bytes per
 * message, and the message starts at byte `text_at` of these. So received messages are counted by their bytes, without
 * parsing. */
#ifndef MILLRACE_BENCH_STREAM_TALK_H
#define MILLRACE_BENCH_STREAM_TALK_H

#include "base/bytes.h"

#define STREAM_MESSAGE 450
#define STREAM_STAMP 16 /* bytes that a message begins with: a number in hex digits */

struct stream_talk {
    const char *name;
    const char *hello;   /* a subscriber's */
    const char *greeted; /* end of the answer to `hello` */
    size_t delivered, text_at;
    void (*publish)(struct buf *out, size_t messages, uint64_t stamp);
    /* The answers to a request are complete once they contain `ends` bytes `end`, or `ends_a_message` for each message. */
    char end;
    size_t ends, ends_a_message;
};

/* `name` is pubsub (with the stream s, which must exist), redis or nats. Returns NULL for any other name. */
const struct stream_talk *stream_talk_find(const char *name);
/* Returns the number of bytes talk->end in the answers to a request; 0: there is no answer. */
size_t stream_talk_ends(const struct stream_talk *talk, size_t messages);
/* Returns a subscribed connection whose greeting is read. Ends the program if this fails. */
int stream_talk_subscribe(const struct stream_talk *talk, int port);
void stream_talk_fail(const char *what); /* prints errno and ends the program */

#endif
