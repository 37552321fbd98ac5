/* talk: the requests to each server, and where its replies end. For load.h.
 *
 * Every message is MESSAGE_BYTES of printable text without a newline, the same for all servers. */
#ifndef MILLRACE_BENCH_TALK_H
#define MILLRACE_BENCH_TALK_H

#include "bench/load.h"

#define MESSAGE_BYTES 450

/* HTTP: simplequeue, and the raw loop. */
void talk_http_put(size_t messages, struct buf *out); /* 1: /put; more: /mput */
void talk_http_get(size_t messages, struct buf *out);
/* /reserve of one message, which also acknowledges the message of the previous reply. */
void talk_http_lease(unsigned connection, struct bytes reply, struct buf *request);
size_t talk_http_reply(struct bytes have); /* a 200 */
size_t talk_http_full(struct bytes have);  /* a 200 with a body */

/* Redis: the list `q`. */
void talk_redis_put(size_t messages, struct buf *out);
void talk_redis_get(size_t messages, struct buf *out);
size_t talk_redis_reply(struct bytes have); /* an integer or an existing string */

void talk_beanstalk_put(size_t messages, struct buf *out);
/* Reserve, then delete, each waiting for its reply: two requests a message. */
void talk_beanstalk_lease(unsigned connection, struct bytes reply, struct buf *request);
size_t talk_beanstalk_reply(struct bytes have);
/* One write with the delete and the next reserve. */
void talk_beanstalk_ride(unsigned connection, struct bytes reply, struct buf *request);
size_t talk_beanstalk_ride_reply(struct bytes have);

/* NATS JetStream: subjects b.*. */
void talk_nats_hello(unsigned connection, struct buf *out);
#define TALK_NATS_HELLO_END "PONG\r\n"
/* 100 messages, each acknowledged by JetStream. */
void talk_nats_put(unsigned connection, struct bytes reply, struct buf *request);
size_t talk_nats_reply(struct bytes have);

#endif
