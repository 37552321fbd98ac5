/* dynamo_client: signed requests to DynamoDB's HTTP API, and the meaning of their answers.
 *
 * A request is a POST of JSON to the target / with the name of the operation in X-Amz-Target. The client never repeats a
 * request; all writes of millrace may be repeated. The transport is HTTP without TLS (docs/guide/dynamodb.md). The address, the
 * region and the keys are settings, which programs inherit from a section [dynamodb]. */
#ifndef MILLRACE_DYNAMO_CLIENT_H
#define MILLRACE_DYNAMO_CLIENT_H

#include "config/options.h"
#include "http/client/http_client.h"

struct dynamo_client;

enum dynamo_result {
    DYNAMO_OK,
    DYNAMO_THROTTLED, /* the table or the account writes or reads too fast */
    DYNAMO_FAULT,     /* no answer, or one that shows a temporary failure */
    DYNAMO_NOT_NEWER, /* the condition of a conditional put is false */
    DYNAMO_REFUSED,   /* the content of the request is invalid, so that a retry would also fail */
    DYNAMO_DENIED,    /* the operator must act: no such table, no permission, wrong keys, another server */
};
#define DYNAMO_WHY_MAX 300

/* clang-format off */
#define DYNAMO_CLIENT_OPTIONS                                                                                \
    {.name = "endpoint", .type = OPTION_STRING, .inherits = "endpoint", .of = "dynamodb",                                                              \
        .help = "address of DynamoDB: http://HOST:PORT of a TLS forwarder, of DynamoDB local, or of AWS"},   \
    {.name = "endpoint_host", .type = OPTION_STRING, .inherits = "endpoint_host", .of = "dynamodb",                                                         \
        .help = "Host header of the requests, such as dynamodb.eu-west-1.amazonaws.com behind a TLS forwarder (default: that of endpoint)"}, \
    {.name = "region", .type = OPTION_STRING, .inherits = "region", .of = "dynamodb",                                                                \
        .help = "AWS region of the signature (default: AWS_REGION of the environment)"},                     \
    {.name = "aws_credentials_file", .type = OPTION_STRING, .inherits = "aws_credentials_file", .of = "dynamodb",                                                  \
        .help = "file with aws_access_key_id and aws_secret_access_key, read for each request (default: AWS_ACCESS_KEY_ID, " \
                "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN of the environment)"},                          \
    {.name = "aws_instance_keys", .type = OPTION_BOOL, .inherits = "aws_instance_keys", .of = "dynamodb", .fallback = "false", .excludes = "aws_credentials_file", \
        .help = "take the keys of the EC2 instance's role from its metadata service (IMDSv2)"},              \
    {.name = "timeout", .type = OPTION_DURATION, .fallback = "10s", .min = 10, .max = 600000, .unit = "ms",  \
        .help = "timeout of a request to DynamoDB"}
/* clang-format on */

/* Checks DYNAMO_CLIENT_OPTIONS. Returns 0, or -1 with the error. */
int dynamo_client_check(const struct options *o, struct error *error);
/* Call dynamo_client_check first. Returns NULL with the error. */
struct dynamo_client *dynamo_client_new(
    const struct options *o, struct event_base *base, int max_connections, struct error *error);
/* Ends each call with HTTP_CLIENT_CANCELLED. */
void dynamo_client_free(struct dynamo_client **c);

/* Sends `body` ("PutItem" is an operation). Returns NULL with the error if there are no keys; then on_done is not called.
 * The body is copied. */
struct http_call *dynamo_client_call(struct dynamo_client *c, const char *operation, struct bytes body,
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg),
    void *arg, struct error *error);
/* Runs the loop until the answer, for command-line tools. Appends the answer's body. */
enum dynamo_result dynamo_client_fetch(struct dynamo_client *c, const char *operation, struct bytes body,
    struct buf *out, char why[DYNAMO_WHY_MAX]);
/* Sets `why` to the reason, with AWS's name of the error, unless the result is DYNAMO_OK. */
enum dynamo_result dynamo_result_of(
    enum http_client_result result, int status, struct bytes body, char why[DYNAMO_WHY_MAX]);

#endif
