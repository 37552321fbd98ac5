/* slice_convert: rewrites a slice of the former format (a row a count) in the format of slice.h.
 *
 * The new slice is written beside the old one and renamed over it when it is synced. Killed at any point, the slice is the
 * old one or the new one, and the conversion can be run again. No other process may have the slice open. */
#ifndef MILLRACE_SLICE_CONVERT_H
#define MILLRACE_SLICE_CONVERT_H

#include "counts/slice_state.h"

/* *is_done is false when the file has the format of this version already. */
enum slice_result slice_convert(const char *path, bool *is_done, char error[SLICE_ERROR_TEXT]);

#endif
