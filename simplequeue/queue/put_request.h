/* put_request: parses the parameters and messages of a put, over HTTP or nng. */
#ifndef SIMPLEQUEUE_PUT_REQUEST_H
#define SIMPLEQUEUE_PUT_REQUEST_H

#include "simplequeue/queue/queues.h"
#include "base/url.h"

#define PUT_MARKS_HINT "give producer (a name), mark and next (numbers, mark < next) together"

/* Reads producer=, mark=, next= and opening= into `put`. A query must have all of the first three parameters or none.
 * The names point into the query. Returns NULL, or a static text that describes the error. */
const char *put_request_marks(const struct url_query *query, struct queue_put *put);

/* Returns the properties of a put that determine whether the put may create a queue. */
struct first_put first_put_of(const struct queue_put *put);

/* An array of messages that point into a text of the caller. A zeroed struct is empty. records_split reuses the array
 * unless it is large. */
struct records {
    struct bytes *at;
    size_t n, cap;
};
void records_free(struct records *r);
/* Splits the data at the separator, which must not be empty. Skips empty records. Returns false if the data has more
 * than PUT_MESSAGES_MAX records, because such a request would block the loop for too long. */
#define PUT_MESSAGES_MAX 262144
#define TOO_MANY_MESSAGES "more than 262144 messages in one request"
bool records_split(struct records *r, struct bytes data, struct bytes separator);
/* Makes each message a line, as streams store it: removes the line end of each message, and removes messages that are
 * then empty. Returns false if a message contains another LF. */
bool messages_as_lines(struct bytes *messages, size_t *n);
#define NOT_A_LINE "the message contains a line feed, and the setting `lines` allows none"
#define NOT_A_LINE_HINT "put each event on one line (jq -c); several lines are messages of /mput"
/* Returns the length of the longest record. */
size_t records_longest(const struct records *r);

#endif
