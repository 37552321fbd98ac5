/* millrace compact: runs the compactor on a pipeline, with the addresses (tool.h) and directories of the pipeline. Settings in
 * [compactor] override both. */
#include "base/bytes.h"
#include "config/config.h"
#include "config/options.h"
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

static int exec_compactor(const struct options *o)
{
    static const char *const daemons[] = {"aggregator", "sortdb"}, *const numbers[] = {"shards", "keep"};
    const struct config *config = options_config(o);
    const char *data_dir = options_string(o, "data_dir");
    const char *archive = config_setting(config, "sortdb", "archive");
    const char *aggregator = config_setting(config, "aggregator", "data_dir");
    struct command c = {.n = 0};
    struct pipeline p;
    char *libexec = tool_libexec_dir();
    if (!data_dir)
        data_dir = config_setting(config, "millrace", "data_dir");
    if (!data_dir)
        data_dir = "millrace-data";
    pipeline_open(&p, config, data_dir);
    add_arg(&c, "%s/compactor", libexec);
    if (config)
        add_arg(&c, "--config=%s", config->path);
    if (archive)
        add_arg(&c, "--archive=%s", archive);
    else if (!config_setting(config, "compactor", "archive"))
        add_arg(&c, "--archive=%s/archive", data_dir);
    if (aggregator)
        add_arg(&c, "--slices=%s/slices", aggregator);
    else if (!config_setting(config, "compactor", "slices"))
        add_arg(&c, "--slices=%s/aggregator/slices", data_dir);
    for (size_t i = 0; i < 2; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_url", daemons[i]);
        if (!config_setting(config, "compactor", key))
            add_arg(&c, "--%s=%s", key, pipeline_url(&p, daemons[i]));
        if (options_is_set(o, numbers[i]))
            add_arg(&c, "--%s=%lld", numbers[i], (long long)options_int(o, numbers[i]));
    }
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
