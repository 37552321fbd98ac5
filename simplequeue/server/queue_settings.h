/* settings: what simplequeue can be told, and what of it cannot be. */
#ifndef SIMPLEQUEUE_SETTINGS_H
#define SIMPLEQUEUE_SETTINGS_H

#include "config/options.h"

#define NNG_LISTEN_SETTING "nng_listen"

extern const struct option_row settings_rows[];

int settings_check(struct options *o, struct config_error *error);

/* Says in the log what of the settings does nothing. */
void settings_warn(const struct options *o);

/* The file that full queues overflow to; NULL: they refuse. */
const char *settings_overflow_log(const struct options *o);
/* Of the setting with this name, a newline when it is not set. */
struct bytes settings_separator(const struct options *o, const char *name);

#endif
