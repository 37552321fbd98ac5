/* stream_client: one stream of a pubsub, from a cursor on, for as long as it is wanted.
 *
 *     #include <event2/event.h>
 *     #include <millrace/http_client.h>
 *     #include <millrace/stream_client.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *
 *     static void on_lines(struct bytes lines, void *arg)
 *     {
 *         (void)arg;
 *         fwrite(lines.ptr, 1, lines.len, stdout);
 *         if (fflush(stdout) != 0)
 *             exit(1); // nobody reads it any more, or a full disk
 *     }
 *     int main(void)
 *     {
 *         struct event_base *base = event_base_new();
 *         struct http_client *pubsub = http_client_new(
 *             &(struct http_client_config){.base = base, .url = "http://127.0.0.1:8081", .max_connections = 1});
 *         struct stream_client *c = stream_client_new(&(struct stream_client_config){
 *             .base = base, .pubsub = pubsub, .stream = "clicks", .begin = "earliest", .on_lines = on_lines});
 *         event_base_dispatch(base);
 *         stream_client_free(&c);
 *         http_client_free(&pubsub);
 *         event_base_free(base);
 *     }
 *
 * It asks /sub, hands out whole lines, and asks again from its cursor, with backoff, whenever the answer ends. Whoever
 * stores the cursor in the same step as what the lines made (a file's length, a transaction) and begins from the stored
 * one sees every line's effect exactly once.
 *
 * 1. Only whole lines are handed out, in runs as they come; the cursor stands behind the last of them. A line cut off by
 *    a broken connection is asked for again from its beginning.
 * 2. The stream's id goes with every request: bytes of another stream never come under this one's offsets.
 * 3. What retention or a power cut took (410) is told by on_gap, with both edges, and then crossed.
 * 4. A stream that is another (409), shorter than the cursor (416) or gone though it was there (404) is refused: nothing
 *    of it is handed out, stream_client_trouble says why, and it is asked again every five seconds, since an
 *    operator may put the right one in its place. A stream that never was there is waited for, and then taken from its
 *    beginning, also for "latest": all of it came after it was asked for.
 * 5. The loop thread only; callbacks come from the loop. No callback may free the client, any may stop or pause it.
 */
#ifndef MILLRACE_STREAM_CLIENT_H
#define MILLRACE_STREAM_CLIENT_H

#include "base/bytes.h"
#include "stream/stream_place.h"

struct event_base;
struct http_client;
struct stream_client;

#define STREAM_ID_TEXT 33 /* 32 hexadecimal digits and a NUL */

struct stream_cursor {
    char id[STREAM_ID_TEXT]; /* "": of no stream yet */
    uint64_t offset;
};

struct stream_client_config {
    struct event_base *base;
    struct http_client *pubsub; /* borrowed: outlives the stream client, or is freed first */
    const char *stream;         /* a name; copied */
    struct stream_cursor from;  /* where to go on */
    const char
        *begin; /* without a cursor: "earliest" (also NULL), "latest", "@UNIXTIME" or an offset; copied */
    size_t max_line; /* bytes without LF; 0: STREAM_LINE_MAX */
    /* The first answer named the stream: the cursor is set. Not called when `from` has an id. May be NULL. */
    void (*on_begin)(void *arg);
    /* Whole lines, each with its LF, borrowed; the cursor is behind them. */
    void (*on_lines)(struct bytes lines, void *arg);
    /* A line over max_line, of which `head` is the beginning and `length` all of it without LF; the cursor is behind it.
     * NULL: such a line is trouble, and nothing comes until max_line is raised. */
    void (*on_overlong)(struct bytes head, uint64_t length, void *arg);
    /* [before, after) is gone for ever; the cursor is at `after`. May be NULL. */
    void (*on_gap)(uint64_t before, uint64_t after, void *arg);
    /* `begin` is an offset that the stream does not have (410, 416): pubsub's answer. NULL: as with a cursor. */
    void (*on_refused)(int status, struct bytes body, void *arg);
    /* Trouble came, changed or went; it caught up. May be NULL. */
    void (*on_change)(void *arg);
    void *arg;
};
#define STREAM_LINE_MAX ((size_t)16 << 20)

struct stream_client *stream_client_new(const struct stream_client_config *config);
void stream_client_free(struct stream_client **c);
/* Nothing more is asked or handed out. */
void stream_client_stop(struct stream_client *c);
/* Nothing more is read from the connection until stream_client_resume; what was read already (at most one read) may
 * still be handed out. */
void stream_client_pause(struct stream_client *c);
void stream_client_resume(struct stream_client *c);

const struct stream_cursor *stream_client_cursor(const struct stream_client *c);
/* Of the last answer that brought it; .text "" before the first. */
const struct stream_place *stream_client_place(const struct stream_client *c);
/* Once and for all: the cursor has got to the end that the first answer told. A stream that does not exist and of which
 * there is no cursor is caught up with. */
bool stream_client_is_caught_up(const struct stream_client *c);
/* NULL, or why nothing comes. *refused: for a reason that waiting does not heal (invariant 4). */
const char *stream_client_trouble(const struct stream_client *c, bool *refused);

#endif
