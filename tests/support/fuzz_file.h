/* fuzz_file: a file for parsers that read files, kept in memory (/dev/shm) where there is one. */
#ifndef MILLRACE_TEST_FUZZ_FILE_H
#define MILLRACE_TEST_FUZZ_FILE_H

#include "base/bytes.h"

/* A directory of this process, deleted with its files `file`, `file.new` and `file.log` at exit. */
const char *fuzz_dir(void);
/* Replaces the content of DIR/file and returns its path. */
const char *fuzz_file(struct bytes content);

#endif
