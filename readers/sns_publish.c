#include "readers/sns_publish.h"

#include "base/url.h"
#include "aws/aws_signature.h"

#include <stdlib.h>

#define PARTS 6 /* of an ARN */
enum { PART_ARN, PART_PARTITION, PART_SERVICE, PART_REGION, PART_ACCOUNT, PART_NAME };

static bool split(const char *topic, struct bytes parts[PARTS])
{
    size_t n = 0;
    while (n < PARTS && bytes_next_word(&topic, ":", &parts[n]))
        n++;
    return n == PARTS && *topic == '\0';
}

bool sns_topic_is_valid(const char *topic)
{
    struct bytes parts[PARTS];
    bool is_valid = split(topic, parts) && bytes_equal_str(parts[PART_ARN], "arn") &&
                    bytes_equal_str(parts[PART_SERVICE], "sns");
    for (size_t i = 0; i < PARTS && is_valid; i++)
        is_valid = bytes_are_of_name(parts[i]) && parts[i].len < 100 + 200 * (i == PART_NAME);
    return is_valid;
}

static void append_field(struct buf *body, const char *name, struct bytes value)
{
    buf_append_str(body, name);
    url_encode(value, body);
}

void sns_append_body(const char *topic, struct bytes message, const char *id, struct buf *body)
{
    size_t n = strlen(topic);
    buf_append_str(body, "Action=Publish&Version=2010-03-31");
    append_field(body, "&TopicArn=", bytes_str(topic));
    append_field(body, "&Message=", message);
    if (n <= 5 || strcmp(topic + n - 5, ".fifo") != 0)
        return;
    buf_append_str(body, "&MessageGroupId=millrace");
    append_field(body, "&MessageDeduplicationId=", bytes_str(id));
}

int sns_append_headers(const char *topic, const char *credentials_file, struct bytes host, struct bytes body,
    usec_t time, struct buf *headers, struct error *error)
{
    struct bytes parts[PARTS];
    struct aws_keys keys;
    if (!split(topic, parts) || aws_keys_read(credentials_file, &keys, error) != 0)
        return -1;
    char *region = bytes_dup(parts[PART_REGION]), *host_text = bytes_dup(host);
    aws_sign(&keys,
        &(struct aws_request){.region = region,
            .service = "sns",
            .method = "POST",
            .host = host_text,
            .content_type = SNS_CONTENT_TYPE,
            .body = body},
        time, headers);
    free(region);
    free(host_text);
    return 0;
}
