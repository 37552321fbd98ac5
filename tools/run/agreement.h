/* agreement: refuses a configuration in which two sections disagree about a stream or a token. Daemons that disagree would all start, and an
 * event would then wait in a stream that nothing counts, or every request of one to the other would get 401. */
#ifndef MILLRACE_AGREEMENT_H
#define MILLRACE_AGREEMENT_H

#include "config/config.h"

struct agreement {
    const struct config *config;
    bool (*runs)(const void *arg, const char *daemon); /* only daemons that run here are compared */
    const void *arg;
};

/* 0, or -1 with an error that names both places. */
int agreement_check(const struct agreement *a, struct error *error);

#endif
