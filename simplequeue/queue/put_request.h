/* put_request: parses the parameters and messages of a put, over HTTP or nng. */
#ifndef SIMPLEQUEUE_PUT_REQUEST_H
#define SIMPLEQUEUE_PUT_REQUEST_H

#include "simplequeue/queue/queues.h"
#include "base/url.h"

#define PUT_MARKS_HINT "give producer (a name), mark and next (numbers, mark < next) together"

/* Reads producer=, mark= and next= into `put`; a query must have all three or none. The producer's name points into the
 * query. Returns NULL, or the fault as a static text. */
const char *put_request_marks(const struct url_query *query, struct queue_put *put);

/* Returns the properties of a put that decide whether it may create a queue. */
struct first_put first_put_of(const struct queue_put *put);

/* Messages in a borrowed text. A zeroed struct is empty. Its array is reused unless it is large. */
struct records {
    struct bytes *at;
    size_t n, cap;
};
void records_free(struct records *r);
/* Splits the data at the separator, which is not empty. Empty records are skipped. */
void records_split(struct records *r, struct bytes data, struct bytes separator);
/* The length of the longest record. */
size_t records_longest(const struct records *r);

#endif
