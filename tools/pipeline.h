/* pipeline: the addresses and states of a pipeline's daemons, for the tools.
 *
 * A running `millrace up` keeps them in DATA_DIR/run.json. Without that file, addresses come from the configuration and its
 * defaults, and states are unknown. */
#ifndef MILLRACE_PIPELINE_H
#define MILLRACE_PIPELINE_H

#include "config/config.h"
#include "config/peers.h"

struct pipeline_daemon {
    char *url;         /* "http://127.0.0.1:8088" or "unix:PATH" */
    char *state;       /* "ready", "starting", ...; NULL: unknown */
    char *status_text; /* "ready", or why it is not; NULL: unknown */
};

struct pipeline {
    bool has_ended;                        /* `millrace up` has ended or died */
    struct pipeline_daemon daemons[PEERS]; /* in the order of peers[] */
};

/* config may be NULL (defaults). data_dir NULL: [millrace] data_dir, else millrace-data. */
void pipeline_open(struct pipeline *p, const struct config *config, const char *data_dir);
void pipeline_close(struct pipeline *p);
/* The URL of a peer, valid until pipeline_close. */
const char *pipeline_url(const struct pipeline *p, const char *daemon);

#endif
