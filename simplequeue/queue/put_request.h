/* put_request: what a put asks for, whether it came by HTTP or by nng. Memory only. */
#ifndef SIMPLEQUEUE_PUT_REQUEST_H
#define SIMPLEQUEUE_PUT_REQUEST_H

#include "simplequeue/queue/queues.h"
#include "base/url.h"

#define PUT_MARKS_HINT "give producer (a name), mark and next (numbers, mark < next) together"

/* producer=&mark=&next= of the query, all or none, into `put`; the producer's name points into the query. False when
 * they are not complete or not in order. */
bool put_request_marks(const struct url_query *query, struct queue_put *put);
/* NULL, or what is wrong with them. */
const char *put_request_marks_fault(const struct url_query *query, struct queue_put *put);

/* What decides whether a queue is made for it. */
struct first_put first_put_of(const struct queue_put *put);

/* Messages that lie in a text that is another's. A zeroed one is empty; used again, it keeps its memory
 * while that is small. */
struct records {
    struct bytes *at;
    size_t n, cap;
};
void records_free(struct records *r);
/* What stands between the separators, without what is empty. The separator is not. */
void records_split(struct records *r, struct bytes data, struct bytes separator);
/* The longest one's length. */
size_t records_longest(const struct records *r);

#endif
