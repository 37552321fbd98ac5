/* window: a short run of a stream's bytes, committed; shared by whoever sends it. It may grow at its end
 * while there is room; the bytes that are there never change or move.
 *
 * 1. Whoever holds it may read it; it goes with the last release.
 * 2. Its memory is a block of its own, mapped and given back as such: slow clients pin windows for any time, and what is
 *    pinned must not keep the heap around it. Blocks let go are kept for the next windows, up to WINDOW_SPARES_MAX.
 * 3. A window of memory that was filled elsewhere (window_of) is large, and never grows. Such memory is kept too, once. While
 *    there are WINDOW_LARGE_MAX of them nobody is to make another: so much, and no more, readers pin that have just stopped.
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

/* Empty; its maker's to release. */
struct window *window_new(uint64_t offset);
/* Takes over the memory, in whose bytes `lines` lines end. */
struct window *window_of(struct buf *memory, uint64_t offset, uint64_t lines);
/* Memory to fill for the next such window, perhaps none yet; and back with what was not used. */
struct buf window_take_memory(void);
void window_return_memory(struct buf *memory);
bool window_is_large(const struct window *w);
bool window_may_be_large(void);
/* Gives the system the memory of large windows that have gone. To be called now and then. */
void window_trim(void);
size_t window_room(const struct window *w);
/* Copies the data, for which there is room and in which `lines` lines end. */
void window_add(struct window *w, struct bytes data, uint64_t lines);
struct window *window_hold(struct window *w);
void window_release(struct window *w);
uint64_t window_offset(const struct window *w);
struct bytes window_bytes(const struct window *w);
/* The lines that end in a piece of it. Known without a look at it for what was added since this was asked last, as those
 * who keep up ask. */
uint64_t window_lines(struct window *w, struct bytes piece);

#endif
