/* archive_lock: at most one process writes an archive, and at most one archive writes files of a pattern of names.
 *
 * STATE.lock is held while the archive is open (ps_to_http holds one too). A second lock for each pattern,
 * .ps_to_file-names-HASH.lock beside the files, is held as well: two archives of one pattern would interleave their files. That
 * file holds the path of its owner's state. Another archive takes the lock over if the lock is free and that state has no unfinished file.
 *
 * The holder of the second lock owns the staging directory, .ps_to_file-names-HASH.staging. */
#ifndef MILLRACE_ARCHIVE_LOCK_H
#define MILLRACE_ARCHIVE_LOCK_H

#include "streams/archive/archive_state.h"

/* Both functions create missing directories. They return a descriptor to close, or -1 with the reason. */
int archive_lock_state(const char *state_path, char error[ARCHIVE_ERROR_TEXT]);
/* The state's directory must exist. */
int archive_lock_names(const char *format, const char *state_path, char error[ARCHIVE_ERROR_TEXT]);

/* Returns the length, slash included, of the format's directory before the first conversion. */
size_t archive_fixed_directory(const char *format);
/* The caller frees the path. */
char *archive_staging_directory(const char *format);

#endif
