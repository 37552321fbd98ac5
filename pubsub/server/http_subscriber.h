/* http_subscriber: one client of /sub, shared by http_sub.c and http_clients.c.
 *
 * 1. While the response lives, client and request go together: whichever ends first takes the other along.
 * 2. `subscriber` is NULL while a response that will not go on waits for what was sent to be taken, and while an
 *    event stream waits for that before it tells of a gap: so a client that takes nothing has one gap, however much
 *    retention passes meanwhile.
 * 3. What is not to go as it is (framing.h) is formed as the client takes it: of a piece the rest waits, in its window, while
 *    more than SUBSCRIBER_LOW bytes are pending. The end and a gap wait for it.
 * 4. What waits for a client may be lent from large windows while it takes much. Who takes less than SUBSCRIBER_BURST from
 *    tick to tick gives that back (http_sub_rewind_slow): then it is SUBSCRIBER_LOW and a small window again.
 * 5. A response with follow=0 ends well only at its X-Millrace-End; what stops it before (a hole, retention, a daemon
 *    that stops) breaks it off once what was sent is taken.
 */
#ifndef MILLRACE_PUBSUB_HTTP_SUBSCRIBER_H
#define MILLRACE_PUBSUB_HTTP_SUBSCRIBER_H

#include "pubsub/server/pubsub_server.h"
#include "pubsub/stream/framing.h"

enum sub_form {
    SUB_RAW,    /* the stream's own bytes, as they come */
    SUB_LINES,  /* the same for bitly's clients: chunks of whole lines */
    SUB_EVENTS, /* Server-Sent Events */
    SUB_PARTS,  /* bitly's multipart */
};

struct http_subscriber {
    struct pubsub_server *server;
    struct http_subscriber *previous, *next;
    struct http_request *req;
    struct stream *stream;
    struct subscriber *subscriber;
    enum sub_form form;
    struct framing framing; /* of all but SUB_RAW */
    struct bytes rest;      /* handed over and not formed yet */
    struct window *window;  /* that it is in */
    bool begun;             /* the response has */
    bool follow;
    bool ending;              /* the response ends when what was sent is taken */
    bool gap_waits;           /* events: to be told of when what was sent is taken */
    struct journal_edges gap; /* what is missing there */
    uint64_t reported;        /* of that, what the log says where the stream goes on; 0: nothing */
    uint64_t end;             /* X-Millrace-End */
    uint64_t sent;            /* offset of the next byte of the stream to send */
    uint64_t counted;         /* in the numbers, up to there: what is taken back counts once */
    uint64_t taken;           /* of the connection, at the last tick */
    bool lends;               /* what waits may pin much memory */
    usec_t connected;         /* wall clock */
    usec_t wrote;             /* monotonic */
};

/* http_framing.c: takes a piece that is to be formed; goes on with it, and is true when nothing of it is left. */
void http_framing_take(struct http_subscriber *h, struct bytes piece, struct window *window);
bool http_framing_go_on(struct http_subscriber *h);
void http_framing_free(struct http_subscriber *h);
/* Drops the beginning of a line whose end will not come. False: some of it was sent. */
bool http_framing_cut_back(struct http_subscriber *h);

/* Frees it; the request is answered, or gone. */
void http_subscriber_forget(struct http_subscriber *h);
/* Ends the response once the client has taken what was sent; see 3. */
void http_subscriber_end(struct http_subscriber *h);

#endif
