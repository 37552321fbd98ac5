/* control: a run's four calls (run.h) over HTTP, to the aggregator and to every sortdb. docs/guide/protocol.md has the requests.
 *
 * Blocking, one request after another. A daemon that is away, not ready or without room is "try again"; a 4xx that
 * says the data do not belong together is "refused", with the daemon's own words. */
#ifndef MILLRACE_CONTROL_H
#define MILLRACE_CONTROL_H

#include "compactor/run.h"

struct control;

struct control_config {
    const char *aggregator_url;
    const char *sortdb_urls; /* separated by spaces or commas; "none": no sortdb serves the archive */
    const char *auth_token;  /* NULL: none */
};

/* NULL with the text when an address is none. Everything is copied. */
struct control *control_new(const struct control_config *config, char error[COMPACT_ERROR_TEXT]);
void control_free(struct control **c);
/* Lives as long as the control. */
const struct run_control *control_calls(struct control *c);

#endif
