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
 * The client requests /sub, passes whole lines to on_lines, and requests again from its cursor when a response ends.
 * To process every line exactly once, store the cursor atomically with the result of the lines, and start the next
 * client from the stored cursor.
 *
 * 1. During on_lines the cursor is already after the lines that on_lines gets. If a connection breaks inside a line,
 *    the client requests the line again from its beginning.
 * 2. Every request names the stream's id, so the client never reads the bytes of another stream with the same name.
 * 3. If retention deleted the bytes at the cursor or a power cut lost them (410), the client calls on_gap and
 *    continues after them. With STREAM_LOSS_REFUSED, the client stops at deleted bytes.
 * 4. The client stops if the stream has another id or history (409), ends before the cursor (416), or was removed
 *    (404). stream_client_trouble returns the reason, and the client tries again every five seconds. A client without
 *    a cursor waits until the stream exists, and reads the stream from its beginning.
 * 5. The cursor contains an opening, the id of the run of pubsub that stored the byte before the cursor. With the
 *    opening, pubsub detects that the stream is a restored older copy, and the offset where the copy differs. Store
 *    the opening with the offset. With STREAM_LOSS_ACCEPTED the client goes back to the offset where the copy
 *    differs, and on_gap gets after < before.
 * 6. All lines that one call of on_lines gets were stored in the same opening, the opening in the cursor.
 * 7. Call all functions on the event loop's thread. A callback may stop or pause the client, but must not free the
 *    client. */
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

/* Distinguishes a stream from a copy of that stream. Two places from the latest replies (X-Millrace-Stream-Place:
 * LIFE/STREAM) are equal only if both replies are from the same stream. LIFE is random at each start of pubsub. */
struct stream_place {
    char text[RANDOM_ID_SIZE + 1 + NAME_LEN_MAX]; /* "": unknown */
};
/* Reads X-Millrace-Stream-Place from a reply. If the reply does not have the header, *place becomes unknown. */
void stream_place_read(const struct http_reply_view *reply, struct stream_place *place);
/* True if both places are known and equal. */
bool stream_place_is_same(const struct stream_place *a, const struct stream_place *b);

struct stream_cursor {
    char id[STREAM_ID_TEXT]; /* "": no stream yet */
    /* opening of the byte before `offset`; "": `offset` is 0, or pubsub must not check the opening */
    char opening[STREAM_OPENING_TEXT];
    uint64_t offset;
};
/* The client's action if the lines at the cursor are deleted, or if the stream is a restored copy that differs before
 * the cursor. */
enum stream_loss {
    STREAM_LOSS_CROSSED,  /* skip deleted lines; stop at a differing copy */
    STREAM_LOSS_REFUSED,  /* stop at deleted lines and at a differing copy */
    STREAM_LOSS_ACCEPTED, /* skip deleted lines; continue where the copy differs */
};

struct stream_client_config {
    struct event_base *base;
    struct http_client *pubsub; /* borrowed; may be freed before or after the stream client */
    const char *stream;         /* a name; copied */
    struct stream_cursor from;  /* cursor to start from; if its id is "", the client starts at `begin` */
    /* Start of a client without a cursor: "earliest" (the same as NULL), "latest", "@UNIXTIME", "-N" (the last N
     * lines) or an offset. Copied. */
    const char *begin;
    size_t max_line; /* size limit of a line in bytes, without LF; 0: STREAM_LINE_MAX */
    enum stream_loss loss;
    /* For STREAM_LOSS_ACCEPTED. If accepts_place is true, the client continues in a copy at accept_from, the first
     * offset of an opening. If false, the client continues only if pubsub is certain of the offset where the copy
     * differs. */
    bool accepts_place;
    uint64_t accept_from;
    /* Messages name this option of the program for STREAM_LOSS_ACCEPTED ("--accept-loss"), or this command, which
     * ends with "=" before the offset. Borrowed; may be NULL. */
    const char *accept_option;
    /* Called when the first response has set the cursor, but not if `from` has an id. May be NULL. */
    void (*on_begin)(void *arg);
    /* Gets whole lines, each with its LF. `lines` is valid during the call. */
    void (*on_lines)(struct bytes lines, void *arg);
    /* Gets a line that is longer than max_line: the beginning of the line, and the line's length without LF. The
     * cursor is already after the line. If on_overlong is NULL, the client stops at such a line (invariant 4). */
    void (*on_overlong)(struct bytes head, uint64_t length, void *arg);
    /* Called when the bytes from `before` up to `after` are lost. The cursor is at `after`. May be NULL. */
    void (*on_gap)(uint64_t before, uint64_t after, void *arg);
    /* Called if `begin` is an offset that the stream does not have (410, 416); `body` is pubsub's reply. If on_refused
     * is NULL, the client acts as for a refused cursor (invariants 3 and 4). */
    void (*on_refused)(int status, struct bytes body, void *arg);
    /* Gets pubsub's statements (watermark.h), about one per second, between the lines. Before the stream exists,
     * `end` is 0. If on_statement is NULL, the client requests no statements. */
    void (*on_statement)(const struct stream_statement *s, void *arg);
    /* Called when a response ends, before the cursor moves. The callback must forget statements whose `end` is not
     * reached. May be NULL. */
    void (*on_response_end)(void *arg);
    /* Called when the result of stream_client_trouble or stream_client_is_caught_up has changed. May be NULL. */
    void (*on_change)(void *arg);
    void *arg;
};
#define STREAM_LINE_MAX ((size_t)16 << 20)

struct stream_client *stream_client_new(const struct stream_client_config *config);
void stream_client_free(struct stream_client **c);
/* Cancels all requests. After stream_client_stop, the client calls no callback. */
void stream_client_stop(struct stream_client *c);
/* Stops reading from the connection. on_lines may still get lines that were already read. */
void stream_client_pause(struct stream_client *c);
void stream_client_resume(struct stream_client *c);

const struct stream_cursor *stream_client_cursor(const struct stream_client *c);
/* Returns the opening of the byte before `offset`, which must not be after the cursor. Returns NULL if `offset` is
 * before the start of the latest response. */
const char *stream_client_opening_at(const struct stream_client *c, uint64_t offset);
/* The place from the latest response. Before the first response, .text is "". */
const struct stream_place *stream_client_place(const struct stream_client *c);
/* True once the cursor has reached the end that the stream had at the first response. The result is also true while a
 * client without a cursor waits for its stream. */
bool stream_client_is_caught_up(const struct stream_client *c);
/* Returns the reason why no lines arrive, or NULL. Sets *refused to true if an operator must act (invariant 4);
 * `refused` may be NULL. */
const char *stream_client_trouble(const struct stream_client *c, bool *refused);

#endif
