/* window: a short part of a stream's committed bytes with a reference count. As long as a window has room, bytes can
 * be added at its end. The bytes of a window never change or move.
 *
 * 1. Code with a reference may read the bytes. The release of the last reference frees the window.
 * 2. Each small window is a memory mapping of its own. If windows were on the heap, a slow client that pins a window
 *    could prevent the return of the memory around the window. WINDOW_SPARES_MAX freed mappings are kept for reuse.
 * 3. A large window takes ownership of a filled buffer (window_of), and cannot grow. One freed buffer is kept for
 *    reuse. While WINDOW_LARGE_MAX large windows exist, callers create only small windows, which limits the memory
 *    that clients can pin when they stop reading.
 *
 * All functions must run on one thread. */
#ifndef MILLRACE_PUBSUB_WINDOW_H
#define MILLRACE_PUBSUB_WINDOW_H

#include "base/bytes.h"

#define WINDOW_BLOCK ((size_t)32 * 1024)
#define WINDOW_BYTES (WINDOW_BLOCK - 128) /* size of a small window */
#define WINDOW_SPARES_MAX 16
#define WINDOW_LARGE_MAX ((size_t)32)

struct window;

/* Returns an empty window, which the caller must release. */
struct window *window_new(void);
/* Returns a large window that takes ownership of `memory`. `lines` is the number of LFs in the bytes. */
struct window *window_of(struct buf *memory, uint64_t lines);
/* Returns a buffer for the next large window. The buffer may have no memory yet. A caller that does not use the
 * buffer must pass the buffer to window_return_memory. */
struct buf window_take_memory(void);
void window_return_memory(struct buf *memory);
bool window_is_large(const struct window *w);
bool window_may_be_large(void); /* true if fewer than WINDOW_LARGE_MAX large windows exist */
/* Returns the memory of freed large windows to the system. Call window_trim about once per second. */
void window_trim(void);
size_t window_room(const struct window *w);
/* Copies the data to the end of the window. `lines` is the number of LFs in the data. */
void window_add(struct window *w, struct bytes data, uint64_t lines);
struct window *window_hold(struct window *w);
void window_release(struct window *w);
struct bytes window_bytes(const struct window *w);
/* Returns the number of LFs in the piece. The number is already known if the piece is exactly the data that was added
 * after the last call. */
uint64_t window_lines(struct window *w, struct bytes piece);

#endif
