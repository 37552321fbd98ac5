/* forget_files: finds the files of a pipeline's directories that `millrace forget` does not erase.
 *
 * The module knows the files that the steps of the command erase, and those that never have text of an event. Every other file below
 * these directories is reported, so a kind of file that the module does not know cannot stay unnoticed. */
#ifndef MILLRACE_FORGET_FILES_H
#define MILLRACE_FORGET_FILES_H

#include "base/error.h"
#include "tools/tool.h"

/* `path` is a file or directory whose files were not searched; `remedy` says what made it and what to do. */
typedef void forget_files_fn(const char *path, const char *remedy, void *arg);

/* Calls `fn` for each. Returns 0, or EX_NOINPUT with the error if a directory cannot be read. */
int forget_files_list(const struct pipeline *p, forget_files_fn *fn, void *arg, struct error *error);
/* Calls `fn` for each file outside these directories that a section of the configuration names. */
void forget_files_configured(const struct config *config, forget_files_fn *fn, void *arg);

#endif
