#include "lists/lists_server.h"

#include <inttypes.h>

void lists_server_change(struct lists_server *server, struct lists_change *change)
{
    enum journal_result r = JOURNAL_NO_SPACE;
    if (!disk_guard_refuses(server->guard))
        r = lists_change(server->lists, change, clock_wall());
    if (r == JOURNAL_NO_SPACE)
        disk_guard_note_full(server->guard);
    if (r != JOURNAL_OK)
        change->done(change, r);
}

void lists_server_keep(struct lists_server *server, struct lists_change *change)
{
    STAILQ_INSERT_TAIL(&server->refused, change, link);
}

void lists_server_repeat(struct lists_server *server)
{
    STAILQ_HEAD(, lists_change) all = STAILQ_HEAD_INITIALIZER(all);
    struct lists_change *c;
    STAILQ_CONCAT(&all, &server->refused);
    while ((c = STAILQ_FIRST(&all))) {
        STAILQ_REMOVE_HEAD(&all, link);
        lists_server_change(server, c);
    }
}

void lists_append_time(struct buf *out, usec_t time)
{
    char fraction[7] = ".";
    buf_append_u64(out, (uint64_t)(time / USEC_PER_SEC));
    for (usec_t i = 6, left = time % USEC_PER_SEC; i > 0; i--, left /= 10)
        fraction[i] = (char)('0' + left % 10);
    buf_append(out, fraction, sizeof fraction);
}

void lists_extra_stats(void *ctx, bool json, struct buf *out)
{
    const struct lists_server *server = ctx;
    if (server && json)
        buf_printf(out, ",\"stream_offset\":\"%" PRIu64 "\"", server->stream_offset);
}
