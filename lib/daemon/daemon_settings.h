/* daemon_settings: the settings that all daemons have. */
#ifndef MILLRACE_DAEMON_SETTINGS_H
#define MILLRACE_DAEMON_SETTINGS_H

#include "daemon/daemon.h"

#define DAEMON_SETTINGS 21 /* number of rows, including the final row */

/* Sets the rows. Writes the text of the daemon's default port into `port`, which the rows borrow. */
void daemon_settings_rows(
    const struct daemon_spec *spec, struct option_row rows[DAEMON_SETTINGS], char port[16]);
/* Returns 0, or -1 with the error. */
int daemon_settings_check(const struct daemon_spec *spec, struct options *o, struct error *error);

#endif
