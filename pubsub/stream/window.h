/* window: a short part of a stream's committed bytes with a reference count. As long as a window has room, bytes can
 * be added at its end. Its bytes never change or move.
 *
 * 1. Code with a reference may read the bytes. The release of the last reference frees the window.
 * 2. Each small window is a memory mapping of its own. On the heap, slow clients could pin windows for ever, and
 *    the memory around them could not be returned. WINDOW_SPARES_MAX freed mappings are kept for reuse.
 * 3. A large window takes over a buffer that is already filled (window_of), and cannot grow. One freed buffer is kept
 *    for reuse. If there are WINDOW_LARGE_MAX large windows, callers create only small ones. This limits the memory
 *    that clients can pin when they stop reading.
 *
 * One thread. */
#ifndef MILLRACE_PUBSUB_WINDOW_H
#define MILLRACE_PUBSUB_WINDOW_H

#include "base/bytes.h"

#define WINDOW_BLOCK ((size_t)32 * 1024)
#define WINDOW_BYTES (WINDOW_BLOCK - 128) /* of a small window */
#define WINDOW_SPARES_MAX 16
#define WINDOW_LARGE_MAX ((size_t)32)

struct window;

/* Returns an empty window, which the caller must release. */
struct window *window_new(void);
/* Returns a large window that takes over the memory. `lines` is the number of LFs in its bytes. */
struct window *window_of(struct buf *memory, uint64_t lines);
/* Returns a buffer for the next large window. The buffer may have no memory yet. If the caller does not use the
 * buffer, it must pass it to window_return_memory. */
struct buf window_take_memory(void);
void window_return_memory(struct buf *memory);
bool window_is_large(const struct window *w);
bool window_may_be_large(void); /* there are fewer than WINDOW_LARGE_MAX large windows */
/* Returns the memory of freed large windows to the system. Call this function about once a second. */
void window_trim(void);
size_t window_room(const struct window *w);
/* Copies the data to the end of the window. `lines` is the number of LFs in the data. */
void window_add(struct window *w, struct bytes data, uint64_t lines);
struct window *window_hold(struct window *w);
void window_release(struct window *w);
struct bytes window_bytes(const struct window *w);
/* Returns the number of LFs in the piece. If the piece is the data added after the last call, as it is for
 * subscribers at the end of the stream, the number is known and need not be counted. */
uint64_t window_lines(struct window *w, struct bytes piece);

#endif
