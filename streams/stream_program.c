#include "stream_program.h"

#include "http_client.h"

#include <stdlib.h>

static bool is_beginning(const char *text)
{
    uint64_t n;
    return strcmp(text, "earliest") == 0 || strcmp(text, "latest") == 0 ||
           (text[0] == '@' && bytes_to_u64(bytes_str(text + 1), &n));
}

int stream_program_check(struct options *o, struct config_error *error)
{
    if (options_check_name(o, "stream", error) != 0 || peer_check(o, "pubsub", error) != 0)
        return -1;
    if (is_beginning(options_string(o, "from")))
        return 0;
    return options_refuse(o, "from", error, "it is neither earliest nor latest nor @UNIXTIME");
}

bool stream_program_begins_at_end(struct daemon *d)
{
    return strcmp(options_string(daemon_options(d), "from"), "latest") == 0;
}

struct http_client *stream_program_connect(struct daemon *d, struct config_error *error)
{
    struct options *o = daemon_options(d);
    char *token;
    if (daemon_read_token(options_text(o, "pubsub_token_file"), &token, error) != 0)
        return NULL;
    struct http_client *client = http_client_new(&(struct http_client_config){
        .base = daemon_base(d), .url = peer_url(o, "pubsub"), .max_connections = 1, .auth_token = token});
    free(token);
    return client;
}
