/* ruler_settings: the settings of the ruler. */
#ifndef MILLRACE_RULER_SETTINGS_H
#define MILLRACE_RULER_SETTINGS_H

#include "config/options.h"
#include "ruler/alert_messages.h"

extern const struct option_row ruler_settings[];
extern const char *const ruler_queue_settings[ALERT_WAYS]; /* name of the setting for the queue of each way */

/* Checks the settings, and with --check-config the rule files. Returns 0, or -1 with the error. */
int ruler_check_settings(struct options *o, struct error *error);
/* Reads the rule files. Returns 0, or -1 with the error. */
int ruler_read_rules(const struct options *o, struct rule_groups *out, struct error *error);
/* `groups` determine how long Alertmanager keeps an alert without a message. */
struct message_rules ruler_message_rules(const struct options *o, const struct rule_groups *groups);

#endif
