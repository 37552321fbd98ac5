/* agreement: refuses a configuration in which two sections disagree about a stream or a token. With such a
 * configuration, all daemons would start. However, no daemon would count a stream, or requests between daemons would
 * get a 401. */
#ifndef MILLRACE_AGREEMENT_H
#define MILLRACE_AGREEMENT_H

#include "config/config.h"

struct agreement {
    const struct config *config;
    bool (*runs)(const void *arg,
        const char
            *daemon); /* returns true if the daemon runs in this pipeline; other daemons are not compared */
    const void *arg;
};

/* Returns 0, or -1 with an error that names both sections. */
int agreement_check(const struct agreement *a, struct error *error);

#endif
