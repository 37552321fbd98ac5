#include "nats/nats_stream.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <stdlib.h>

#define NSEC_PER_USEC 1000

static const char *last_error(natsStatus s)
{
    const char *text = nats_GetLastError(NULL);
    return text && text[0] ? text : natsStatus_GetText(s);
}

static natsStatus create(jsStreamInfo **info, jsCtx *js, const struct nats_stream *stream)
{
    jsStreamConfig config;
    char *subject = mem_printf("%s.*.*", stream->name);
    const char *subjects[] = {subject};
    jsStreamConfig_Init(&config);
    config.Name = stream->name;
    config.Subjects = subjects;
    config.SubjectsLen = 1;
    config.Discard = js_DiscardNew;
    config.MaxAge = stream->max_age * NSEC_PER_USEC;
    config.MaxBytes = stream->max_bytes > 0 ? stream->max_bytes : -1;
    config.Replicas = stream->replicas;
    config.AllowDirect = true; /* cells read with direct gets */
    natsStatus s = js_AddStream(info, js, &config, NULL, NULL);
    free(subject);
    return s;
}

/* Returns the setting of the stream with which messages could be lost, or NULL. */
static const char *unfit(const jsStreamConfig *c, const struct nats_stream *stream)
{
    bool has_limit = c->MaxBytes > 0 || c->MaxMsgs > 0;
    if (c->Retention != js_LimitsPolicy)
        return c->Retention == js_WorkQueuePolicy ? "retention `workqueue`: set `limits`"
                                                  : "retention `interest`: set `limits`";
    if (c->Storage != js_FileStorage)
        return "storage `memory`: set `file`";
    if (c->MaxMsgsPerSubject > 0) /* also with discard `new` */
        return "max_msgs_per_subject, which deletes the oldest messages of a queue: unset it";
    if (c->MaxMsgSize > 0 && c->MaxMsgSize < NATS_PAYLOAD_MIN)
        return "a max_msg_size below 64 KiB: raise it";
    if (c->Discard == js_DiscardOld && has_limit)
        return "discard `old` with a limit of messages or bytes: set discard `new`";
    if (c->MaxAge == 0)
        return "no max_age, so that its disks fill up: set max_age";
    if (c->MaxAge / NSEC_PER_USEC < 2 * stream->settle_after)
        return "a max_age that is shorter than twice settle_after: raise max_age";
    if (c->NoAck || c->Sealed)
        return c->NoAck ? "no_ack: unset it" : "sealed: create another stream";
    return NULL;
}

int nats_stream_check(jsCtx *js, const struct nats_stream *stream, struct error *error)
{
    jsStreamInfo *info = NULL;
    jsErrCode code = 0;
    natsStatus s = js_GetStreamInfo(&info, js, stream->name, NULL, &code);
    if (s == NATS_NOT_FOUND && stream->create)
        s = create(&info, js, stream);
    if (s != NATS_OK)
        return error_set(error, -1, "stream %s of JetStream: %s%s", stream->name, last_error(s),
            s == NATS_NOT_FOUND ? "; create it, or set `create`" : "");
    const char *why = unfit(info->Config, stream);
    int result = 0;
    if (why)
        result = error_set(error, -1, "stream %s of JetStream has %s", stream->name, why);
    else if (info->Config->Replicas < stream->replicas)
        result = error_set(error, -1,
            "stream %s of JetStream has %" PRId64 " replicas, but `replicas` is %" PRId64, stream->name,
            info->Config->Replicas, stream->replicas);
    jsStreamInfo_Destroy(info);
    return result;
}
