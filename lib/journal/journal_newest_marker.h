/* journal_newest_marker: an empty file whose name holds the newest segment's number. A gap between segments is visible in their
 * headers; only the marker exposes the loss of the newest ones.
 *
 * 1. The marker names a segment only once that segment's own name is durable: so the segment existed.
 * 2. Before an opening or a repair removes newest segments, it removes the marker durably: the marker never names a segment
 *    that was dropped on purpose.
 * 3. Writing it costs no sync. After a power cut, or on a full disk, it may name an earlier segment or be gone. */
#ifndef MILLRACE_JOURNAL_NEWEST_MARKER_H
#define MILLRACE_JOURNAL_NEWEST_MARKER_H

#include <stdint.h>

/* The highest number named; 0: none. -1 with errno: the directory cannot be read. */
int newest_marker_read(const char *dir, uint64_t *sequence);
char *newest_marker_path(const char *dir, uint64_t sequence); /* the caller frees it */
/* Names `sequence` instead of `before` (0: none). The number that is named now. */
uint64_t newest_marker_write(const char *dir, uint64_t before, uint64_t sequence);
/* Removes all markers and syncs. 0, or -1 with errno. */
int newest_marker_remove(const char *dir, int dir_fd);

#endif
