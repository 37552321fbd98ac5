/* lists_server: the data that the parts of the daemon lists share. Only the loop's thread uses it. */
#ifndef MILLRACE_LISTS_SERVER_H
#define MILLRACE_LISTS_SERVER_H

#include "daemon/daemon.h"
#include "daemon/disk_guard.h"
#include "lists/lists.h"

struct lists_server {
    struct daemon *daemon;
    struct lists *lists;
    struct disk_guard *guard;
    uint64_t stream_offset; /* the lines of the stream before this offset are made */
    STAILQ_HEAD(, lists_change) refused;
    struct stats_counter *reads, *shown;
};

/* Accepts a change, or calls its `done` with the reason of the refusal. */
void lists_server_change(struct lists_server *server, struct lists_change *change);
/* Keeps a change that was refused, for lists_server_repeat. */
void lists_server_keep(struct lists_server *server, struct lists_change *change);
void lists_server_repeat(struct lists_server *server);
/* Appends a time as seconds with six decimals, which bytes_to_usec reads. */
void lists_append_time(struct buf *out, usec_t time);

extern const struct http_route lists_routes[];
void lists_extra_stats(void *server, bool json, struct buf *out);

extern const struct option_row lists_settings[];
int lists_check_settings(struct options *o, struct error *error);

#endif
