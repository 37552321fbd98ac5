/* dynamo_settings: the settings of the programs that write to a DynamoDB table, and of `millrace dynamo`.
 *
 * The address, the region and the keys may be in a section [dynamodb], from which all of these programs inherit. */
#ifndef MILLRACE_DYNAMO_SETTINGS_H
#define MILLRACE_DYNAMO_SETTINGS_H

#include "config/options.h"
#include "dynamo/dynamo_table.h"

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
#define DYNAMO_OPTIONS                                                                                       \
    {.name = "table", .type = OPTION_STRING, .help = "name of the table"},                                   \
    {.name = "key", .type = OPTION_STRING,                                                                   \
        .help = "field with the partition key: FIELD[:ATTRIBUTE[:TYPE]], with the type S, N, BOOL, TIME or JSON"}, \
    {.name = "sort", .type = OPTION_STRING, .help = "field with the sort key, as for key"},                  \
    {.name = "newer", .type = OPTION_STRING,                                                                 \
        .help = "field, as for key, that grows with each version of an item: an older event never replaces a newer item"}, \
    {.name = "fields", .type = OPTION_STRING, .flags = OPTION_LIST,                                          \
        .help = "fields to store, as for key, separated by spaces; `.` is the whole event (default: all members)"}, \
    DYNAMO_CLIENT_OPTIONS
/* clang-format on */

/* Checks DYNAMO_CLIENT_OPTIONS. Returns 0, or -1 with the error. */
int dynamo_settings_check_client(const struct options *o, struct error *error);
/* Checks DYNAMO_OPTIONS. Returns 0, or -1 with the error. */
int dynamo_settings_check(const struct options *o, struct error *error);
/* Returns NULL with the error. Call a check first. */
struct dynamo_client *dynamo_settings_client(
    const struct options *o, struct event_base *base, int max_connections, struct error *error);

/* A table with all that belongs to it, of a program with DYNAMO_OPTIONS, `parallel`, `backoff_min` and `backoff_max`. */
struct dynamo_sink {
    struct dynamo_client *client;
    struct dynamo_form *form;
    struct dynamo_table *table;
};
/* Returns 0, or -1 with the error. */
int dynamo_sink_open(struct dynamo_sink *s, const struct options *o, struct event_base *base,
    struct stats *stats, struct error *error);
void dynamo_sink_close(struct dynamo_sink *s);

#endif
