#include "promql/promql_arena.h"

#include <stdlib.h>

#define BLOCK_SIZE ((size_t)16 << 10)
#define ALIGNMENT ((size_t)16)

struct arena_block {
    struct arena_block *older;
    size_t size;
    _Alignas(16) char data[];
};

void *arena_alloc(struct arena *a, size_t size)
{
    size = (size + ALIGNMENT) / ALIGNMENT * ALIGNMENT; /* at least 1 byte */
    if (size > a->left) {
        size_t room = size > BLOCK_SIZE / 4 ? size : BLOCK_SIZE;
        struct arena_block *b = mem_zalloc(sizeof *b + room);
        *b = (struct arena_block){a->newest, room};
        a->used += sizeof *b;
        if (a->newest && room == size) { /* a large piece leaves the newest block in use */
            b->older = a->newest->older;
            a->newest->older = b;
            a->used += size;
            return b->data;
        }
        a->newest = b;
        a->left = room;
    }
    void *p = a->newest->data + a->newest->size - a->left;
    a->left -= size;
    a->used += size;
    return p;
}

struct bytes arena_copy(struct arena *a, struct bytes text)
{
    char *p = arena_alloc(a, text.len + 1);
    if (text.len > 0)
        memcpy(p, text.ptr, text.len);
    return bytes_of(p, text.len);
}

void arena_free(struct arena *a)
{
    for (struct arena_block *b = a->newest, *older; b; b = older) {
        older = b->older;
        free(b);
    }
    *a = (struct arena){0};
}
