/* up_plan: which daemons one configuration asks for, where each listens, and the command line each gets.
 *
 * 1. The daemons are in the order in which they can be started: what one depends on is before it.
 * 2. Listening sockets are opened here, once, and kept for the pipeline's life: an address in use is known before
 *    anything runs, and port 0 is a port that every restart keeps.
 * 3. A daemon gets --data-dir and --archive below the pipeline's directory and the addresses of those it talks to,
 *    unless its section of the configuration says otherwise.
 */
#ifndef MILLRACE_UP_PLAN_H
#define MILLRACE_UP_PLAN_H

#include "config/config.h"

#define UP_MAX_DAEMONS 16

struct up_daemon {
    const char *name;
    int listen_fd; /* -1: it has no HTTP server */
    char *url;     /* where it is reached, or NULL */
    char **argv;   /* ended by NULL; argv[0] is the program's path */
};
struct up_plan {
    size_t n;
    struct up_daemon daemons[UP_MAX_DAEMONS];
    char *archive; /* the archive's directory */
};

struct up_plan_spec {
    const struct config *config;
    const char *config_path;
    const char *data_dir; /* the pipeline's */
    const char *libexec;  /* where the programs are */
    const char *run;      /* names separated by spaces or commas; NULL: all */
    bool free_ports;      /* port 0 for all, whatever is configured */
    bool check_only;      /* no sockets; the command lines carry --check-config */
};

/* 0, or -1 with the reason: an unknown daemon, an address in use. */
int up_plan_make(const struct up_plan_spec *spec, struct up_plan *out, struct config_error *error);
void up_plan_free(struct up_plan *plan); /* closes the sockets */
const struct up_daemon *up_plan_find(const struct up_plan *plan, const char *name);

#endif
