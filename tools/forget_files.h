/* forget_files: finds files in a pipeline's directories that `millrace forget` does not erase.
 *
 * A table lists the files that the command erases, and the files that never contain the text of an event. All other
 * files below these directories are reported, so that no unknown kind of file is overlooked. Files of
 * `millrace put` are searched, and reported only if they may contain the value. */
#ifndef MILLRACE_FORGET_FILES_H
#define MILLRACE_FORGET_FILES_H

#include "base/error.h"
#include "tools/forget_match.h"
#include "tools/tool.h"

/* `path` is a file or directory that may contain the value. `remedy` names the program that wrote `path`, and the action
 * for the operator. */
typedef void forget_files_fn(const char *path, const char *remedy, void *arg);

/* Calls `fn` for each reported file. Returns 0, or EX_NOINPUT with the error if a directory cannot be read. */
int forget_files_list(const struct pipeline *p, struct forget_match *match, forget_files_fn *fn, void *arg,
    struct error *error);
/* Calls `fn` for each file outside the pipeline's directories that the configuration names. */
void forget_files_configured(const struct config *config, forget_files_fn *fn, void *arg);

#endif
