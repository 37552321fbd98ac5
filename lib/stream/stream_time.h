/* stream_time: the present by the clock of a pubsub, as its replies name it (docs/guide/protocol.md, "until").
 *
 * pubsub begins a new era at each start and at each jump of its clock. A time of an earlier era is invalid, because the clock may have been
 * ahead. */
#ifndef MILLRACE_STREAM_TIME_H
#define MILLRACE_STREAM_TIME_H

#include "base/clock.h"

#include <stdbool.h>

#define STREAM_ERA_TEXT 64

struct http_reply_view;
/* Sets *time and `era`, and *is_new if it is another era than the one in `era`. False, and nothing is set: the reply names none, such as most
 * refusals. */
bool stream_time_read(
    const struct http_reply_view *reply, usec_t *time, char era[STREAM_ERA_TEXT], bool *is_new);

#endif
