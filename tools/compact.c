/* millrace compact: runs the compactor with the addresses (tool.h) and directories of a pipeline. Settings
 * in [compactor] override these values. */
#include "archive/archive_options.h"
#include "base/bytes.h"
#include "config/config.h"
#include "config/options.h"
#include "tools/tool.h"
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

static const struct option_row rows[] = {TOOL_DATA_DIR_SETTING,
    SETTING_STRING("aggregator_url",
        "address of the aggregator (default: the pipeline's); none: merge no slices; stopped: merge the "
        "slices that the aggregator sealed before it was stopped",
        .excludes = "export|verify"),
    {.name = NULL}};

static void add_options(struct tool_args *a, const struct options *o, const struct option_row *row)
{
    for (; row->name; row++) {
        if (!options_is_set(o, row->name) || !options_has_effect(o, row->name))
            continue;
        if (row->type == OPTION_BOOL)
            tool_add_arg(a, "--%s=%s", row->name, options_bool(o, row->name) ? "true" : "false");
        else if (row->type == OPTION_STRING || row->type == OPTION_CHOICE)
            tool_add_arg(a, "--%s=%s", row->name, options_string(o, row->name));
        else
            tool_add_arg(a, "--%s=%lld", row->name, (long long)options_int(o, row->name));
    }
}

/* Appends the address of a daemon. For sortdb, also appends the address of an api that maps the archive. */
static void add_url(struct tool_args *a, const char *key, const struct pipeline *p, const char *daemon,
    const struct config *config)
{
    const struct pipeline_daemon *sortdb = &p->daemons[peer_named("sortdb") - peers],
                                 *api = &p->daemons[peer_named("api") - peers];
    bool api_reads = strcmp(daemon, "sortdb") == 0 && api->state && !api->is_off && !p->has_ended &&
                     tool_api_reads_archive(config, !sortdb->is_off);
    if (api_reads)
        tool_add_arg(a, "--%s=%s,%s", key, pipeline_url(p, daemon), api->url);
    else
        tool_add_arg(a, "--%s=%s", key, pipeline_url(p, daemon));
}

/* True if the default directory of the archive cannot be that of a pipeline, such as a relative data_dir seen from
 * another working directory. The compactor would make the directory. */
static bool is_elsewhere(const struct options *o, const char *data_dir)
{
    char *archive = pipeline_archive_dir(options_config(o), data_dir);
    bool has_parent = access(dirname(archive), F_OK) == 0;
    free(archive);
    return !has_parent && !options_is_set(o, "aggregator_url");
}

/* Returns 0, or EX_TEMPFAIL after printing that the pipeline is stopped, if the compaction needs its aggregator. */
static int check_aggregator(const struct options *o, const struct pipeline *p)
{
    bool is_given =
        options_is_set(o, "aggregator_url") || config_setting(p->config, "compactor", "aggregator_url");
    bool only_reads = options_bool(o, "export") || options_bool(o, "verify") || options_bool(o, "dry_run");
    if (is_given || only_reads || !pipeline_is_stopped(p))
        return EX_OK;
    return tool_fail(EX_TEMPFAIL,
        "the pipeline of %s is stopped; `millrace status` shows the reason. Without a start, "
        "--aggregator-url=stopped "
        "merges the sealed slices, and --aggregator-url=none merges no slices",
        p->data_dir);
}

static int exec_compactor(const struct options *o)
{
    static const char *const daemons[] = {"aggregator", "sortdb"};
    const struct config *config = options_config(o);
    char **files;
    size_t n_files = options_operands(o, &files);
    struct tool_args a = {0};
    struct pipeline p;
    pipeline_open(&p, config, options_string(o, "data_dir"));
    if (is_elsewhere(o, p.data_dir)) {
        tool_fail(EX_CONFIG,
            "no pipeline has run in %s; start it with `millrace up`, or name another: --config=FILE or "
            "--data-dir=DIR",
            p.data_dir);
        pipeline_close(&p);
        return EX_CONFIG;
    }
    if (check_aggregator(o, &p) != EX_OK) {
        pipeline_close(&p);
        return EX_TEMPFAIL;
    }
    a = tool_args_for("compactor");
    if (config)
        tool_add_arg(&a, "--config=%s", config->path);
    tool_add_compactor_paths(&a, config, p.data_dir);
    tool_add_arg(&a, "--every=0"); /* the setting `every` of [compactor] is only for `millrace up` */
    for (size_t i = 0; i < 2; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_url", daemons[i]);
        if (i == 0 && options_is_set(o, key))
            tool_add_arg(&a, "--%s=%s", key, options_string(o, key));
        else if (!config_setting(config, "compactor", key) && pipeline_is_stopped(&p))
            tool_add_arg(&a, "--%s=none", key); /* the daemons read the new generation when they start */
        else if (!config_setting(config, "compactor", key))
            add_url(&a, key, &p, daemons[i], config);
    }
    add_options(&a, o, archive_options);
    add_options(&a, o, import_options);
    pipeline_close(&p);
    for (size_t i = 0; i < n_files; i++)
        tool_add_arg(&a, "%s", files[i]);
    execv(a.argv[0], a.argv);
    tool_fail(EX_CONFIG, "cannot run %s: %s", a.argv[0], strerror(errno));
    tool_free_args(&a);
    return EX_CONFIG;
}

int tool_compact(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "compact",
        .settings = "compactor",
        .summary = "moves the counts into the archive, and changes the archive",
        .operands = "[FILE...]",
        .rows = {rows, archive_options, import_options, NULL}};
    return tool_run(&spec, argc, argv, exec_compactor);
}
