/* http_subscriber: one client of /sub.
 *
 * 1. It lives as long as its request: the end of one frees the other.
 * 2. `subscriber` is NULL while an ending response waits for the client to take what was sent, and while an event stream waits
 *    for that before it reports a gap. So a client that takes nothing gets one gap, however much retention deletes.
 * 3. Events, parts and lines (framing.h) are formed as the client takes them: while more than SUBSCRIBER_LOW bytes are pending,
 *    the rest of a piece waits in its window. An end or a gap waits for it.
 * 4. A fast client's pending bytes may pin large windows. A client that takes less than SUBSCRIBER_BURST between two ticks is
 *    rewound (http_sub_rewind_slow), and pins SUBSCRIBER_LOW and a small window again.
 * 5. A response with follow=0 ends normally only at its X-Millrace-End. A hole, retention or a stop breaks it off, after the
 *    client has taken what was sent.
 */
#ifndef MILLRACE_PUBSUB_HTTP_SUBSCRIBER_H
#define MILLRACE_PUBSUB_HTTP_SUBSCRIBER_H

#include "pubsub/server/pubsub_server.h"
#include "pubsub/stream/framing.h"

enum sub_form {
    SUB_RAW,    /* the stream's own bytes */
    SUB_LINES,  /* the same in chunks of whole lines, for bitly's clients */
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
    struct bytes rest;      /* of the last piece, not formed yet */
    struct window *window;  /* holds `rest` */
    bool begun;             /* the response is */
    bool follow;
    bool ending;    /* ends when the client has taken what was sent */
    bool gap_waits; /* events: `gap` is reported then */
    struct journal_edges gap;
    uint64_t reported; /* the gap's far edge in the log; 0: not logged */
    uint64_t end;      /* X-Millrace-End */
    uint64_t sent;     /* offset of the next byte of the stream to send */
    uint64_t counted;  /* statistics include bytes up to here: rewound bytes count once */
    uint64_t taken;    /* by the connection, at the last tick */
    bool lends;        /* pending bytes may pin large windows */
    usec_t connected;  /* wall clock */
    usec_t wrote;      /* monotonic */
};

/* http_framing.c. Takes a piece to form. */
void http_framing_take(struct http_subscriber *h, struct bytes piece, struct window *window);
/* Formats more of the piece while the buffer has room. True when nothing is left. */
bool http_framing_go_on(struct http_subscriber *h);
void http_framing_free(struct http_subscriber *h);
/* Drops the beginning of a line without an end. False: some of it was sent. */
bool http_framing_cut_back(struct http_subscriber *h);

/* http_sub.c. Frees it; the request is answered, or gone. */
void http_subscriber_forget(struct http_subscriber *h);
/* Ends the response once the client has taken what was sent (invariants 3 and 5). */
void http_subscriber_end(struct http_subscriber *h);

#endif
