/* archive_lock: lets one process at a time write an archive, and one archive write the files of a name pattern.
 *
 * STATE.lock is held while the archive is open (ps_to_http holds one too). Each name pattern has a second lock,
 * .ps_to_file-names-HASH.lock beside the files, because two archives with one pattern would interleave their files. The
 * lock file contains the path of its owner's state. If the lock is free and the state of its owner has no unfinished
 * file, another archive may become the owner.
 *
 * The holder of the second lock owns the staging directory, .ps_to_file-names-HASH.staging. */
#ifndef MILLRACE_ARCHIVE_LOCK_H
#define MILLRACE_ARCHIVE_LOCK_H

#include "streams/archive/archive_state.h"

/* Both functions create missing directories. They return a descriptor to close, or -1 with the error. */
int archive_lock_state(const char *state_path, struct error *error);
/* The state's directory must exist. */
int archive_lock_names(const char *format, const char *state_path, struct error *error);

/* Returns the length of the directory part of `format` before its first conversion, including the last slash. */
size_t archive_fixed_directory(const char *format);
/* The caller frees the path. */
char *archive_staging_directory(const char *format);

#endif
