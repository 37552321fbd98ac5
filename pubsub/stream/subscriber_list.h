/* subscriber_list: how a stream's subscribers hang together; shared by stream.c and subscriber.c only. */
#ifndef MILLRACE_PUBSUB_SUBSCRIBER_LIST_H
#define MILLRACE_PUBSUB_SUBSCRIBER_LIST_H

#include <stdbool.h>
#include <stdint.h>

struct stream;
struct subscriber;

struct subscriber_link {
    struct subscriber *previous, *next;
    struct subscriber *next_in_line;
    bool in_line;
    bool is_own;
};
struct subscriber_link *subscriber_link(struct subscriber *sub);
/* Those that read for themselves take turns, so that what is read for them and not yet written is bounded. One that is
 * refused waits in line; subscriber_turn is called when it may. */
bool stream_may_read(struct stream *s, struct subscriber *sub);
void stream_has_read(struct stream *s);
void stream_leave_line(struct stream *s, struct subscriber *sub);
void subscriber_turn(struct subscriber *sub);
/* The committed end or the tail has moved. */
void subscriber_wake(struct subscriber *sub);
/* Called now and then: whether it is slow is judged by what it took since. */
void subscriber_tick(struct subscriber *sub);
/* Retention has taken what is below `earliest`: true, and it is refused or ended, when it still wanted some of that. Before its
 * start, having named no offset, it begins there. */
bool subscriber_passed(struct subscriber *sub, uint64_t earliest);

#endif
