/* health: what is said of simplequeue's storage, in the log and by /health, as it changes. */
#ifndef SIMPLEQUEUE_HEALTH_H
#define SIMPLEQUEUE_HEALTH_H

struct queue_server;
struct named_queue;

/* Something was decided in the queue, which has a served_queue and a journal. */
void health_note(struct queue_server *server, const struct named_queue *q);

#endif
