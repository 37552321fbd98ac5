/* daemon_internal: the steps of a start in daemon_start.c, for daemon.c. */
#ifndef MILLRACE_DAEMON_INTERNAL_H
#define MILLRACE_DAEMON_INTERNAL_H

#include "config/options.h"

#define DAEMON_ROWS_MAX 24

/* Stores the settings of every daemon, with the default port, in rows[DAEMON_ROWS_MAX]. Returns rows. */
const struct option_row *daemon_rows(int default_port, struct option_row *rows);

void daemon_init_log(const char *name, const struct options *o);
/* Checks the settings of every daemon against each other. 0, or -1 with the error. */
int daemon_check_common(struct options *o, struct config_error *error);
/* Applies --root, --daemon and the limit of open files. 0, or an exit status with the error. */
int daemon_enter(const struct options *o, struct config_error *error);
/* Applies --user and --group, after the sockets are bound. */
int daemon_change_identity(const struct options *o, struct config_error *error);

#endif
