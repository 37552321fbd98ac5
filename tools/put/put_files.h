/* put_files: posts whole files and standard input.
 *
 * With a producer, a file continues after the part that was posted before (put_sources.h). Standard input, unless
 * it is a regular file, is posted from its first byte that arrives. */
#ifndef MILLRACE_PUT_FILES_H
#define MILLRACE_PUT_FILES_H

#include "tools/put/put_run.h"

/* Checks a file before the first line is sent. */
int put_files_check(const char *name);
int put_files(struct put *put, char **files, size_t n);

#endif
