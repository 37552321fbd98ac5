/* pipeline: the addresses of a pipeline's daemons, for the tools.
 *
 * A running `millrace up` keeps DATA_DIR/run.json with the address of each daemon. Without that file, addresses come from the
 * configuration and its defaults.
 */
#ifndef MILLRACE_PIPELINE_H
#define MILLRACE_PIPELINE_H

#include "config/config.h"

struct pipeline;
/* config may be NULL (defaults). data_dir NULL: [millrace] data_dir, else millrace-data. */
struct pipeline *pipeline_open(const struct config *config, const char *data_dir);
void pipeline_close(struct pipeline **p);

/* False once `millrace up` has ended or died. True without a run.json. */
bool pipeline_may_run(const struct pipeline *p);
/* All texts live as long as the pipeline. */
/* "http://127.0.0.1:8088" or "unix:PATH"; NULL: no such daemon. */
const char *pipeline_url(struct pipeline *p, const char *daemon);
/* State in run.json: "ready", "starting", ...; NULL without run.json. */
const char *pipeline_state(struct pipeline *p, const char *daemon);
/* The daemon's last status message: "ready", or why it is not; NULL: unknown. */
const char *pipeline_status_text(struct pipeline *p, const char *daemon);

#endif
