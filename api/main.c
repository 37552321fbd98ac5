/* api: exact counts, asked for by HTTP. */
#include "daemon.h"
#include "http.h"
#include "peers.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_ROWS "100000"

static const struct option_row options[] = {
    {.name = "aggregator_url",
        .type = OPTION_STRING,
        .help = "where the aggregator is; by default as its section says"},
    {.name = "sortdb_url",
        .type = OPTION_STRING,
        .help =
            "where sortdb is; by default as its section says, and without one the aggregator has everything"},
    {.name = "queue_url",
        .type = OPTION_STRING,
        .help = "where simplequeue is; by default as its section says"},
    {.name = "upstream_timeout",
        .type = OPTION_DURATION,
        .fallback = "20s",
        .min = 10,
        .max = 600000,
        .unit = "s",
        .help = "how long an answer may wait for the aggregator or the queue"},
    {.name = "max_rows",
        .type = OPTION_INT,
        .fallback = MAX_ROWS,
        .min = 1,
        .max = 10000000,
        .help = "rows that one series may have"},
    {.name = NULL},
};

static int read_counters(struct options *o, struct counters **out, struct config_error *error)
{
    if (options_config(o))
        return counters_read(options_config(o), out, error);
    return config_fail(error, NULL, 0, "what is counted is in the configuration: give --config FILE");
}

static int api_check(struct options *o, struct config_error *error)
{
    struct counters *c = NULL;
    int r = read_counters(o, &c, error);
    counters_free(&c);
    return r;
}

static void api_stop(void *ctx)
{
    struct api *api = ctx;
    sources_free(&api->sources);
    http_client_free(&api->queue);
    counters_free(&api->counters);
    free(api);
}

static int connect_peers(struct daemon *d, struct api *api, struct config_error *error)
{
    struct options *o = daemon_options(d);
    usec_t timeout = options_int(o, "upstream_timeout") * USEC_PER_MSEC;
    const char *queue = peer_url(o, "simplequeue");
    struct sources_config sources = {.base = daemon_base(d), .timeout = timeout};
    if (options_text(o, "sortdb_url") || config_section(options_config(o), "sortdb", ""))
        sources.urls[sources.n++] = peer_url(o, "sortdb");
    sources.urls[sources.n++] = peer_url(o, "aggregator");
    const struct http_client_config client = {
        .base = daemon_base(d), .url = queue, .max_connections = 32, .timeout = timeout};
    api->sources = sources_new(&sources);
    api->queue = http_client_new(&client);
    if (api->sources && api->queue)
        return 0;
    snprintf(error->text, sizeof error->text, "%s is no address: http://HOST:PORT or unix:PATH",
        api->sources ? queue : sources.urls[0]);
    return 78;
}

static int api_start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct api *api = mem_zalloc(sizeof *api);
    api->max_rows = (uint64_t)options_int(daemon_options(d), "max_rows");
    int status = read_counters(daemon_options(d), &api->counters, error) ? 78 : connect_peers(d, api, error);
    if (status) {
        api_stop(api);
        return status;
    }
    *ctx = api;
    daemon_set_ready(d);
    return 0;
}

static const struct daemon_spec spec = {
    .name = "api",
    .summary = "answers how often: series and breakdowns of what is counted",
    .options = options,
    .default_port = PORT_API,
    .routes = api_routes,
    .check = api_check,
    .start = api_start,
    .stop = api_stop,
};

int main(int argc, char **argv)
{
    return daemon_main(&spec, argc, argv);
}
