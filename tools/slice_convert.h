/* slice_convert: rewrites a slice of an older format (one row a count) in the format of slice.h.
 *
 * The new slice is written beside the old one, synced, and renamed over it. After a crash the slice is the old one or the new one, and the
 * conversion can be run again. No other process may have the slice open. */
#ifndef MILLRACE_SLICE_CONVERT_H
#define MILLRACE_SLICE_CONVERT_H

#include "counts/slice_state.h"

/* *is_done is false if the file already has the current format. */
enum slice_result slice_convert(const char *path, bool *is_done, char error[SLICE_ERROR_TEXT]);

#endif
