/* Any bytes as a journal's directory: opening, reading, appending and opening again never crash, hang or read out of
 * bounds; what is opened is read without damage or stops by name, and after a clean close opens again.
 *
 * An input is a byte of flags, with flag 4 the newest marker's statement, then for each segment a length (4 bytes,
 * little-endian) and its file. Flag 1: the policy is never to sync; flag 2: the checksums are put right first, so that what
 * lies behind them is reached. Such a forgery may say what no journal would write, and be refused once something was
 * appended to it: only that is forgiven. */
#include "journal/journal.h"
#include "journal/journal_internal.h"
#include "base/byte_order.h"
#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define SEGMENTS 8
#define FLAG_NEVER 1
#define FLAG_REPAIR 2
#define FLAG_STATEMENT 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64];

static void leave(void)
{
    rmdir(dir);
}

static void enter(void)
{
    if (dir[0])
        return;
    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz-XXXXXX" : "/tmp/fuzz-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    atexit(leave);
    log_init("fuzz", LOG_LEVEL_ERROR + 1, LOG_FORMAT_TEXT);
}

static uint64_t last_seed; /* of the segment put right last */

static void put_right(char *file, size_t size)
{
    struct segment_header h;
    struct bytes whole = bytes_of(file, size);
    if (size < SEGMENT_HEADER)
        return;
    uint64_t checksum = XXH3_64bits(file, 120);
    memcpy(file + 120, &checksum, 8);
    if (segment_header_decode(whole, &h) != HEADER_OK)
        return;
    last_seed = segment_seed(&h);
    size_t frame;
    for (uint64_t at = SEGMENT_HEADER; at < size; at += frame) {
        struct bytes rest = bytes_of(file + at, size - at);
        if (frame_measure(rest, &frame) != FRAME_OK || frame > rest.len)
            return;
        struct frame_place place = {.seed = segment_seed(&h), .position = at};
        memcpy(&place.durable, file + at + 32, 8);
        memcpy(&place.durable_position, file + at + 40, 8);
        frame_seal(file + at, &place);
    }
}

static void write_segment(size_t sequence, char *bytes, size_t size, unsigned flags)
{
    char *path = segment_path(dir, sequence, "");
    if (flags & FLAG_REPAIR)
        put_right(bytes, size);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    close(fd);
    free(path);
}

static void write_statement(char statement[SYNCED_END], unsigned flags)
{
    if (flags & FLAG_REPAIR)
        synced_end_encode(get_le64(statement), get_le64(statement + 8), last_seed, statement);
    newest_marker_write(dir, 0, 1);
    newest_marker_state(dir, 1, statement);
}

static void write_segments(struct bytes in, unsigned flags)
{
    char statement[SYNCED_END];
    bool stated = flags & FLAG_STATEMENT && in.len >= SYNCED_END;
    if (stated) {
        memcpy(statement, in.ptr, SYNCED_END);
        in = bytes_of(in.ptr + SYNCED_END, in.len - SYNCED_END);
    }
    for (size_t n = 1; n <= SEGMENTS && in.len >= 4; n++) {
        uint32_t length;
        memcpy(&length, in.ptr, 4);
        in = bytes_of(in.ptr + 4, in.len - 4);
        if (length > in.len)
            length = (uint32_t)in.len;
        char *copy = mem_alloc(length + 1);
        memcpy(copy, in.ptr, length);
        write_segment(n, copy, length, flags);
        free(copy);
        in = bytes_of(in.ptr + length, in.len - length);
    }
    if (stated)
        write_statement(statement, flags);
}

static bool take_all(const struct journal_scanned *frame, void *arg)
{
    uint64_t *sum = arg;
    *sum += frame->offset;
    for (size_t i = 0; i < frame->payload.len; i++)
        *sum += (unsigned char)frame->payload.ptr[i];
    return true;
}

static void window(const struct journal_window *w, void *arg)
{
    uint64_t sum = 0;
    take_all(&(struct journal_scanned){.offset = w->offset, .time = w->time, .payload = w->data}, &sum);
    *(enum journal_result *)arg = w->result;
}

static void read_through(struct journal_set *set, struct journal *j)
{
    struct journal_reader *r;
    struct journal_edges edges;
    if (journal_reader_open(j, journal_earliest(j), &r, &edges) != JOURNAL_OK)
        return;
    enum journal_result result = JOURNAL_OK;
    while (result == JOURNAL_OK) {
        result = JOURNAL_CLOSED;
        journal_reader_read(r, 700, window, &result);
        while (result == JOURNAL_CLOSED)
            set_wait(set);
    }
    journal_reader_close(&r);
}

static void committed(const struct journal_commit *c, void *arg)
{
    (void)c, (void)arg;
}

static void sought(enum journal_result r, uint64_t offset, void *arg)
{
    (void)r, (void)offset;
    *(int *)arg = 1;
}

/* Whether it opened. */
static bool use(unsigned flags)
{
    char error[256];
    struct journal *j;
    struct journal_set_config sc = {.sync_ms = flags & FLAG_NEVER ? JOURNAL_SYNC_NEVER : 0};
    struct journal_config jc = {.dir = dir, .segment_bytes = 4096};
    struct journal_set *set = journal_set_new(&sc);
    enum journal_result r = journal_open(set, &jc, &j, error, sizeof error);
    if (r == JOURNAL_OK) {
        uint64_t sum = 0;
        int found = 0;
        struct bytes piece = BYTES_LITERAL("appended");
        struct journal_append a = {.pieces = &piece, .n_pieces = 1};
        journal_scan(j, journal_earliest(j), take_all, &sum);
        journal_seek_time(j, 1000, 2000, sought, &found);
        while (!found)
            set_wait(set);
        read_through(set, j);
        if (journal_append(j, &a, 1, committed, NULL, NULL) == JOURNAL_OK)
            journal_set_flush(set);
    }
    journal_set_free(&set);
    return r == JOURNAL_OK;
}

static void clean(void)
{
    static const char *const suffixes[] = {"", ".new"}, *const spares[] = {
                                                            PREALLOC_NAME, PREALLOC_NAME ".new"};
    for (size_t n = 0; n <= SEGMENTS + 3; n++)
        for (int k = 0; k < 2; k++) {
            char *path = n ? segment_path(dir, n, suffixes[k]) : dir_path(dir, spares[k]);
            unlink(path);
            free(path);
        }
    for (uint64_t n; newest_marker_read(dir, &n) == 0 && n > 0;) {
        char *path = newest_marker_path(dir, n);
        if (unlink(path) != 0)
            abort();
        free(path);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    enter();
    write_segments(bytes_of(data + 1, size - 1), data[0]);
    bool opened = use(data[0]), opened_again = use(data[0]);
    if (opened && !opened_again && !(data[0] & FLAG_REPAIR))
        abort();
    clean();
    return 0;
}
