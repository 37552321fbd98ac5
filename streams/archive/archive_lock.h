/* archive_lock: one process writes an archive, and one archive writes files of a pattern of names.
 *
 * STATE.lock is held while the archive is open (ps_to_http holds one too). So is .ps_to_file-names-HASH.lock beside the files, one
 * for each pattern: a second archive of the pattern would interleave its files with those of the first. That file holds the path of
 * its archive's state. Another archive takes it over when it is free and that state names no unfinished file.
 *
 * The staging directory, .ps_to_file-names-HASH.staging, belongs to the holder of the second lock. */
#ifndef MILLRACE_ARCHIVE_LOCK_H
#define MILLRACE_ARCHIVE_LOCK_H

#include "streams/archive/archive_state.h"

/* Both return a descriptor to close, or -1 with the reason, and create missing directories. */
int archive_lock_state(const char *state_path, char error[ARCHIVE_ERROR_TEXT]);
/* The state's directory must exist. */
int archive_lock_names(const char *format, const char *state_path, char error[ARCHIVE_ERROR_TEXT]);

/* The length, with its slash, of the directory that precedes every conversion of the format. */
size_t archive_fixed_directory(const char *format);
/* To be freed. */
char *archive_staging_directory(const char *format);

#endif
