#include "streams/filter/source_watermark.h"

#include "base/remote_moment.h"
#include "daemon/daemon.h"
#include "http/client/http_client.h"
#include "stream/stream_watermark.h"
#include "stream/watermark.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PRODUCER_TIMEOUT (24 * 3600 * USEC_PER_SEC)

struct source_watermark {
    struct daemon *daemon;
    struct http_client *source;
    char target[NAME_LEN_MAX + 48], id[STREAM_ID_TEXT];
    struct stream_client *const *lines;
    struct stream_place place; /* of the lines, and of the observations */
    struct watermark *watermark;
    struct clock_moment asked_at;
    struct http_call *call; /* NULL: none */
    struct producer_times *times;
};

struct source_watermark *source_watermark_new(
    struct daemon *d, struct http_client *source, const char *stream, struct stream_client *const *lines)
{
    struct source_watermark *w = mem_zalloc(sizeof *w);
    w->daemon = d;
    w->source = source;
    w->lines = lines;
    w->watermark = watermark_new(1);
    w->times = producer_times_new();
    snprintf(w->target, sizeof w->target, "/producers?stream=%s&stating=1", stream);
    return w;
}

void source_watermark_free(struct source_watermark **w)
{
    if (!*w)
        return;
    if ((*w)->call)
        http_call_cancel((*w)->call);
    watermark_free(&(*w)->watermark);
    producer_times_free(&(*w)->times);
    free(*w);
    *w = NULL;
}

/* A restarted pubsub may have an older copy, so the ends that the former process stated are no measure of its lines. */
static void notice_restart(struct source_watermark *w)
{
    const struct stream_place *place = stream_client_place(*w->lines);
    if (strcmp(w->place.text, place->text) == 0)
        return;
    w->place = *place;
    watermark_forget(w->watermark);
}

static void answered(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct source_watermark *w = arg;
    struct stream_watermark answer;
    struct stream_place place;
    w->call = NULL;
    if (result != HTTP_CLIENT_OK || reply->status != 200)
        return;
    notice_restart(w);
    stream_place_read(reply, &place);
    if ((place.text[0] && !stream_place_is_same(&place, &w->place)) ||
        !stream_watermark_read(reply->body, PRODUCER_TIMEOUT, w->times, &answer) ||
        strcmp(answer.id, w->id) != 0)
        return;
    if (answer.until > 0) /* 0: that of a producer is not known */
        watermark_observe(w->watermark, (struct watermark_time){w->asked_at, answer.until}, &answer.end);
}

void source_watermark_restart(struct source_watermark *w)
{
    watermark_free(&w->watermark);
    w->watermark = watermark_new(1);
}

void source_watermark_ask(struct source_watermark *w)
{
    const char *id = stream_client_cursor(*w->lines)->id;
    if (w->call || !*id)
        return;
    if (strcmp(w->id, id) != 0) {
        source_watermark_restart(w);
        snprintf(w->id, sizeof w->id, "%s", id);
    }
    notice_restart(w);
    w->asked_at = daemon_moment(w->daemon);
    w->call = http_client_request(w->source,
        &(struct http_call_spec){
            .method = "GET", .target = w->target, .may_resend = true, .arg = w, .on_done = answered});
}

void source_watermark_append(struct source_watermark *w, uint64_t offset,
    const struct remote_moment *destination, char *target, size_t size)
{
    notice_restart(w);
    struct watermark_time reached = watermark_complete_until(w->watermark, &offset);
    struct clock_moment now = daemon_moment(w->daemon);
    usec_t until = 0, age = 0;
    if (reached.at.boot != 0) {
        usec_t asked = clock_moment_time(reached.at, now);
        until = reached.until < asked ? reached.until : asked > 0 ? asked : 0;
        age = now.boot - reached.at.boot;
    }
    size_t len = strlen(target);
    snprintf(target + len, size - len, "&until=%" PRId64 ".%06" PRId64 "&until_age=%" PRId64,
        until / USEC_PER_SEC, until % USEC_PER_SEC, (age + USEC_PER_MSEC - 1) / USEC_PER_MSEC);
    remote_moment_append(destination, clock_monotonic() - age, target, size);
}
