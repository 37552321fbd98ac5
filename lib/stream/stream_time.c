#include "stream/stream_time.h"

#include "base/bytes.h"
#include "http/client/http_client.h"

#include <stdio.h>

bool stream_time_read(
    const struct http_reply_view *reply, usec_t *time, char era[STREAM_ERA_TEXT], bool *is_new)
{
    const char *named = http_reply_header(reply, "X-Millrace-Era");
    if (!bytes_is_name(bytes_str(named)) || strlen(named) >= STREAM_ERA_TEXT ||
        !bytes_to_usec(bytes_str(http_reply_header(reply, "X-Millrace-Time")), time))
        return false;
    *is_new = strcmp(era, named) != 0;
    snprintf(era, STREAM_ERA_TEXT, "%s", named);
    return true;
}
