/* dynamo_client: signed requests to DynamoDB's HTTP API, and the meaning of their answers.
 *
 * A request is a POST of JSON to the target / with the name of the operation in X-Amz-Target. The client never repeats a
 * request; all writes of millrace may be repeated. The transport is HTTP without TLS (docs/guide/dynamodb.md). */
#ifndef MILLRACE_DYNAMO_CLIENT_H
#define MILLRACE_DYNAMO_CLIENT_H

#include "aws/aws_key_source.h"
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

struct dynamo_client_config {
    struct event_base *base;
    const char *endpoint; /* url_address; copied */
    const char *host;     /* value of the Host header; copied; NULL: that of the endpoint */
    const char *region;   /* copied */
    const char *credentials_file;
    bool instance_keys; /* as of aws_key_source_config */
    int max_connections;
    usec_t timeout;
};

/* Returns NULL with the error if the endpoint is not an address. */
struct dynamo_client *dynamo_client_new(const struct dynamo_client_config *config, struct error *error);
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
