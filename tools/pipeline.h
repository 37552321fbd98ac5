/* pipeline: where the daemons of a pipeline listen, for the tools.
 *
 * A running `millrace up` keeps DATA_DIR/run.json, which says where each daemon is, with ports that were taken free.
 * Without it the addresses are what the configuration says, and what it does not say is the default.
 */
#ifndef MILLRACE_PIPELINE_H
#define MILLRACE_PIPELINE_H

#include "config/config.h"

struct pipeline;
/* config may be NULL (defaults); data_dir NULL: as [millrace] data_dir says, else millrace-data. */
struct pipeline *pipeline_open(const struct config *config, const char *data_dir);
void pipeline_close(struct pipeline **p);

/* False once `millrace up` has ended, or died; true also when nothing is known of it (no run.json). */
bool pipeline_may_run(const struct pipeline *p);
/* "http://127.0.0.1:8088" or "unix:PATH"; NULL when there is no such daemon. Lives as long as the pipeline. */
const char *pipeline_url(struct pipeline *p, const char *daemon);
/* As `millrace up` last wrote it: "ready", "starting", ...; NULL without run.json. */
const char *pipeline_state(struct pipeline *p, const char *daemon);
/* What it last told the supervisor of itself: "ready", or why it is not; NULL when nothing is known. */
const char *pipeline_said(struct pipeline *p, const char *daemon);

#endif
