/* queue_settings: simplequeue's settings and their checks. */
#ifndef SIMPLEQUEUE_SETTINGS_H
#define SIMPLEQUEUE_SETTINGS_H

#include "config/options.h"

#define NNG_LISTEN_SETTING "nng_listen"

extern const struct option_row settings_rows[];

int settings_check(struct options *o, struct error *error);

/* Stores the setting `name`, or the host's name if `name` is unset. Characters that a name must not contain become
 * '-'. */
void settings_host_name(const struct options *o, char out[NAME_LEN_MAX + 1]);

/* Logs a warning for each setting that has no effect. */
void settings_warn(const struct options *o);

/* Returns the path of the overflow log, or NULL if full queues refuse puts. */
const char *settings_overflow_log(const struct options *o);
/* Returns the value of the setting, or a newline if it is unset. */
struct bytes settings_separator(const struct options *o, const char *name);

#endif
