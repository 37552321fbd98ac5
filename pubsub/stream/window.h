/* window: a short run of a stream's committed bytes, shared by reference count. A window may grow at its end while it has room.
 * Its bytes never change or move.
 *
 * 1. A holder may read the bytes. The last release frees the window.
 * 2. A small window is a mapped block of its own, because slow clients may pin windows forever, and the heap memory
 *    around these could not be freed. WINDOW_SPARES_MAX freed blocks are kept for reuse.
 * 3. A large window takes over memory that was filled elsewhere (window_of), and never grows. One such buffer is kept
 *    for reuse. While WINDOW_LARGE_MAX large windows exist, callers create small windows, which bounds the memory that
 *    stopped clients pin.
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
/* A large window, which takes over the memory. `lines` lines end in its bytes. */
struct window *window_of(struct buf *memory, uint64_t lines);
/* Returns memory for the next large window; the buffer may be empty. If it is not used, return it with
 * window_return_memory. */
struct buf window_take_memory(void);
void window_return_memory(struct buf *memory);
bool window_is_large(const struct window *w);
bool window_may_be_large(void); /* fewer than WINDOW_LARGE_MAX large windows exist */
/* Returns the memory of freed large windows to the system. Call it about once a second. */
void window_trim(void);
size_t window_room(const struct window *w);
/* Copies the data to the end of the window, which must have room. `lines` lines end in the data. */
void window_add(struct window *w, struct bytes data, uint64_t lines);
struct window *window_hold(struct window *w);
void window_release(struct window *w);
struct bytes window_bytes(const struct window *w);
/* The number of lines that end in the piece. For the data added since the last call the number is known without
 * counting; this is the piece of every subscriber at the end of the stream. */
uint64_t window_lines(struct window *w, struct bytes piece);

#endif
