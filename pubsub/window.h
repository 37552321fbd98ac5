/* window: a short run of a stream's bytes, committed; shared by whoever sends it. It may grow at its end
 * while there is room; the bytes that are there never change or move.
 *
 * 1. Whoever holds it may read it; it goes with the last release.
 * 2. Its memory is a block of its own, mapped and given back as such: slow clients pin windows for any time, and what is
 *    pinned must not keep the heap around it. Blocks let go are kept for the next windows, up to WINDOW_SPARES.
 *
 * One thread.
 */
#ifndef MILLRACE_PUBSUB_WINDOW_H
#define MILLRACE_PUBSUB_WINDOW_H

#include "bytes.h"

#define WINDOW_BLOCK ((size_t)32 * 1024)
#define WINDOW_BYTES (WINDOW_BLOCK - 64) /* in one */
#define WINDOW_SPARES 16

struct window;

/* Empty; its maker's to release. */
struct window *window_new(uint64_t offset);
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
