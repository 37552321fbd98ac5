/* archive_lock: one process writes an archive (or delivers by a state), and one archive gives names of a pattern.
 *
 * STATE.lock is held while the archive is open. So is .ps_to_file-names-HASH.lock, one for each pattern of names, beside the
 * files: two archives of one pattern would be after the same names all the time. It holds the path of its archive's state. Another
 * one takes it over when nobody holds it and that state knows no unfinished file: those are the last that names say nothing
 * about when their archive goes on. Archives of other patterns that make one name now and then do no harm (archive_part.h,
 * archive_finish.h). */
#ifndef MILLRACE_ARCHIVE_LOCK_H
#define MILLRACE_ARCHIVE_LOCK_H

#include "streams/archive/archive_state.h"

/* Both return a descriptor to close, or -1 with the reason; missing directories are made. */
int archive_lock_state(const char *state_path, char error[ARCHIVE_ERROR_TEXT]);
/* The state's directory is there. */
int archive_lock_names(const char *format, const char *state_path, char error[ARCHIVE_ERROR_TEXT]);

/* The length of the directory, with its slash, that no conversion of the format changes. */
size_t archive_fixed_directory(const char *format);

#endif
