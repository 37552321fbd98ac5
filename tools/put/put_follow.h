/* put_follow: posts the lines of growing logs until the put is stopped (log_tail.h).
 *
 * 1. An operand is a log, or a pattern (glob) of logs. A log that a pattern matches later is followed from its
 *    beginning.
 * 2. A single log has the producer's name. Of several logs each has a producer of its own, PRODUCER.NAME-HASH, in
 *    which HASH depends on the path. A log that was followed before keeps its producer. So its marks do not depend
 *    on the other logs.
 * 3. A name that begins with the name of a followed log is a rotated file of that log. Packed files are not logs.
 * 4. A line that is not an event never ends the put: the rejects are always kept. */
#ifndef MILLRACE_PUT_FOLLOW_H
#define MILLRACE_PUT_FOLLOW_H

#include "tools/put/put_run.h"

/* True if `path` may be a rotated file of a log that the operands name. */
bool put_follow_could_read(char **operands, size_t n, const char *path);
int put_follow(struct put *put, char **operands, size_t n);
/* Reports a follower that cannot start, unless another one with its queue and producer runs. */
void put_follow_fail(struct put *put, int status);

#endif
