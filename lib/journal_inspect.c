#include "journal_inspect.h"

#include "io.h"
#include "journal_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct inspection {
    inspect_fn *fn;
    void *arg;
    enum journal_result result;
    struct segment_header before; /* of the segment before, if it is known */
    bool has_before, newest;
    char *path;
    uint64_t sequence;
};

static void tell(struct inspection *n, struct inspect_event e)
{
    e.path = n->path;
    e.sequence = n->sequence;
    e.newest = n->newest;
    bool damaged = e.kind == INSPECT_DAMAGE || e.kind == INSPECT_MISSING;
    if (e.kind == INSPECT_NEWER)
        n->result = JOURNAL_NEWER;
    else if (damaged && n->result == JOURNAL_OK)
        n->result = JOURNAL_DAMAGED;
    n->fn(&e, n->arg);
}

static void tell_damage(struct inspection *n, uint64_t position, uint64_t offset, const char *what)
{
    tell(n,
        (struct inspect_event){.kind = INSPECT_DAMAGE, .position = position, .offset = offset, .what = what});
}

/* Whether this header follows the segment before, as far as that one is known. */
static void check_follows(struct inspection *n, const struct segment_header *h)
{
    if (!n->has_before)
        return;
    if (memcmp(h->id, n->before.id, sizeof h->id) != 0)
        tell_damage(n, 0, h->base, "belongs to another journal");
    else if (h->sequence != n->before.sequence + 1)
        tell(n, (struct inspect_event){.kind = INSPECT_MISSING, .offset = h->previous_end});
}

struct run_end {
    uint64_t position, offset;
    bool zeros, first_is_table;
};

static enum cursor_status run_through(
    struct inspection *n, const struct segment_header *h, struct run_end *end, int *system)
{
    struct cursor c = {.fd = -1};
    struct frame f;
    enum cursor_status status = cursor_open(&c, n->path, segment_seed(h), h->base);
    while (status == CURSOR_FRAME) {
        status = cursor_peek(&c, &f);
        bool first = c.position == SEGMENT_HEADER;
        if (status == CURSOR_FRAME && first != (f.kind == FRAME_TABLE))
            status = CURSOR_BAD;
        if (status != CURSOR_FRAME)
            break;
        tell(n, (struct inspect_event){
                    .kind = INSPECT_FRAME, .position = c.position, .offset = c.offset, .frame = &f});
        cursor_skip(&c, &f);
    }
    *end = (struct run_end){c.position, c.offset, status == CURSOR_END, c.position > SEGMENT_HEADER};
    *system = c.system;
    cursor_close(&c);
    return status;
}

/* What stands behind the last frame, read through a mapping: nothing of it is kept. */
static void look_behind(struct inspection *n, const struct segment_header *h, const struct run_end *end,
    struct frames_behind *out)
{
    struct stat st;
    *out = (struct frames_behind){0};
    int fd = io->open(n->path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_size > 0) {
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map != MAP_FAILED) {
            struct bytes file = bytes_of(map, (size_t)st.st_size);
            frames_look_behind(file, end->position, segment_seed(h), end->offset, out);
            munmap(map, (size_t)st.st_size);
        }
    }
    io->close(fd);
}

/* `next` is the header of the segment after this one, when it is known: it says where this one must end. */
static void judge_end(struct inspection *n, const struct segment_header *h, const struct run_end *end,
    const struct segment_header *next)
{
    struct frames_behind behind;
    bool whole = next && next->previous_size == end->position && next->previous_end == end->offset;
    look_behind(n, h, end, &behind);
    struct inspect_event e = {.kind = INSPECT_END, .position = end->position, .offset = end->offset};
    if (!end->first_is_table)
        tell_damage(n, end->position, end->offset, "no table of producers");
    else if (next && !whole)
        tell_damage(n, end->position, end->offset, "its frames end early");
    else if (!next && (behind.position > end->position || behind.durable > end->offset || behind.too_many))
        tell_damage(n, end->position, end->offset, "a later frame says that what stood here was synced");
    else {
        bool clean = whole || (end->zeros && !behind.end && (h->recycled || !behind.dirt));
        e.kind = clean ? INSPECT_END : INSPECT_TAIL;
        tell(n, e);
    }
}

static bool read_one_header(
    const char *dir, uint64_t sequence, struct segment_header *h, enum header_status *status)
{
    char raw[SEGMENT_HEADER], *path = segment_path(dir, sequence, "");
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    ssize_t got = fd >= 0 ? io->pread(fd, raw, sizeof raw, 0) : -1;
    int system = errno;
    if (fd >= 0)
        io->close(fd);
    free(path);
    errno = system;
    if (got < 0)
        return false;
    *status = segment_header_decode(bytes_of(raw, (size_t)got), h);
    if (*status == HEADER_OK && h->sequence != sequence)
        *status = HEADER_DAMAGED;
    return true;
}

static bool inspect_segment(struct inspection *n, const char *dir, const uint64_t *next_sequence)
{
    struct segment_header h, next;
    enum header_status status, next_status = HEADER_DAMAGED;
    struct run_end end;
    int system = 0;
    if (!read_one_header(dir, n->sequence, &h, &status))
        return false;
    if (status != HEADER_OK) {
        n->has_before = false;
        if (status == HEADER_NEWER)
            tell(n, (struct inspect_event){.kind = INSPECT_NEWER});
        else
            tell_damage(n, 0, 0, "no segment header");
        return true;
    }
    tell(n, (struct inspect_event){.kind = INSPECT_HEADER, .offset = h.base, .header = &h});
    check_follows(n, &h);
    if (next_sequence && !read_one_header(dir, *next_sequence, &next, &next_status))
        next_status = HEADER_DAMAGED; /* its own turn will tell */
    if (run_through(n, &h, &end, &system) == CURSOR_IO) {
        errno = system;
        return false;
    }
    bool known = next_status == HEADER_OK && next.sequence == h.sequence + 1;
    judge_end(n, &h, &end, known ? &next : NULL);
    n->before = h;
    n->has_before = true;
    return true;
}

enum journal_result journal_inspect(
    const char *dir, inspect_fn *fn, void *arg, char *error, size_t error_size)
{
    struct inspection n = {.fn = fn, .arg = arg, .result = JOURNAL_OK};
    size_t count;
    uint64_t *sequences = segments_list(dir, &count);
    if (!sequences || count == 0) {
        snprintf(error, error_size, "%s: %s", dir, sequences ? "holds no journal" : strerror(errno));
        free(sequences);
        return JOURNAL_IO;
    }
    for (size_t i = 0; i < count && n.result != JOURNAL_IO; i++) {
        n.path = segment_path(dir, n.sequence = sequences[i], "");
        n.newest = i + 1 == count;
        if (!inspect_segment(&n, dir, n.newest ? NULL : &sequences[i + 1])) {
            snprintf(error, error_size, "%s: cannot read: %s", n.path, strerror(errno));
            n.result = JOURNAL_IO;
        }
        free(n.path);
    }
    free(sequences);
    return n.result;
}
