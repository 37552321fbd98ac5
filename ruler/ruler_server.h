/* ruler_server: the data that main.c and http.c of the ruler share. */
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

void ruler_print_state(const struct ruler *r, struct buf *out);
/* Writes the file of the state. Returns 0, or -1 with errno and a notice. */
int ruler_save(struct ruler *r);
/* Takes the state of an earlier process, if there is one. Returns 0, or an exit status with the error. */
int ruler_restore(struct ruler *r, struct error *error);
/* The trusted time in milliseconds since 1970. */
int64_t ruler_now(const struct ruler *r);

#endif
