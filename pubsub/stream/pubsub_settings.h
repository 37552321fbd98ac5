/* pubsub_settings: pubsub's settings, and checks across them. */
#ifndef MILLRACE_PUBSUB_SETTINGS_H
#define MILLRACE_PUBSUB_SETTINGS_H

#include "config/options.h"

#define SETTINGS_SEPARATORS " ,\t" /* between the names of `streams` */
#define NNG_PUBLISH_SETTING "nng_publish"

extern const struct option_row settings_rows[];

/* Checks all of them and the file's [stream NAME] sections: 0, or -1 with the error. */
int settings_check(struct options *o, struct config_error *error);

#endif
