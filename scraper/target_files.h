/* target_files: reads the files of targets, and notices their changes.
 *
 * 1. A file with an error keeps the targets that it had before. `error` names the file.
 * 2. A file that is gone has no targets. A pattern may match no file. */
#ifndef MILLRACE_TARGET_FILES_H
#define MILLRACE_TARGET_FILES_H

#include "scraper/targets.h"

struct target_files;

/* `patterns`: paths separated by spaces, with * ? and [] in them. Borrows both arguments. */
struct target_files *target_files_new(const char *patterns, const struct target_defaults *defaults);
void target_files_free(struct target_files **f);
/* Reads the files that have changed since the last call. Returns true if the targets may have changed. */
bool target_files_look(struct target_files *f);
/* Appends the targets of all files. */
void target_files_list(const struct target_files *f, struct target_list *out);
/* Returns the error of the first file that has one, or NULL. */
const char *target_files_error(const struct target_files *f);

#endif
