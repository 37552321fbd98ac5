/* pipeline_dirs: the directories of a pipeline. If `config` is NULL, the functions use the defaults. */
#ifndef MILLRACE_PIPELINE_DIRS_H
#define MILLRACE_PIPELINE_DIRS_H

#include "config/options.h"

/* Returns the directory of a pipeline: `given`, or if `given` is NULL, the configured or default directory. */
const char *pipeline_dir(const struct config *config, const char *given);
/* Returns the path `below` in a daemon's data directory. The caller frees the path. */
char *pipeline_daemon_dir(
    const struct config *config, const char *data_dir, const char *daemon, const char *below);
/* Returns the directory of a pipeline's archive. The caller frees the path. */
char *pipeline_archive_dir(const struct config *config, const char *data_dir);
/* Sets the default of a daemon's setting `data_dir`: its directory below [millrace] data_dir. Returns 0, or -1 with the error
 * if neither is set. */
int pipeline_inherit_dir(struct options *o, const char *daemon, struct error *error);

#endif
