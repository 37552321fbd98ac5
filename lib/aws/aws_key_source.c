#include "aws/aws_key_source.h"

#include "base/rfc3339.h"
#include "http/client/http_client.h"
#include "json/json_fields.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#define METADATA "http://169.254.169.254"
#define ROLES "/latest/meta-data/iam/security-credentials/"
#define FRESH_FOR (5 * 60 * USEC_PER_SEC) /* keys that expire earlier are fetched again */
#define RETRY (5 * USEC_PER_SEC)          /* least time between two attempts to fetch keys */
#define REPLY_MAX 16384

enum stage { STAGE_IDLE, STAGE_TOKEN, STAGE_ROLE, STAGE_KEYS };

struct aws_key_source {
    struct event_base *base;
    char *file;
    struct http_client *metadata; /* NULL: keys are not from the instance */
    enum stage stage;
    char token[AWS_TOKEN_MAX];
    char role[AWS_KEY_MAX];
    struct aws_keys keys; /* keys.id "": none yet */
    usec_t expires;       /* wall clock */
    usec_t tried_at;      /* monotonic clock; 0: never */
    char why[200];        /* reason of the last failure; "": none */
};

static const char *metadata_url(void)
{
    const char *url = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    return url && *url ? url : METADATA;
}

struct aws_key_source *aws_key_source_new(const struct aws_key_source_config *config, struct error *error)
{
    struct aws_key_source *s = mem_zalloc(sizeof *s);
    s->base = config->base;
    s->file = config->file ? mem_strdup(config->file) : NULL;
    if (config->file || !config->instance)
        return s;
    char *url = mem_strdup(metadata_url());
    size_t n = strlen(url);
    if (url[n - 1] == '/')
        url[n - 1] = '\0';
    s->metadata = http_client_new(&(struct http_client_config){.base = s->base,
        .url = url,
        .max_connections = 1,
        .connect_timeout = USEC_PER_SEC,
        .timeout = 5 * USEC_PER_SEC,
        .max_reply = REPLY_MAX});
    free(url);
    if (s->metadata)
        return s;
    error_set(error, -1, "AWS_EC2_METADATA_SERVICE_ENDPOINT is not an address: %s", metadata_url());
    aws_key_source_free(&s);
    return NULL;
}

void aws_key_source_free(struct aws_key_source **p)
{
    struct aws_key_source *s = *p;
    if (!s)
        return;
    http_client_free(&s->metadata);
    free(s->file);
    explicit_bzero(s, sizeof *s);
    free(s);
    *p = NULL;
}

/* Reads the document with the keys. Returns false if it has no keys or no time. */
static bool read_keys(struct aws_key_source *s, struct bytes body)
{
    struct aws_keys keys = {0};
    struct json_doc *d = json_doc_parse(body);
    int64_t seconds;
    bool is_good = aws_key_copy(json_doc_text(d, "/AccessKeyId"), keys.id, sizeof keys.id) &&
                   aws_key_copy(json_doc_text(d, "/SecretAccessKey"), keys.secret, sizeof keys.secret) &&
                   aws_key_copy(json_doc_text(d, "/Token"), keys.session, sizeof keys.session) &&
                   rfc3339_read(json_doc_text(d, "/Expiration"), &seconds);
    json_doc_free(&d);
    if (!is_good)
        return false;
    s->keys = keys;
    s->expires = seconds * USEC_PER_SEC;
    return true;
}

static void ask(struct aws_key_source *s);

static void answered(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct aws_key_source *s = arg;
    bool is_good = result == HTTP_CLIENT_OK && reply->status == 200;
    enum stage stage = s->stage;
    s->stage = STAGE_IDLE;
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    struct bytes body = bytes_trim(is_good ? reply->body : BYTES_NONE);
    if (is_good)
        is_good = stage == STAGE_TOKEN  ? aws_key_copy(body, s->token, sizeof s->token)
                  : stage == STAGE_ROLE ? aws_key_copy(body, s->role, sizeof s->role)
                                        : read_keys(s, body);
    if (!is_good)
        snprintf(s->why, sizeof s->why, "no keys from the metadata service of the instance at %s: %s %d",
            metadata_url(), result == HTTP_CLIENT_OK ? "answered" : http_client_strerror(result),
            result == HTTP_CLIENT_OK ? reply->status : 0);
    else if (stage == STAGE_KEYS)
        s->why[0] = '\0';
    else {
        s->stage = stage + 1;
        ask(s);
    }
}

static void ask(struct aws_key_source *s)
{
    char target[sizeof ROLES + AWS_KEY_MAX], headers[AWS_TOKEN_MAX + 64];
    bool is_token = s->stage == STAGE_TOKEN;
    snprintf(target, sizeof target, "%s%s", is_token ? "/latest/api/token" : ROLES,
        s->stage == STAGE_KEYS ? s->role : "");
    snprintf(headers, sizeof headers, "%s: %s\r\n",
        is_token ? "X-aws-ec2-metadata-token-ttl-seconds" : "X-aws-ec2-metadata-token",
        is_token ? "300" : s->token);
    http_client_request(s->metadata, &(struct http_call_spec){.method = is_token ? "PUT" : "GET",
                                         .target = target,
                                         .headers = headers,
                                         .arg = s,
                                         .on_done = answered});
}

static int get_from_instance(struct aws_key_source *s, usec_t now, struct aws_keys *out, struct error *error)
{
    usec_t clock = clock_monotonic();
    bool is_due = s->keys.id[0] == '\0' || s->expires - now < FRESH_FOR;
    if (is_due && s->stage == STAGE_IDLE && (s->tried_at == 0 || clock - s->tried_at >= RETRY)) {
        s->tried_at = clock;
        s->stage = STAGE_TOKEN;
        ask(s);
    }
    if (s->keys.id[0] == '\0' || s->expires <= now)
        return error_set(error, -1, "%s",
            s->why[0] ? s->why : "waiting for keys from the metadata service of the instance");
    *out = s->keys;
    return 0;
}

static int get_from_environment(struct aws_keys *out, struct error *error)
{
    const char *session = getenv("AWS_SESSION_TOKEN");
    *out = (struct aws_keys){0};
    if (!aws_key_copy(bytes_str(getenv("AWS_ACCESS_KEY_ID")), out->id, sizeof out->id) ||
        !aws_key_copy(bytes_str(getenv("AWS_SECRET_ACCESS_KEY")), out->secret, sizeof out->secret))
        return error_set(error, -1,
            "no keys: set aws_credentials_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
            "environment");
    if (session && *session && !aws_key_copy(bytes_str(session), out->session, sizeof out->session))
        return error_set(error, -1, "AWS_SESSION_TOKEN is not a token");
    return 0;
}

int aws_key_source_get(struct aws_key_source *s, usec_t now, struct aws_keys *out, struct error *error)
{
    if (s->file)
        return aws_keys_read(s->file, out, error);
    return s->metadata ? get_from_instance(s, now, out, error) : get_from_environment(out, error);
}

void aws_key_source_wait(struct aws_key_source *s)
{
    struct aws_keys keys;
    struct error error;
    if (s->metadata)
        (void)aws_key_source_get(s, clock_wall(), &keys, &error);
    while (s->stage != STAGE_IDLE)
        event_base_loop(s->base, EVLOOP_ONCE);
}
