/* refusals: for each queue_result except QUEUE_OK, the status, code and hint of the reply over HTTP and nng. */
#ifndef SIMPLEQUEUE_REFUSALS_H
#define SIMPLEQUEUE_REFUSALS_H

#include "simplequeue/queue/named_queue.h"

struct refusal {
    int status;
    const char *code, *hint; /* hint: NULL: none */
};
const struct refusal *refusal_of(enum queue_result result);

#endif
