/* up_plan: the daemons of a configuration, the socket of each, and the command line of each.
 *
 * 1. Daemons are in start order: a daemon comes after those it depends on.
 * 2. Listening sockets are opened here, once, and stay open while the pipeline lives. An address in use is reported before any
 *    daemon starts, and a port chosen by port 0 survives restarts.
 * 3. Unless its section of the configuration says otherwise, a daemon gets a data directory and the archive below the pipeline's
 *    directory, and the addresses of the daemons it talks to.
 */
#ifndef MILLRACE_UP_PLAN_H
#define MILLRACE_UP_PLAN_H

#include "config/config.h"
#include "tools/supervisor.h"

#define UP_DAEMONS_MAX 16

struct up_plan {
    size_t n;
    struct supervisor_program daemons[UP_DAEMONS_MAX];
    char *urls[UP_DAEMONS_MAX]; /* where each listens; NULL: nowhere */
    char *archive;              /* directory */
};

struct up_plan_spec {
    const struct config *config;
    const char *data_dir; /* of the pipeline */
    const char *libexec;  /* directory of the programs */
    const char *run;      /* names separated by spaces or commas; NULL: all */
    bool free_ports;      /* use port 0 for every daemon */
    bool check_only;      /* open no sockets; add --check-config to the command lines */
};

/* Returns 0, or -1 with the error: an unknown daemon, an address in use. */
int up_plan_make(const struct up_plan_spec *spec, struct up_plan *out, struct config_error *error);
void up_plan_free(struct up_plan *plan);
/* Its clients are then refused instead of waiting in the backlog. */
void up_plan_close_socket(struct up_plan *plan, size_t daemon);
/* The number of a daemon, or plan->n if the plan does not have it. */
size_t up_plan_find(const struct up_plan *plan, const char *name);

#endif
