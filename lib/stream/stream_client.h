/* stream_client: follows one stream of a pubsub from a cursor on.
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
 *             exit(1); // a closed pipe, or a full disk
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
 * The client requests /sub and hands out whole lines. When a response ends, it requests /sub again from its cursor, with backoff.
 * Store the cursor in the same step as the effect of the lines (a file's length, a transaction), and begin from the
 * stored cursor. Every line then has its effect exactly once.
 *
 * 1. Lines are handed out whole, in runs; the cursor is after the last one. A line cut off by a broken connection is requested
 *    again from its beginning.
 * 2. Every request names the stream's id, so the bytes of another stream never appear under the offsets of this stream.
 * 3. on_gap reports bytes lost to retention or a power cut (410), with both edges; the client continues after them. With
 *    STREAM_LOSS_REFUSED, bytes that retention has deleted are refused instead.
 * 4. A stream with another id or history (409), shorter than the cursor (416), or removed (404) is refused. The client
 *    then hands out no line, gives the reason in stream_client_trouble, and tries again every five seconds. A stream
 *    that has never existed is awaited and read from its beginning, even with "latest".
 * 5. A cursor also names the opening of the stream that wrote the byte before it. A stream restored from an older copy is
 *    therefore refused even after it has grown past the cursor. With STREAM_LOSS_ACCEPTED the client continues at the offset
 *    where the histories part, and on_gap gets after < before.
 * 6. For the loop thread only. No callback may free the client; any callback may stop or pause it. */
#ifndef MILLRACE_STREAM_CLIENT_H
#define MILLRACE_STREAM_CLIENT_H

#include "base/bytes.h"
#include "base/random_id.h"

struct event_base;
struct http_client;
struct http_reply_view;
struct stream_client;

#define STREAM_ID_TEXT 33      /* 32 hexadecimal digits and a NUL */
#define STREAM_OPENING_TEXT 17 /* 16 hexadecimal digits and a NUL */

/* A stream place identifies the stream that sent a reply, at whatever address. Each pubsub process makes a random name and
 * sends it with the stream's name (X-Millrace-Stream-Place: LIFE/STREAM). Equal places mean the same stream, because
 * one process owns a directory; a copy elsewhere has the same id but another place. A restart changes the place, so
 * compare only the latest places. */
struct stream_place {
    char text[RANDOM_ID_SIZE + 1 + NAME_LEN_MAX]; /* "": unknown */
};
/* Without the header *place becomes unknown. */
void stream_place_read(const struct http_reply_view *reply, struct stream_place *place);
/* True if both are known and equal. */
bool stream_place_is_same(const struct stream_place *a, const struct stream_place *b);

struct stream_cursor {
    char id[STREAM_ID_TEXT];           /* "": no stream yet */
    char opening[STREAM_OPENING_TEXT]; /* wrote the byte before `offset`; "": unknown */
    uint64_t offset;
};
/* The reaction to deleted lines at the cursor, and to a stream with another history. */
enum stream_loss {
    STREAM_LOSS_CROSSED,  /* skip deleted lines; refuse another history */
    STREAM_LOSS_REFUSED,  /* refuse both */
    STREAM_LOSS_ACCEPTED, /* skip deleted lines; continue where the histories part */
};

struct stream_client_config {
    struct event_base *base;
    struct http_client *pubsub; /* borrowed: outlives the stream client, or is freed first */
    const char *stream;         /* a name; copied */
    struct stream_cursor from;  /* id "": begin at `begin` */
    /* The start without a cursor: "earliest" (also NULL), "latest", "@UNIXTIME" or an offset; copied. */
    const char *begin;
    size_t max_line; /* maximum bytes of a line without LF; 0: STREAM_LINE_MAX */
    enum stream_loss loss;
    /* The first response has set the cursor. Not called if `from` has an id. May be NULL. */
    void (*on_begin)(void *arg);
    /* Whole lines, each with its LF, borrowed; the cursor is after them. */
    void (*on_lines)(struct bytes lines, void *arg);
    /* A line exceeds max_line: `head` is its beginning, `length` its length without LF; the cursor is after it. NULL: the client
     * stops at such a line, as trouble, until max_line is raised. */
    void (*on_overlong)(struct bytes head, uint64_t length, void *arg);
    /* The bytes [before, after) are lost; the cursor is at `after`. May be NULL. */
    void (*on_gap)(uint64_t before, uint64_t after, void *arg);
    /* The stream does not have the offset in `begin` (410, 416); `body` is pubsub's reply. NULL: handled as with a cursor. */
    void (*on_refused)(int status, struct bytes body, void *arg);
    /* stream_client_trouble or stream_client_is_caught_up has changed. May be NULL. */
    void (*on_change)(void *arg);
    void *arg;
};
#define STREAM_LINE_MAX ((size_t)16 << 20)

struct stream_client *stream_client_new(const struct stream_client_config *config);
void stream_client_free(struct stream_client **c);
/* Ends all requests and callbacks. */
void stream_client_stop(struct stream_client *c);
/* Stops reading from the connection. The lines of one read may still be handed out. */
void stream_client_pause(struct stream_client *c);
void stream_client_resume(struct stream_client *c);

const struct stream_cursor *stream_client_cursor(const struct stream_client *c);
/* The place in the latest response; .text is "" before. */
const struct stream_place *stream_client_place(const struct stream_client *c);
/* True once the cursor has reached the end that the first response stated. Without a cursor, also true for a stream
 * that does not exist. */
bool stream_client_is_caught_up(const struct stream_client *c);
/* NULL, or the reason why no lines arrive. *refused (may be NULL): an operator has to act (invariant 4). */
const char *stream_client_trouble(const struct stream_client *c, bool *refused);

#endif
