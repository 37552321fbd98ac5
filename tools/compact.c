/* millrace compact: runs the compactor over a pipeline, with the addresses of run.json or the configuration and the directories of
 * `millrace up`. Settings in [compactor] go before these. */
#include "base/bytes.h"
#include "config/config.h"
#include "config/options.h"
#include "tools/pipeline.h"
#include "tools/tool.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define ARGS_MAX 16

static const struct option_row rows[] = {
    {.name = "data_dir",
        .type = OPTION_STRING,
        .help = "directory of the pipeline (default: [millrace] data_dir)"},
    {.name = "shards",
        .type = OPTION_INT,
        .min = 1,
        .max = 4096,
        .help = "number of files in the archive (default: as in the current generation)"},
    {.name = "keep",
        .type = OPTION_INT,
        .min = 1,
        .max = 1000000,
        .unit = "generations",
        .help = "generations to keep, including the current one"},
    {.name = NULL},
};

struct command {
    const struct options *o;
    const struct config *config; /* or NULL */
    const char *data_dir;
    char *argv[ARGS_MAX + 1];
    size_t n;
};

static void add_arg(struct command *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_arg(struct command *c, const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    c->argv[c->n++] = bytes_dup(buf_bytes(&text));
    buf_free(&text);
}

/* The directories of the daemons that own them, as configured or as `millrace up` names them. */
static void add_directories(struct command *c)
{
    const char *archive = config_setting(c->config, "sortdb", "archive");
    const char *aggregator = config_setting(c->config, "aggregator", "data_dir");
    if (archive)
        add_arg(c, "--archive=%s", archive);
    else if (!config_setting(c->config, "compactor", "archive"))
        add_arg(c, "--archive=%s/archive", c->data_dir);
    if (aggregator)
        add_arg(c, "--slices=%s/slices", aggregator);
    else if (!config_setting(c->config, "compactor", "slices"))
        add_arg(c, "--slices=%s/aggregator/slices", c->data_dir);
}

static void add_address(struct command *c, struct pipeline *p, const char *daemon)
{
    char key[64];
    const char *url = pipeline_url(p, daemon);
    snprintf(key, sizeof key, "%s_url", daemon);
    if (url && !config_setting(c->config, "compactor", key))
        add_arg(c, "--%s=%s", key, url);
}

static void add_number(struct command *c, const char *name)
{
    if (options_is_set(c->o, name))
        add_arg(c, "--%s=%lld", name, (long long)options_int(c->o, name));
}

static int exec_compactor(const struct options *o)
{
    const struct config *config = options_config(o);
    const char *data_dir = options_string(o, "data_dir"),
               *configured = config_setting(config, "millrace", "data_dir");
    struct command c = {.o = o,
        .config = config,
        .data_dir = data_dir     ? data_dir
                    : configured ? configured
                                 : "millrace-data"};
    char *libexec = tool_libexec_dir();
    struct pipeline *p = pipeline_open(config, c.data_dir);
    add_arg(&c, "%s/compactor", libexec);
    if (config)
        add_arg(&c, "--config=%s", config->path);
    add_directories(&c);
    add_address(&c, p, "aggregator");
    add_address(&c, p, "sortdb");
    add_number(&c, "shards");
    add_number(&c, "keep");
    pipeline_close(&p);
    free(libexec);
    execv(c.argv[0], c.argv);
    fprintf(stderr, "millrace compact: cannot run %s: %s\n", c.argv[0], strerror(errno));
    for (size_t i = 0; i < c.n; i++)
        free(c.argv[i]);
    return EX_CONFIG;
}

int tool_compact(int argc, char **argv)
{
    static const struct options_spec spec = {
        .program = "compact", .summary = "moves the counts into the archive", .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, exec_compactor);
}
