#include "config/pipeline_dirs.h"

#include <stdlib.h>

const char *pipeline_dir(const struct config *config, const char *given)
{
    const char *configured = config_setting(config, "millrace", "data_dir");
    return given ? given : configured ? configured : "millrace-data";
}

char *pipeline_daemon_dir(
    const struct config *config, const char *data_dir, const char *daemon, const char *below)
{
    const char *own = config_setting(config, daemon, "data_dir");
    return own ? mem_printf("%s%s", own, below) : mem_printf("%s/%s%s", data_dir, daemon, below);
}

char *pipeline_archive_dir(const struct config *config, const char *data_dir)
{
    const char *archive = config_setting(config, "sortdb", "archive");
    if (!archive)
        archive = config_setting(config, "compactor", "archive");
    return archive ? mem_strdup(archive) : mem_printf("%s/archive", data_dir);
}

int pipeline_inherit_dir(struct options *o, const char *daemon, struct error *error)
{
    const char *pipeline = config_setting(options_config(o), "millrace", "data_dir");
    if (options_text(o, "data_dir"))
        return 0;
    if (!pipeline)
        return error_set(error, -1, "data_dir is missing; set it to a directory for %s", daemon);
    char *own = mem_printf("%s/%s", pipeline, daemon);
    int rc = options_inherit(o, "data_dir", own, "[millrace]", error);
    free(own);
    return rc;
}
