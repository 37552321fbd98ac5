/* millrace compact: runs the compactor with the addresses (tool.h) and directories of a pipeline. Settings in
 * [compactor] override them. */
#include "base/bytes.h"
#include "config/config.h"
#include "config/options.h"
#include "tools/tool.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
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

static int exec_compactor(const struct options *o)
{
    static const char *const daemons[] = {"aggregator", "sortdb"}, *const numbers[] = {"shards", "keep"};
    const struct config *config = options_config(o);
    char *argv[TOOL_ARGS_MAX + 1] = {NULL};
    struct pipeline p;
    char *libexec = tool_libexec_dir();
    pipeline_open(&p, config, options_string(o, "data_dir"));
    tool_add_arg(argv, "%s/compactor", libexec);
    if (config)
        tool_add_arg(argv, "--config=%s", config->path);
    tool_add_compactor_paths(argv, config, p.data_dir);
    tool_add_arg(argv, "--every=0"); /* [compactor] every is for `millrace up` */
    for (size_t i = 0; i < 2; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_url", daemons[i]);
        if (!config_setting(config, "compactor", key))
            tool_add_arg(argv, "--%s=%s", key, pipeline_url(&p, daemons[i]));
        if (options_is_set(o, numbers[i]))
            tool_add_arg(argv, "--%s=%lld", numbers[i], (long long)options_int(o, numbers[i]));
    }
    pipeline_close(&p);
    free(libexec);
    execv(argv[0], argv);
    fprintf(stderr, "millrace compact: cannot run %s: %s\n", argv[0], strerror(errno));
    for (char **arg = argv; *arg != NULL; arg++)
        free(*arg);
    return EX_CONFIG;
}

int tool_compact(int argc, char **argv)
{
    static const struct options_spec spec = {
        .program = "compact", .summary = "moves the counts into the archive", .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, exec_compactor);
}
