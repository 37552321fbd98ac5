/* queue_health: reports failing storage and a full disk in the log and on /health, as they begin and end. */
#ifndef SIMPLEQUEUE_QUEUE_HEALTH_H
#define SIMPLEQUEUE_QUEUE_HEALTH_H

#include "simplequeue/server/queue_loop.h"

/* After an operation of a queue with a journal was committed or refused. */
void queue_health_note(struct queue_loop *loop, const struct named_queue *q);

#endif
