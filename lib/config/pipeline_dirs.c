#include "config/pipeline_dirs.h"

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
