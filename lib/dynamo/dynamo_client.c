#include "dynamo/dynamo_client.h"

#include "aws/aws_key_source.h"
#include "base/log.h"
#include "base/url.h"
#include "json/json_fields.h"

#include <stdio.h>
#include <stdlib.h>

#define CONTENT_TYPE "application/x-amz-json-1.0"
#define VERSION "DynamoDB_20120810."
#define REPLY_MAX ((size_t)32 << 20) /* an answer may repeat the 16 MB of a request */

struct dynamo_client {
    struct aws_key_source *keys;
    struct http_client *http;
    char *region, *host;
};

static bool is_loopback(const struct url_address *a)
{
    return a->is_unix || strcmp(a->host, "localhost") == 0 || strcmp(a->host, "::1") == 0 ||
           strncmp(a->host, "127.", 4) == 0;
}

static const char *region_of(const struct options *o)
{
    const char *region = options_text(o, "region");
    return region ? region : getenv("AWS_REGION");
}

int dynamo_client_check(const struct options *o, struct error *error)
{
    static const char *const shared[] = {
        "endpoint", "endpoint_host", "region", "aws_credentials_file", "aws_instance_keys", NULL};
    struct url_address address;
    const struct config *config = options_config(o);
    const struct config_section *section = config_section(config, "dynamodb", "");
    if (section && config_check_keys(config, section, shared, error) != 0)
        return -1;
    const char *endpoint = options_text(o, "endpoint"), *host = options_text(o, "endpoint_host");
    const char *region = region_of(o);
    if (!region || *region == '\0' || !bytes_are_of_name(bytes_str(region)) || strlen(region) > 60)
        return options_refuse(o, "region", error, "required: the name of a region, such as eu-west-1");
    if (endpoint && strncmp(endpoint, "https://", 8) == 0)
        return options_refuse(o, "endpoint", error,
            "https is not supported: use a TLS forwarder on this host (millrace help dynamodb)");
    if (!endpoint || url_address_parse(endpoint, 80, &address) != 0)
        return options_refuse(o, "endpoint", error, "required: http://HOST:PORT or unix:PATH");
    if (host && (strlen(host) > 255 || !bytes_are_of_name(bytes_str(host))))
        return options_refuse(o, "endpoint_host", error, "is not the name of a host");
    if (!is_loopback(&address) && !options_check_only(o))
        log_warn("requests to DynamoDB leave this host without TLS", LOG_S("endpoint", endpoint));
    return 0;
}

struct dynamo_client *dynamo_client_new(
    const struct options *o, struct event_base *base, int max_connections, struct error *error)
{
    const char *host = options_text(o, "endpoint_host");
    usec_t timeout = options_int(o, "timeout") * USEC_PER_MSEC;
    struct dynamo_client *c = mem_zalloc(sizeof *c);
    c->region = mem_strdup(region_of(o));
    c->keys = aws_key_source_new(&(struct aws_key_source_config){.base = base,
                                     .file = options_text(o, "aws_credentials_file"),
                                     .instance = options_bool(o, "aws_instance_keys")},
        error);
    c->http = http_client_new(&(struct http_client_config){.base = base,
        .url = options_text(o, "endpoint"),
        .host = host,
        .max_connections = max_connections,
        .connect_timeout = timeout,
        .timeout = timeout,
        .max_reply = REPLY_MAX});
    c->host = host ? mem_strdup(host) : bytes_dup(http_client_host(c->http));
    if (!c->keys)
        dynamo_client_free(&c);
    return c;
}

void dynamo_client_free(struct dynamo_client **p)
{
    struct dynamo_client *c = *p;
    if (!c)
        return;
    http_client_free(&c->http);
    aws_key_source_free(&c->keys);
    free(c->region);
    free(c->host);
    free(c);
    *p = NULL;
}

/* Sets the headers. Returns -1 with the error if there are no keys. */
static int sign(struct dynamo_client *c, const char *operation, struct bytes body, struct buf *headers,
    struct error *error)
{
    struct aws_keys keys;
    char target[100];
    usec_t now = clock_wall();
    if (aws_key_source_get(c->keys, now, &keys, error) != 0)
        return -1;
    snprintf(target, sizeof target, VERSION "%s", operation);
    aws_sign(&keys,
        &(struct aws_request){.region = c->region,
            .service = "dynamodb",
            .method = "POST",
            .host = c->host,
            .content_type = CONTENT_TYPE,
            .operation = target,
            .body = body},
        now, headers);
    buf_append_char(headers, '\0');
    return 0;
}

struct http_call *dynamo_client_call(struct dynamo_client *c, const char *operation, struct bytes body,
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg),
    void *arg, struct error *error)
{
    struct buf headers = {0};
    struct http_call *call = NULL;
    if (sign(c, operation, body, &headers, error) == 0)
        call = http_client_request(c->http, &(struct http_call_spec){.method = "POST",
                                                .target = "/",
                                                .content_type = CONTENT_TYPE,
                                                .headers = headers.ptr,
                                                .body = body,
                                                .arg = arg,
                                                .on_done = on_done});
    buf_free(&headers);
    return call;
}

enum dynamo_result dynamo_client_fetch(struct dynamo_client *c, const char *operation, struct bytes body,
    struct buf *out, char why[DYNAMO_WHY_MAX])
{
    struct buf headers = {0};
    struct error error;
    int status = 0;
    aws_key_source_wait(c->keys);
    if (sign(c, operation, body, &headers, &error) != 0) {
        snprintf(why, DYNAMO_WHY_MAX, "%.*s", DYNAMO_WHY_MAX - 1, error.text);
        return DYNAMO_DENIED;
    }
    enum http_client_result result = http_client_fetch(c->http,
        &(struct http_call_spec){.method = "POST",
            .target = "/",
            .content_type = CONTENT_TYPE,
            .headers = headers.ptr,
            .body = body},
        &status, out);
    buf_free(&headers);
    return dynamo_result_of(result, status, buf_bytes(out), why);
}

static const struct {
    const char *type;
    enum dynamo_result result;
} error_types[] = {
    {"ProvisionedThroughputExceededException", DYNAMO_THROTTLED},
    {"ThrottlingException", DYNAMO_THROTTLED},
    {"RequestLimitExceeded", DYNAMO_THROTTLED},
    {"InternalServerError", DYNAMO_FAULT},
    {"ServiceUnavailable", DYNAMO_FAULT},
    {"TransactionConflictException", DYNAMO_FAULT},
    {"ReplicatedWriteConflictException", DYNAMO_FAULT},
    {"ConditionalCheckFailedException", DYNAMO_NOT_NEWER},
    {"ValidationException", DYNAMO_REFUSED},
    {"SerializationException", DYNAMO_REFUSED},
    {"ItemCollectionSizeLimitExceededException", DYNAMO_REFUSED},
};

static enum dynamo_result result_of_type(int status, struct bytes type)
{
    for (size_t i = 0; i < sizeof error_types / sizeof *error_types; i++)
        if (bytes_equal_str(type, error_types[i].type))
            return error_types[i].result;
    return status >= 500   ? DYNAMO_FAULT
           : status == 429 ? DYNAMO_THROTTLED
           : status == 408 ? DYNAMO_FAULT
           : status == 413 ? DYNAMO_REFUSED
                           : DYNAMO_DENIED;
}

enum dynamo_result dynamo_result_of(
    enum http_client_result result, int status, struct bytes body, char why[DYNAMO_WHY_MAX])
{
    why[0] = '\0';
    if (result != HTTP_CLIENT_OK) {
        snprintf(why, DYNAMO_WHY_MAX, "%s", http_client_strerror(result));
        return DYNAMO_FAULT;
    }
    struct json_doc *d = json_doc_parse(body);
    bool is_object = json_doc_at(d, "").type == JSON_OBJECT;
    if (status == 200 && is_object) {
        json_doc_free(&d);
        return DYNAMO_OK;
    }
    struct bytes type = json_doc_text(d, "/__type"), text = json_doc_text(d, "/message");
    const char *hash = type.len > 0 ? memrchr(type.ptr, '#', type.len) : NULL;
    if (hash)
        type = bytes_of(hash + 1, type.len - (size_t)(hash + 1 - type.ptr));
    if (text.len == 0)
        text = json_doc_text(d, "/Message");
    struct buf printable = {0};
    buf_append_printable(&printable, text);
    enum dynamo_result found = status == 200 ? DYNAMO_DENIED : result_of_type(status, type);
    if (type.len > 0 && bytes_are_of_name(type))
        snprintf(why, DYNAMO_WHY_MAX, "%.*s: %.*s", (int)(type.len < 80 ? type.len : 80), type.ptr,
            (int)(printable.len < 200 ? printable.len : 200), printable.len ? printable.ptr : "");
    else
        snprintf(why, DYNAMO_WHY_MAX, "answered %d, but not in the form of DynamoDB", status);
    buf_free(&printable);
    json_doc_free(&d);
    return found;
}
