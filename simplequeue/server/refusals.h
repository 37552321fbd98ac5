/* refusals: the status, code and hint with which HTTP and nng answer each queue_result other than QUEUE_OK. */
#ifndef SIMPLEQUEUE_REFUSALS_H
#define SIMPLEQUEUE_REFUSALS_H

#include "simplequeue/queue/named_queue.h"

struct refusal {
    int status;
    const char *code, *hint; /* hint: NULL: none */
};
const struct refusal *refusal_of(enum queue_result result);

#endif
