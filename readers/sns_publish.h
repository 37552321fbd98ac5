/* sns_publish: the request of Amazon SNS's Publish for a message, signed.
 *
 * The text of the message is Message. For a topic with a name that ends in .fifo, the queue's id and the message's id are
 * MessageDeduplicationId, so SNS drops a repeated message within its interval, and MessageGroupId is "millrace". */
#ifndef MILLRACE_SNS_PUBLISH_H
#define MILLRACE_SNS_PUBLISH_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"

#define SNS_CONTENT_TYPE "application/x-www-form-urlencoded; charset=utf-8"

/* True if `topic` is the ARN of a topic: arn:PARTITION:sns:REGION:ACCOUNT:NAME. */
bool sns_topic_is_valid(const char *topic);
/* Appends the body. `id` is unique to the message. */
void sns_append_body(const char *topic, struct bytes message, const char *id, struct buf *body);
/* Appends the header lines of the signature, without a NUL. Reads the keys from the file. Returns 0, or -1 with the error. */
int sns_append_headers(const char *topic, const char *credentials_file, struct bytes host, struct bytes body,
    usec_t time, struct buf *headers, struct error *error);

#endif
