/* ruler_server: the data that the parts of the ruler share, its file of the state, and its settings. */
#ifndef MILLRACE_RULER_SERVER_H
#define MILLRACE_RULER_SERVER_H

#include "daemon/daemon.h"
#include "ruler/alert_messages.h"
#include "ruler/rule_book.h"

struct ruler {
    struct daemon *daemon;
    struct rule_book *book;
    struct silences silences;
    char *state_path;
    bool is_changed; /* since the state was written */
    usec_t saved_at; /* monotonic */
};

extern const struct http_route ruler_routes[];
extern const struct option_row ruler_settings[];
extern const char *const ruler_queue_settings[ALERT_WAYS]; /* name of the setting for the queue of each way */

/* Checks the settings, and with --check-config the rule files. Returns 0, or -1 with the error. */
int ruler_check_settings(struct options *o, struct error *error);

/* Reads the rule files into a new book, which has the alerts of r->book, and replaces r->book. Returns the earlier book,
 * which the caller frees, in *old. Returns 0, or -1 with the error, and then r->book stays. */
int ruler_read_rules(struct ruler *r, struct rule_book **old, struct error *error);
/* Writes the file of the state. Returns 0, or -1 with errno and a notice. */
int ruler_save(struct ruler *r);
/* Takes the state of an earlier process, if there is one. Returns 0, or an exit status with the error. */
int ruler_restore(struct ruler *r, struct error *error);
/* The trusted time in milliseconds since 1970. */
int64_t ruler_now(const struct ruler *r);

#endif
