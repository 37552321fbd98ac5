/* stream_client: reads one stream from pubsub, beginning at a cursor, and waits for new lines.
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
 * The client requests /sub, passes whole lines to on_lines, and requests again from its cursor when a response
 * ends. To process every line exactly once, store the cursor atomically with the result of the lines, and start
 * from it.
 *
 * 1. During on_lines the cursor is already after its lines. A line on which a connection breaks is requested again
 *    from its beginning.
 * 2. Every request names the stream's id, so the client never takes the bytes of another stream.
 * 3. If bytes at the cursor were deleted by retention or lost in a power cut (410), the client calls on_gap and
 *    continues after them; with STREAM_LOSS_REFUSED it stops at deleted bytes.
 * 4. The client stops if the stream has another id or history (409), is shorter than the cursor (416), or was
 *    removed (404): stream_client_trouble has the reason, and it tries again every five seconds. Without a cursor
 *    it waits for a stream that does not exist, and reads it from its beginning.
 * 5. The cursor names the opening of the byte before it: the session of pubsub that stored it. With the opening, pubsub
 *    recognizes that the stream is a restored older copy, and where it differs. Store it with the offset. With
 *    STREAM_LOSS_ACCEPTED the client goes back to where the copy differs, and on_gap gets after < before.
 * 6. All lines that one call of on_lines gets are of one opening, that of the cursor.
 * 7. For the loop thread only. No callback may free the client; any callback may stop or pause it. */
#ifndef MILLRACE_STREAM_CLIENT_H
#define MILLRACE_STREAM_CLIENT_H

#include "base/bytes.h"
#include "base/random_id.h"

struct event_base;
struct http_client;
struct http_reply_view;
struct stream_client;
struct stream_statement;

#define STREAM_ID_TEXT 33      /* 32 hexadecimal digits and a NUL */
#define STREAM_OPENING_TEXT 25 /* 24 hexadecimal digits and a NUL */

/* Tells two streams apart even if one is a copy of the other. Places from the latest replies
 * (X-Millrace-Stream-Place: LIFE/STREAM) are equal only for the same stream. LIFE is random at each start of
 * pubsub. */
struct stream_place {
    char text[RANDOM_ID_SIZE + 1 + NAME_LEN_MAX]; /* "": unknown */
};
/* If the reply has no such header, *place becomes unknown. */
void stream_place_read(const struct http_reply_view *reply, struct stream_place *place);
/* True if both places are known and equal. */
bool stream_place_is_same(const struct stream_place *a, const struct stream_place *b);

struct stream_cursor {
    char id[STREAM_ID_TEXT];           /* "": no stream yet */
    char opening[STREAM_OPENING_TEXT]; /* of the byte before `offset`; "": offset 0, or not to be checked */
    uint64_t offset;
};
/* If the lines at the cursor are deleted, or the stream is a restored copy that differs before the cursor. */
enum stream_loss {
    STREAM_LOSS_CROSSED,  /* skip deleted lines; stop at a differing copy */
    STREAM_LOSS_REFUSED,  /* stop at both */
    STREAM_LOSS_ACCEPTED, /* skip deleted lines; continue where the copy differs */
};

struct stream_client_config {
    struct event_base *base;
    struct http_client *pubsub; /* borrowed: either outlives the stream client or is freed before it */
    const char *stream;         /* a name; copied */
    struct stream_cursor from;  /* id "": begin at `begin` */
    /* Where to start without a cursor: "earliest" (the same as NULL), "latest", "@UNIXTIME", "-N" (the last N lines) or an
     * offset. Copied. */
    const char *begin;
    size_t max_line; /* of a line, in bytes, without LF; 0: STREAM_LINE_MAX */
    enum stream_loss loss;
    /* With STREAM_LOSS_ACCEPTED: where to continue in a copy, the first offset of an opening. Without it, the client continues
     * only at a place that is certain. */
    bool accepts_place;
    uint64_t accept_from;
    /* The program's option for STREAM_LOSS_ACCEPTED ("--accept-loss"), or a command that ends with "=" for the
     * offset; named in messages. Borrowed; NULL: none. */
    const char *accept_option;
    /* Called when the first response has set the cursor, but not if `from` has an id. May be NULL. */
    void (*on_begin)(void *arg);
    /* Gets whole lines, each with its LF. `lines` is valid during the call. The cursor is already after these
     * lines. */
    void (*on_lines)(struct bytes lines, void *arg);
    /* A line longer than max_line: `head` is its beginning, `length` without LF; the cursor is after it. NULL: the
     * client stops (invariant 4). */
    void (*on_overlong)(struct bytes head, uint64_t length, void *arg);
    /* Called when the bytes from `before` up to `after` are lost. The cursor is at `after`. May be NULL. */
    void (*on_gap)(uint64_t before, uint64_t after, void *arg);
    /* `begin` is an offset that the stream does not have (410, 416); `body` is pubsub's reply. NULL: as for a
     * cursor. */
    void (*on_refused)(int status, struct bytes body, void *arg);
    /* Gets pubsub's statements (watermark.h), about one a second, between the lines. Before the stream exists, `end` is 0. NULL: the
     * client requests no statements. */
    void (*on_statement)(const struct stream_statement *s, void *arg);
    /* Called when a response ends, before the cursor moves: forget the statements that are not reached. May be NULL. */
    void (*on_response_end)(void *arg);
    /* Called when the result of stream_client_trouble or stream_client_is_caught_up has changed. May be NULL. */
    void (*on_change)(void *arg);
    void *arg;
};
#define STREAM_LINE_MAX ((size_t)16 << 20)

struct stream_client *stream_client_new(const struct stream_client_config *config);
void stream_client_free(struct stream_client **c);
/* Ends all requests and callbacks. */
void stream_client_stop(struct stream_client *c);
/* Stops reading from the connection. on_lines may still get lines that were already read. */
void stream_client_pause(struct stream_client *c);
void stream_client_resume(struct stream_client *c);

const struct stream_cursor *stream_client_cursor(const struct stream_client *c);
/* The opening of the byte before `offset`, which is the cursor, or between the start of the latest response and the cursor.
 * NULL: `offset` is below. */
const char *stream_client_opening_at(const struct stream_client *c, uint64_t offset);
/* The place from the latest response. Before the first response, .text is "". */
const struct stream_place *stream_client_place(const struct stream_client *c);
/* True once the cursor has reached the end that the stream had at the first response. Also true if there is no cursor
 * and no stream. */
bool stream_client_is_caught_up(const struct stream_client *c);
/* Why no lines arrive; NULL: no problem. *refused (may be NULL): an operator must act (invariant 4). */
const char *stream_client_trouble(const struct stream_client *c, bool *refused);

#endif
