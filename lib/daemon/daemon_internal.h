/* daemon_internal: what happens once, before the loop runs (daemon_start.c), for daemon.c. */
#ifndef MILLRACE_DAEMON_INTERNAL_H
#define MILLRACE_DAEMON_INTERNAL_H

#include "config/options.h"

#define DAEMON_ROWS_MAX 24

/* The settings every daemon has, in rows[], with the port's default filled in; returns rows. */
const struct option_row *daemon_rows(int default_port, struct option_row *rows);

void daemon_init_log(const char *name, const struct options *o);
/* Of the settings every daemon has, what one of them makes impossible of another, or another's default: 0, or -1 with the
 * error. */
int daemon_check_common(struct options *o, struct config_error *error);
/* --root, --daemon, the limit of open files. 0, or an exit status with the error filled. */
int daemon_enter(const struct options *o, struct config_error *error);
/* --auth-token-file into *token (from malloc; NULL without one). */
int daemon_take_token(const struct options *o, char **token, struct config_error *error);
/* --user and --group, once the sockets are bound. */
int daemon_change_identity(const struct options *o, struct config_error *error);

#endif
