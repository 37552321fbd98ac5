/* archive_lock: ensures that only one process at a time writes an archive, and that only one archive writes the files
 * of a name pattern.
 *
 * An archive holds the lock STATE.lock while the archive is open. ps_to_http locks its state in the same way. Each name
 * pattern has a second lock, .ps_to_file-names-HASH.lock beside the files, because two archives with the same pattern
 * would interleave their files. The second lock file contains the path of the owner's state. Another archive may become
 * the owner if the second lock is free and the owner's state lists no unfinished file.
 *
 * The holder of the second lock also owns the staging directory, .ps_to_file-names-HASH.staging. */
#ifndef MILLRACE_ARCHIVE_LOCK_H
#define MILLRACE_ARCHIVE_LOCK_H

#include "streams/archive/archive_state.h"

/* Locks the state, and creates its directory if missing. Returns a descriptor, or -1 with the error. The lock ends when
 * the caller closes the descriptor. */
int archive_lock_state(const char *state_path, struct error *error);
/* Locks the name pattern `format`, and creates its directory if missing. The state's directory must exist. Returns a
 * descriptor like archive_lock_state. */
int archive_lock_names(const char *format, const char *state_path, struct error *error);

/* Returns the length of the directory part of `format` before its first conversion, including the last slash. */
size_t archive_fixed_directory(const char *format);
/* Returns the path of the staging directory of `format`. The caller frees the path. */
char *archive_staging_directory(const char *format);

#endif
