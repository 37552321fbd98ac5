/* spamfilter_server: the data that the parts of spamfilter share. Only the loop's thread uses it. */
#ifndef MILLRACE_SPAMFILTER_SERVER_H
#define MILLRACE_SPAMFILTER_SERVER_H

#include "base/rate_limit.h"
#include "daemon/daemon.h"
#include "daemon/disk_guard.h"
#include "spamfilter/mark_store.h"

struct spamfilter {
    struct daemon *daemon;
    struct mark_store *store;
    uint64_t stream_offset; /* the updates of the stream before this offset are made */
    struct marks_config marks;
    struct disk_guard *guard;
    bool is_shadow;              /* no answer says `marked`; matches are logged and counted */
    struct rate_limit log_limit; /* of log lines about URLs */
    struct url_form form;        /* of the URL in progress */
    struct stats_counter *checks, *marked, *exact, *allowed, *shadowed, *updates[MARK_ACTIONS];
};

/* Accepts a change, or calls its `done` with the reason of the refusal. */
void spamfilter_change(struct spamfilter *server, struct mark_change *change);
/* Returns whether a log line about a URL is within the limit. */
bool spamfilter_may_log(struct spamfilter *server);

extern const struct http_route spamfilter_routes[];
void spamfilter_extra_stats(void *server, bool json, struct buf *out);

extern const struct option_row spamfilter_settings[];
/* Reads the settings of the marks. The texts in *m are valid until options_free. Returns 0, or -1 with the error. */
int spamfilter_read_settings(const struct options *o, struct marks_config *m, struct error *error);
int spamfilter_check_settings(struct options *o, struct error *error);

#endif
