/* http_subscriber: one client of /sub, shared by http_sub.c and http_clients.c.
 *
 * 1. While the response lives, client and request go together: whichever ends first takes the other along.
 * 2. `subscriber` is NULL while a response that will not go on waits for what was sent to be taken, and while an
 *    event stream waits for that before it tells of a gap: so a client that takes nothing has one gap, however much
 *    retention passes meanwhile.
 */
#ifndef MILLRACE_PUBSUB_HTTP_SUBSCRIBER_H
#define MILLRACE_PUBSUB_HTTP_SUBSCRIBER_H

#include "app.h"
#include "framing.h"

enum sub_form {
    SUB_RAW,    /* the stream's own bytes */
    SUB_EVENTS, /* Server-Sent Events */
    SUB_PARTS,  /* bitly's multipart */
};

struct http_subscriber {
    struct app *app;
    struct http_subscriber *previous, *next;
    struct http_request *req;
    struct stream *stream;
    struct subscriber *subscriber;
    enum sub_form form;
    struct framing framing; /* of SUB_EVENTS and SUB_PARTS */
    bool begun;             /* the response has */
    bool follow;
    bool ending;              /* the response ends when what was sent is taken */
    bool gap_waits;           /* events: to be told of when what was sent is taken */
    uint64_t gap_from;        /* the end of what was sent before it */
    struct journal_edges gap; /* what is missing there */
    uint64_t sent;            /* offset of the next byte of the stream to send */
    usec_t connected;         /* wall clock */
    usec_t wrote;             /* monotonic */
};

/* Frees it; the request is answered, or gone. */
void http_subscriber_forget(struct http_subscriber *h);
/* Ends the response once the client has taken what was sent. */
void http_subscriber_end(struct http_subscriber *h);

#endif
