/* refusals: a table with the status, code and hint of HTTP and nng replies for each queue_result except QUEUE_OK. */
#ifndef SIMPLEQUEUE_REFUSALS_H
#define SIMPLEQUEUE_REFUSALS_H

#include "simplequeue/queue/named_queue.h"

struct refusal {
    int status;
    const char *code, *hint; /* hint may be NULL */
};
const struct refusal *refusal_of(enum queue_result result);

#endif
