/* api: wires counters, sources and queue to HTTP. */
#include "daemon/daemon.h"
#include "daemon/service.h"
#include "api/http.h"
#include "base/io.h"
#include "config/peers.h"
#include "http/server/http_origin.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define MAX_ROWS "100000"
#define POLL_TIMEOUT (2 * USEC_PER_SEC)
#define MAX_BUFFERED (INT64_C(512) << 20)
#define KEPT_MEMORY (4 << 20)

static const struct option_row options[] = {
    PEER_OPTIONS("aggregator", "aggregator", ""),
    SETTING_STRING("sortdb_url",
        "addresses of the sortdbs that serve the archive or copies of it, separated by commas (default: from "
        "[sortdb] in the configuration; without [sortdb], the api asks only the aggregator)"),
    SETTING_STRING("sortdb_token_file", "file with sortdb's token", OPTION_INHERITS_TOKEN("sortdb")),
    SETTING_STRING("archive", "directory of an archive that the api reads itself; unset: the api asks sortdb",
        .min = 1, .max = 4096),
    PEER_OPTIONS("queue", "simplequeue", ""),
    PEER_OPTIONS("pubsub", "pubsub", ", for the web page"),
    PEER_OPTIONS("queue_to_pubsub", "queue_to_pubsub", ", for the web page"),
    PEER_OPTIONS("queue_to_nats", "queue_to_nats", ", for the web page"),
    PEER_OPTIONS("spamfilter", "spamfilter", ", for the web page"),
    PEER_OPTIONS("lists", "lists", ", for the web page"),
    PEER_OPTIONS("metricdb", "metricdb", ", for /api/v1 and the web page"),
    PEER_OPTIONS("scraper", "scraper", ", for the web page"),
    PEER_OPTIONS("ruler", "ruler", ", for /api/v1/rules, /api/v1/alerts and the web page"),
    PEER_OPTIONS("nats_to_pubsub", "nats_to_pubsub", ", for the web page"),
    SETTING_STRING("run_file", "file in which `millrace up` describes its processes, for the web page "
                               "(default: none; `millrace up` sets it)"),
    SETTING_STRING(
        "page_dir", "directory with the web page's files (default: share/millrace/page of the installation)"),
    SETTING_STRING("embed_origins", "origins whose pages may show the web page in a frame with embed=1, such "
                                    "as https://shop.example, separated by commas; *: any (default: none)"),
    SETTING_STRING("queues", "addresses of further simplequeues that the web page shows and changes, "
                             "separated by commas (default: none); they have the token of queue_token_file"),
    SETTING_DURATION("upstream_timeout", "20s", 10, 600000, "s",
        "timeout of a request to sortdb, the aggregator or the queue"),
    SETTING_INT("max_rows", MAX_ROWS, 1, 10000000, "maximum rows of a series; a longer series is refused"),
    SETTING_SIZE("max_search", "1G", 1, INT64_MAX,
        "maximum size of the records and texts that one /v1/lookup?contains= reads in the archive"),
    SETTING_DURATION("max_age", "60s", 0, INT64_C(86400000), "s",
        "time for which caches may repeat an answer about a completely counted period; 0: caches ask again "
        "each time"),
    SETTING_BOOL(
        "sql", "answer /v1/sql, for the token of auth_token_file and for tokens with the scope admin"),
    SETTING_INT(
        "sql_max_rows", "100000", 1, 10000000, "maximum rows of a statement's result", .needs = "sql"),
    SETTING_DURATION("sql_max_time", "10s", 10, 3600000, "s", "maximum time of a statement", .needs = "sql"),
    SETTING_SIZE(
        "sql_max_memory", "256M", 1 << 20, INT64_C(1) << 40, "maximum memory of a statement", .needs = "sql"),
    DAEMON_PUBLIC_PORT_SETTINGS,
    SERVICE_SETTINGS,
    {.name = NULL},
};

static int read_counters(struct options *o, struct counters **out, struct error *error)
{
    if (options_config(o))
        return counters_read(options_config(o), out, error);
    return error_set(error, -1, "--config=FILE is missing; it defines the counters");
}

/* Returns the setting of the aggregator. */
static const char *streams_of(const struct config *c)
{
    const char *own = config_setting(c, "aggregator", "streams");
    return own ? own : config_setting(c, "millrace", "streams");
}

static bool has_sortdb(struct options *o)
{
    return options_text(o, "sortdb_url") || config_section(options_config(o), "sortdb", "");
}

/* Returns true if the text is a valid path prefix or NULL. */
static bool is_path(const char *text)
{
    static const char allowed[] = "/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return !text || (*text == '/' && strspn(text, allowed) == strlen(text) && !strstr(text, "//"));
}

/* Returns the directory of the pipeline's run file, or NULL. */
static const char *data_dir_of(struct options *o, char dir[PATH_MAX])
{
    const char *run_file = options_text(o, "run_file");
    if (run_file)
        io_parent_of(run_file, dir);
    return run_file ? dir : NULL;
}

/* A breakdown of five million sub keys must fit into half of max_buffered. */
static int api_check(struct options *o, struct error *error)
{
    struct counters *c = NULL;
    struct door_settings *door = NULL;
    struct cell_section sections[CELLS_MAX];
    struct error wrong;
    size_t n_cells;
    char dir[PATH_MAX];
    int r = read_counters(o, &c, error);
    counters_free(&c);
    if (r == 0)
        r = cell_sections_read(o, sections, &n_cells, error);
    if (r == 0)
        r = door_settings_read(options_config(o), data_dir_of(o, dir), &door, error);
    if (r == 0 && door && options_check_only(o))
        r = enrich_check(door, error);
    door_settings_free(&door);
    if (r == 0 && options_int(o, "max_buffered") < MAX_BUFFERED)
        r = options_set_default(o, "max_buffered", MAX_BUFFERED, error);
    if (r == 0 && !is_path(options_text(o, "public_path")))
        r = options_refuse(o, "public_path", error, "it must be a path such as /p");
    const char *origins = options_text(o, "embed_origins");
    if (r == 0 && origins && (!http_origin_list_valid(origins) || strpbrk(origins, ";'")))
        r = options_refuse(o, "embed_origins", error,
            "must be a list of origins such as https://shop.example, without a path, separated by commas");
    if (r == 0 && options_text(o, "queues") && replicas_read(options_text(o, "queues"), NULL, &wrong) != 0)
        r = options_refuse(o, "queues", error, "%s", wrong.text);
    if (r == 0 && options_bool(o, "sql") && !options_text(o, "auth_token_file") &&
        !options_text(o, "tokens_file"))
        r = options_refuse(o, "sql", error, "it needs auth_token_file or tokens_file");
    if (r == 0 && has_sortdb(o) && replicas_read(peer_url(o, "sortdb"), NULL, &wrong) != 0)
        r = options_refuse(o, "sortdb_url", error, "%s", wrong.text);
    for (size_t i = 0; i < PEERS && r == 0; i++)
        if (strcmp(peers[i].name, "api") != 0 && strcmp(peers[i].name, "sortdb") != 0)
            r = peer_check(o, peers[i].name, error);
    return r;
}

static void api_stop(void *ctx)
{
    struct api *api = ctx;
    readiness_free(&api->readiness);
    for (size_t i = 0; i < api->cells.n; i++) {
        sources_free(&api->cells.list[i].sources);
        local_archive_free(&api->cells.list[i].archive);
    }
    asks_free(&api->asks);
    uniques_free(&api->uniques);
    http_client_free(&api->queue);
    http_client_free(&api->pubsub);
    http_client_free(&api->metricdb);
    http_client_free(&api->ruler);
    http_client_free(&api->scraper);
    live_free(&api->live);
    changes_free(&api->changes);
    pipeline_free(&api->pipeline);
    for (size_t i = 0; i < api->cells.n; i++)
        replicas_free(&api->sortdbs[i]);
    page_free(&api->page);
    sql_children_free(&api->sql);
    event_body_free(&api->event_body);
    door_close(&api->door);
    counters_free(&api->counters);
    free(api);
}

static void show_door(void *arg)
{
    const struct api *api = arg;
    const char *problem = door_problem(api->door);
    daemon_set_notice(api->daemon, "door", NOTICE_WARNING, problem ? door_remedy(api->door) : "", problem);
}

static void on_archive(void *arg)
{
    readiness_judge(((struct api *)arg)->readiness);
}

/* Opens the door if the configuration has one. */
static int open_door(struct daemon *d, struct api *api, struct error *error)
{
    char dir[PATH_MAX];
    struct door_config config = {.config = options_config(daemon_options(d)),
        .data_dir = data_dir_of(daemon_options(d), dir),
        .counters = api->counters,
        .base = daemon_base(d),
        .stats = daemon_stats(d),
        .on_change = show_door,
        .arg = api};
    int r = door_open(&config, &api->door, error);
    event_body_use_door(api->event_body, door_enrich(api->door));
    return r == 0 ? 0 : EX_CONFIG;
}

static int add_source(struct api *api, const struct cell_section *cell, struct sources_config *sources,
    const char *kind, const char *url, const char *token_file, struct error *error)
{
    char *token = NULL, *name = mem_printf("%s%s%s", cell->name, *cell->name ? "/" : "", kind);
    int status = daemon_read_token(token_file, &token, error);
    struct options *o = daemon_options(api->daemon);
    sources->names[sources->n] = options_keep(o, bytes_str(name));
    sources->urls[sources->n] = url;
    sources->tokens[sources->n++] = token ? options_keep(o, bytes_str(token)) : NULL;
    free(token);
    free(name);
    return status;
}

static int add_cell(
    struct api *api, const struct cell_section *section, struct sources_config *sources, struct error *error)
{
    struct daemon *d = api->daemon;
    struct cell *cell = &api->cells.list[api->cells.n++];
    int status = 0;
    cell->name = section->name;
    if (section->archive) {
        cell->archive = local_archive_new(
            section->archive, section->name, daemon_base(d), daemon_stats(d), on_archive, api);
        sources->local = cell->archive;
        status = add_source(api, section, sources, "archive", NULL, NULL, error);
    } else if (section->sortdb_url) {
        status = add_source(
            api, section, sources, "sortdb", section->sortdb_url, section->sortdb_token_file, error);
    }
    if (status == 0)
        status = add_source(api, section, sources, "aggregator", section->aggregator_url,
            section->aggregator_token_file, error);
    if (status == 0)
        cell->sources = sources_new(sources);
    return status;
}

/* Reads the sections of the cells, or makes the only cell of the daemon's settings. */
static int add_cells(struct api *api, struct sources_config *sources, struct error *error)
{
    struct options *o = daemon_options(api->daemon);
    const struct sources_config empty = sources[0];
    size_t n;
    int status = cell_sections_read(o, api->sections, &n, error);
    if (status == 0 && n == 0)
        api->sections[n++] = (struct cell_section){.name = "",
            .aggregator_url = peer_url(o, "aggregator"),
            .aggregator_token_file = options_text(o, "aggregator_token_file"),
            .sortdb_url = has_sortdb(o) ? peer_url(o, "sortdb") : NULL,
            .sortdb_token_file = options_text(o, "sortdb_token_file"),
            .archive = options_text(o, "archive")};
    for (size_t i = 0; i < n && status == 0; i++) {
        sources[i] = empty;
        status = add_cell(api, &api->sections[i], &sources[i], error);
    }
    return status;
}

static int connect_cells(struct daemon *d, struct api *api, usec_t timeout, struct error *error)
{
    struct options *o = daemon_options(d);
    struct sources_config sources[CELLS_MAX] = {{.base = daemon_base(d),
        .timeout = timeout,
        .quarters_since = api->counters->has_quarters ? HOUR_FIRST : 0,
        .stats = daemon_stats(d)}};
    int status = add_cells(api, sources, error);
    if (status == 0)
        api->readiness = readiness_new(d, &api->cells, sources);
    if (status == 0)
        api->asks = asks_new(&(struct asks_config){.base = daemon_base(d),
            .cells = &api->cells,
            .stats = daemon_stats(d),
            .max_rows = api->max_rows,
            .max_age = options_int(o, "max_age") / 1000,
            .again = api_ask_again,
            .arg = api});
    if (status == 0)
        api->uniques = uniques_new(&(struct uniques_config){.base = daemon_base(d),
            .cells = &api->cells,
            .max_rows = api->max_rows,
            .again = api_ask_again,
            .arg = api,
            .key_seconds = door_key_seconds(api->door),
            .max_age = options_int(o, "max_age") / 1000});
    if (status == 0 && !api->uniques)
        status = error_set(error, EX_OSERR, "cannot start a thread");
    return status;
}

static int add_member(struct daemon *d, struct pipeline_config *config, const char *name, const char *cell,
    const char *url, const char *token_file, struct error *error)
{
    const struct http_client_config client = {.url = url, .max_connections = 2, .timeout = POLL_TIMEOUT};
    struct pipeline_member *m = &config->members[config->n_members];
    *m = (struct pipeline_member){
        .name = name, .cell = cell, .url = url, .client = daemon_client_new(d, token_file, &client, error)};
    config->n_members += m->client != NULL;
    return m->client ? 0 : EX_CONFIG;
}

/* Returns whether the pipeline runs with the daemon. */
static bool has_peer(const struct options *o, const char *name)
{
    return peer_is_wanted(options_config(o), name) || options_text(o, peer_named(name)->setting);
}

/* Opens the client of a daemon to which metrics_proxy passes requests, unless the pipeline runs without it. */
static int connect_metrics(struct daemon *d, const char *name, const char *token_file,
    struct http_client **client, struct error *error)
{
    struct options *o = daemon_options(d);
    if (!has_peer(o, name))
        return 0;
    *client = daemon_client_new(d, options_text(o, token_file),
        &(struct http_client_config){.url = peer_url(o, name), .max_connections = METRICS_REQUESTS_MAX},
        error);
    return *client ? 0 : EX_CONFIG;
}

/* Adds a daemon of the pipeline, unless the pipeline runs without it. */
static int add_peer(struct daemon *d, struct pipeline_config *config, const char *name,
    const char *token_file, struct error *error)
{
    struct options *o = daemon_options(d);
    if (!has_peer(o, name))
        return 0;
    return add_member(d, config, name, "", peer_url(o, name), options_text(o, token_file), error);
}

/* Adds the queues of other hosts, which have the token of this pipeline's queue. */
static int add_queues(struct daemon *d, struct pipeline_config *config, struct error *error)
{
    struct options *o = daemon_options(d);
    const char *rest = options_text(o, "queues"), *token_file = options_text(o, "queue_token_file");
    struct bytes url;
    int status = 0;
    while (status == 0 && bytes_next_word(&rest, " ,\t", &url))
        status = add_member(d, config, "simplequeue", "", options_keep(o, url), token_file, error);
    return status;
}

/* Opens the objects that only the web page needs. */
static int open_page(struct daemon *d, struct api *api, struct error *error)
{
    static const char *const token_files[][2] = {{"simplequeue", "queue_token_file"},
        {"queue_to_pubsub", "queue_to_pubsub_token_file"}, {"queue_to_nats", "queue_to_nats_token_file"},
        {"nats_to_pubsub", "nats_to_pubsub_token_file"}, {"pubsub", "pubsub_token_file"}},
                             *const last[][2] = {{"spamfilter", "spamfilter_token_file"},
                                 {"lists", "lists_token_file"}, {"metricdb", "metricdb_token_file"},
                                 {"scraper", "scraper_token_file"}, {"ruler", "ruler_token_file"}};
    struct options *o = daemon_options(d);
    struct pipeline_config members = {.base = daemon_base(d),
        .counters_hash = counters_hash(api->counters),
        .run_file = options_text(o, "run_file"),
        .streams = api->streams ? api->streams : "clicks",
        .daemon = d,
        .readiness = api->readiness};
    api->page = page_open(options_text(o, "page_dir"), options_text(o, "embed_origins"), error);
    if (!api->page)
        return EX_CONFIG;
    api->pubsub = daemon_client_new(d, options_text(o, "pubsub_token_file"),
        &(struct http_client_config){.url = peer_url(o, "pubsub"), .max_connections = LIVE_CLIENTS_MAX},
        error);
    if (!api->pubsub)
        return EX_CONFIG;
    api->live = live_new(daemon_base(d), api->pubsub);
    int status = 0;
    for (size_t i = 0; i < sizeof token_files / sizeof *token_files && status == 0; i++)
        status = add_peer(d, &members, token_files[i][0], token_files[i][1], error);
    for (size_t i = 0; i < api->cells.n && status == 0; i++) {
        const struct cell_section *c = &api->sections[i];
        const char *const urls[][2] = {{"nats_to_pubsub", c->nats_to_pubsub_url}, {"pubsub", c->pubsub_url},
            {"aggregator", c->aggregator_url}};
        for (size_t k = 0; k < sizeof urls / sizeof *urls && status == 0; k++)
            if (urls[k][1])
                status =
                    add_member(d, &members, urls[k][0], c->name, urls[k][1], c->aggregator_token_file, error);
        struct replicas *r = &api->sortdbs[i];
        if (status == 0 && c->sortdb_url && replicas_read(c->sortdb_url, r, error) != 0)
            status = EX_CONFIG;
        for (size_t k = 0; status == 0 && k < r->n; k++)
            status = add_member(d, &members, "sortdb", c->name, r->list[k].url, c->sortdb_token_file, error);
    }
    if (status == 0)
        status = add_queues(d, &members, error);
    for (size_t i = 0; i < sizeof last / sizeof *last && status == 0; i++)
        status = add_peer(d, &members, last[i][0], last[i][1], error);
    api->pipeline = pipeline_new(&members);
    api->changes = changes_new(api->pipeline);
    return status;
}

/* Keeps freed memory in the process. Returning the memory of each answer to the kernel would cost time. */
static void keep_freed_memory(void)
{
    mallopt(M_TRIM_THRESHOLD, KEPT_MEMORY);
    mallopt(M_MMAP_THRESHOLD, KEPT_MEMORY);
}

static int api_start(struct daemon *d, void **ctx, struct error *error)
{
    keep_freed_memory();
    struct api *api = mem_zalloc(sizeof *api);
    struct options *o = daemon_options(d);
    usec_t timeout = options_int(o, "upstream_timeout") * USEC_PER_MSEC;
    api->daemon = d;
    api->max_rows = (uint64_t)options_int(o, "max_rows");
    api->max_search = (uint64_t)options_int(o, "max_search");
    api->public_path = options_text(o, "public_path");
    api->streams = streams_of(options_config(o));
    int status = read_counters(o, &api->counters, error) ? EX_CONFIG : 0;
    if (status == 0)
        api->event_body = event_body_new(api->counters);
    api->refused_events = stats_counter(
        daemon_stats(d), "events_refused_total", NULL, "events of /v1/events that are not JSON objects");
    if (status == 0)
        status = open_door(d, api, error);
    if (status == 0)
        status = connect_cells(d, api, timeout, error);
    if (status == 0) {
        api->queue = daemon_client_new(d, options_text(o, "queue_token_file"),
            &(struct http_client_config){
                .url = peer_url(o, "simplequeue"), .max_connections = 32, .timeout = timeout},
            error);
        status = api->queue ? 0 : EX_CONFIG;
    }
    if (status == 0)
        status = connect_metrics(d, "metricdb", "metricdb_token_file", &api->metricdb, error);
    if (status == 0)
        status = connect_metrics(d, "ruler", "ruler_token_file", &api->ruler, error);
    if (status == 0)
        status = connect_metrics(d, "scraper", "scraper_token_file", &api->scraper, error);
    if (status == 0)
        status = open_page(d, api, error);
    char dir[PATH_MAX];
    if (status == 0 && options_bool(o, "sql"))
        api->sql = sql_children_new(&(struct sql_children_config){.base = daemon_base(d),
            .config = options_config(o)->path,
            .data_dir = data_dir_of(o, dir),
            .max_rows = options_int(o, "sql_max_rows"),
            .max_time = options_int(o, "sql_max_time"),
            .max_memory = options_int(o, "sql_max_memory")});
    if (status) {
        api_stop(api);
        return status;
    }
    *ctx = api;
    daemon_set_ready(d);
    return 0;
}

static bool api_check_health(struct http_request *req, void *ctx)
{
    return readiness_answers(((struct api *)ctx)->readiness, req);
}

/* Opens the archive again, because the operator may have restored a file. */
static void api_hangup(void *ctx)
{
    struct api *api = ctx;
    for (size_t i = 0; i < api->cells.n; i++)
        if (api->cells.list[i].archive)
            local_archive_look(api->cells.list[i].archive);
}

static void api_drain(void *ctx)
{
    struct api *api = ctx;
    live_drain(api->live);
    changes_drain(api->changes);
    sql_children_drain(api->sql);
    daemon_drained(api->daemon);
}

static const struct daemon_spec spec = {
    .name = "api",
    .summary = "answers queries: series and breakdowns of the counts",
    .options = options,
    .default_port = PORT_API,
    .more =
        "A section [cell NAME] of the configuration names a pipeline. Answers are the sums of all cells.\n"
        "Settings: aggregator_url, sortdb_url or archive, token_file (`millrace help scaling`).\n",
    .sections = "door cell",
    .has_public_port = true,
    .is_service = true,
    .routes = api_routes,
    .check = api_check,
    .start = api_start,
    .hangup = api_hangup,
    .check_health = api_check_health,
    .drain = api_drain,
    .stop = api_stop,
};

int main(int argc, char **argv)
{
    return daemon_main(&spec, argc, argv);
}
