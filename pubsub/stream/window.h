/* window: a short run of a stream's committed bytes, shared by reference count. A window may grow at its end while there is
 * room; the bytes in it never change or move.
 *
 * 1. A holder may read it; the last release frees it.
 * 2. A small window is a mapped block of its own: slow clients pin windows for any time, and pinned memory must not keep the heap
 *    around it. Up to WINDOW_SPARES_MAX freed blocks are kept.
 * 3. A large window takes over memory that was filled elsewhere (window_of), and never grows. One such memory is kept for
 *    reuse. At WINDOW_LARGE_MAX of them callers make small ones, which bounds what stopped clients pin.
 *
 * One thread.
 */
#ifndef MILLRACE_PUBSUB_WINDOW_H
#define MILLRACE_PUBSUB_WINDOW_H

#include "base/bytes.h"

#define WINDOW_BLOCK ((size_t)32 * 1024)
#define WINDOW_BYTES (WINDOW_BLOCK - 128) /* in one */
#define WINDOW_SPARES_MAX 16
#define WINDOW_LARGE_MAX ((size_t)32)

struct window;

/* Empty; the caller releases it. */
struct window *window_new(void);
/* Takes over the memory, in whose bytes `lines` lines end. */
struct window *window_of(struct buf *memory, uint64_t lines);
/* Memory for the next large window, perhaps empty; return it if it is not used. */
struct buf window_take_memory(void);
void window_return_memory(struct buf *memory);
bool window_is_large(const struct window *w);
bool window_may_be_large(void); /* fewer than WINDOW_LARGE_MAX are */
/* Returns memory of freed large windows to the system; call it about once a second. */
void window_trim(void);
size_t window_room(const struct window *w);
/* Copies the data, in which `lines` lines end; there must be room. */
void window_add(struct window *w, struct bytes data, uint64_t lines);
struct window *window_hold(struct window *w);
void window_release(struct window *w);
struct bytes window_bytes(const struct window *w);
/* The lines that end in a piece. Known without counting for what was added since the last call, which subscribers at the end
 * ask for. */
uint64_t window_lines(struct window *w, struct bytes piece);

#endif
