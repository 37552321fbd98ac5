#include "pubsub/stream/window.h"

#include <assert.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct window {
    size_t refs; /* 0: a spare block */
    struct window *next_spare;
    size_t len;
    size_t fresh;   /* position of the data that was added after the last call of window_lines */
    uint64_t lines; /* number of LFs in the data from `fresh` on */
    bool asked;     /* window_lines was called after the last window_add */
    char *data;
    struct buf memory; /* memory of `data` in a large window */
};
#define BLOCK_HEAD (WINDOW_BLOCK - WINDOW_BYTES)
_Static_assert(sizeof(struct window) <= BLOCK_HEAD, "a window fits its block");

static struct window *spares;
static size_t n_spares, n_large;
static struct buf spare_memory;
static bool freed_large; /* the allocator may still have memory of freed large windows */

struct window *window_new(void)
{
    struct window *w = spares;
    if (w) {
        spares = w->next_spare;
        n_spares--;
    } else {
        w = mmap(NULL, WINDOW_BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (w == MAP_FAILED) {
            fprintf(stderr, "out of memory: %zu bytes\n", WINDOW_BLOCK);
            abort();
        }
    }
    *w = (struct window){.refs = 1, .data = (char *)w + BLOCK_HEAD};
    return w;
}

struct window *window_of(struct buf *memory, uint64_t lines)
{
    struct window *w = mem_alloc(sizeof *w);
    *w = (struct window){.refs = 1, .len = memory->len, .lines = lines, .data = memory->ptr};
    w->memory = *memory;
    *memory = (struct buf){0};
    n_large++;
    return w;
}

bool window_is_large(const struct window *w)
{
    return w->memory.ptr != NULL;
}

bool window_may_be_large(void)
{
    return n_large < WINDOW_LARGE_MAX;
}

void window_trim(void)
{
    if (freed_large)
        malloc_trim(0);
    freed_large = false;
}

struct buf window_take_memory(void)
{
    struct buf memory = spare_memory;
    spare_memory = (struct buf){0};
    return memory;
}

void window_return_memory(struct buf *memory)
{
    if (spare_memory.ptr) {
        freed_large |= memory->cap > WINDOW_BLOCK;
        buf_free(memory);
        return;
    }
    spare_memory = *memory;
    buf_clear(&spare_memory);
    *memory = (struct buf){0};
}

size_t window_room(const struct window *w)
{
    return w->memory.ptr ? 0 : WINDOW_BYTES - w->len;
}

void window_add(struct window *w, struct bytes data, uint64_t lines)
{
    assert(data.len <= window_room(w));
    memcpy(w->data + w->len, data.ptr, data.len);
    if (w->asked) {
        w->fresh = w->len;
        w->lines = 0;
        w->asked = false;
    }
    w->lines += lines;
    w->len += data.len;
}

struct window *window_hold(struct window *w)
{
    assert(w->refs > 0);
    w->refs++;
    return w;
}

void window_release(struct window *w)
{
    assert(w->refs > 0);
    if (--w->refs > 0)
        return;
    if (w->memory.ptr) {
        window_return_memory(&w->memory);
        n_large--;
        free(w);
        return;
    }
    if (n_spares == WINDOW_SPARES_MAX) {
        munmap(w, WINDOW_BLOCK);
        return;
    }
    w->next_spare = spares;
    spares = w;
    n_spares++;
}

struct bytes window_bytes(const struct window *w)
{
    return bytes_of(w->data, w->len);
}

uint64_t window_lines(struct window *w, struct bytes piece)
{
    w->asked = true;
    bool is_fresh = piece.ptr == w->data + w->fresh && piece.len == w->len - w->fresh;
    return is_fresh ? w->lines : bytes_count_lines(piece);
}
