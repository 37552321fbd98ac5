/* target_files: reads the files of targets, and notices their changes. Their owner may add *nodes*: texts in the form of
 * these files that have another source.
 *
 * 1. A file or node with an error keeps the targets that it had before. The error names the file or node.
 * 2. A file that is gone has no targets. A pattern may match no file.
 * 3. Only regular files are read, so that a pipe does not block the caller. */
#ifndef MILLRACE_TARGET_FILES_H
#define MILLRACE_TARGET_FILES_H

#include "scraper/targets.h"

struct target_files;

/* `patterns`: paths separated by spaces, with * ? and [] in them; NULL: no files. Borrows both arguments. */
struct target_files *target_files_new(const char *patterns, const struct target_defaults *defaults);
void target_files_free(struct target_files **f);
/* Reads the files that have changed since the last call. Returns true if the targets may have changed. */
bool target_files_look(struct target_files *f);
/* Replaces the nodes: call target_files_begin_nodes, target_files_put_node for each node, then target_files_end_nodes, which
 * removes the other nodes. Without a call of target_files_end_nodes no node is removed. */
void target_files_begin_nodes(struct target_files *f);
void target_files_put_node(struct target_files *f, const char *path, struct bytes text);
void target_files_end_nodes(struct target_files *f);
/* Appends the targets of all files and nodes. */
void target_files_list(const struct target_files *f, struct target_list *out);
/* Returns the error of the first file or node that has one, or NULL. */
const char *target_files_error(const struct target_files *f);
/* Returns the first path or pattern that matched no file in the last call of target_files_look, or NULL. */
const char *target_files_missing(const struct target_files *f);

#endif
