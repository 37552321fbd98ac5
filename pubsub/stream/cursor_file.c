#include "pubsub/stream/cursor_file.h"

#include "base/byte_order.h"
#include "base/errno_class.h"
#include "base/io.h"
#include "base/work_thread.h"
#include "base/xxh3.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define UNIT ((size_t)512)
#define CHECKSUM_AT (UNIT - 8)
#define VERSION 2
static const char magic[8] = "MRCURSOR";

/* Positions of the fields in a copy. */
enum {
    AT_SEQUENCE = 0,
    AT_OFFSET = 8,
    AT_ID = 16,
    AT_STREAM_LENGTH = 48,
    AT_NAME_LENGTH = 49,
    AT_STREAM = 50,
    AT_NAME = AT_STREAM + NAME_LEN_MAX,
    AT_KEY = AT_NAME + NAME_LEN_MAX,           /* zeros: no owner */
    AT_OPENING = AT_KEY + CURSOR_KEY_TEXT - 1, /* 12 bytes (journal/opening.h) */
};

struct slot {
    struct cursor_record record;
    uint64_t sequence; /* sequence number of the newer copy; the next put overwrites the older copy */
    bool dirty;
};

/* A copy of a record that the thread must write. */
struct write {
    size_t slot;
    off_t at;
    char unit[UNIT];
};

struct cursor_file {
    int fd;
    char *path;
    struct slot *slots;
    size_t n_slots, n_dirty;
    struct cursor_put *waiting, **waiting_end; /* puts of the next batch */
    struct cursor_put *written;                /* puts of the current batch */
    bool under_way;
    char failure[256];
    void (*notify)(void *arg);
    void *notify_arg;

    struct write *batch;
    size_t n_batch;
    int error;                  /* errno of the finished batch */
    struct work_thread *thread; /* while under_way is set, the thread uses batch and error */
};

/* The seed of the checksum is the position of the unit, so that a unit from another position is invalid. */
static uint64_t checksum(const char *unit, uint64_t place)
{
    return XXH3_64bits_withSeed(unit, CHECKSUM_AT, place);
}

static uint64_t place_of(size_t slot, uint64_t sequence)
{
    return 1 + 2 * slot + (sequence & 1);
}

static void encode(const struct cursor_record *r, uint64_t sequence, size_t slot, char unit[UNIT])
{
    memset(unit, 0, UNIT);
    put_le64(unit + AT_SEQUENCE, sequence);
    put_le64(unit + AT_OFFSET, r->offset);
    memcpy(unit + AT_ID, r->id, JOURNAL_ID_TEXT - 1);
    unit[AT_STREAM_LENGTH] = (char)strlen(r->stream);
    unit[AT_NAME_LENGTH] = (char)strlen(r->name);
    memcpy(unit + AT_STREAM, r->stream, strlen(r->stream));
    memcpy(unit + AT_NAME, r->name, strlen(r->name));
    memcpy(unit + AT_KEY, r->key, strlen(r->key));
    opening_encode(r->opening, unit + AT_OPENING);
    put_le64(unit + CHECKSUM_AT, checksum(unit, place_of(slot, sequence)));
}

static bool decode_name(const char *text, uint8_t length, char out[NAME_LEN_MAX + 1])
{
    if (length > NAME_LEN_MAX || !bytes_is_name(bytes_of(text, length)))
        return false;
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

/* Returns false if the copy is invalid. A copy of zeros was never written, and is valid with the sequence number 0. */
static bool decode(const char *unit, uint64_t place, struct cursor_record *r, uint64_t *sequence)
{
    static const char zeros[UNIT];
    *r = (struct cursor_record){0};
    *sequence = 0;
    if (memcmp(unit, zeros, UNIT) == 0)
        return true;
    if (get_le64(unit + CHECKSUM_AT) != checksum(unit, place))
        return false;
    *sequence = get_le64(unit + AT_SEQUENCE);
    if (*sequence > INT64_MAX) /* a put needs a higher number */
        return false;
    if (unit[AT_NAME_LENGTH] == 0)
        return true;
    r->offset = get_le64(unit + AT_OFFSET);
    memcpy(r->id, unit + AT_ID, JOURNAL_ID_TEXT - 1);
    memcpy(r->key, unit + AT_KEY, CURSOR_KEY_TEXT - 1);
    opening_decode(unit + AT_OPENING, r->opening);
    return decode_name(unit + AT_STREAM, (uint8_t)unit[AT_STREAM_LENGTH], r->stream) &&
           decode_name(unit + AT_NAME, (uint8_t)unit[AT_NAME_LENGTH], r->name);
}

static enum cursor_file_result read_slot(struct cursor_file *f, size_t i, struct error *error)
{
    char units[2][UNIT];
    bool valid = false;
    if (io->pread(f->fd, units, sizeof units, (off_t)(place_of(i, 0) * UNIT)) != (ssize_t)sizeof units)
        return error_set(
            error, CURSOR_FILE_IO, "%s: file too short; delete the file to start without cursors", f->path);
    for (size_t copy = 0; copy < 2; copy++) {
        struct cursor_record r;
        uint64_t sequence;
        if (!decode(units[copy], place_of(i, copy), &r, &sequence))
            continue;
        if (!valid || sequence > f->slots[i].sequence)
            f->slots[i] = (struct slot){.record = r, .sequence = sequence};
        valid = true;
    }
    if (valid)
        return CURSOR_FILE_OK;
    return error_set(error, CURSOR_FILE_DAMAGED,
        "%s: both copies of slot %zu are damaged; delete the file to start without cursors", f->path, i);
}

/* Extends the file to `slots` slots by writing zeros, so that the file system allocates the blocks. */
static int extend(int fd, size_t from, size_t slots)
{
    size_t size = (1 + 2 * slots) * UNIT;
    char *zeros = mem_zalloc(size - from);
    int failed = io_write_all(fd, zeros, size - from, (off_t)from) != 0 || io->fsync(fd) != 0;
    int saved = errno;
    free(zeros);
    errno = saved;
    return failed ? -1 : 0;
}

/* Creates the file under another name, and renames the file once the file is complete and synced. */
static int make(struct cursor_file *f, size_t slots)
{
    char unit[UNIT] = {0};
    char *name = mem_printf("%s.new", f->path);
    memcpy(unit, magic, sizeof magic);
    put_le32(unit + sizeof magic, VERSION);
    put_le64(unit + CHECKSUM_AT, checksum(unit, 0));
    f->fd = io->open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, IO_PRIVATE_MODE);
    int failed = f->fd < 0 || io_write_all(f->fd, unit, UNIT, 0) != 0 || extend(f->fd, UNIT, slots) != 0 ||
                 io->rename(name, f->path) != 0 || io_sync_parent(f->path) != 0;
    int saved = errno;
    free(name);
    errno = saved;
    return failed ? -1 : 0;
}

/* Writes every record again and syncs the file. The previous process may have been killed before its sync, or the
 * kernel may treat unsynced bytes as clean after a failed sync. On a full copy-on-write file system, where
 * acknowledged records are safe, a failed write is ignored. */
static int rewrite(const struct cursor_file *f)
{
    char unit[UNIT];
    for (size_t i = 0; i < f->n_slots; i++) {
        const struct slot *s = &f->slots[i];
        if (s->sequence == 0)
            continue;
        encode(&s->record, s->sequence, i, unit);
        if (io_write_all(f->fd, unit, UNIT, (off_t)(place_of(i, s->sequence) * UNIT)) != 0 &&
            !errno_is_full(errno))
            return -1;
    }
    return io->fsync(f->fd) == 0 ? io_sync_parent(f->path) : -1;
}

/* Opens or creates the file and reads all slots. */
static enum cursor_file_result load(struct cursor_file *f, size_t slots, struct error *error)
{
    struct stat st;
    char unit[UNIT] = {0};
    f->fd = io->open(f->path, O_RDWR | O_CLOEXEC, 0);
    bool found = f->fd >= 0;
    if ((!found && (errno != ENOENT || make(f, slots) != 0)) || io->pread(f->fd, unit, UNIT, 0) < 0 ||
        fstat(f->fd, &st) != 0)
        return error_errno(error, CURSOR_FILE_IO, f->path);
    bool is_ours = memcmp(unit, magic, sizeof magic) == 0;
    if (is_ours && get_le32(unit + sizeof magic) != VERSION)
        return error_set(error, CURSOR_FILE_VERSION, "%s: unknown format version", f->path);
    if (!is_ours || get_le64(unit + CHECKSUM_AT) != checksum(unit, 0))
        return error_set(error, CURSOR_FILE_DAMAGED,
            "%s: not a cursor file; delete the file to start without cursors", f->path);
    size_t there = ((size_t)st.st_size / UNIT - 1) / 2;
    if (there > CURSOR_FILE_SLOTS_MAX)
        return error_set(error, CURSOR_FILE_DAMAGED,
            "%s: too many slots; delete the file to start without cursors", f->path);
    if (there < slots && extend(f->fd, (1 + 2 * there) * UNIT, slots) != 0)
        return error_errno(error, CURSOR_FILE_IO, f->path);
    f->n_slots = there < slots ? slots : there;
    f->slots = mem_zalloc(f->n_slots * sizeof *f->slots);
    for (size_t i = 0; i < f->n_slots; i++) {
        enum cursor_file_result r = read_slot(f, i, error);
        if (r != CURSOR_FILE_OK)
            return r;
    }
    if (found && rewrite(f) != 0)
        return error_errno(error, CURSOR_FILE_IO, f->path);
    return CURSOR_FILE_OK;
}

/* The work thread runs write_batch. */
static void write_batch(void *ctx, void *job)
{
    struct cursor_file *f = ctx;
    (void)job;
    f->error = 0;
    for (size_t i = 0; f->error == 0 && i < f->n_batch; i++)
        if (io_write_all(f->fd, f->batch[i].unit, UNIT, f->batch[i].at) != 0)
            f->error = errno;
    /* After a failed sync the state of the disk is unknown, even if the error is ENOSPC. */
    if (f->error == 0 && io->fdatasync(f->fd) != 0)
        f->error = EIO;
}

static void free_file(struct cursor_file *f)
{
    if (f->fd >= 0)
        io->close(f->fd);
    free(f->slots);
    free(f->batch);
    free(f->path);
    free(f);
}

enum cursor_file_result cursor_file_open(const char *path, size_t slots, void (*notify)(void *arg),
    void *notify_arg, struct cursor_file **out, struct error *error)
{
    assert(slots > 0 && slots <= CURSOR_FILE_SLOTS_MAX);
    struct cursor_file *f = mem_zalloc(sizeof *f);
    f->path = mem_strdup(path);
    f->waiting_end = &f->waiting;
    f->notify = notify;
    f->notify_arg = notify_arg;
    enum cursor_file_result r = load(f, slots, error);
    if (r != CURSOR_FILE_OK) {
        free_file(f);
        return r;
    }
    f->batch = mem_zalloc(f->n_slots * sizeof *f->batch);
    f->thread = work_thread_new(&(struct work_thread_config){
        .run = write_batch, .ctx = f, .notify = notify, .notify_arg = notify_arg});
    if (!f->thread) {
        fprintf(stderr, "millrace: cannot start a thread\n");
        abort();
    }
    *out = f;
    return CURSOR_FILE_OK;
}

size_t cursor_file_slots(const struct cursor_file *f)
{
    return f->n_slots;
}

const struct cursor_record *cursor_file_at(const struct cursor_file *f, size_t slot)
{
    assert(slot < f->n_slots);
    return &f->slots[slot].record;
}

const char *cursor_file_failure(const struct cursor_file *f)
{
    return f->failure[0] ? f->failure : NULL;
}

/* Empties the list before the first callback, because a callback may call cursor_file_put. */
static void call_back(struct cursor_put **list, bool stored)
{
    struct cursor_put *put = *list, *next;
    *list = NULL;
    for (; put; put = next) {
        next = put->next;
        put->done(put, stored);
    }
}

/* Passes the last put of each slot to the thread. */
static void begin_next(struct cursor_file *f)
{
    if (f->under_way || !f->waiting)
        return;
    f->written = f->waiting;
    f->waiting = NULL;
    f->waiting_end = &f->waiting;
    if (f->failure[0]) {
        call_back(&f->written, false);
        return;
    }
    f->n_batch = 0;
    for (size_t i = 0; f->n_dirty && i < f->n_slots; i++) {
        struct slot *s = &f->slots[i];
        if (!s->dirty)
            continue;
        struct write *w = &f->batch[f->n_batch++];
        w->slot = i;
        w->at = (off_t)(place_of(i, s->sequence + 1) * UNIT);
        encode(&s->record, s->sequence + 1, i, w->unit);
        s->dirty = false;
        f->n_dirty--;
    }
    f->under_way = true;
    work_thread_start(f->thread, f);
}

void cursor_file_put(
    struct cursor_file *f, size_t slot, const struct cursor_record *record, struct cursor_put *put)
{
    assert(slot < f->n_slots);
    f->slots[slot].record = *record;
    f->n_dirty += !f->slots[slot].dirty;
    f->slots[slot].dirty = true;
    put->next = NULL;
    *f->waiting_end = put;
    f->waiting_end = &put->next;
    if (f->failure[0])
        f->notify(f->notify_arg); /* the callback must run in cursor_file_poll */
    else
        begin_next(f);
}

static void take_batch(struct cursor_file *f, bool finished)
{
    if (finished) {
        bool stored = f->error == 0;
        f->under_way = false;
        for (size_t i = 0; stored && i < f->n_batch; i++)
            f->slots[f->batch[i].slot].sequence++;
        if (!stored && !errno_is_full(f->error))
            snprintf(f->failure, sizeof f->failure, "%s: %s", f->path, strerror(f->error));
        call_back(&f->written, stored);
    }
    begin_next(f);
}

void cursor_file_poll(struct cursor_file *f)
{
    take_batch(f, work_thread_done(f->thread) != NULL);
}

void cursor_file_close(struct cursor_file **p)
{
    struct cursor_file *f = *p;
    if (!f)
        return;
    *p = NULL;
    while (f->under_way || f->waiting)
        take_batch(f, work_thread_wait(f->thread) != NULL);
    work_thread_free(&f->thread);
    free_file(f);
}
