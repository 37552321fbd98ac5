/* queue_server: the ctx of simplequeue's HTTP handlers. docs/guide/protocol.md describes the requests and replies.
 *
 * Each of these parts uses only the parts that are listed before it:
 *
 *     queue_loop         the time, the timer, unfinished work; requests that wait, and their deadlines
 *     served_queue       the server's state of each queue; reports failing storage and full disks
 *     refusals           status and code of each refusal
 *     queue_creation     makes queues, one in each loop turn
 *     overflow           makes room in full queues
 *     http_common        the handlers; parameters and replies that they share
 *     http_*, nng_ingest translate between protocols and the queue
 *     main               the routes; the wiring
 * */
#ifndef SIMPLEQUEUE_QUEUE_SERVER_H
#define SIMPLEQUEUE_QUEUE_SERVER_H

#include "daemon/disk_guard.h"
#include "simplequeue/queue/put_request.h"
#include "simplequeue/server/overflow.h"
#include "simplequeue/server/queue_creation.h"

#define REPLY_BYTES_MAX (16u << 20) /* maximum message bytes in a reply with more than one message */
#define RESERVE_ITEMS_MAX (REPLY_BYTES_MAX / 64) /* limits the framing bytes of a reply */
#define LEASE_DEFAULT 30000                      /* milliseconds, as in the next four limits */
#define LEASE_MAX (24 * 3600 * 1000)
#define WAIT_MAX (10 * 60 * 1000)
#define DELAY_MAX (INT64_C(366) * 24 * 3600 * 1000)
#define PAUSE_MAX DELAY_MAX
#define REASON_MAX 1024       /* bytes */
#define EMPTY_ITEMS_MAX 10000 /* messages deleted in one turn of the loop */

struct queue_server {
    struct queue_loop loop;
    struct queues *queues;
    struct queue_creation creation;
    struct disk_guard *guard;    /* NULL: the queues are in memory only */
    struct overflow *overflow;   /* NULL: a full queue refuses puts */
    struct wait_line strays;     /* reserves for queues that do not exist */
    bool recovered;              /* every queue is open */
    char name[NAME_LEN_MAX + 1]; /* name of the host */
    size_t max_message, max_items;
    bool lines; /* the setting `lines` */
    struct bytes mget_separator, mput_separator;
    struct stats_counter *duplicates, *refused;
    /* Each request reuses the memory of `records` and `frames`. */
    struct records records; /* messages of the current put */
    struct buf frames;      /* reply to the current reserve */
};

#endif
