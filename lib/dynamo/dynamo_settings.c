#include "dynamo/dynamo_settings.h"

#include "base/log.h"
#include "base/url.h"

#include <stdlib.h>

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

int dynamo_settings_check_client(const struct options *o, struct error *error)
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

static struct dynamo_form *form_of(const struct options *o, struct error *error)
{
    return dynamo_form_new(&(struct dynamo_form_config){.key = options_text(o, "key"),
                               .sort = options_text(o, "sort"),
                               .newer = options_text(o, "newer"),
                               .fields = options_text(o, "fields")},
        error);
}

int dynamo_settings_check(const struct options *o, struct error *error)
{
    const char *table = options_text(o, "table");
    struct error why;
    if (dynamo_settings_check_client(o, error) != 0)
        return -1;
    if (!table || strlen(table) < 3 || strlen(table) > 255 || !bytes_are_of_name(bytes_str(table)))
        return options_refuse(o, "table", error, "required: 3 to 255 characters of A-Z a-z 0-9 _ . -");
    if (!options_text(o, "key"))
        return options_refuse(o, "key", error, "required: the field with the partition key");
    struct dynamo_form *form = form_of(o, &why);
    if (!form)
        return error_set(error, -1, "%s", why.text);
    dynamo_form_free(&form);
    return 0;
}

struct dynamo_client *dynamo_settings_client(
    const struct options *o, struct event_base *base, int max_connections, struct error *error)
{
    return dynamo_client_new(&(struct dynamo_client_config){.base = base,
                                 .endpoint = options_text(o, "endpoint"),
                                 .host = options_text(o, "endpoint_host"),
                                 .region = region_of(o),
                                 .credentials_file = options_text(o, "aws_credentials_file"),
                                 .instance_keys = options_bool(o, "aws_instance_keys"),
                                 .max_connections = max_connections,
                                 .timeout = options_int(o, "timeout") * USEC_PER_MSEC},
        error);
}

int dynamo_sink_open(struct dynamo_sink *s, const struct options *o, struct event_base *base,
    struct stats *stats, struct error *error)
{
    s->client = dynamo_settings_client(o, base, (int)options_int(o, "parallel"), error);
    s->form = s->client ? form_of(o, error) : NULL;
    if (!s->form)
        return -1;
    s->table = dynamo_table_new(&(struct dynamo_table_config){.base = base,
        .client = s->client,
        .form = s->form,
        .name = options_text(o, "table"),
        .newer = options_text(o, "newer") != NULL,
        .backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC,
        .backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC,
        .stats = stats});
    return 0;
}

void dynamo_sink_close(struct dynamo_sink *s)
{
    dynamo_table_free(&s->table);
    dynamo_form_free(&s->form);
    dynamo_client_free(&s->client);
}
