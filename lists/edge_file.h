/* edge_file: adds the edges in the lines of a file (edge_lines.h), at the start and at each SIGHUP.
 *
 * 1. The file adds edges and removes none: an edge whose line is gone from the file stays. An edge that exists is added again
 *    without an effect.
 * 2. The lines are added in changes of at most EDGE_FILE_CHANGE bytes, one after the other, so that requests continue. A
 *    refused change is repeated.
 * 3. A line that is not valid is counted and logged, and the next lines count. An unreadable file is a notice of the daemon. */
#ifndef MILLRACE_EDGE_FILE_H
#define MILLRACE_EDGE_FILE_H

#include "lists/lists_server.h"

#define EDGE_FILE_CHANGE ((size_t)64 << 10)

struct edge_file;

/* `path` is valid until edge_file_free. */
struct edge_file *edge_file_new(struct lists_server *server, const char *path);
/* Reads the file from its beginning. A read in progress begins again. */
void edge_file_read(struct edge_file *f);
/* Call after lists_close, because the lists may have the file's change. *f may be NULL. */
void edge_file_free(struct edge_file **f);

#endif
