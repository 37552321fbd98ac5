/* subscriber_list: how a stream's subscribers hang together; shared by stream.c and subscriber.c only. */
#ifndef MILLRACE_PUBSUB_SUBSCRIBER_LIST_H
#define MILLRACE_PUBSUB_SUBSCRIBER_LIST_H

#include <stdbool.h>
#include <stdint.h>

struct subscriber;

struct subscriber_link {
    struct subscriber *previous, *next;
};
struct subscriber_link *subscriber_link(struct subscriber *sub);
/* The committed end has moved. */
void subscriber_wake(struct subscriber *sub);
/* Retention has taken what is below `earliest`: true, and it is refused or ended, when it still wanted some of that. */
bool subscriber_passed(struct subscriber *sub, uint64_t earliest);

#endif
